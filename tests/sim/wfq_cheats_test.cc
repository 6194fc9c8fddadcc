// SPDX-License-Identifier: Apache-2.0
// What lying, flooding and pausing gain under wfq: at most 1 % more GPU time than an honest vGPU of
// the same weight has in the same place, and nobody else loses more than 1 % of its own.
//
// Row `tenant-cheat`: vGPU 0 cheats, in the way of run % kKinds; kind 0 is the honest one. The
// others saturate. In space, where a simulated second takes longest, the gate runs 2 s of each.
#include <gtest/gtest.h>

#include <algorithm>

#include "policies/sim/metrics.h"
#include "tests/support/rounds.h"

namespace sluice::policy::sim {
namespace {

constexpr uint32_t kKinds = 9, kSizes = 3;
enum class Gpu { kWhole, kSpace, kSlices };

struct Shares {
  double cheat_ns = 0;        // GPU time of vGPU 0
  double least_other_ns = 0;  // of the others, the least
  double end_ns = 0;
};
Shares run_cheat(Gpu form, const char* policy, uint32_t run) {
  Workload w = find_workload("tenant-cheat")->make(run, 1);
  w.gpu.spatial = form == Gpu::kSpace;
  if (form == Gpu::kSpace && !runs_all())
    w.horizon_ns = std::min<uint64_t>(w.horizon_ns, 2'000'000'000);
  if (form == Gpu::kSlices) {
    w.gpu.preemptor = PreemptorKind::kProportional;
    w.gpu.switch_ns = 200'000;
    w.config = Config{};
  }
  const auto p = find_policy(policy)->make(engine_config(w));
  const Outcome r = simulate(w, *p, {.seed = 1});
  EXPECT_EQ(r.violations, 0u) << r.violation;
  EXPECT_FALSE(r.stuck || r.cut);
  Shares s;
  const auto held_ns = [&](size_t v) {
    return static_cast<double>(r.vgpus[v].sm_ns) / w.gpu.sm_count;
  };
  s.cheat_ns = held_ns(0);
  s.least_other_ns = held_ns(1);
  for (size_t v = 1; v < w.vgpus.size(); ++v)
    s.least_other_ns = std::min(s.least_other_ns, held_ns(v));
  s.end_ns = static_cast<double>(r.end_ns);
  return s;
}

void expect_no_gain(Gpu form, const char* policy, double gain) {
  for (uint32_t size = 0; size < kSizes; ++size) {
    const Shares honest = run_cheat(form, policy, size * kKinds);
    EXPECT_GT(honest.cheat_ns, 0);
    for (uint32_t kind = 1; kind < kKinds; ++kind) {
      if (!in_sample(kind + size, 2)) continue;
      const Shares s = run_cheat(form, policy, size * kKinds + kind);
      EXPECT_LE(s.cheat_ns, (1 + gain) * honest.cheat_ns)
          << policy << ", kind " << kind << ", size " << size;
      EXPECT_GE(s.least_other_ns, (1 - gain) * honest.least_other_ns)
          << policy << ", kind " << kind << ", size " << size;
    }
  }
}

TEST(WfqCheats, NothingIsGainedOnTheWholeGpu) {
  expect_no_gain(Gpu::kWhole, "wfq", 0.01);
  // Its short work leads by 10 ms with 16 vGPUs, which is 1.6 % of what each has in 10 s.
  expect_no_gain(Gpu::kWhole, "wfq-srt", 0.02);
}
TEST(WfqCheats, NothingIsGainedInSpace) { expect_no_gain(Gpu::kSpace, "wfq", 0.01); }
TEST(WfqCheats, NothingIsGainedOnSlices) { expect_no_gain(Gpu::kSlices, "wfq", 0.01); }

// Of class low a vGPU takes a latency target from others at most, however it pauses: what it used
// beyond its credit beside others is not forgiven. (With pauses of 6 us it had twice its share for
// seconds.)
TEST(WfqCheats, PausesOfClassLowTakeALatencyTargetAtMost) {
  for (const uint64_t pause_ns : {1'000u, 6'000u, 200'000u, 1'000'000u})
    for (const uint32_t weight : {3u, 30u, 300u}) {
      Workload w = find_workload("tenant-cheat")->make(0, 1);
      Program pauses = w.programs[0];
      pauses.arrival = ArrivalKind::kClosed;
      pauses.think_ns = pause_ns;
      pauses.prediction_factor = 10;
      w.kernels.push_back(w.kernels[0]);
      w.kernels[1].alone_ns = 600'000;
      pauses.steps[0].kernel = 1;
      w.programs[0] = pauses;
      w.vgpus[0].share = {.weight = weight, .latency = LatencyClass::kLow};
      w.vgpus.push_back({.name = "heavy", .share = {.weight = 157}, .changes = {}});
      w.programs.push_back(w.programs[1]);
      w.programs.back().vgpu = 2;
      w.horizon_ns = 5'000'000'000;
      const auto p = find_policy("wfq")->make(engine_config(w));
      const Outcome r = simulate(w, *p, {.seed = 1});
      const auto held_ns = [&](size_t v) {
        return static_cast<double>(r.vgpus[v].sm_ns) / w.gpu.sm_count;
      };
      for (size_t v = 1; v < w.vgpus.size(); ++v) {
        const double lacks_ns = held_ns(0) / weight * w.vgpus[v].share.weight - held_ns(v);
        EXPECT_LE(lacks_ns, static_cast<double>(w.config.latency_target_ns))
            << "pauses of " << pause_ns << " ns, weight " << weight << " beside "
            << w.vgpus[v].share.weight;
      }
    }
}

}  // namespace
}  // namespace sluice::policy::sim
