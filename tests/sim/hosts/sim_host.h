// SPDX-License-Identifier: Apache-2.0
// SimHost: core::Scheduler in virtual time, with a small simulated GPU and simulated workers that
// follow the worker's side of the gate protocol (abi/stub.h). For tests only; one thread; every run
// is determined by its settings and seed.
//
// The GPU runs whatever is launched on it, also two tenants at once: that it happens to honest ones
// is what the tests look for. A launch is a row of equal tasks; an evictable one leaves at the next
// task's end after it saw the evict word, an opaque one at its end.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "mediator/core/scheduler.h"
#include "policies/accounting/share_meter.h"
#include "tests/sim/hosts/virtual_host.h"

namespace sluice::sim {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;

// What a session's program does.
struct Program {
  uint64_t task_ns = 200 * kUs;
  uint32_t tasks_per_launch = 20;
  bool evictable = true;
  bool confined = true;  // kept to the SMs of a grant, if evictable; prologue clones are not
  uint32_t queued = 2;   // launches it keeps queued while it is active
  uint32_t launches_per_burst = 0;  // after so many it pauses; 0: never
  uint64_t pause_ns = 0;            // mean; drawn uniformly from half to one and a half of it ...
  uint32_t long_pause_in = 0;       // ... but for one in so many, at random (0: none), ...
  uint64_t long_pause_ns = 0;       // ... which has this mean
  uint64_t start_ns = 0;            // first launch
  bool never_leaves = false;        // its first launch runs for ever and ignores the evict word

  // How its worker lies about it.
  enum class Lie : uint8_t {
    kNone,
    kAlwaysBusy,       // claims demand and nothing in flight
    kNothingInFlight,  // in_flight is always 0
    kLeftAtOnce,       // left_generation is always what it was granted last, and beyond
    kSilent,           // never rings but the first time
    kRandom            // every word random in every report
  };
  Lie lie = Lie::kNone;
  // Its launch records claim so many times the length of its launches; 0: nothing. While one of
  // them runs, if that is not 0, the second.
  double claimed = 1, claimed_running = 0;
};

struct Costs {
  uint64_t ring_ns = 20 * kUs;   // worker's ring until sluiced polls
  uint64_t gate_ns = 20 * kUs;   // sluiced's gate ring until the worker polls
  uint64_t signal_ns = 5 * kUs;  // evict word until the GPU sees it
  uint64_t start_ns = 10 * kUs;  // launch until its first task runs
  uint64_t reap_ns = 3 * kMs;    // end of a worker until sluiced knows
  uint64_t change_ns = 0;        // more than start_ns on other SMs than the session's launch before
};

struct VgpuTruth {
  uint64_t on_gpu_ns = 0;  // some session of it was on the GPU
  uint64_t tasks_done = 0;
  uint64_t launches_done = 0;
  uint64_t longest_wait_ns = 0;  // with work and not on the GPU
  uint64_t set_changes =
      0;  // in space: times that its SMs were others than before, none among them
  // The last ones that it was granted, but for the whole GPU, and how many were none of them: what
  // a worker keeps and makes.
  static constexpr size_t kSetsKept = 8;
  std::vector<SmSet> sets;
  uint64_t new_sets = 0;
  // Over intervals in which all vGPUs of the host had work:
  uint64_t all_gpu_ns = 0;
  uint64_t all_sm_ns = 0;  // the same in SM-ns
  uint64_t sm_ns = 0;      // SMs that it ran on times time
};

class SimHost final : public VirtualHost {
 public:
  SimHost(const core::SchedulerConfig& config, const Costs& costs, uint64_t seed);

  core::VgpuId add_vgpu(const policy::VgpuShare& share);
  core::VgpuId add_vgpu(uint32_t weight, uint32_t priority = 0) {
    return add_vgpu({.weight = weight, .priority = priority});
  }
  void set_group(policy::GroupId group, const policy::GroupShare& share);
  void set_share(core::VgpuId v, uint32_t weight, uint32_t priority = 0);
  core::SessionId add_session(core::VgpuId v, const Program& program);
  void kill_session(core::SessionId s);  // the guest's process or its worker dies

  const VgpuTruth& truth(core::VgpuId v) const { return truth_[v]; }
  uint64_t all_contended_ns() const { return all_contended_ns_; }
  // Time in which two honest vGPUs were on one SM at once, but for launches that no SM set binds
  // (opaque ones in space).
  uint64_t overlap_ns() const { return overlap_ns_; }
  // The SMs of a vGPU's launches that run now.
  SmSet running_on(core::VgpuId v) const;
  // Time in which somebody honest had work and nobody was on the GPU.
  uint64_t wasted_ns() const { return wasted_ns_; }
  uint64_t some_work_ns() const { return some_work_ns_; }
  uint64_t policy_violations() const { return policy_violations_; }
  uint64_t ended() const { return ended_; }

 private:
  struct Running {  // the physical launch on the GPU; one per session
    bool on = false;
    uint32_t generation = 0;
    SmSet sms;
    bool unconfined = false;  // on all SMs, whatever was granted
    uint64_t task_ns = 0;     // of one task, with so many SMs
    uint64_t first_task_ns = 0;
    uint32_t tasks = 0;  // left when it started
    uint64_t epoch = 0;  // an end event of another epoch is stale
  };
  struct Sess {
    bool present = false, dead = false;
    core::VgpuId vgpu = 0;
    Program program;
    uint64_t grant = 0, evict = 0;  // host and signal page
    SmSet sms[2];
    SmSet ran_on;                                                             // its last launch
    uint32_t demand = 0, in_flight = 0, left_generation = 0, unconfined = 0;  // report
    uint64_t launches = 0, launches_done = 0, evictions = 0;
    uint32_t head_tasks = 0;  // tasks left of the launch at the head of the queue
    uint32_t burst_left = 0;
    bool active = false, rang = false;
    Running run;
    uint64_t life = 0;  // events for an earlier holder of the id are stale
  };

  core::ReportSnapshot report_of(core::VgpuId v, core::SessionId s) override;
  void apply(const core::Action& action) override;
  void advance(uint64_t time_ns) override;
  void poll_reports() override;
  core::LaunchHints hints(const Sess& x) const;
  void after(uint64_t dt_ns, core::SessionId s, void (SimHost::*step)(core::SessionId));
  void ring(core::SessionId s);
  void sluiced_looks(core::SessionId s);
  void worker_tries(core::SessionId s);
  void worker_left(core::SessionId s);
  void program_acts(core::SessionId s);
  void burst_starts(core::SessionId s);
  void gpu_sees_evict(core::SessionId s);
  void launch_ends(core::SessionId s, uint64_t epoch);
  void reap(core::SessionId s);
  bool honest(core::VgpuId v) const;

  core::SchedulerConfig config_;
  Costs costs_;
  std::mt19937_64 random_;
  std::vector<Sess> sessions_;
  std::vector<VgpuTruth> truth_;
  std::vector<uint64_t> waiting_since_;
  std::vector<char> vgpu_present_;
  uint64_t all_contended_ns_ = 0, overlap_ns_ = 0, wasted_ns_ = 0, some_work_ns_ = 0;
  uint64_t policy_violations_ = 0, ended_ = 0;
};

// Shares of `what` of the truth since `base`; as a rule of what was had while all had work.
std::vector<double> shares_since(const SimHost& h, const std::vector<VgpuTruth>& base,
                                 const std::vector<core::VgpuId>& v, uint64_t VgpuTruth::*what);

}  // namespace sluice::sim
