// SPDX-License-Identifier: Apache-2.0
// hpf: priorities, shortest remaining time, spatial preemption (FLEP, section 5.2.1).
#include "tests/support/rounds.h"
#include "tests/unit/policies/kernel_driver.h"

namespace sluice::policy {
namespace {

Config sms15(bool spatial) {
  Config c;
  c.machine.sm_count = 15;
  c.machine.spatial = spatial;
  c.machine.handover_ns = 200 * kUs;
  return c;
}

TEST(Hpf, AHigherPriorityPreemptsHoweverLongItIs) {
  KernelDriver d("hpf", sms15(false));
  d.add(0, 0), d.add(1, 1);
  const LaunchId low = d.launch(0, kMs);
  d.pass(100 * kUs);
  const LaunchId high = d.launch(1, 100 * kMs);
  EXPECT_EQ(d.on(), high);
  d.pass(200 * kMs);
  EXPECT_GT(d.end_ns(low), d.end_ns(high));
}

TEST(Hpf, AmongEqualsTheShortestRemainingTimeRuns) {
  KernelDriver d("hpf", sms15(false));
  d.add(0), d.add(1), d.add(2);
  const LaunchId a = d.launch(0, 20 * kMs), b = d.launch(1, 5 * kMs), c = d.launch(2, kMs);
  d.pass(30 * kMs);
  EXPECT_LT(d.end_ns(c), d.end_ns(b));
  EXPECT_LT(d.end_ns(b), d.end_ns(a));
}

TEST(Hpf, ThePreemptionsCostCounts) {
  KernelDriver d("hpf", sms15(false));
  d.add(0), d.add(1), d.add(2);
  const LaunchId a = d.launch(0, 5 * kMs);
  d.pass(4 * kMs);  // 1 ms remains
  const LaunchId b = d.launch(1, 850 * kUs);
  EXPECT_EQ(d.on(), a) << "it would gain 150 us and cost 200";
  const LaunchId c = d.launch(2, 750 * kUs);
  EXPECT_EQ(d.on(), c);
  d.pass(10 * kMs);
  EXPECT_LT(d.end_ns(b), d.end_ns(a));
}

TEST(Hpf, AWrongPredictionDoesNotKeepTheGpu) {
  KernelDriver d("hpf", sms15(false));
  d.add(0), d.add(1);
  const LaunchId liar = d.launch(0, 100 * kMs, 0, /*prediction=*/0.001);
  d.pass(50 * kMs);
  const LaunchId honest = d.launch(1, 5 * kMs);
  EXPECT_EQ(d.on(), honest);
  d.pass(200 * kMs);
  EXPECT_TRUE(d.ended(liar));
}

// As sluiced tells it: all that a vGPU has queued together, and again as it changes.
TEST(Hpf, VgpusAnnouncedAsAWholeAreOrderedByWhatRemains) {
  KernelDriver d("hpf", sms15(false));
  d.tells_launches = false;
  const auto tell = [&](VgpuId v, uint64_t ns, uint64_t preempt_ns) {
    d.tell_as_a_whole(v, ns, preempt_ns);
  };
  d.add(0), d.add(1), d.add(2);
  tell(0, 20 * kMs, kMs);
  const LaunchId a = d.launch(0, 20 * kMs);
  tell(1, 19'500 * kUs, 0);
  const LaunchId b = d.launch(1, 5 * kMs);
  EXPECT_EQ(d.on(), a) << "it would gain less than evicting 0 costs";
  tell(1, 5 * kMs, 0);
  EXPECT_EQ(d.on(), b);
  tell(2, 2 * kMs, 0);
  const LaunchId c = d.launch(2, 2 * kMs);
  EXPECT_EQ(d.on(), c);
  d.pass(40 * kMs);
  EXPECT_LT(d.end_ns(c), d.end_ns(b));
  EXPECT_LT(d.end_ns(b), d.end_ns(a));
  // What it announced of that work says nothing of the next.
  const LaunchId next = d.launch(0, 20 * kMs);
  tell(1, 15 * kMs, 0);
  const LaunchId known = d.launch(1, 15 * kMs);
  EXPECT_EQ(d.on(), known);
  d.pass(100 * kMs);
  EXPECT_LT(d.end_ns(known), d.end_ns(next));
}

TEST(Hpf, ASmallKernelTakesTheSmsItNeedsAndGivesThemBack) {
  KernelDriver d("hpf", sms15(true));
  d.add(0, 0), d.add(1, 1);
  const LaunchId low = d.launch(0, 10 * kMs);
  d.pass(kMs);
  const LaunchId high = d.launch(1, kMs, /*wanted=*/5);
  EXPECT_EQ(d.held(high), 5u);
  EXPECT_EQ(d.held(low), 10u);
  d.pass(kMs);
  EXPECT_TRUE(d.ended(high));
  EXPECT_EQ(d.held(low), 15u);
  d.pass(20 * kMs);
  EXPECT_EQ(d.end_ns(low) - 1000 * kMs, 10 * kMs + kMs / 3 + 1);
  EXPECT_EQ(d.evictions, 1u);
}

TEST(Hpf, WithoutSpatialPreemptionItTakesThemAll) {
  KernelDriver d("hpf", sms15(false));
  d.add(0, 0), d.add(1, 1);
  const LaunchId low = d.launch(0, 10 * kMs);
  const LaunchId high = d.launch(1, kMs, /*wanted=*/5);
  EXPECT_EQ(d.held(low), 0u);
  EXPECT_EQ(d.held(high), 15u);
}

TEST(Hpf, ALargeKernelOfAHigherPriorityTakesTheGpuFromBoth) {
  KernelDriver d("hpf", sms15(true));
  d.add(0, 0), d.add(1, 1), d.add(2, 2);
  d.launch(0, 10 * kMs);
  d.launch(1, 2 * kMs, /*wanted=*/5);
  const LaunchId top = d.launch(2, kMs);
  EXPECT_EQ(d.held(top), 15u);
  d.pass(40 * kMs);
  for (const auto& [id, k] : d.kernels) EXPECT_NE(k.ended_ns, 0u) << id;
}

TEST(Hpf, AGuestThatOutlivesItsHostGetsTheRest) {
  KernelDriver d("hpf", sms15(true));
  d.add(0, 0), d.add(1, 1), d.add(2, 0);
  const LaunchId low = d.launch(0, kMs);
  const LaunchId guest = d.launch(1, 10 * kMs, /*wanted=*/5);
  d.pass(3 * kMs);
  EXPECT_TRUE(d.ended(low));
  EXPECT_EQ(d.held(guest), 15u);
}

TEST(Hpf, PartsAreLeftInAnyOrder) {
  const auto policy = find_policy("hpf")->make(sms15(true));
  Actions out;
  for (VgpuId v = 0; v < 3; ++v) policy->on_vgpu_added(0, v, {.weight = 100, .priority = v}, out);
  const auto queued = [&](LaunchId id, VgpuId v, uint16_t wanted) {
    Launch l{.id = id, .vgpu = v};
    l.sms_wanted = wanted;
    l.predicted_sm_ns = 1'000'000'000;
    out.clear();
    policy->on_launch_queued(id, l, out);
  };
  const auto released = [&](VgpuId v, LaunchId id, SmRange sms) {
    out.clear();
    policy->on_released(100, v, id, sms, LeftReason::kEvicted, out);
  };
  queued(1, 0, 15);
  queued(2, 1, 2);
  released(0, 1, {0, 2});  // the guest runs on [0, 2)
  ASSERT_EQ(out.size(), 1u);
  out.clear();
  policy->on_launch_done(100, {.id = 2, .vgpu = 1}, out);
  released(1, 2, {0, 2});
  ASSERT_EQ(out.size(), 1u) << "its host gets them back, as a part of its own";
  EXPECT_EQ(out[0].sms, (SmRange{0, 2}));
  queued(3, 2, 5);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].sms, (SmRange{0, 5}));
  released(0, 1, {2, 5});
  EXPECT_TRUE(out.empty()) << "[0, 2) is still on its way";
  released(0, 1, {0, 2});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].vgpu, 2u);
  EXPECT_EQ(out[0].sms, (SmRange{0, 5}));
  // What the host still holds is [5, 15): a large kernel of the guest's vGPU takes all of it.
  out.clear();
  policy->on_launch_done(200, {.id = 3, .vgpu = 2}, out);
  queued(4, 2, 15);
  released(2, 3, {0, 5});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].kind, Action::Kind::kEvict);
  EXPECT_EQ(out[0].sms, (SmRange{5, 15}));
}

TEST(Hpf, KeepsTheContractOnRandomKernels) {
  for (uint64_t seed = 1; seed <= rounds<uint64_t>(40); ++seed) {
    soak("hpf", seed, sms15(true));
    soak("hpf", seed, sms15(false));
  }
}
}  // namespace
}  // namespace sluice::policy
