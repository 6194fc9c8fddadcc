// SPDX-License-Identifier: Apache-2.0
// ffs: weighted rounds under an overhead constraint (FLEP, section 5.2.2).
#include "tests/support/rounds.h"
#include "tests/unit/policies/kernel_driver.h"

namespace sluice::policy {
namespace {

Config costs(uint64_t handover_ns, double max_overhead) {
  Config c;
  c.machine.handover_ns = handover_ns;
  c.max_overhead = max_overhead;
  return c;
}

TEST(Ffs, EpochsFollowWeightsAndTheOverheadConstraint) {
  // Two kernels that cost 300 us each to preempt and 10 % allowed: a round of 6 ms, 4 + 2.
  KernelDriver d("ffs", costs(300 * kUs, 0.1));
  d.add(0, 0, 200), d.add(1, 0, 100);
  const LaunchId a = d.launch(0, 1000 * kMs), b = d.launch(1, 1000 * kMs);
  d.pass(12 * kMs);
  std::vector<std::pair<LaunchId, uint64_t>> turns;
  for (int i = 0; i < 12'000; ++i) {
    if (turns.empty() || turns.back().first != d.on()) turns.push_back({d.on(), 0});
    turns.back().second += 10;
    d.pass(10 * kUs);
  }
  ASSERT_GT(turns.size(), 10u);
  for (size_t i = 1; i + 1 < turns.size(); ++i)
    EXPECT_NEAR(static_cast<double>(turns[i].second), turns[i].first == a ? 4000 : 2000, 30) << i;
  EXPECT_NE(turns[1].first, turns[2].first);
  EXPECT_FALSE(d.ended(b));
}

TEST(Ffs, HalfTheOverheadIsTwiceTheEpoch) {
  uint32_t evictions[2];
  int i = 0;
  for (const double overhead : {0.1, 0.05}) {
    KernelDriver d("ffs", costs(300 * kUs, overhead));
    d.add(0), d.add(1);
    d.launch(0, 1000 * kMs), d.launch(1, 1000 * kMs);
    d.pass(600 * kMs);
    evictions[i++] = d.evictions;
  }
  EXPECT_NEAR(evictions[0], 200, 3);
  EXPECT_NEAR(evictions[1], 100, 3);
}

TEST(Ffs, ASlowLeaverPaysForItsOverrun) {
  KernelDriver d("ffs", costs(300 * kUs, 0.1));
  d.leave_ns = 2 * kMs;
  d.add(0), d.add(1);
  const LaunchId a = d.launch(0, 10'000 * kMs), b = d.launch(1, 10'000 * kMs);
  d.pass(1000 * kMs);
  const double used_a = 1e10 - static_cast<double>(d.kernels[a].left_sm_ns);
  const double used_b = 1e10 - static_cast<double>(d.kernels[b].left_sm_ns);
  EXPECT_NEAR(used_a / used_b, 1, 0.02);
}

TEST(Ffs, WhoPausesTakesTheRestOfItsEpochLaterInTheRound) {
  KernelDriver d("ffs", costs(300 * kUs, 0.1));
  d.add(0, 0, 200), d.add(1, 0, 100), d.add(2, 0, 100);
  d.launch(0, kMs);                            // alone in the round yet: an epoch of 3 ms
  const LaunchId b = d.launch(1, 1000 * kMs);  // 2 ms of 6
  const LaunchId c = d.launch(2, 1000 * kMs);  // 2.25 ms of 9
  d.pass(kMs);
  EXPECT_EQ(d.on(), b) << "it pauses";
  d.pass(20 * kUs);
  const LaunchId a = d.launch(0, 1000 * kMs);
  d.pass(1990 * kUs);
  EXPECT_EQ(d.on(), c);
  d.pass(2250 * kUs);
  EXPECT_EQ(d.on(), a);
  d.pass(1980 * kUs);
  EXPECT_EQ(d.on(), a) << "the 2 ms that it had left";
  d.pass(20 * kUs);
  EXPECT_EQ(d.on(), b);
}

TEST(Ffs, TimeAloneIsNotOwed) {
  KernelDriver d("ffs", costs(300 * kUs, 0.1));
  d.add(0), d.add(1);
  const LaunchId a = d.launch(0, 10'000 * kMs);
  d.pass(5000 * kMs);
  const uint64_t before = d.kernels[a].left_sm_ns;
  const LaunchId b = d.launch(1, 10'000 * kMs);
  d.pass(600 * kMs);
  EXPECT_NEAR(static_cast<double>(before - d.kernels[a].left_sm_ns), 300e6, 10e6);
  EXPECT_NEAR(10'000e6 - static_cast<double>(d.kernels[b].left_sm_ns), 300e6, 10e6);
}

TEST(Ffs, OverrunsOfManyEpochsAreWorkedOffAndNoLonger) {
  KernelDriver d("ffs", costs(10 * kUs, 0.1));
  for (VgpuId v = 0; v < 3; ++v) d.add(v);
  const LaunchId a = d.launch(0, 10'000 * kMs), b = d.launch(1, 10'000 * kMs);
  const LaunchId c = d.launch(2, 10'000 * kMs);
  d.leave_ns = 20 * kMs;  // a hundred epochs, of the first two
  d.pass(41 * kMs);
  d.leave_ns = 0;
  d.pass(1000 * kMs);
  for (const LaunchId id : {a, b, c})
    EXPECT_NEAR(10'000 - static_cast<double>(d.kernels[id].left_sm_ns) / 1e6, 1041.0 / 3, 3) << id;
}

TEST(Ffs, AMeasuredCostLengthensTheRound) {
  KernelDriver d("ffs", costs(0, 0.1));
  d.add(0), d.add(1);
  const uint64_t before = d.policy->quantum_ns();
  d.launch(0, 1000 * kMs), d.launch(1, 1000 * kMs);
  for (int i = 0; i < 200; ++i) {
    const uint32_t asked = d.evictions;
    while (d.evictions == asked) d.pass(50 * kUs);
    d.pass(10 * kUs);
    d.policy->on_handover(d.now, 500 * kUs);
  }
  EXPECT_LE(before, 100 * kUs);
  EXPECT_NEAR(static_cast<double>(d.policy->quantum_ns()), 5e6, 0.3e6);
}

TEST(Ffs, KeepsTheContractOnRandomKernels) {
  for (uint64_t seed = 1; seed <= rounds<uint64_t>(20); ++seed)
    soak("ffs", seed, costs(100 * kUs, 0.1));
}
}  // namespace
}  // namespace sluice::policy
