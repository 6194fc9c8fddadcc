// SPDX-License-Identifier: Apache-2.0
// What accounting costs the accounted (LoGA, figures 7 and 8), simulated: an application beside
// throttles, without a scheduler. LoGA reads registers and pauses nobody. NEON's sampling, which
// the paper compares with, suspends everybody but one while it samples. By hand.
//
//     accounting_pauses
//     accounting_pauses --fairness
//
// A line for each application, length of the throttles' kernels and number of throttles: the time
// that an iteration takes under sampling, over the time without accounting. LoGA's is 1.00 by
// construction: no action of it reaches the GPU.
//
// --fairness: figure 11 by its own criterion, of the workload `loga-throttle`. Section 5.5 takes
// the GPU time that the application and a throttle get without scheduling, and from these "how much
// the scheduler should slow down either" for both to get the same while the application runs. That
// slowdown times the turnaround without scheduling is the paper's optimum. Here a throttle that has
// a part b of the GPU gets the application's a within a / b of the time. A line for each length of
// the application's kernels: turnarounds over that of the application alone, and a throttle's part
// of the GPU.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "policies/sim/simulation.h"
#include "policies/sim/workload.h"

using namespace sluice::policy;
using namespace sluice::policy::sim;

namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000, kSecond = 1'000'000'000;
constexpr uint64_t kSliceNs = 2 * kMs;
// Section 5.1: 1 ms of sampling and 5 ms without for each of the 12 channels of an application.
constexpr uint64_t kSampleNs = 12 * kMs, kFreeNs = 60 * kMs;

// The GPU's own time slices. `samples`: sampling phases in which one vGPU after another is alone.
class Sampling final : public Policy {
 public:
  explicit Sampling(bool samples) : samples_(samples) {}
  std::string_view name() const override { return "sampling"; }
  void on_vgpu_added(uint64_t, VgpuId v, const VgpuShare&, Actions&) override {
    if (v >= running_.size()) running_.resize(v + 1, false);
  }
  void on_vgpu_changed(uint64_t, VgpuId, const VgpuShare&, Actions&) override {}
  void on_vgpu_removed(uint64_t, VgpuId, Actions&) override {}
  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (samples_ && !planned_) plan(now_ns + kFreeNs * running_.size(), out);
    set(v, !alone_ || sampled_ == v, out);
  }
  void on_idle(uint64_t, VgpuId, Actions&) override {}
  void on_usage(uint64_t, VgpuId, const Usage&) override {}
  bool reads_tasks() const override { return false; }
  void on_left(uint64_t, VgpuId, LeftReason, Actions&) override {}
  void on_wake(uint64_t now_ns, Actions& out) override {
    sampled_ = alone_ ? sampled_ + 1 : 0;
    alone_ = sampled_ < running_.size();
    for (VgpuId v = 0; v < running_.size(); ++v) set(v, !alone_ || v == sampled_, out);
    plan(now_ns + (alone_ ? kSampleNs : kFreeNs * running_.size()), out);
  }

 private:
  void plan(uint64_t at_ns, Actions& out) {
    planned_ = true;
    out.push_back(Action::wake(at_ns));
  }
  void set(VgpuId v, bool runs, Actions& out) {
    if (running_[v] == runs) return;
    running_[v] = runs;
    out.push_back(Action::set_slice(v, runs ? kSliceNs : 0));
  }

  const bool samples_;
  std::vector<bool> running_;
  bool planned_ = false, alone_ = false;
  VgpuId sampled_ = 0;
};

// `pause_ns`: the application's own, between its kernels of 1 ms.
Workload beside(uint32_t throttles, uint64_t throttle_ns, uint64_t pause_ns) {
  Workload w;
  w.name = "accounting-pauses";
  w.gpu.sm_count = 15;
  w.gpu.preemptor = PreemptorKind::kProportional;
  w.gpu.switch_ns = 10 * kUs;
  const auto add = [&](std::string name, uint64_t kernel_ns, uint64_t think_ns) {
    Kernel k;
    k.name = name;
    k.alone_ns = kernel_ns;
    k.tasks = 1000;
    Program p;
    p.name = name;
    p.vgpu = static_cast<uint32_t>(w.vgpus.size());
    p.steps = {{.kernel = static_cast<uint32_t>(w.kernels.size())}};
    p.think_ns = think_ns;
    p.runs = 0;
    w.kernels.push_back(k);
    w.programs.push_back(p);
    w.vgpus.push_back({.name = std::move(name)});
  };
  add("application", kMs, pause_ns);
  for (uint32_t i = 0; i < throttles; ++i)
    add("throttle" + std::to_string(i), throttle_ns, 1000 * kUs);
  w.horizon_ns = 20 * kSecond;
  return w;
}

Outcome outcome(const Workload& w, Policy& policy) {
  Outcome r = simulate(w, policy, {.seed = 1, .preempts = false});
  if (r.violations || r.stuck) {
    std::fprintf(stderr, "accounting_pauses: %s\n", r.violation.c_str());
    std::exit(1);
  }
  return r;
}

// Iterations of the application in the whole time.
uint64_t iterations(const Workload& w, bool samples) {
  Sampling policy(samples);
  return outcome(w, policy).programs[0].runs.size();
}

// Parts of the GPU of the application and, on average, of a throttle.
struct Parts {
  double application = 0, throttle = 0;
};
Parts parts(const Workload& w, Policy& policy) {
  const Outcome r = outcome(w, policy);
  const double whole = static_cast<double>(r.end_ns) * w.gpu.sm_count;
  Parts parts;
  for (size_t i = 0; i < r.vgpus.size(); ++i) {
    const double part = static_cast<double>(r.vgpus[i].sm_ns) / whole;
    if (i == 0)
      parts.application = part;
    else
      parts.throttle += part / static_cast<double>(r.vgpus.size() - 1);
  }
  return parts;
}

// Alone, the application has all of the GPU.
int print_fairness() {
  std::printf("%-10s %-14s %-8s %-14s %s\n", "kernel", "no scheduling", "optimum", "loga", "wfq");
  const WorkloadRow& row = *find_workload("loga-throttle");
  for (uint32_t run = 0; run < row.runs; ++run) {
    const Workload w = row.make(run, 1);
    Sampling none(/*samples=*/false);
    const Parts free = parts(w, none);
    std::printf("%5.1f ms   %5.2f (%.2f)   %-8.2f",
                static_cast<double>(w.kernels[0].alone_ns) / kMs, 1 / free.application,
                free.throttle, 1 / free.throttle);
    for (const char* name : {"loga", "wfq"}) {
      const auto policy = find_policy(name)->make(engine_config(w));
      const Parts got = parts(w, *policy);
      std::printf(" %5.2f (%.2f)  ", 1 / got.application, got.throttle);
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) return argc == 2 && std::string(argv[1]) == "--fairness" ? print_fairness() : 2;
  std::printf("%-12s %-10s %-10s %s\n", "application", "throttle", "throttles", "sampling");
  for (const uint64_t pause_us : {0, 300, 1000})
    for (const uint64_t throttle_us : {10, 100})
      for (const uint32_t throttles : {1, 2, 5, 10, 20}) {
        const Workload w = beside(throttles, throttle_us * kUs, pause_us * kUs);
        const uint64_t plain = iterations(w, false), sampled = iterations(w, true);
        std::printf("%3.0f %% load   %4d us    %-10u %.3f\n",
                    100.0 * 1000 / static_cast<double>(1000 + pause_us),
                    static_cast<int>(throttle_us), throttles,
                    static_cast<double>(plain) / static_cast<double>(sampled));
      }
  return 0;
}
