// SPDX-License-Identifier: Apache-2.0
// The workload of LoGA's scheduling experiment (VEE 2018, section 5.5): four instances of its
// Throttle benchmark, 200 us of kernel and 800 us of sleep each, beside one application, on a GPU
// that alternates between contexts by itself. The paper runs 20 Rodinia programs as the
// application; here it saturates the GPU with kernels of one length, because the paper gives no
// figures per program, only plots. Contexts of its Kepler GPU could not be switched within a
// kernel; those of today can, after a slice.
#include "policies/sim/workloads/rows.h"

namespace sluice::policy::sim {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000, kSecond = 1'000'000'000;

Workload throttle(uint32_t run, uint64_t) {
  Workload w;
  w.name = "loga-throttle";
  w.gpu.sm_count = 15;
  w.gpu.preemptor = PreemptorKind::kProportional;
  w.gpu.switch_ns = 10 * kUs;
  w.config.machine.handover_ns = 10 * kUs;
  const uint64_t lengths_us[] = {100, 500, 2000, 10'000};
  const auto kernel = [](std::string name, uint64_t ns) {
    Kernel k;
    k.name = std::move(name);
    k.alone_ns = ns;
    k.tasks = 1000;
    return k;
  };
  w.kernels = {kernel("application", lengths_us[run % 4] * kUs), kernel("throttle", 200 * kUs)};
  w.vgpus.push_back({.name = "application"});
  Program app;
  app.name = "application";
  app.vgpu = 0;
  app.steps = {{.kernel = 0}};
  app.arrival = ArrivalKind::kBacklog;
  app.runs = 0;
  app.queue_depth = 4;
  w.programs.push_back(app);
  for (uint32_t i = 0; i < 4; ++i) {
    Program p;
    p.name = "throttle" + std::to_string(i);
    p.vgpu = i + 1;
    p.steps = {{.kernel = 1}};
    p.arrival = ArrivalKind::kClosed;
    p.think_ns = 800 * kUs;
    p.first_ns = i * kMs / 4;
    p.runs = 0;
    w.programs.push_back(p);
    w.vgpus.push_back({.name = p.name, .compared = false});
  }
  w.horizon_ns = 10 * kSecond;
  return w;
}

}  // namespace

const std::vector<WorkloadRow>& loga_workloads() {
  static const std::vector<WorkloadRow> rows = {
      {"loga-throttle", "LoGA section 5.5: four throttles of 20 % beside one application", 4,
       throttle, "loga"},
  };
  return rows;
}

}  // namespace sluice::policy::sim
