// SPDX-License-Identifier: Apache-2.0
// dprr: two queues, ageing, slices by priority (EffiSha, section 7).
#include "tests/support/rounds.h"
#include "tests/unit/policies/kernel_driver.h"

namespace sluice::policy {
namespace {

TEST(Dprr, ASliceIsHalfAMillisecondForEachPriorityAndOneMore) {
  KernelDriver d("dprr");
  d.add(0, 5), d.add(1, 1);
  const LaunchId a = d.launch(0, 50 * kMs), b = d.launch(1, 50 * kMs);
  d.pass(3 * kMs - 1);
  EXPECT_EQ(d.on(), a);
  d.pass(1);
  EXPECT_EQ(d.on(), b) << "(5 + 1) / 2 ms";
  // b waited for 3 ms, so it was chosen with priority 4.
  d.pass(2500 * kUs - 1);
  EXPECT_EQ(d.on(), b);
  d.pass(1);
  EXPECT_EQ(d.on(), a) << "the queues switched";
  // Its priority was reset and aged by nothing: it went into the inactive queue.
  d.pass(3 * kMs - 1);
  EXPECT_EQ(d.on(), a);
  d.pass(1);
  EXPECT_EQ(d.on(), b);
}

TEST(Dprr, WaitingAgesByOneEachMillisecondUpToTwenty) {
  KernelDriver d("dprr");
  d.add(0, 15), d.add(1, 0), d.add(2, 7), d.add(3, 30);
  d.launch(0, 100 * kMs);  // slice 8 ms
  const LaunchId old = d.launch(1, 100 * kMs);
  d.pass(7500 * kUs);
  const LaunchId young = d.launch(2, 100 * kMs);
  d.pass(500 * kUs);
  // The old one has priority 0 + 8, the young one 7 + 0.
  EXPECT_EQ(d.on(), old);
  d.pass(4500 * kUs);  // its slice, (8 + 1) / 2 ms
  EXPECT_EQ(d.on(), young);
  // The cap: a slice of (0 + 20 + 1) / 2 ms at most, however long the wait was.
  KernelDriver e("dprr");
  e.add(0, 31), e.add(1, 31), e.add(2, 31), e.add(3, 0);
  for (VgpuId v = 0; v < 3; ++v) e.launch(v, 100 * kMs);
  const LaunchId low = e.launch(3, 100 * kMs);
  // Before it came slices for priorities 31, 31 + 16 and 31 + 20 (it had waited for 40 ms).
  e.pass((16 + 24 + 26) * kMs);
  EXPECT_EQ(e.on(), low);
  e.pass(10500 * kUs - 1);
  EXPECT_EQ(e.on(), low);
  e.pass(1);
  EXPECT_NE(e.on(), low);
}

TEST(Dprr, AnArrivalWaitsForTheSlicesEnd) {
  KernelDriver d("dprr");
  d.add(0, 1), d.add(1, 31);
  const LaunchId low = d.launch(0, 10 * kMs);
  d.pass(100 * kUs);
  const LaunchId high = d.launch(1, kMs);
  EXPECT_EQ(d.on(), low);
  d.pass(900 * kUs);
  EXPECT_EQ(d.on(), high);
}

TEST(Dprr, EachGetsASliceInEachRound) {
  KernelDriver d("dprr");
  std::vector<LaunchId> all;
  for (VgpuId v = 0; v < 5; ++v) {
    d.add(v, 6 * v);
    all.push_back(d.launch(v, 1000 * kMs));
  }
  d.pass(500 * kMs);
  // Within any six turns everybody comes at least once (a round's last may be the next one's
  // first).
  for (size_t i = 0; i + 9 < d.starts.size(); ++i)
    for (const LaunchId id : all)
      EXPECT_NE(std::find(d.starts.begin() + static_cast<long>(i),
                          d.starts.begin() + static_cast<long>(i) + 9, id),
                d.starts.begin() + static_cast<long>(i) + 9);
}

TEST(Dprr, NewKernelsDoNotKeepTheInactiveQueueWaitingForEver) {
  KernelDriver d("dprr");
  d.add(0, 0), d.add(1, 31), d.add(2, 31);
  d.launch(1, kMs);
  const LaunchId low = d.launch(0, 30 * kMs);
  // Two high ones in turn, so that one of them always waits in the active queue.
  for (int i = 0; i < 2000 && !d.ended(low); ++i) {
    for (VgpuId v = 1; v <= 2; ++v)
      if (!d.busy(v)) d.launch(v, 5 * kMs);
    d.pass(kMs);
  }
  EXPECT_TRUE(d.ended(low));
}

TEST(Dprr, AloneItIsNotTimed) {
  KernelDriver d("dprr");
  d.add(0);
  d.launch(0, 100 * kMs);
  EXPECT_EQ(d.wake_ns, 0u);
  d.pass(200 * kMs);
  EXPECT_EQ(d.evictions, 0u);
}

TEST(Dprr, KeepsTheContractOnRandomKernels) {
  for (uint64_t seed = 1; seed <= rounds<uint64_t>(20); ++seed) soak("dprr", seed, {});
}
}  // namespace
}  // namespace sluice::policy
