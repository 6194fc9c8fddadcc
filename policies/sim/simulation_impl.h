// SPDX-License-Identifier: Apache-2.0
// Simulation: the object behind simulate(). Parts, one file each: simulation.cc (events, policy,
// actions, time), simulation_gpu.cc (SMs, launches, preemption), simulation_slices.cc (time
// slices), simulation_copies.cc and simulation_host.cc (programs). Owned by simulate(), one thread.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "policies/model/duration_model.h"
#include "policies/sim/account.h"
#include "policies/sim/copy_engine.h"
#include "policies/sim/fluid.h"
#include "policies/sim/random.h"
#include "policies/sim/simulation.h"

namespace sluice::policy::sim {

// Speeds are in 1/1024 SM and work in ns of that, so that half-speed drains stay exact.
inline constexpr uint64_t kUnit = 1024;

class Simulation {
 public:
  Simulation(const Workload& w, Policy& policy, const Options& options);
  Outcome run();

 private:
  enum class EventKind : uint8_t {
    kArrive,   // a program's next run
    kHost,     // a program queues its next launch
    kFinish,   // a launch
    kActive,   // a hold's start-up is over
    kGoOn,     // a vGPU stood still because its SMs had changed
    kSeen,     // a hold's kernels see the evict word
    kRelease,  // a hold has left
    kWake,
    kShare,   // a vGPU's next change of share
    kCopied,  // a copy engine has carried a part of a copy
    kSlice    // proportional: the slice is over
  };
  struct Event {
    uint64_t time_ns, order;
    EventKind kind;
    uint32_t id;
    uint64_t version;
    bool operator<(const Event& o) const {  // priority_queue: the largest is on top
      return time_ns != o.time_ns ? time_ns > o.time_ns : order > o.order;
    }
  };

  // A launch at the head of its program's stream; one per program at most.
  struct Head {
    bool present = false;
    Launch info;
    uint32_t kernel = 0;
    uint64_t run = 0;
    bool opaque = false;
    uint64_t work = 0, remaining = 0;  // in 1/kUnit SM-ns
    uint64_t width = 0;                // in 1/kUnit SM
    double tasks_per_work = 0;
    uint64_t speed = 0;     // of the SMs that it has
    uint64_t rate = 0;      // of its progress: less where memory is contended
    uint64_t own_rate = 0;  // the same if nobody else used memory
    double demand = 0;      // of memory bandwidth, at the SMs that it has
    uint64_t settled_ns = 0, queued_ns = 0;
    uint64_t version = 0;
    bool started = false;
    bool stands_still = false;  // its SMs change, and it worked until then
    bool evicted = false;       // has left with work remaining since it last worked
    uint32_t saved_sms = 0;     // context switch: SMs' worth of state to restore
    uint32_t holds = 0;         // holds for this launch alone
    uint64_t used_sm_ns = 0;    // since the last report
  };
  struct ProgramState {
    Random random;
    uint64_t runs_started = 0, runs_issued = 0, runs_done = 0;
    std::deque<uint64_t> pending;    // arrivals of runs not yet begun by the host
    std::deque<RunRecord> open;      // begun and not ended, in order
    uint32_t step = 0, in_step = 0;  // the host's place in the run that it works on
    bool host_in_run = false, host_pending = false;
    struct Queued {
      uint32_t kernel;
      uint64_t run, queued_ns;
      bool last = false;
      double after = 0;      // predicted SM-ns of what follows in its run
      uint64_t copy_ns = 0;  // not a launch, but a copy
      CopyWay way = CopyWay::kToDevice;
    };
    std::deque<Queued> queue;   // behind the head
    bool head_is_last = false;  // of its run
    bool copying = false;       // the first of the queue is a copy that its engine has
    uint64_t copy_since_ns = 0;
    bool varies = false;        // its launches' work does
    std::vector<double> after;  // oracle: work of the steps behind step i, SM-ns
    Head head;
  };
  enum class HoldState : uint8_t { kStarting, kRunning, kSignalled, kLeaving };
  struct Hold {
    bool present = false;
    HoldState state = HoldState::kRunning;
    bool was_starting = false;  // signalled before it worked
    bool until_end = false;     // leaves when what runs there has ended
    LaunchId waits_below = 0;   // ... which is opaque launches with smaller numbers; 0: none
    VgpuId vgpu = 0;
    uint32_t program = kNone;  // launch: that of this program's head; kNone: the whole vGPU
    LaunchId launch = 0;
    uint16_t lo = 0, hi = 0;
    uint64_t useful = kUnit;  // part of its SMs' speed while leaving
    uint64_t since_ns = 0, evict_ns = 0;
    uint64_t version = 0;
    uint32_t place = 0;   // in Held::of_launches, if for a launch
    bool worked = false;  // somebody's work ran here when the evict was seen
  };
  static constexpr uint32_t kNowhere = 0xffffffffu;
  struct VgpuState {
    VgpuShare share;
    std::vector<uint32_t> holds;
    uint32_t place = kNowhere;    // in Held::holders
    std::vector<uint32_t> heads;  // programs, in the order in which they will run
    uint32_t next_change = 0;
    uint64_t used_sm_ns = 0;      // not reported yet when it ceased to be in Held::holders
    uint64_t still_until_ns = 0;  // its SMs have changed
    uint64_t changed_ns = ~0ull;
    uint64_t slice_ns = 0;  // proportional
    bool slice_set = false;
    double unreported_sm_ns = 0;  // ChargeBy::kSlowdown: to be reported beside what it held
  };
  // A vGPU with holds for it as a whole. All of them are updated before each event, so what that
  // takes stands together.
  struct Holder {
    VgpuId vgpu;
    uint32_t sms;          // of those holds
    uint32_t charged_sms;  // the same if it has work, otherwise 0
    uint64_t used_sm_ns;   // since the last report, up to ...
    uint64_t used_to_ns;
    uint64_t charged_to_ns;  // its account has what it held up to here
  };
  static constexpr uint32_t kNone = 0xffffffffu;
  // Of all vGPUs together, 32 MiB: a horizon of days with windows of microseconds needs more.
  static constexpr uint64_t kMostMarks = 2'000'000;

  // simulation.cc
  void push(uint64_t time_ns, EventKind kind, uint32_t id, uint64_t version = 0) {
    events_.push({time_ns, ++order_, kind, id, version});
  }
  void advance(uint64_t time_ns);
  void handle(const Event& e);
  void report_usage();
  void report_tasks(VgpuUsage& report);
  // Charges holders for what they held until now: all of them, or one whose SMs or work change.
  // Called before such a change, not at each event.
  void charge();
  void charge(Holder& h) {
    account_.charge(h.vgpu, (now_ns_ - h.charged_to_ns) * h.charged_sms);
    h.charged_to_ns = now_ns_;
  }
  void count_use(Holder& h) {
    h.used_sm_ns += (now_ns_ - h.used_to_ns) * h.charged_sms;
    h.used_to_ns = now_ns_;
  }
  void set_busy(VgpuId v, bool busy);
  template <class F>
  void ask(F&& event) {
    report_usage();
    actions_.clear();
    event(actions_);
    for (size_t i = 0; i < actions_.size(); ++i) apply(actions_[i]);
  }
  void apply(const Action& a);
  void violate(const std::string& what);
  bool finished() const;
  // What the workload asked for, for the fluid reference, and what was held at each mark.
  uint64_t mark_left_ns() const {
    return options_.reference && reference_.marks < most_marks()
               ? (reference_.marks + 1) * w_.share_window_ns - now_ns_
               : ~0ull;
  }
  uint64_t most_marks() const { return kMostMarks / w_.vgpus.size(); }
  void mark();
  void compare_with_fluid();
  bool opaque(uint32_t program, const Kernel& k) const;
  double mean_alone_ns(uint32_t program, uint32_t kernel, uint64_t run, bool opaque) const;

  // simulation_gpu.cc
  void run(const Action& a);
  void evict(const Action& a);
  void start_hold(VgpuId v, uint32_t program, uint16_t lo, uint16_t hi, uint64_t extra_ns);
  uint64_t resume_cost(uint32_t program, uint32_t sms);
  uint32_t new_hold();
  void count_hold(uint32_t hold);
  void count_whole(VgpuId v, int64_t sms);
  void drop_hold(uint32_t hold);
  void set_changed(VgpuId v, bool holds_others);
  void signal(uint32_t hold, uint16_t lo, uint16_t hi);
  void join_adjacent(std::vector<uint32_t>& evicted);
  // The work on SMs that are to be left.
  struct Leaving {
    bool any = false, opaque = false;
    double longest_ns = 0;  // until the last task is off
    double useful = 0;      // block-ns of work until then, of `slots` blocks
    double slots = 0;
    uint64_t ends_ns = 0;  // until all of the work ends
  };
  void add_leaving(Head& launch, uint64_t speed, Leaving& to);
  void seen(uint32_t hold);
  void release(uint32_t hold, LeftReason why);
  void reassign(VgpuId v);
  void set_speed(uint32_t program, uint64_t speed);
  void set_rate(uint32_t program, uint64_t rate);
  void share_bandwidth();
  void count_interference();
  uint64_t charged_sm_ns(VgpuId v, uint64_t held_sm_ns);
  void count_slowdown(const Head& h) {
    const auto dt = static_cast<double>(now_ns_ - h.settled_ns) / kUnit;
    VgpuResult& v = out_.vgpus[h.info.vgpu];
    v.worked_sm_ns += dt * static_cast<double>(h.rate);
    v.slowed_sm_ns += dt * static_cast<double>(h.own_rate - h.rate);
  }
  // Here, as they are asked for each holder at each event.
  void settle(Head& h) {
    if (!h.present) return;
    const uint64_t done = (now_ns_ - h.settled_ns) * h.rate;
    if (h.own_rate) count_slowdown(h);
    h.remaining -= std::min(done, h.remaining);
    h.settled_ns = now_ns_;
  }
  void finish(uint32_t program);
  void learn(const Head& h);
  template <class Condition>
  void release_where(VgpuId v, LeftReason why, const Condition& condition);
  void release_evicted(VgpuId v);
  uint64_t task_ns(const Head& h) const;
  static uint32_t tasks_done(const Head& h) {
    return static_cast<uint32_t>(static_cast<double>(h.work - h.remaining) * h.tasks_per_work +
                                 1e-6);
  }
  static Launch view(const Head& h);
  // simulation_slices.cc
  void set_slice(const Action& a);
  bool resident(VgpuId v) const;
  void rotate();
  void slice_over();
  uint64_t slice_of(VgpuId v) const;

  // simulation_copies.cc
  void next_in_stream(uint32_t p);
  void begin_copy(uint32_t way);
  void copied(uint32_t way);

  // simulation_host.cc
  void start_programs();
  void schedule_arrival(uint32_t p, uint64_t after_ns);
  void arrive(uint32_t p);
  void try_host(uint32_t p);
  void host(uint32_t p);
  void make_head(uint32_t p);
  void fill_launch(uint32_t p, double after_sm_ns, uint32_t width_sms);
  void place_head(uint32_t p);
  void announce_head(uint32_t p);
  void run_ended(uint32_t p);
  uint64_t predicted(uint32_t p, const Head& h);

  // What the workload asked for, for the fluid reference.
  struct Reference {
    std::vector<Offered> offered;  // by program; empty without Options::reference
    uint64_t marks = 0;
  };
  // Usage that the policy hears of before each event.
  struct Usage {
    uint64_t reported_ns = 0;        // up to here
    std::vector<VgpuUsage> reports;  // scratch of report_usage()
    bool reads_tasks = false;        // the policy does
  };
  // Who holds which SMs, and who is charged for them as time passes.
  struct Held {
    std::vector<Hold> holds;
    std::vector<uint32_t> free;         // places in `holds`
    std::vector<Holder> holders;        // vGPUs, by what they hold as a whole
    std::vector<uint32_t> of_launches;  // holds for one launch
    std::vector<bool> sms;
    uint64_t busy_whole_sms = 0;     // held as a whole by vGPUs with work
    uint64_t handover_since_ns = 0;  // an eviction's begin whose SMs wait for the next Run; 0: none
  };
  // What is known of the workload's kernels.
  struct Kernels {
    Kernels(const Workload& w, DurationModel* given);
    std::vector<uint64_t> keys;  // hashes of their names
    std::vector<PreemptionCost> preempt_cost;
    DurationModel own_model;
    DurationModel& model;  // the caller's, or own_model
    const bool use_bandwidth;
  };
  // proportional: whose slice it is.
  struct Slice {
    VgpuId current = kNoVgpu;
    uint64_t version = 0;
  };
  // What has to end before the run does.
  struct Left {
    uint32_t finite = 0, replays = 0;
    bool any_finite = false;
  };

  const Workload& w_;
  Policy& policy_;
  const Options options_;
  Outcome out_;
  Account account_;
  Random random_;
  std::priority_queue<Event> events_;
  Actions actions_;
  uint64_t order_ = 0, now_ns_ = 0, wake_version_ = 0, launches_ = 0;
  std::vector<ProgramState> programs_;
  std::vector<uint32_t> program_of_;  // by launch id
  std::vector<VgpuState> vgpus_;
  Reference reference_;
  Usage usage_;
  Held held_;
  Kernels kernels_;
  Slice slice_;
  Left left_;
  std::array<CopyEngine, kCopyWays> engines_{
      {{w_.gpu.copy_part_ns, w_.vgpus.size()}, {w_.gpu.copy_part_ns, w_.vgpus.size()}}};
  double memory_demand_ = 0;         // of all launches, of the bandwidth that there is
  uint64_t interference_to_ns_ = 0;  // who slowed whom is counted up to here
};

}  // namespace sluice::policy::sim
