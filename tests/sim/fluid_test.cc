// SPDX-License-Identifier: Apache-2.0
// The fluid reference: cases that can be computed by hand. A GPU of 4 SMs; times in ms.
#include "policies/sim/fluid.h"

#include <gtest/gtest.h>

#include "policies/sim/metrics.h"

namespace sluice::policy::sim {
namespace {

constexpr uint64_t kOneMs = 1'000'000;
constexpr double kSms = 4;

struct FluidCase {
  Workload w;
  std::vector<Offered> offered;

  FluidCase() { w.gpu.sm_count = static_cast<uint32_t>(kSms); }
  // One vGPU with one program of one kernel; by default a closed loop without pauses.
  Program& add(uint32_t weight, uint64_t work_ms, std::vector<uint64_t> arrivals_ms) {
    const auto i = static_cast<uint32_t>(w.vgpus.size());
    w.vgpus.push_back({.name = "v", .share = {.weight = weight}, .changes = {}});
    w.kernels.push_back({.name = "k", .alone_ns = work_ms * kOneMs});
    Program p;
    p.vgpu = i;
    p.steps = {{.kernel = i}};
    p.runs = 0;
    w.programs.push_back(p);
    for (uint64_t& at : arrivals_ms) at *= kOneMs;
    offered.push_back({.arrivals_ns = std::move(arrivals_ms), .thinks_ns = {}, .works = {}});
    return w.programs.back();
  }
  // What there is so far runs once.
  void programs_once() {
    for (Program& p : w.programs) p.runs = 1;
  }
  // What each was served, in ms of the whole GPU.
  std::vector<double> served(uint64_t end_ms, Loops loops = Loops::kOwnPace) const {
    const Fluid f = fluid_reference(w, offered, work, loops, capacity, end_ms * kOneMs, 0, 100'000);
    EXPECT_TRUE(f.complete);
    std::vector<double> ms;
    for (const double x : f.served) ms.push_back(x / kSms / kOneMs);
    return ms;
  }
  double capacity = 1;
  std::function<double(uint32_t, uint32_t, uint64_t)> work = [this](uint32_t, uint32_t k,
                                                                    uint64_t) {
    const Kernel& kernel = w.kernels[k];
    return static_cast<double>(kernel.alone_ns) * (kernel.width_sms ? kernel.width_sms : kSms);
  };
};

void expect_ms(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
}

TEST(Fluid, SaturatingShareByWeight) {
  FluidCase c;
  c.add(3, 1, {0});
  c.add(1, 1, {0});
  expect_ms(c.served(100), {75, 25});
}

// A light one has all that it asks for; what is lost is missed by who always has work.
TEST(Fluid, LostCapacityIsNobodysShare) {
  FluidCase c;
  c.add(1, 10, {0});
  c.programs_once();
  c.add(1, 1, {0});
  c.capacity = 0.8;
  expect_ms(c.served(100), {10, 70});
}

// 10 ms of work at half the GPU end after 20 ms; then the other has it alone.
TEST(Fluid, OneIsOwedNoMoreThanItAsksFor) {
  FluidCase c;
  c.add(1, 1, {0});
  c.add(1, 10, {0}).arrival = ArrivalKind::kPeriodic;
  expect_ms(c.served(20), {10, 10});
  expect_ms(c.served(100), {90, 10});
}

// Two runs of 4 ms, the second before the first is over: backlogged from 10 to 26.
TEST(Fluid, OpenRunsQueue) {
  FluidCase c;
  c.add(1, 1, {0});
  c.add(1, 4, {10, 14}).arrival = ArrivalKind::kPeriodic;
  expect_ms(c.served(20), {15, 5});
  expect_ms(c.served(50), {42, 8});
}

// 2 ms of work, 6 ms of pause, half of the GPU while it works: 2 of each 10 ms. It came to one run
// in the simulation: it was starved, and is owed what it would have used.
TEST(Fluid, StarvedLoopIsOwedItsOwnPace) {
  FluidCase c;
  c.add(1, 1, {0});
  c.add(1, 2, {0}).think_ns = 6 * kOneMs;
  expect_ms(c.served(100), {80, 20});
  // As they came, one run of each was all.
  expect_ms(c.served(100, Loops::kAsTheyCame), {1, 2});
}

// The same, served faster in the simulation: each 8 ms, a run. What it asked for more counts.
TEST(Fluid, LoopThatWasServedFasterIsOwedWhatItAskedFor) {
  FluidCase c;
  c.add(1, 1, {0});
  c.add(1, 2, {0, 8, 16, 24, 32}).think_ns = 6 * kOneMs;
  expect_ms(c.served(40), {30, 10});
}

// In space, 1 SM of 4 is all that the first can use; the others share 3 as 2 to 1.
TEST(Fluid, WidthBoundsInSpaceOnly) {
  FluidCase c;
  c.w.gpu.spatial = true;
  c.add(1, 1, {0});
  c.w.kernels[0].width_sms = 1;
  c.add(2, 1, {0});
  c.add(1, 1, {0});
  expect_ms(c.served(80), {20, 40, 20});
  c.w.vgpus[0].share.weight = 97;
  expect_ms(c.served(60), {15, 30, 15});
  c.w.gpu.spatial = false;
  expect_ms(c.served(100), {97, 2, 1});
}

TEST(Fluid, NewWeightCountsAtOnce) {
  FluidCase c;
  c.add(1, 1, {0});
  c.add(1, 1, {0});
  c.w.vgpus[0].changes = {{.at_ns = 50 * kOneMs, .share = {.weight = 4}}};
  expect_ms(c.served(100), {65, 35});
}

// The host takes 1 ms before each of two launches and waits for the first: 2 of each 4 ms.
TEST(Fluid, HostTimeIsNotBacklog) {
  FluidCase c;
  Program& p = c.add(1, 1, {0});
  p.steps = {{.kernel = 0, .launches = 2, .host_ns = kOneMs, .sync = true}};
  expect_ms(c.served(40), {20});
}

TEST(Fluid, TooManyStepsAreNotHalfAnAnswer) {
  FluidCase c;
  c.add(1, 1, {0});
  const Fluid f = fluid_reference(c.w, c.offered, c.work, Loops::kOwnPace, 1, 100 * kOneMs, 0, 10);
  EXPECT_FALSE(f.complete);
  EXPECT_TRUE(f.served.empty());
}

// Nothing known is no 1, which would read as if everybody had got all.
TEST(Fluid, WithoutReferenceNothingIsClaimed) {
  FluidCase c;
  c.add(1, 1, {}).runs = 1;
  const auto policy = find_policy("wfq")->make(engine_config(c.w));
  const Outcome r = simulate(c.w, *policy, {.seed = 1});
  const Metrics m = measure(c.w, r, {1});
  EXPECT_FALSE(m.fluid.got_of_owed_min >= 0);
  EXPECT_FALSE(m.fluid.got_of_owed_window_min >= 0);
  EXPECT_FALSE(m.vgpus[0].got_of_owed >= 0);
}

// The measure sees starvation: priorities are not considered, so the lower one is owed its half.
TEST(Fluid, StarvedVgpuReadsLow) {
  FluidCase c;
  c.add(1, 1, {});
  c.add(1, 1, {});
  for (Program& p : c.w.programs) {
    p.arrival = ArrivalKind::kBacklog;
    p.queue_depth = 4;
  }
  c.w.vgpus[0].share.priority = 1;
  c.w.horizon_ns = 3000 * kOneMs;
  const auto starved = evaluate(c.w, "ppq", 1, 1);
  ASSERT_TRUE(starved);
  EXPECT_LT(starved->mean.fluid.got_of_owed_min, 0.01);
  EXPECT_LT(starved->mean.fluid.got_of_owed_window_min, 0.01);
  c.w.vgpus[0].share.priority = 0;
  const auto fair = evaluate(c.w, "wfq", 1, 1);
  ASSERT_TRUE(fair);
  EXPECT_GT(fair->mean.fluid.got_of_owed_min, 0.97);
  EXPECT_GT(fair->mean.fluid.got_of_owed_window_min, 0.97);
}

}  // namespace
}  // namespace sluice::policy::sim
