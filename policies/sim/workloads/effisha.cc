// SPDX-License-Identifier: Apache-2.0
// The workloads of "EffiSha: A Software Framework for Enabling Efficient Preemptive Scheduling of
// GPU" (Chen et al.), section 8: eleven SHOC kernels, standalone times and three priority settings
// of Table 3, arrivals 3 ms apart in the table's order, on a K40m (15 SMs); and figure 9, 1,000
// launches of each with random priorities.
//
// Assumed here, because the paper does not say: the preemption latencies of figure 13 that the text
// does not name (0.08 ms on average, MD 0.4, four below 0.015) are equal, so that the average is
// right; half of a latency is useful work; the form costs 4 % on average (Triad and Stencil2D 8 %);
// launching costs nothing more than what the standalone times contain.
#include "policies/sim/workloads/rows.h"

namespace sluice::policy::sim {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000;
constexpr uint64_t kNamedShortUs = 12, kOtherUs = 72;

struct Benchmark {
  const char* name;
  uint64_t alone_us;
  uint32_t random, group, sjf;  // priorities
  uint64_t latency_us;
  double form_factor;
};
// Table 3, in its order; figures 10 and 13.
constexpr Benchmark kTable[] = {
    {"NeuralNet", 14'250, 2, 2, 1, kNamedShortUs, 1.031},
    {"Sort", 5'460, 17, 2, 4, kOtherUs, 1.031},
    {"Reduction", 2'060, 17, 2, 7, kOtherUs, 1.031},
    {"MD5Hash", 3'290, 22, 5, 6, kOtherUs, 1.031},
    {"MD", 13'800, 22, 5, 2, 400, 1.031},
    {"Scan", 1'410, 7, 5, 8, kOtherUs, 1.031},
    {"Triad", 1'220, 3, 8, 9, kNamedShortUs, 1.08},
    {"Stencil2D", 28'400, 20, 8, 0, kOtherUs, 1.08},
    {"FFT", 1'170, 24, 11, 10, kNamedShortUs, 1.031},
    {"Spmv", 4'570, 7, 11, 5, kOtherUs, 1.031},
    {"BFS", 5'990, 1, 11, 3, kNamedShortUs, 1.031},
};

Workload benchmarks() {
  Workload w;
  w.gpu.sm_count = 15;
  w.config.machine.handover_ns = 80 * kUs;
  for (const Benchmark& b : kTable) {
    Kernel k;
    k.name = b.name;
    k.alone_ns = b.alone_us * kUs;
    k.drain_ns = b.latency_us * kUs;
    k.tasks = 10'000;
    k.form_factor = b.form_factor;
    Program p;
    p.name = b.name;
    p.vgpu = static_cast<uint32_t>(w.vgpus.size());
    p.steps = {{.kernel = static_cast<uint32_t>(w.kernels.size())}};
    w.kernels.push_back(k);
    w.vgpus.push_back({.name = b.name});
    w.programs.push_back(p);
  }
  return w;
}

template <uint32_t Benchmark::*kPriority>
Workload table_three(uint32_t, uint64_t) {
  Workload w = benchmarks();
  for (uint32_t i = 0; i < w.programs.size(); ++i) {
    w.programs[i].first_ns = 3 * kMs * i;
    w.vgpus[i].share.priority = kTable[i].*kPriority;
  }
  return w;
}

// Run i: a wait of 2^i ms between a kernel's launches.
Workload figure_nine(uint32_t run, uint64_t) {
  Workload w = benchmarks();
  for (Program& p : w.programs) {
    p.runs = 1000;
    p.think_ns = kMs << (run % 7);
    p.priority_lo = 1;
    p.priority_hi = 9;
  }
  return w;
}

// Section 6.3, adaptive checking: a kernel checks every k = L / (r l) tasks, where L is the time
// slice, l the length of a task and r = 10. (The paper prints k = r L / l and says "several checks
// per time slice", which is the quotient.) So a check comes every L / r, whatever l is, and an
// eviction waits for the next one. Run i: L = 2^i / 4 ms.
constexpr uint64_t kChecksPerSlice = 10;
Workload adaptive(uint32_t run, uint64_t) {
  Workload w = table_three<&Benchmark::random>(0, 0);
  const uint64_t slice_ns = kMs / 4 << (run % 5);
  for (Kernel& k : w.kernels) {
    k.drain_ns = 0;
    k.task_ns = slice_ns / kChecksPerSlice;
  }
  return w;
}

}  // namespace

const std::vector<WorkloadRow>& effisha_workloads() {
  static const std::vector<WorkloadRow> rows = {
      {"effisha-random", "EffiSha Table 3, arrivals 3 ms apart, random priorities", 1,
       table_three<&Benchmark::random>},
      {"effisha-group", "EffiSha Table 3, arrivals 3 ms apart, priorities by group", 1,
       table_three<&Benchmark::group>},
      {"effisha-sjf", "EffiSha Table 3, arrivals 3 ms apart, the shorter the higher (figure 14b)",
       1, table_three<&Benchmark::sjf>},
      {"effisha-figure9",
       "EffiSha figure 9: 1,000 launches each, random priorities, waits of 1 to 64 ms", 7,
       figure_nine},
      {"effisha-adaptive", "EffiSha section 6.3: chunks of a tenth of a slice of 0.25 to 4 ms", 5,
       adaptive},
  };
  return rows;
}

}  // namespace sluice::policy::sim
