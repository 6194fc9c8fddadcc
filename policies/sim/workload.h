// SPDX-License-Identifier: Apache-2.0
// Workload: what runs on the simulated GPU - the machine, its vGPUs, and programs that launch
// kernels. Plain data; made by the functions in workloads/ (one file per paper), from JSON
// (json_workload.h) or from a recorded trace (trace.h). Knows nothing of policies. All times are ns
// of virtual time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policies/policy.h"

namespace sluice::policy::sim {

// Bounds on what a file may ask for; larger would exhaust memory or overflow the sums of work (ns
// times SMs in 64 bits). A workload made in code is checked against them too (check_workload).
inline constexpr uint32_t kMaxSms = 1024;
inline constexpr uint32_t kMaxVgpus = 4096;
inline constexpr uint32_t kMaxPrograms = 16384;
inline constexpr uint32_t kMaxKernels = 4096;
inline constexpr uint64_t kMaxTimeNs = 1'000'000ull * 1'000'000'000;  // 11 days
// max_events of workloads and traces from files that say nothing: a minute or less, and half a
// gigabyte for what is kept of each launch.
inline constexpr uint64_t kFileEvents = 50'000'000;
inline constexpr uint64_t kMaxKernelNs = 1'000ull * 1'000'000'000;

// How a kernel leaves SMs when it is evicted.
enum class Mechanism : uint8_t {
  kDrain,         // running tasks end; nothing is saved. What is left runs later.
  kContextSwitch  // tasks stop at once; their state is saved, and restored when SMs come back
};

struct GpuModel {
  uint32_t sm_count = 1;
  PreemptorKind preemptor = PreemptorKind::kExclusive;
  bool spatial = false;
  Mechanism mechanism = Mechanism::kDrain;
  uint64_t signal_ns =
      0;                  // from the decision to evict until the kernel sees it; it works meanwhile
  uint64_t start_ns = 0;  // from a Run until the first task works; the SMs are lost meanwhile
  uint32_t sm_unit = 1;   // spatial: SMs are given in units of so many (policies/parts/in_units.h)
  uint64_t change_ns = 0;  // spatial: a vGPU that gets or leaves SMs beside others of its own
                           // stands still as a whole for so long
  uint64_t switch_ns = 0;  // proportional: lost at each switch between vGPUs' contexts
  // Copies between host and device are shared by weight in parts of so long (ns of the copy alone);
  // 0: one whole copy after the other, as they come.
  uint64_t copy_part_ns = 0;
};

// One kernel as it runs alone in its original form. Work is counted in SM-ns: alone_ns times the
// SMs it can use; with fewer SMs it takes proportionally longer.
struct Kernel {
  std::string name;
  uint64_t alone_ns = 1'000'000;
  uint32_t width_sms = 0;      // SMs that it can use; 0: all
  uint32_t tasks = 1;          // block-tasks, > 0
  uint32_t blocks_per_sm = 1;  // resident at once
  // Time from one place where it can leave to the next: a task, or a chunk of tasks. 0: the task
  // time that follows from the rest, alone_ns * width * blocks_per_sm / tasks (at most alone_ns).
  uint64_t task_ns = 0;
  double alone_cv = 0;  // variation of the work from launch to launch (log-normal)
  // Memory bandwidth that it would use alone on its width if there were enough, over what there is:
  // below 1 it is bound by its SMs, above by memory. 0: none, and nothing slows it.
  double bandwidth = 0;
  bool evictable = true;   // false: opaque, leaves by ending
  double form_factor = 1;  // evictable form's time over the original's
  // Drain: 0: each resident block's rest is uniform in (0, task_ns), and the SMs leave with the
  // last of them; otherwise this long always (a measured delay), half of it useful.
  uint64_t drain_ns = 0;
  uint64_t save_ns = 0, restore_ns = 0;  // context switch, per SM, all SMs at once
  uint64_t relaunch_ns = 0;  // more than GpuModel::start_ns when it goes on after an eviction
  // Regressors of the duration model; 0 where the source does not have them.
  uint32_t grid_blocks = 0, block_threads = 0, shared_bytes = 0;
  uint64_t input_bytes = 0;
};

enum class CopyWay : uint8_t { kToDevice, kToHost };
inline constexpr size_t kCopyWays = 2;  // each has an engine of its own

// `launches` launches of one kernel, in order, each queued `host_ns` (host's work) after it could
// be. Or as many copies: where `copy_ns`, how long one takes alone, is not 0.
struct Step {
  uint32_t kernel = 0;  // index in Workload::kernels
  uint32_t launches = 1;
  uint64_t host_ns = 0;  // before each of them
  bool sync = false;     // the host first waits until all launches before it are done
  uint64_t copy_ns = 0;
  CopyWay way = CopyWay::kToDevice;
};

enum class ArrivalKind : uint8_t {
  kClosed,    // a run starts think_ns after the one before ended
  kPeriodic,  // every period_ns, also when the one before still runs (it queues behind it)
  kPoisson,   // the same with exponential gaps of mean period_ns
  kOffsets,   // at these times
  kBacklog    // as soon as queue_depth has room: it always has work queued
};

// A program: one session with one stream. It makes *runs*, each of which is its steps in order; NTT
// is over runs (EffiSha's and FRS's kernel or application, the process that is replayed in others).
struct Program {
  std::string name;
  uint32_t vgpu = 0;  // index in Workload::vgpus
  std::vector<Step> steps;
  ArrivalKind arrival = ArrivalKind::kClosed;
  uint64_t first_ns = 0;  // of the first run (not kOffsets)
  uint64_t period_ns = 0;
  uint64_t think_ns = 0;  // closed: pause between runs
  bool think_exponential = false;
  std::vector<uint64_t> offsets_ns;
  // kOffsets: alone time of each launch of the i-th run, instead of the kernels' (traces); empty:
  // theirs.
  std::vector<uint64_t> offset_alone_ns;
  uint64_t runs = 1;         // 0: until the simulation ends; kOffsets: one for each offset
  uint32_t queue_depth = 1;  // launches queued and not done at most; 1: waits after each launch
  uint32_t stream_priority = 0;
  // Before each run its vGPU's priority is drawn from [lo, hi] (EffiSha figure 9); hi 0: left
  // alone.
  uint32_t priority_lo = 0, priority_hi = 0;
  bool opaque = false;  // all its launches, whatever the kernels say
  // Lies to the duration model: what it says of its size, over the truth.
  double prediction_factor = 1;
};

struct ShareChange {
  uint64_t at_ns = 0;
  VgpuShare share;
};
struct SimulatedVgpu {
  std::string name;
  VgpuShare share;
  std::vector<ShareChange> changes;
  bool compared = true;  // counts for share windows: false for one that is not always busy
};

// A group of vGPUs; its id is its index and 1 (VgpuShare::group, GroupShare::parent).
struct Group {
  std::string name;
  GroupShare share;
};

// What a vGPU is charged for: the SM-time that it held, or that less what others' use of memory
// kept it from, and as much more as it kept others from. Sums are the same.
enum class ChargeBy : uint8_t { kTime, kSlowdown };

// Where Launch::predicted_sm_ns comes from.
enum class Predictor : uint8_t { kOracle, kModel, kNone };

struct Workload {
  std::string name;
  GpuModel gpu;
  std::vector<Kernel> kernels;
  std::vector<Group> groups;  // parents before children
  std::vector<SimulatedVgpu> vgpus;
  std::vector<Program> programs;
  // The simulation ends when every program with a number of runs has done them, when replay_runs >
  // 0 and each program has ended that many, or at horizon_ns, whichever comes first. 0: none.
  uint64_t horizon_ns = 0;
  uint32_t replay_runs = 0;
  uint64_t warm_up_ns = 0;  // runs that arrived before are in no response time and no NTT
  ChargeBy account = ChargeBy::kTime;
  Predictor predictor = Predictor::kOracle;
  double prediction_cv = 0;  // oracle: error of the prediction (log-normal)
  // What a policy is configured with (machine is filled in from gpu and need not be set).
  Config config;
  // For speedup_high: the program whose turnaround under `baseline` is compared; -1: the one with
  // the highest priority, if it is alone at the top.
  int32_t high_program = -1;
  // Kernels keep their original form (no form_factor), as under the papers' default.
  bool original_form = false;
  uint64_t max_events = 0;                   // the simulation is cut off after so many; 0: never
  uint64_t share_window_ns = 1'000'000'000;  // share_error_max is over windows of this length
};

// One built-in workload: a family of runs that are averaged (pairs, random orders, random mixes).
struct WorkloadRow {
  std::string_view name;
  std::string_view summary;  // one line, with its source
  uint32_t runs;             // how many runs make the whole
  // Run `run` (0 .. runs-1 or more, any number works) of `seed`; must be the same for the same two.
  Workload (*make)(uint32_t run, uint64_t seed);
  std::string_view baseline = "fcfs";  // for speedup_high and improvements
  // NTTs are averaged over the runs for each program before ANTT, DNTT, STP and fairness are made
  // of them (as FRS does); otherwise these are made for each run and averaged. Its runs have the
  // same programs.
  bool by_program = false;
};
// All built-in workloads (workloads/registry.cc). Static storage.
const std::vector<WorkloadRow>& workloads();
const WorkloadRow* find_workload(std::string_view name);

// Empty if the workload can be run, otherwise what is wrong with it, naming the item.
std::string check_workload(const Workload& w);

}  // namespace sluice::policy::sim
