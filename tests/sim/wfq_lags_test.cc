// SPDX-License-Identifier: Apache-2.0
// How far wfq and wfq-srt are behind a fluid GPU that serves the same arrivals by weight
// (policies/sim/fluid.h), on populations that nobody looked at while the rules were made.
//
// Theory: no scheduler that serves one at a time is better than a longest turn and a hand-over for
// everybody, and weighted fair queuing is that good (Parekh and Gallager 1993). SLUICE_HELD_SEEDS=N
// runs N seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "policies/sim/metrics.h"
#include "policies/wfq/turn_length.h"
#include "tests/support/rounds.h"

namespace sluice::policy::sim {
namespace {

constexpr uint64_t kLagSecond = 1'000'000'000;

uint64_t lag_seeds() {
  const char* many = std::getenv("SLUICE_HELD_SEEDS");
  return many ? std::max<uint64_t>(std::strtoull(many, nullptr, 10), 1) : 1;
}
// Also in the middle of a second.
Workload population(const char* row, uint32_t run, uint64_t seed, uint64_t handover_ns) {
  Workload w = find_workload(row)->make(run, seed);
  w.horizon_ns = std::min(w.horizon_ns, 3 * kLagSecond);
  w.share_window_ns = kLagSecond / 10;
  w.gpu.signal_ns = 0;
  w.config.machine.handover_ns = handover_ns;
  for (Kernel& k : w.kernels) k.drain_ns = handover_ns - w.gpu.start_ns;
  return w;
}
// A shortfall adds half a turn to the next; a hand-over before it and one after.
double longest_turn_ms(const Workload& w) {
  const double turn_ns = static_cast<double>(TurnLength(engine_config(w)).of(1));
  return (1.5 * turn_ns + 2.0 * static_cast<double>(w.config.machine.handover_ns)) / 1e6;
}
// Of those that always have work, so at any time at most.
double largest_part(const Workload& w, uint32_t v) {
  double weights = w.vgpus[v].compared ? 0 : w.vgpus[v].share.weight;
  for (const SimulatedVgpu& g : w.vgpus)
    if (g.compared) weights += g.share.weight;
  return w.vgpus[v].share.weight / weights;
}
template <class Check>
void on_populations(const char* policy, std::initializer_list<const char*> rows,
                    uint64_t handover_ns, Check&& check) {
  for (uint64_t seed = 9000; seed < 9000 + lag_seeds(); ++seed)
    for (const char* row : rows)
      for (uint32_t i = 0; i < find_workload(row)->runs; ++i) {
        if (!in_sample(i, 2)) continue;
        const Workload w = population(row, i, seed, handover_ns);
        const auto report = evaluate(w, policy, seed, 1, policy);
        ASSERT_TRUE(report) << row;
        for (uint32_t v = 0; v < w.vgpus.size(); ++v) {
          SCOPED_TRACE(std::string(policy) + " " + row + std::to_string(i) + " seed " +
                       std::to_string(seed) + " " + w.vgpus[v].name);
          check(w, v, report->runs[0].vgpus[v]);
        }
      }
}

// Many light ones that began at once led a heavy one by 65 ms with hand-overs of 300 us.
TEST(WfqLags, NobodyIsBehindAFluidGpuByMoreThanALongestTurn) {
  for (const uint64_t handover_ns : {15'000u, 90'000u, 300'000u})
    on_populations("wfq", {"held-equal", "held-weights"}, handover_ns,
                   [](const Workload& w, uint32_t, const VgpuMetrics& m) {
                     EXPECT_LE(m.behind_ms, longest_turn_ms(w));
                   });
}

// 2 to 8 of class low, saturating or in bursts, beside each other and up to two others: bursts lead
// by a latency target, and none of them starves another. (One that waits for each launch was 332 ms
// behind within 3 s: its moments without work ended what others owed.)
TEST(WfqLags, ClassLowBesideClassLowLeadsByALatencyTarget) {
  for (const uint64_t handover_ns : {15'000u, 90'000u, 300'000u})
    on_populations("wfq", {"held-low"}, handover_ns,
                   [](const Workload& w, uint32_t, const VgpuMetrics& m) {
                     const double target_ms = static_cast<double>(w.config.latency_target_ns) / 1e6;
                     EXPECT_LE(m.behind_ms, target_ms + longest_turn_ms(w));
                   });
}

// Short work leads, but by a bound for everybody that has work: its share of kPatience times
// kTargets latency targets. (It was 90 ms for a heavy one.)
TEST(WfqLags, ShortestFirstLeavesEverybodyAStatedMinimum) {
  constexpr double kPatientTargets = 16;
  on_populations("wfq-srt", {"held-equal", "held-weights", "tenant-crowd", "tenant-naps"}, 15'000,
                 [](const Workload& w, uint32_t v, const VgpuMetrics& m) {
                   const double target_ms = static_cast<double>(w.config.latency_target_ns) / 1e6;
                   const double lead_ms = kPatientTargets * target_ms * largest_part(w, v);
                   EXPECT_LE(m.behind_ms, lead_ms + longest_turn_ms(w));
                 });
}

}  // namespace
}  // namespace sluice::policy::sim
