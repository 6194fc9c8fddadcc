// SPDX-License-Identifier: Apache-2.0
// Simulation: the simulated GPU and its host in virtual time. It drives one policy::Policy through
// one workload with the same events that sluiced gives it, executes its actions with the GPU's
// costs, and checks the contract of policy.h.
//
// Pure: no clock, no I/O, one thread; the same workload, policy, config and seed give the same
// result. Time is integer ns. Work is counted in SM-ns and progresses at a rate of the SMs held (a
// fluid model: the shortage of tasks at a kernel's end is not modelled but for width_sms). What is
// modelled of preemption: signal delay, the rest of running tasks (drain) or save and restore
// (context switch), start and relaunch costs, the evictable form's overhead; of a proportional
// preemptor: round robin of slices with a cost per switch; two copy engines.
// docs/operating/simulator.md lists what is not modelled.
//
//     auto policy = find_policy("ppq")->make(engine_config(w));
//     Outcome r = simulate(w, *policy, {.seed = 7, .preempts = true});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policies/model/duration_model.h"
#include "policies/policy.h"
#include "policies/sim/workload.h"

namespace sluice::policy::sim {

// Notified as it happens; for traces and tests. All defaults do nothing.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_busy(uint64_t /*now_ns*/, VgpuId) {}
  virtual void on_idle(uint64_t, VgpuId) {}
  virtual void on_grant(uint64_t, VgpuId, LaunchId, SmRange) {}
  virtual void on_evict(uint64_t, VgpuId, LaunchId, SmRange) {}
  virtual void on_left(uint64_t, VgpuId, LaunchId, SmRange, LeftReason) {}
  virtual void on_launch(uint64_t, const Launch&, uint32_t /*program*/, uint32_t /*kernel*/) {}
  virtual void on_done(uint64_t, LaunchId) {}
  virtual void on_share(uint64_t, VgpuId, const VgpuShare&) {}
};

struct Options {
  uint64_t seed = 1;
  bool preempts = true;     // Registration::preempts; false: kernels keep their original form
  uint64_t max_events = 0;  // instead of the workload's
  Observer* observer = nullptr;
  // Learns and predicts where the workload's predictor is the model, instead of one that begins
  // knowing nothing. The caller's.
  DurationModel* model = nullptr;
  bool reference = false;      // VgpuResult::fluid_sm_ns and the marks are wanted
  uint32_t first_program = 0;  // number of the first one, which seeds its draws: where w has only a
                               // part of a workload's programs
};

struct RunRecord {  // one run of a program, ended
  uint64_t arrived_ns = 0;
  uint64_t ended_ns = 0;
  uint64_t first_start_ns = 0;  // its first task worked
};

struct ProgramResult {
  std::vector<RunRecord> runs;  // ended ones, in order
  uint64_t launches_done = 0, copies_done = 0;
  uint64_t evictions = 0;           // times one of its launches left with work remaining
  uint64_t work_arrived_sm_ns = 0;  // of launches queued, in the form that ran
  uint64_t work_done_sm_ns = 0;
  uint64_t unfinished_runs = 0;
};

struct VgpuResult {
  uint64_t sm_ns = 0;    // SMs held times time, as charged to it
  uint64_t busy_ns = 0;  // it had work
  uint64_t grants = 0, evictions = 0;
  uint64_t changes =
      0;  // in space: times that SMs were added to its set or taken from it (in one instant: one)
  uint64_t longest_wait_ns = 0;  // with work and without any SM
  uint64_t kept_sm_ns = 0;       // held while it paused, others waited and nobody worked
  // Of its launches that use memory bandwidth: work done, and what others kept it from.
  double worked_sm_ns = 0, slowed_sm_ns = 0;
  double slows_sm_ns = 0;  // SM-time that its use of memory beyond its part kept others from using
  // Copies: what the engines did for it, by CopyWay; of those that ended, from when they could
  // begin until their end, and what they take alone.
  uint64_t copied_ns[kCopyWays] = {};
  uint64_t copies_took_ns = 0, copies_alone_ns = 0;
  ShareFigures figures;  // as the policy counted them
  // Over the intervals in which it and at least one other had work (whatever their priorities):
  uint64_t contended_ns = 0;
  double got_sm_ns = 0;       // of the SM-time that those with work held there
  double entitled_sm_ns = 0;  // its entitlement to that, by the instant (account.h)
  double lag_max_sm_ns = 0;   // largest |entitled - got| while it stayed contended
  // What the fluid reference gave it (fluid.h); 0 without Options::reference.
  double fluid_sm_ns = 0;
  // At each multiple of share_window_ns, from the start: what it held, and what the reference gave
  // it at its own pace, and of the runs as they came.
  std::vector<double> held_at_mark, fluid_at_mark, fluid_as_came_at_mark;
};

// Windows slide in tenths of themselves.
inline constexpr uint32_t kWindowParts = 10;
// More are not kept, and the simulation is cut (a day of windows of a second): windows of
// nanoseconds would need all time and memory that there is.
inline constexpr size_t kMaxWindows = 1'000'000;
struct Window {             // share_window_ns in which all compared vGPUs had work
  double worst_error = 0;   // max over vGPUs of |got / entitled - 1|
  double worst_points = 0;  // max of |got - entitled| / whole
  uint32_t worst_vgpu = 0;
};

struct Outcome {
  uint64_t end_ns = 0;
  bool has_reference = false;  // fluid_sm_ns of vGPUs is known
  uint64_t events = 0;
  std::vector<ProgramResult> programs;
  std::vector<VgpuResult> vgpus;
  std::vector<Window> windows;
  // Over the time in which all compared vGPUs had work, so long as nobody's weight changed:
  double all_contended_jain = 1;   // of got / weight; 1 if there was none
  double all_contended_error = 0;  // max of |got / entitled - 1|
  uint64_t all_contended_ns = 0;
  uint64_t evictions = 0;                  // of vGPUs or launches with work remaining
  std::vector<uint64_t> evict_latency_ns;  // evict to left, each eviction
  std::vector<uint64_t> wait_ns;           // each launch: queued to first task
  uint64_t some_work_ns = 0;               // somebody had work
  uint64_t idle_with_work_ns = 0;          // ... and no SM worked, started, saved or restored
  uint64_t kept_ns = 0;                    // of that, kept for vGPUs that paused
  double useful_sm_ns = 0;                 // work done
  double lost_sm_ns = 0;                   // SMs held by somebody with work and not working (costs)
  uint64_t violations = 0;                 // of the contract by the policy; the first one:
  std::string violation;
  bool stuck = false;  // work remained and nothing would ever happen
  bool cut = false;    // max_events or kMaxWindows was reached
};

// The config that a policy for this workload is made with: w.config with the machine filled in.
Config engine_config(const Workload& w);

// w must pass check_workload(). The policy must be fresh.
Outcome simulate(const Workload& w, Policy& policy, const Options& options);

// Turnaround of each program's runs alone on the GPU, in original form, by simulation with the same
// seed: mean ns over `runs` runs. Index: program.
std::vector<double> alone_times(const Workload& w, uint64_t seed);

}  // namespace sluice::policy::sim
