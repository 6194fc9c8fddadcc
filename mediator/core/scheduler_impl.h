// The scheduler's insides, for scheduler.cc alone: its states and the rules by which they change.
//
// The scheduler's states. A session's gate is open only while its vGPU holds the GPU and is not
// leaving. A vGPU goes
//
//     out --Run--> holds --Evict--> holds, leaving --all sessions left--> out
//
// and at most one vGPU holds (exclusive preemptor). In space (machine.spatial) several hold, each its SMs;
// what changes then is in scheduler_parts.cc. Independently it is busy or idle, as the policy
// was told; the truth behind that (`wants`) comes from the sessions' reports, and settle() passes the
// difference on when no report is outstanding:
//   - a holder that nobody competed with was not asked to say when it turned idle or busy
//     (disengaged). So when somebody else wants the GPU, its sessions' words get the contended flag
//     and their reports are read, *before* the policy hears of the newcomer;
//   - a contended holder's session that rings idle speaks for itself only. Sessions beside it may have
//     found work without ringing (their gate is open), so their reports are read before the vGPU
//     counts as idle.
// Closed words carry the contended flag too, so a session whose gate is closed rings at each change
// between work and no work.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "mediator/base/check.h"
#include "mediator/core/scheduler.h"
#include "policies/parts/in_units.h"

namespace sluice::core {

using policy::kNoVgpu;
namespace scheduler_detail {

struct Session {
  bool present = false;
  VgpuId vgpu = kNoVgpu;
  uint32_t generation = 0;  // of the last grant
  uint64_t word = 0;        // grant word as last set
  bool leaving = false;     // evicted or called back, not yet seen to have left ...
  uint32_t leaving_generation = 0;  // ... this one and all before it
  uint32_t reads_pending = 0;  // kReadReport asked for and not answered
  bool keeping = false;        // called back, but for what stays on SMs of the new set
  bool end_sent = false;
  bool wants = false;
  bool unconfined = false;  // in space: uses more than its SMs, as far as it says
  ReportSnapshot report;    // checked and clipped
  LaunchHints hints;        // the same; as last read
  uint64_t ungranted_ns = 0, ungranted_at_ns = 0;  // scheduler_deadlines.cc
  uint64_t slice_ns = 0;    // on time slices: as last set; 0: not yet
};

struct Vgpu {
  bool present = false;
  policy::VgpuShare share;
  std::vector<SessionId> sessions;
  uint32_t wanting_sessions = 0;
  bool busy = false;      // what the policy was told
  bool dirty = false;     // wants() may differ from busy
  bool verified = false;  // all sessions' reports were read since it turned idle
  bool came_back = false;  // in space: it counts as idle, and has ended launches since
  bool holds = false;
  bool leaving = false;
  bool engaged = false;   // holds and its words carry the contended flag
  uint32_t not_left = 0;  // sessions with `leaving`
  bool had_in_flight = false;
  uint64_t evict_ns = 0;
  uint64_t excused_ns = 0;  // since then, in which somebody else was seen running without a grant
  // Its last hold: from, to; its own deadline, 0: everybody's.
  uint64_t granted_ns = 0, left_ns = 0, evict_end_ns = 0;
  bool warned = false, end_sent = false;
  // In space. `held` is what the policy gave; `going` what of it the policy wants back; `granted` what
  // the sessions' words say, or are about to when `moving` is over: one change at a time.
  SmSet held, going, granted, released;
  SmSet before;           // moving: what was granted before
  SmSet spread;           // where launches of its sessions may be, at most: all that they were granted since a move
                          // under which none stayed
  bool moving = false, move_due = false;
  bool asked = false;     // a move is due, and the sessions' reports are being read for it
  bool keeping = false;   // moving: launches may stay
  uint64_t move_ns = 0;   // moving: since then
  uint64_t set_changes = 0;
  uint32_t unconfined_sessions = 0;
  uint64_t used_sm_ns = 0, flushed_ns = 0;  // by the clock, and the clock's total then
  accounting::ClockEstimator clock;
  uint64_t refund_sm_ns = 0;  // owed to it, to be taken off its next charges
  uint64_t charged_sm_ns = 0, refunded_sm_ns = 0, extra_sm_ns = 0;
  accounting::LatencyHistogram latency;
  uint64_t slice_ns = 0;  // on time slices: as the policy set it; 0: gated
  // What the policy was told of its launches since it turned busy, and by what those are told that nobody predicts.
  uint64_t told_sm_ns = 0, told_preempt_ns = 0;
  bool tell_due = false;
  double mean_launch_sm_ns = 0;  // 0: none has ended yet
  uint64_t busy_charged_sm_ns = 0, busy_launches_done = 0;  // when it turned busy
  uint64_t grants = 0, evictions = 0, overdue = 0, ended = 0, violations = 0;
  uint64_t old_launches = 0, old_done = 0, old_relaunched = 0;  // of sessions that are gone; added by add_counter()
  uint64_t old_green_launches = 0, old_green_contexts = 0, old_part_launches = 0;        // likewise

  bool wants() const { return wanting_sessions > 0; }
};

// Guests say what their counters are: a sum of them stops at the most there is instead of beginning again.
inline void add_counter(uint64_t& to, uint64_t guest_count) {
  if (__builtin_add_overflow(to, guest_count, &to)) to = UINT64_MAX;
}

}  // namespace scheduler_detail

struct Scheduler::Impl {
  using Session = scheduler_detail::Session;
  using Vgpu = scheduler_detail::Vgpu;

  SchedulerConfig config;
  std::unique_ptr<policy::Policy> policy;
  std::vector<Vgpu> vgpus;
  std::vector<Session> sessions;
  std::vector<VgpuId> free_vgpus;
  std::vector<SessionId> free_sessions;
  std::vector<VgpuId> holders;  // one at most, but in space
  SmSet taken;                  // in space: by all of them
  std::vector<VgpuId> moves_due;
  bool wake_due = false;        // the policy's, when the reports that are being read are in
  bool uses_launches = false;   // the policy goes by launches
  std::vector<VgpuId> tells_due;
  uint32_t wanting = 0;      // vGPUs that want the GPU
  uint32_t outstanding = 0;  // kReadReport without its on_report() yet
  std::vector<VgpuId> dirty;
  std::vector<VgpuId> leaving;  // for the deadlines; rarely more than one
  uint64_t policy_wake_ns = kNever;
  uint64_t armed_ns = kNever;
  uint64_t seen_ns = 0;  // of the last look at the GPU; 0: none
  uint64_t handover_since_ns = 0;  // 0: the GPU was not taken from anybody who used it
  accounting::ShareMeter meter;
  policy::Actions policy_actions;

  // ---- small helpers -------------------------------------------------------------------------
  Vgpu* vgpu(VgpuId v) { return v < vgpus.size() && vgpus[v].present ? &vgpus[v] : nullptr; }
  Session* session(SessionId s) {
    return s < sessions.size() && sessions[s].present ? &sessions[s] : nullptr;
  }
  bool spatial() const { return config.policy_config.machine.spatial; }
  bool slices() const { return config.policy_config.machine.preemptor == policy::PreemptorKind::kProportional; }
  uint32_t sm_count() const { return config.policy_config.machine.sm_count; }
  bool grantable(const policy::SmRange& sms) const {
    return policy::is_whole_units(sm_count(), config.policy_config.machine.sm_unit, sms);
  }
  // SMs that it is charged for.
  uint32_t sms_of(const Vgpu& g) const {
    return spatial() && g.unconfined_sessions == 0 ? g.held.count() : sm_count();
  }
  uint64_t evict_end_ns(const Vgpu& g) const { return g.evict_end_ns ? g.evict_end_ns : config.evict_end_ns; }
  uint32_t others_wanting(VgpuId v) const { return wanting - (vgpus[v].wants() ? 1 : 0); }

  void log(ActionQueue& out, LogEvent event, VgpuId v, uint64_t value,
           SessionId s = kNoSession) const {
    out.push({.kind = Action::Kind::kLog, .session = s, .vgpu = v, .word = value, .event = event});
  }
  void set_grant(ActionQueue& out, SessionId s, uint64_t flags) {
    Session& x = sessions[s];
    x.word = x.generation | flags | (x.end_sent ? SLUICE_GRANT_ENDING : 0);
    out.push({.kind = Action::Kind::kSetGrant, .session = s, .vgpu = x.vgpu, .word = x.word});
  }
  void ring_gate(ActionQueue& out, SessionId s) const {
    out.push({.kind = Action::Kind::kRingGate, .session = s, .vgpu = sessions[s].vgpu});
  }
  void read_report_of(ActionQueue& out, SessionId s) {
    Session& x = sessions[s];
    ++outstanding;
    ++x.reads_pending;
    out.push({.kind = Action::Kind::kReadReport, .session = s, .vgpu = x.vgpu});
  }
  void end_session(ActionQueue& out, SessionId s, EndReason reason) {
    Session& x = sessions[s];
    if (x.end_sent) return;
    x.end_sent = true;
    set_wants(s, false);
    ++vgpus[x.vgpu].ended;
    set_grant(out, s, x.word & (SLUICE_GRANT_OPEN | SLUICE_GRANT_CONTENDED));
    ring_gate(out, s);
    log(out, LogEvent::kEnded, x.vgpu, static_cast<uint64_t>(reason), s);
    out.push({.kind = Action::Kind::kEndSession, .session = s, .vgpu = x.vgpu, .reason = reason});
  }
  void mark_dirty(VgpuId v) {
    if (vgpus[v].dirty) return;
    vgpus[v].dirty = true;
    dirty.push_back(v);
  }
  void set_wants(SessionId s, bool wants) {
    Session& x = sessions[s];
    wants = wants && !x.end_sent;  // it will be granted nothing more
    if (x.wants == wants) return;
    x.wants = wants;
    Vgpu& g = vgpus[x.vgpu];
    const bool before = g.wants();
    g.wanting_sessions += wants ? 1 : -1;
    if (before == g.wants()) return;
    wanting += g.wants() ? 1 : -1;
    mark_dirty(x.vgpu);
  }

  // ---- the policy ----------------------------------------------------------------------------
  void flush_usage(uint64_t now_ns) {
    if (slices()) return;  // on_used()
    for (const VgpuId v : holders) {
      Vgpu& g = vgpus[v];
      const uint64_t used = g.clock.take_used(now_ns);
      if (used == 0) continue;
      g.used_sm_ns += used * sms_of(g);
      g.flushed_ns = g.clock.total_ns(now_ns);
      charge(now_ns, v, used * sms_of(g));
    }
  }
  // By the clock; a refund that is owed goes off first.
  void charge(uint64_t now_ns, VgpuId v, uint64_t sm_ns) {
    Vgpu& g = vgpus[v];
    const uint64_t back = std::min(g.refund_sm_ns, sm_ns);
    g.refund_sm_ns -= back;
    g.refunded_sm_ns += back;
    if (sm_ns == back) return;
    g.charged_sm_ns += sm_ns - back;
    policy->on_usage(now_ns, v, {.sm_ns = sm_ns - back});
  }
  // `event` is one call into the policy; what it answers is done at once.
  template <class Event>
  void ask(uint64_t now_ns, ActionQueue& out, Event&& event) {
    flush_usage(now_ns);
    policy_actions.clear();
    event(policy_actions);
    for (const policy::Action& a : policy_actions) apply(now_ns, a, out);
  }
  void apply(uint64_t now_ns, const policy::Action& a, ActionQueue& out) {
    using Kind = policy::Action::Kind;
    const bool whole =
        a.launch == 0 && a.sms.lo == 0 && (a.sms.hi == 0xffff || a.sms.hi >= sm_count());
    switch (a.kind) {
      case Kind::kWake:
        policy_wake_ns = a.at_ns;
        return;
      case Kind::kRun:
        if (spatial()) {
          if (run_part(now_ns, a, out)) return;
          break;
        }
        if (!vgpu(a.vgpu) || !whole || !holders.empty() || slices() || vgpus[a.vgpu].sessions.empty()) break;
        return grant(now_ns, a.vgpu, out);
      case Kind::kEvict:
        if (spatial()) {
          if (evict_part(now_ns, a)) return;
          break;
        }
        if (!vgpu(a.vgpu) || !whole || !vgpus[a.vgpu].holds || slices()) break;
        if (!vgpus[a.vgpu].leaving) evict(now_ns, a.vgpu, out);
        return;
      case Kind::kSetSlice:
        if (!vgpu(a.vgpu) || !slices()) break;
        vgpus[a.vgpu].slice_ns = a.value;
        return;
    }
    log(out, LogEvent::kPolicyViolation, a.vgpu, static_cast<uint64_t>(a.kind));
  }

  // ---- granting and evicting -----------------------------------------------------------------
  uint64_t open_flags(const Vgpu& g) const {
    return SLUICE_GRANT_OPEN | (g.engaged ? SLUICE_GRANT_CONTENDED : 0) |
           (spatial() && g.granted.count() != sm_count() ? SLUICE_GRANT_PART : 0) |
           (g.moving ? SLUICE_GRANT_RECALL : 0) | (g.keeping ? SLUICE_GRANT_KEEP : 0);
  }
  void grant_session(SessionId s, ActionQueue& out) {
    Session& x = sessions[s];
    if (x.end_sent) return;
    if (x.generation >= config.max_generation)
      return end_session(out, s, EndReason::kGenerationsSpent);
    ++x.generation;
    const uint64_t flags = open_flags(vgpus[x.vgpu]);
    if (flags & SLUICE_GRANT_PART)
      out.push({.kind = Action::Kind::kSetSms,
                .session = s,
                .vgpu = x.vgpu,
                .word = x.generation,
                .sms = vgpus[x.vgpu].granted});
    set_grant(out, s, flags);
    ring_gate(out, s);
  }
  void grant(uint64_t now_ns, VgpuId v, ActionQueue& out) {
    Vgpu& g = vgpus[v];
    holders.push_back(v);
    g.holds = true;
    g.engaged = others_wanting(v) > 0;
    ++g.grants;
    g.granted_ns = now_ns;
    g.clock.on_granted(now_ns, g.engaged);
    if (!slices()) meter.set_holder(now_ns, v);
    for (SessionId s : g.sessions) grant_session(s, out);
    log(out, LogEvent::kGranted, v, sessions[g.sessions.front()].generation);
    if (handover_since_ns) {
      policy->on_handover(now_ns, now_ns - handover_since_ns);
      handover_since_ns = 0;
    }
  }
  // The order of the stores and of the reads after them is the gate protocol's (abi/stub.h).
  void evict_session(SessionId s, ActionQueue& out) {
    Session& x = sessions[s];
    set_grant(out, s, SLUICE_GRANT_CONTENDED);
    out.push({.kind = Action::Kind::kSetEvict,
              .session = s,
              .vgpu = x.vgpu,
              .word = SLUICE_EVICT_ALL_SMS(x.generation)});
    await_leaving(s, x.generation, out);
  }
  // The gate protocol's last step of an eviction or a recall.
  void await_leaving(SessionId s, uint32_t generation, ActionQueue& out) {
    Session& x = sessions[s];
    x.leaving = true;
    x.leaving_generation = generation;
    ++vgpus[x.vgpu].not_left;
    read_report_of(out, s);
  }
  void start_leaving(uint64_t now_ns, VgpuId v) {
    Vgpu& g = vgpus[v];
    g.leaving = true;
    g.warned = g.end_sent = g.had_in_flight = false;
    g.evict_ns = now_ns;
    g.excused_ns = 0;
    leaving.push_back(v);
  }
  void evict(uint64_t now_ns, VgpuId v, ActionQueue& out) {
    Vgpu& g = vgpus[v];
    start_leaving(now_ns, v);
    log(out, LogEvent::kEvictSent, v,
        static_cast<uint64_t>(g.busy ? EvictCause::kQuantum : EvictCause::kIdle));
    for (SessionId s : g.sessions) evict_session(s, out);
  }
  void session_left(uint64_t now_ns, SessionId s, ActionQueue& out) {
    Session& x = sessions[s];
    x.leaving = x.keeping = false;
    Vgpu& g = vgpus[x.vgpu];
    if (--g.not_left != 0) return;
    if (spatial())
      move_over(now_ns, x.vgpu, out);
    else
      vgpu_left(now_ns, x.vgpu, out);
  }
  void vgpu_left(uint64_t now_ns, VgpuId v, ActionQueue& out) {
    Vgpu& g = vgpus[v];
    const uint64_t took_ns = g.leaving ? now_ns - g.evict_ns : 0;
    log(out, LogEvent::kLeft, v, took_ns);
    if (g.leaving) std::erase(leaving, v);
    g.left_ns = now_ns;
    g.clock.on_left(now_ns);
    flush_usage(now_ns);
    if (g.leaving && g.wants()) ++g.evictions;
    if (g.leaving && g.had_in_flight) {
      g.latency.add(took_ns);
      if (!slices()) handover_since_ns = g.evict_ns;
    }
    const policy::LeftReason why = left_reason(g);
    // The policy must not choose it again for work that it no longer has. It may answer with an evict,
    // which a leaving vGPU takes as done.
    g.leaving = true;
    if (g.busy && !g.wants()) turn_idle(now_ns, v, out);
    std::erase(holders, v);
    g.holds = g.leaving = g.engaged = false;
    if (!slices()) meter.set_holder(now_ns, accounting::ShareMeter::kNobody);
    ask(now_ns, out, [&](policy::Actions& a) { policy->on_released(now_ns, v, 0, {}, why, a); });
  }

  static policy::LeftReason left_reason(const Vgpu& g) {
    return g.sessions.empty() ? policy::LeftReason::kGone
           : g.wants()        ? policy::LeftReason::kEvicted
                              : policy::LeftReason::kIdle;
  }

  // ---- in space (scheduler_parts.cc) ---------------------------------------------------------
  bool run_part(uint64_t now_ns, const policy::Action& a, ActionQueue& out);
  bool evict_part(uint64_t now_ns, const policy::Action& a);
  void make_due(VgpuId v);
  bool make_moves(uint64_t now_ns, ActionQueue& out);
  void move(uint64_t now_ns, VgpuId v, ActionQueue& out);
  bool may_stay(const Vgpu& g, const SmSet& to, SmSet::Range* leave) const;
  void recall_session(SessionId s, const SmSet::Range& leave, ActionQueue& out);
  void call_back_whole(SessionId s, ActionQueue& out);
  void move_over(uint64_t now_ns, VgpuId v, ActionQueue& out);
  void release(uint64_t now_ns, VgpuId v, SmSet sms, ActionQueue& out);
  void all_gone(uint64_t now_ns, VgpuId v, ActionQueue& out);
  void take_unconfined(uint64_t now_ns, SessionId s, bool unconfined);

  bool pauses_count() const { return spatial() && config.policy_config.machine.change_ns > 0; }
  void look_at_idle_holders(ActionQueue& out);
  bool wake_policy(uint64_t now_ns, ActionQueue& out);

  // ---- on time slices (scheduler_slices.cc) --------------------------------------------------
  void set_slices(VgpuId v, uint64_t slice_ns, ActionQueue& out);
  bool open_and_gate(uint64_t now_ns, ActionQueue& out);

  // ---- launches (scheduler_launches.cc) ------------------------------------------------------
  void take_hints(SessionId s, const std::optional<LaunchHints>& hints);
  void tell_launches(uint64_t now_ns, VgpuId v, ActionQueue& out);
  bool tell_what_is_due(uint64_t now_ns, ActionQueue& out);
  void mark_busy(uint64_t now_ns, VgpuId v, bool busy);
  uint64_t launches_done(const Vgpu& g) const;

  // ---- busy and idle -------------------------------------------------------------------------
  void turn_busy(uint64_t now_ns, VgpuId v, ActionQueue& out) {
    Vgpu& g = vgpus[v];
    g.busy = true;
    g.verified = false;
    meter.set_busy(now_ns, v, true);
    log(out, LogEvent::kBusy, v, 0);
    mark_busy(now_ns, v, true);
    tell_launches(now_ns, v, out);
    ask(now_ns, out, [&](policy::Actions& a) { policy->on_arrival(now_ns, v, a); });
  }
  void turn_idle(uint64_t now_ns, VgpuId v, ActionQueue& out) {
    Vgpu& g = vgpus[v];
    g.busy = false;
    g.verified = false;
    meter.set_busy(now_ns, v, false);
    log(out, LogEvent::kIdle, v, 0);
    mark_busy(now_ns, v, false);
    ask(now_ns, out, [&](policy::Actions& a) { policy->on_idle(now_ns, v, a); });
  }
  void set_engaged(uint64_t now_ns, VgpuId v, bool engaged, ActionQueue& out) {
    Vgpu& g = vgpus[v];
    g.engaged = engaged;
    g.clock.on_contended(now_ns, engaged);
    for (SessionId s : g.sessions) {
      if (!(sessions[s].word & SLUICE_GRANT_OPEN)) continue;
      set_grant(out, s, open_flags(g));
      if (engaged) read_report_of(out, s);
    }
  }
  // Brings contended flags and the policy's knowledge up to date, as far as reports are in.
  void settle(uint64_t now_ns, ActionQueue& out) {
    while (outstanding == 0) {
      const auto other = std::find_if(holders.begin(), holders.end(), [&](VgpuId v) {
        return !vgpus[v].leaving && (others_wanting(v) > 0) != vgpus[v].engaged;
      });
      if (other != holders.end()) {
        set_engaged(now_ns, *other, others_wanting(*other) > 0, out);
        continue;
      }
      // So that a decision about a newcomer rests on what the holder's launches are now.
      if (tell_what_is_due(now_ns, out)) continue;
      if (dirty.empty()) return;
      // The holder first: a decision about a newcomer must not rest on stale news of the holder.
      const auto held = std::find_if(dirty.begin(), dirty.end(), [&](VgpuId v) { return vgpus[v].holds; });
      const size_t at = held == dirty.end() ? 0 : static_cast<size_t>(held - dirty.begin());
      const VgpuId v = dirty[at];
      Vgpu& g = vgpus[v];
      if (g.present && g.busy && !g.wants() && g.holds && !g.leaving && g.engaged &&
          !g.verified && g.sessions.size() > 1) {
        g.verified = true;
        for (SessionId s : g.sessions) read_report_of(out, s);
        continue;
      }
      dirty.erase(dirty.begin() + static_cast<std::ptrdiff_t>(at));
      g.dirty = g.verified = false;
      if (!g.present) continue;
      if (std::exchange(g.came_back, false) && !g.busy && !g.wants()) {
        turn_busy(now_ns, v, out);
        mark_dirty(v);  // and idle again
        continue;
      }
      if (g.busy == g.wants()) continue;
      if (g.wants())
        turn_busy(now_ns, v, out);
      else
        turn_idle(now_ns, v, out);
    }
  }

  // ---- reports -------------------------------------------------------------------------------
  void take_report(SessionId s, const ReportSnapshot& report, ActionQueue& out);

  // ---- deadlines (scheduler_deadlines.cc) ----------------------------------------------------
  void look_at_deadlines(uint64_t now_ns, ActionQueue& out);
  void see(uint64_t now_ns, SessionId running, ActionQueue& out);
  void rearm(ActionQueue& out);

  void finish(uint64_t now_ns, ActionQueue& out) {
    do {
      settle(now_ns, out);
    } while (make_moves(now_ns, out) || open_and_gate(now_ns, out) || wake_policy(now_ns, out));
    rearm(out);
  }
};

}  // namespace sluice::core
