// SPDX-License-Identifier: Apache-2.0
// The scheduler: sluiced's side of the gate protocol (abi/stub.h), as logic without I/O.
//
// Owned by sluiced, used from its one thread. It groups sessions into vGPUs, asks a policy
// (policies/policy.h) who runs, turns its answers into grant and evict words, and decides from the
// sessions' reports which of them have left, are idle, or do not obey. It reads no clock and
// touches no page: each on_*() takes the time and appends actions, and the caller executes them
// **in order and at once**, as
//     while (auto action = actions.pop()) execute(*action);
// where executing kReadReport means: read the report header and call on_report() right away, with
// the same queue. Grant and evict stores and the report's reads are seq_cst (the protocol rests on
// it). The queue must be empty before the next outside event is handed in.
//
// What a worker reports is a hint. It is bounded and checked here, and nothing is asserted on it: a
// worker that forges it can delay its own vGPU or be ended at its deadline. A session that reports
// *left* and runs on is found where the host sees what is on the GPU (on_seen()): it is ended, and
// no other vGPU's deadline runs meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "abi/stub.h"
#include "mediator/base/sm_set.h"
#include "policies/accounting/clock_estimator.h"
#include "policies/accounting/latency_histogram.h"
#include "policies/accounting/share_meter.h"
#include "policies/policy.h"

namespace sluice::core {

using VgpuId = policy::VgpuId;
using SessionId = uint32_t;  // small, dense, reused after removal
inline constexpr SessionId kNoSession = 0xffffffffu;

// Every limit of the scheduler, with what breaks if it changes.
struct SchedulerConfig {
  std::string policy = "wfq";  // a name from policy::registry()
  policy::Config policy_config;

  // An evicted vGPU that has not left: first it is logged (and charged as long as it stays)
  // ...
  uint64_t evict_warn_ns = 100'000'000;
  // ... then its sessions that have not left are ended. Shorter: honest programs with long opaque
  // kernels or coarse tasks lose their session; longer: a runaway kernel stops everybody for so
  // long.
  uint64_t evict_end_ns = 2'000'000'000;
  // This many sessions of a vGPU may launch at once while another vGPU is backlogged
  // (sharing/crowd.h). More: each may have a fault under way when the vGPU is barred for one.
  // Fewer: the GPU idles between short launches of one vGPU's programs.
  uint32_t sessions_at_once = 4;
  // Where a vGPU's hold may last: those give way to the next ones after so long. Shorter: each
  // round costs evictions; longer: a program beyond the first four waits longer.
  uint64_t session_turn_ns = 20'000'000;
  // There: a session that seems idle does so after this time at the earliest. Shorter: sessions
  // that report work and none in turn cost sluiced a hand-over for each report; longer: places
  // stand empty.
  uint64_t session_idle_ns = 200'000;
  // Turns are priorities of the GPU's streams (sharing/turns.h). Contexts must run side by side.
  bool turns_by_priority = false;
  // There: a vGPU whose turn a visit interrupts may go on below it for so long before its gates
  // close. Longer: others' visits wait for one that lasts; shorter: visits that wait for long
  // blocks cost it a relaunch.
  uint64_t linger_ns = 2'000'000;
  // There: launches count as short up to this length, and so does a visit. Longer: short ones that
  // have to leave delay the next turn; shorter: others' visits wait for launches.
  uint64_t visit_ns = 500'000;
  // A session that was seen running without a grant for evict_end_ns in sum is ended too. The sum
  // shrinks by one part in this many of the time that passes. Smaller: a session that runs on for a
  // part of the time is never ended; larger: an honest worker's delays add up, and end it one day.
  uint32_t ungranted_leak = 16;
  // Use for so long after *left* is the release's own delay.
  uint64_t ungranted_grace_ns = 5'000'000;
  // One sample of the GPU stands for no more time than this. Longer: a single sample after a
  // pause counts for a time of which nothing is known; shorter: rare samples never add up.
  uint64_t longest_sample_ns = 200'000'000;

  // Reports with more launches than this queued or in flight are counted as violations and clipped;
  // a worker's tables hold fewer. Raising it costs nothing but the meaning of the check.
  uint32_t max_demand = 1u << 20;
  uint32_t max_in_flight = 1u << 16;

  // Generations are 32 bits and must not wrap (an old launch would seem new): a session that has
  // had this many grants is ended. At 200 grants a second that is after 248 days.
  uint32_t max_generation = 0xfffffff0u;

  // More would need larger id tables; each vGPU costs about 3 KiB (its latency histogram) here.
  uint32_t max_vgpus = 4096;
  uint32_t max_sessions = 65536;
};

// What a session's launch records say of the launches that it has queued (core/progress.h):
// untrusted.
struct LaunchHints {
  uint32_t predicted = 0;     // this many of them are predicted
  uint64_t remaining_ns = 0;  // to run, of these, each alone on the whole GPU
  uint64_t longest_ns = 0;    // the longest of these, whole; 0: not known
  uint64_t preempt_ns = 0;    // what evicting the most expensive of them has cost; 0: not known
};

// The part of sluice_report_header that the scheduler reads: untrusted.
struct ReportSnapshot {
  uint32_t guest_demand = 0;  // read first, all seq_cst
  uint32_t guest_in_flight = 0;
  uint32_t guest_left_generation = 0;
  uint32_t guest_unconfined = 0;  // of those in flight, not kept to the SMs that were granted
  uint32_t guest_keeps = 0;       // SLUICE_KEEPS_*
  uint32_t guest_recall = 0;      // generation up to which it asks to be called back whole
  uint32_t guest_idles = 0;       // how often demand became 0; wraps
  uint64_t guest_burst_ns = 0;    // for how long it was above 0 each time, ...
  uint64_t guest_gap_ns = 0;      // ... and 0 in between: means of the last ones
  uint64_t guest_demand_changed_ns = 0;  // when it last became or ceased to be 0
  uint64_t guest_in_flight_ns = 0;       // since then; read after guest_in_flight, relaxed
  uint64_t guest_flight_ns = 0;          // in all, without the present flight
  uint64_t guest_launches = 0;           // the rest relaxed, for statistics
  uint64_t guest_launches_done = 0;
  uint64_t guest_evictions = 0;
  uint64_t guest_opaque = 0;
  uint64_t guest_whole = 0;
  uint64_t guest_narrowed = 0;
  uint64_t guest_grown = 0;
  uint64_t guest_green_launches = 0;
  uint64_t guest_green_contexts = 0;
  uint64_t guest_part_launches = 0;
  std::optional<LaunchHints> guest_hints;  // nothing: they were not read
};
// Reads the header in the protocol's order; the hints are the caller's to add. The mapping is the
// caller's.
ReportSnapshot read_report(const sluice_report_header& header);

enum class EndReason : uint8_t {
  kNone,
  kDidNotLeave,        // evict_end_ns has passed
  kGenerationsSpent,   // max_generation
  kRanUngranted,       // seen on the GPU without a grant for evict_end_ns
  kPassedDescriptors,  // its worker, over its wake socket
  kOverranSlices,      // its worker keeps the GPU beyond its time slices
};
std::string_view to_string(EndReason reason);

enum class LogEvent : uint8_t {
  kGranted,          // value: generation (of the first session)
  kPart,             // in space: the SMs that it is granted have changed; value: how many
  kEvictSent,        // value: why, see EvictCause
  kLeft,             // value: ns from evict to left
  kOverdue,          // value: ns since the evict; evict_warn_ns has passed
  kEnded,            // value: EndReason; session is set
  kReportViolation,  // value: the impossible word; session is set
  kPolicyViolation,  // the policy asked for what cannot be; dropped
  kBusy,             // the vGPU has work
  kIdle,             // it has none
  kShareChanged,     // value: weight
};
std::string_view to_string(LogEvent event);

enum class EvictCause : uint8_t { kQuantum, kIdle };

// One thing for the caller to do.
struct Action {
  enum class Kind : uint8_t {
    kSetSms,      // host page: the SMs of generation `word` are `sms`
    kSetGrant,    // host page: grant = word (seq_cst)
    kSetEvict,    // signal page: evict = word (seq_cst)
    kReadReport,  // read the report of `session`, call on_report() at once
    kAskStarved,  // ask the host's kernel about the worker of `session`, call on_starved() when it
                  // has answered, or with 0 where it cannot
    kRingGate,    // write the worker's gate eventfd
    kWakeAt,      // (re-)arm the one timer for word (absolute ns); word == kNever disarms it
    kSetSlice,    // the contexts of `session` get time slices of `word` ns
    kEndSession,  // end the worker of `session` (`reason`), then call on_session_removed()
    kLog          // `event` about `vgpu` (and `session`), `word` is its value
  };
  Kind kind;
  SessionId session = kNoSession;
  VgpuId vgpu = policy::kNoVgpu;
  uint64_t word = 0;
  EndReason reason = EndReason::kNone;
  LogEvent event{};
  SmSet sms = {};
};
inline constexpr uint64_t kNever = ~0ull;

// First in, first out; keeps its memory.
class ActionQueue {
 public:
  void push(const Action& a) { items_.push_back(a); }
  std::optional<Action> pop() {
    if (head_ == items_.size()) {
      items_.clear();
      head_ = 0;
      return std::nullopt;
    }
    return items_[head_++];
  }
  bool empty() const { return head_ == items_.size(); }

 private:
  std::vector<Action> items_;
  size_t head_ = 0;
};

// What sessions have reported of their launches, summed: hints. A sum stays at its largest value.
struct ReportedSums {
  uint64_t launches = 0, launches_done = 0;
  uint64_t relaunched = 0;  // physical launches that ended before their logical one
  uint64_t opaque = 0;      // launches that could not be evicted, ...
  uint64_t whole = 0;       // ... and of these, those whose kernel could be
  // In space: physical launches that were given a part of the GPU, of these those that the hardware
  // confined to it, and green contexts made for them.
  uint64_t part_launches = 0, green_launches = 0, green_contexts = 0;

  void add(const ReportSnapshot& report);
};

// What `sluicectl top`, metrics and the demo show of one vGPU. Cumulative, so that differences of
// two snapshots describe the time between them.
struct VgpuStats {
  policy::VgpuShare share;
  policy::ShareFigures kept;
  uint32_t sessions = 0;
  bool busy = false;          // has work, as far as its sessions report
  bool holds = false;         // holds the GPU, or SMs of it (perhaps leaving)
  SmSet sms;                  // in space: which, those that it is leaving among them; else none
  bool contended = false;     // busy, and so is somebody else
  uint64_t queued_sm_ns = 0;  // predicted length of its queued launches, as last reported to the
                              // policy; 0: none, or idle
  uint64_t gpu_ns = 0;  // grant to left, less idle time seen while nobody else waited; in space
                        // each SM counts for its part of the GPU
  uint64_t gpu_error_ns = 0;    // gpu_ns may be wrong by as much (clock_estimator.h)
  uint64_t charged_sm_ns = 0;   // what the policy charges it for, SM-ns: by the clock, ...
  uint64_t refunded_sm_ns = 0;  // ... less this, and with that, by on_measured(); both are in it
  uint64_t extra_sm_ns = 0;
  accounting::ShareMeter::Totals shares;  // contended intervals: see share_meter.h
  uint64_t grants = 0;                    // times this vGPU got the GPU
  uint64_t evictions = 0;                 // times it was taken away while work remained
  uint64_t overdue = 0;                   // evictions that ran into evict_warn_ns
  uint64_t ended = 0;                     // sessions ended for not leaving
  uint64_t unasked = 0;                   // visits that began before the policy had heard of them
  uint64_t set_changes = 0;               // in space: changes of its SM set, from and to none too
  uint64_t report_violations = 0;

  ReportedSums guest;  // of all its sessions, those that have ended too
  // Of its present sessions, as they report.
  uint64_t guest_queued = 0;    // launches that are not done
  uint64_t guest_narrowed = 0;  // in space: changes of SMs under which launches stayed
  uint64_t guest_grown = 0;     // in space: second grids of launches on SMs that were gained
};

class Scheduler {
 public:
  // Whether it can drive a policy on such a GPU. What a session's launches are is known here by its
  // worker's word alone, so a policy hears of all that a vGPU has queued together, as one
  // prediction.
  static bool runs(const policy::Registration& row,
                   policy::PreemptorKind kind = policy::PreemptorKind::kExclusive) {
    return kind == policy::PreemptorKind::kExclusive ? row.exclusive : row.proportional;
  }
  // Null if there is no policy of that name, or none that runs() here. With machine.preemptor
  // kProportional the GPU's time slices are set, several vGPUs hold it at once, and what each uses
  // has to be measured: on_used(). With machine.spatial parts of the GPU are granted, to several
  // vGPUs side by side, as far as the policy asks for that; sm_count is at most SmSet::kMax then.
  static std::unique_ptr<Scheduler> make(const SchedulerConfig& config, uint64_t now_ns);
  ~Scheduler();

  // --- vGPUs ---------------------------------------------------------------------------------
  // nullopt: max_vgpus reached. share is bounded (operator's input that the caller has checked).
  // If a vGPU of this name was removed less than a second ago, the new one has its debts.
  std::optional<VgpuId> add_vgpu(uint64_t now_ns, const policy::VgpuShare& share, ActionQueue& out,
                                 std::string_view name = {});
  void set_share(uint64_t now_ns, VgpuId vgpu, const policy::VgpuShare& share, ActionQueue& out);
  // Its virtual machine is paused, or goes on. A paused vGPU counts as idle: it gives way at once
  // to any other, and gets no turn. Alone on the GPU, what it has queued runs on.
  void set_paused(uint64_t now_ns, VgpuId vgpu, bool paused, ActionQueue& out);
  // A group of vGPUs is new or has changed (policy::Policy::on_group).
  void set_group(uint64_t now_ns, policy::GroupId group, const policy::GroupShare& share,
                 ActionQueue& out);
  // Why the policy cannot give this share, for the operator; empty: it can. kNoVgpu: to a new vGPU.
  std::string refuses(VgpuId vgpu, const policy::VgpuShare& share) const;
  std::string refuses_group(policy::GroupId group, const policy::GroupShare& share) const;
  policy::ShareFigures share_figures(VgpuId vgpu) const;
  // All its sessions must have been removed. Without a name nothing of it is remembered.
  void remove_vgpu(uint64_t now_ns, VgpuId vgpu, ActionQueue& out, std::string_view name = {});

  // --- sessions ------------------------------------------------------------------------------
  // A worker with zeroed pages. If its vGPU holds the GPU, it is granted at once.
  std::optional<SessionId> add_session(uint64_t now_ns, VgpuId vgpu, ActionQueue& out);
  // Its worker is gone, for whatever reason, and with it everything it had on the GPU.
  void on_session_removed(uint64_t now_ns, SessionId session, ActionQueue& out);

  // --- events --------------------------------------------------------------------------------
  // After a ring of the session's worker (eventfd read first, then the report), as the answer to
  // kReadReport, and at any other time (periodic reads refresh the statistics).
  void on_report(uint64_t now_ns, SessionId session, const ReportSnapshot& report,
                 ActionQueue& out);
  // Whether the next report of `session` should bring hints: the policy goes by launches, and they
  // would be in time.
  bool wants_hints(SessionId session) const;
  // Whether another vGPU waits for the next report of `session`: that it has left, or has no more
  // work.
  bool awaits(SessionId session) const;
  // What the GPU's own sources (policies/accounting/usage_meter.h) say about time that has been
  // charged by the clock already, in SM-ns. `refund`: the vGPU held, and the GPU was not its to
  // use; it is taken off its next charges, never more in sum than it was charged, nor more at once
  // than one max_quantum. `extra`: it used the GPU without a grant; charged at once. Unknown vGPUs:
  // ignored.
  void on_measured(uint64_t now_ns, VgpuId vgpu, uint64_t refund_sm_ns, uint64_t extra_sm_ns,
                   ActionQueue& out);
  // A fault of v has stopped the whole GPU for `stall_ns`, until now. Whoever held it meanwhile was
  // charged by the clock: v pays for the rest as well, and others get theirs back. Unknown vGPUs:
  // ignored.
  void on_stall(uint64_t now_ns, VgpuId vgpu, uint64_t stall_ns, ActionQueue& out);
  // From now on evictions of v have this deadline instead of evict_end_ns; 0: evict_end_ns.
  void set_evict_end(VgpuId vgpu, uint64_t evict_end_ns);
  // For how long `session`, which is to be ended for `reason`, has kept the GPU from others.
  uint64_t overstay_ns(SessionId session, EndReason reason) const;
  // `session` is gone, and not because it was to be ended for its work: for how long it has kept
  // the GPU from others until then, after it had to leave. 0: it has not, or no longer than work of
  // its vGPU has taken to leave by itself. To be asked once, before on_session_removed().
  uint64_t take_stay_ns(uint64_t now_ns, SessionId session);
  // The answer to kAskStarved, at any time after it: for so long in sum since its start nothing of
  // the session's worker ran although something of it could have.
  void on_starved(uint64_t now_ns, SessionId session, uint64_t starved_ns, ActionQueue& out);
  // On a GPU with time slices: v's contexts have used this much since the last call. To be called
  // before any event that the policy decides by; decides nothing itself. Elsewhere ignored (and
  // on_measured() is ignored here). `free`: while no other vGPU wanted it; shown, and not charged.
  void on_used(uint64_t now_ns, VgpuId vgpu, uint64_t sm_ns, bool free = false);
  // The host has sampled the GPU: a context of `running` was at work, or of nobody that the host
  // knows (kNoSession). Decides who is ended (sharing/deadlines.h has the table), so what was read
  // has to be the GPU's word. Without samples the workers' reports decide.
  void on_seen(uint64_t now_ns, SessionId running, ActionQueue& out);
  // sluiced did nothing until now, for so long that gates counted as open.
  void on_silence(uint64_t now_ns);
  // The time of kWakeAt has come. Early and spurious calls do no harm.
  void on_timer(uint64_t now_ns, ActionQueue& out);

  // --- for people ----------------------------------------------------------------------------
  VgpuStats stats(uint64_t now_ns, VgpuId vgpu) const;
  const accounting::LatencyHistogram& eviction_latency(VgpuId vgpu) const;
  uint64_t all_contended_ns(uint64_t now_ns) const;  // all vGPUs (two or more) had work
  std::string_view policy_name() const;
  uint64_t quantum_ns() const;

 private:
  struct Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::core
