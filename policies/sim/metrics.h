// SPDX-License-Identifier: Apache-2.0
// Metrics: what `sluice-sim` prints of a simulation. Definitions (docs/operating/simulator.md has
// the sources):
//   NTT_i    T_i^MP / T_i^SP: mean turnaround of program i's runs here over its turnaround alone
//   ANTT     mean of NTT_i                  (Eyerman and Eeckhout 2008; FRS eq. 4)
//   STP      sum of T_i^SP / T_i^MP         (the same; FRS eq. 5)
//   DNTT     standard deviation of NTT_i over the programs (FRS eq. 6)
//   fairness min over i, j of NTT_i / NTT_j, 0..1                  (Eyerman and Eeckhout;
//            preemptive multiprogramming section 4.1)
//   share error, lag, Jain index: simulation.h
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mediator/base/result.h"
#include "policies/sim/simulation.h"
#include "policies/sim/workload.h"

namespace sluice::policy::sim {

struct Quantiles {
  double p50 = 0, p99 = 0, p999 = 0, max = 0;
};
Quantiles quantiles(std::vector<uint64_t> values);  // all 0 if empty

// Of one vGPU in one simulation.
struct VgpuMetrics {
  std::string name;
  double part = 0;  // of the GPU over all time, in use
  double kept = 0;  // ... and kept for it while it paused
  // Its entitlement by the fluid reference (fluid.h), ms of the GPU: `owed`, as --json names it.
  // What it held over that. By window: the least of 1 - (rise of its lag above 0) / (entitlement in
  // that window), of windows in which that was 1 % of the GPU or more; and the largest such rise,
  // ms of the GPU.
  double owed_ms = 0, got_of_owed = 1, got_of_owed_window = 1, lacked_window_ms = 0;
  // The most that it was behind what the reference had given its runs as they came, at the end of a
  // window, ms of the GPU: what theory bounds by a longest turn and a hand-over.
  double behind_ms = 0;
  // Of its launches that use memory bandwidth: their time over that with the same SMs and nobody
  // else using memory; 1 if it has none.
  double slowdown = 1;
  // What its use of memory kept launches from, over what it held.
  double slows_others = 0;
  // Work done by those of its launches that use memory bandwidth, as a part of the GPU.
  double worked_part = 0;
  double to_device_ms = 0, to_host_ms = 0;  // copied, ms of the engine alone
  double copy_slowdown = 1;                 // copies' time over that alone
  ShareFigures figures;
};

// How far shares of contended time were from the weights' shares, relative to these.
struct ShareErrors {
  double max = 0;         // over any window
  double settled = 0;     // of it, windows that begin a window's length or more after the first
  double total = 0;       // over all contended time
  double points_max = 0;  // as max, in parts of the whole GPU
};

// Against the fluid reference, of all vGPUs; NaN without one.
struct FluidFigures {
  // Least got_of_owed of a vGPU, of those entitled to 1 % of a window of the GPU or more; 1 if
  // there is none. Below 1: it was held short. The second: of got_of_owed_window.
  double got_of_owed_min = 1, got_of_owed_window_min = 1;
  double behind_max_ms = 0;
};

struct AgainstBaseline {
  double speedup_high = 0;      // turnaround under the baseline over here; 0: no high program
  double antt_improvement = 0;  // the baseline's ANTT over here
  double stp_degradation = 0;   // 1 - STP here over the baseline's
};

// How the simulation itself went. A figure is worth nothing if it was stuck, or was cut.
struct Ending {
  uint64_t events = 0, violations = 0, unfinished_runs = 0;
  bool stuck = false;
  bool cut = false;  // at max_events
  std::string violation;
};

// Of one simulation, or the mean over the runs of a workload (maxima: the maximum; counts: the
// mean).
struct Metrics {
  std::vector<std::pair<std::string, double>> ntt;  // by program name; 0: no run ended
  // Arrival to end of each program's runs; of one simulation only.
  std::vector<std::pair<std::string, Quantiles>> response_us;
  double antt = 0, stp = 0, dntt = 0, fairness = 0;
  ShareErrors share_error;
  FluidFigures fluid;
  AgainstBaseline against_baseline;
  Ending ending;
  // As fluid.got_of_owed_min, of its entitlement by the instant (account.h), however little it
  // asked for: lower, and known without a reference.
  double got_of_instant_min = 1;
  double jain = 1;
  double lag_max_ms = 0;  // whole-GPU ms
  double longest_wait_ms = 0;
  double evictions = 0;
  double set_changes_per_s = 0;  // in space: times that a vGPU's SMs changed, all together
  double throughput = 0;         // useful SM-time over all SM-time while somebody had work
  double conservation = 0;       // 1 - idle_with_work / some_work
  double end_ms = 0;
  Quantiles evict_latency_us, wait_us;
  std::vector<double> evictions_by_priority;  // of the vGPU's, as it began; of one simulation only
  std::vector<VgpuMetrics> vgpus;             // of one simulation only
  std::vector<double> vgpu_share;  // of the SM-time over all contended time (or of all, if none)
};

Metrics measure(const Workload& w, const Outcome& r, const std::vector<double>& alone_ns);
// Program index of the high-priority program, -1 if there is none.
int32_t high_program(const Workload& w);
// Mean turnaround of program p in ns, 0 if no run ended.
double turnaround_ns(const Outcome& r, uint32_t p);

struct Report {
  std::string workload, policy;
  Metrics mean;
  std::vector<Metrics> runs;
};
// Runs the workload's `runs` (0: the row's own number) under a registered policy and the baseline.
// Errors: unknown policy, wrong kind of preemptor, a workload that check_workload() rejects.
sluice::Result<Report> evaluate(const WorkloadRow& row, std::string_view policy, uint64_t seed,
                                uint32_t runs = 0);
// Several policies on the same runs; what they share (the programs alone, the baseline) is
// simulated once. In the order of `policies`.
// `model`: what is known of kernels' durations beforehand, for each policy (but the baseline)
// alike; each learns on from run to run, and what was learnt under the first comes back in it. The
// caller's; null: each run begins knowing nothing. `progress`: called before each simulation under
// a policy.
// Instead of what the workload says; 0: as it says.
struct Overrides {
  uint64_t max_events = 0, horizon_ns = 0, warm_up_ns = 0;
  // Every hand-over takes this long: the workload's own start, at most half of it, and leaving for
  // the rest. On hardware time slices it is the switch.
  uint64_t handover_ns = 0;
};
using Progress = std::function<void(uint32_t run, uint32_t runs,
                                    std::string_view policy)>;  // run: 0 .. runs - 1
sluice::Result<std::vector<Report>> evaluate_all(const WorkloadRow& row,
                                                 const std::vector<std::string>& policies,
                                                 uint64_t seed, uint32_t runs = 0,
                                                 const Overrides& overrides = {},
                                                 DurationModel* model = nullptr,
                                                 const Progress& progress = {});
sluice::Result<std::vector<Report>> evaluate_all(
    const Workload& w, const std::vector<std::string>& policies, uint64_t seed, uint32_t runs = 1,
    std::string_view baseline = "fcfs", const Overrides& overrides = {},
    DurationModel* model = nullptr, const Progress& progress = {});
// The same for one workload (from a file).
sluice::Result<Report> evaluate(const Workload& w, std::string_view policy, uint64_t seed,
                                uint32_t runs = 1, std::string_view baseline = "fcfs");
// The mean over runs. Programs are matched by name, so that a program that is in some runs only
// counts where it is.
Metrics mean_of(const std::vector<Metrics>& runs);

}  // namespace sluice::policy::sim
