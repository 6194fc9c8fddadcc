// SPDX-License-Identifier: Apache-2.0
// Workloads of our own: the smallest that show something, for people who write a policy.
#include "policies/sim/workloads/rows.h"

namespace sluice::policy::sim {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000, kSecond = 1'000'000'000;

GpuModel h200_shared() {  // shared/facts: 6 us to leave and some more to start, pre-armed
  GpuModel g;
  g.sm_count = 132;
  g.spatial = true;
  g.signal_ns = 3 * kUs;
  g.start_ns = 4 * kUs;
  return g;
}

Kernel kernel(std::string name, uint64_t alone_ns, uint32_t tasks) {
  Kernel k;
  k.name = std::move(name);
  k.alone_ns = alone_ns;
  k.tasks = tasks;
  k.blocks_per_sm = 8;
  k.form_factor = 1.02;
  return k;
}

Program saturating(std::string name, uint32_t vgpu, uint32_t kernel_index) {
  Program p;
  p.name = std::move(name);
  p.vgpu = vgpu;
  p.steps = {{.kernel = kernel_index}};
  p.arrival = ArrivalKind::kBacklog;
  p.runs = 0;
  p.queue_depth = 4;
  return p;
}

// Two tenants 2:1 that never pause.
Workload two_to_one(uint32_t, uint64_t) {
  Workload w;
  w.gpu = h200_shared();
  w.kernels = {kernel("a", 3 * kMs, 20'000), kernel("b", 800 * kUs, 5'000)};
  w.vgpus = {{"heavy", {.weight = 200}, {}}, {"light", {.weight = 100}, {}}};
  w.programs = {saturating("heavy", 0, 0), saturating("light", 1, 1)};
  w.horizon_ns = 10 * kSecond;
  return w;
}

// Eight tenants of different habits: saturating, bursty, tiny kernels, giant ones, opaque,
// thoughtful.
Workload mixed(uint32_t, uint64_t) {
  Workload w;
  w.gpu = h200_shared();
  w.kernels = {kernel("middle", 2 * kMs, 10'000), kernel("tiny", 30 * kUs, 500),
               kernel("giant", 400 * kMs, 1'000'000), kernel("wave", 5 * kMs, 1000)};
  w.kernels[3].evictable = false;
  for (uint32_t i = 0; i < 8; ++i) {
    w.vgpus.push_back({"vm" + std::to_string(i), {.weight = 100 * (1 + i % 4)}, {}});
    w.programs.push_back(saturating("vm" + std::to_string(i), i, i % 4));
  }
  w.programs[4].queue_depth = 1;
  w.programs[4].arrival = ArrivalKind::kClosed;
  w.programs[4].think_ns = 5 * kMs;  // waits after each launch
  w.programs[5].arrival = ArrivalKind::kPoisson;
  w.programs[5].period_ns = 2 * kMs;
  w.programs[6].arrival = ArrivalKind::kPeriodic;
  w.programs[6].period_ns = 2 * kSecond;  // bursts of a second or so
  for (uint32_t i : {4u, 5u, 6u}) w.vgpus[i].compared = false;
  w.horizon_ns = 20 * kSecond;
  return w;
}

}  // namespace

const std::vector<WorkloadRow>& basic_workloads() {
  static const std::vector<WorkloadRow> rows = {
      {"two-to-one", "two saturating tenants of weights 200 and 100", 1, two_to_one},
      {"mixed", "eight tenants of different habits and weights", 1, mixed},
  };
  return rows;
}

}  // namespace sluice::policy::sim
