// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/strategies/in_space.h"

#include <algorithm>
#include <utility>

#include "mediator/base/check.h"
#include "mediator/core/sharing/sharing.h"
#include "policies/parts/in_units.h"

namespace sluice::core {

InSpace::InSpace(Sharing& sharing) : sharing_(sharing) {
  SLUICE_CHECK(sharing.sm_count() <= SmSet::kMax);
  sharing.charging.meter = accounting::ShareMeter(sharing.sm_count());
}

// ---- what the policy asks for ----------------------------------------------------------------

SmSet InSpace::set_of(const policy::SmRange& r) const {
  return SmSet(r.lo, r.hi == 0xffff ? sharing_.sm_count() : r.hi);
}

bool InSpace::grantable(const policy::SmRange& r) const {
  return policy::is_whole_units(sharing_.sm_count(), sharing_.machine().sm_unit, r);
}

bool InSpace::run(uint64_t now_ns, const policy::Action& a, ActionQueue& out) {
  const uint32_t hi = a.sms.hi == 0xffff ? sharing_.sm_count() : a.sms.hi;
  const SmSet sms = set_of(a.sms);
  const VgpuState* g = sharing_.vgpu(a.vgpu);
  if (!g || a.launch != 0 || sms.empty() || hi > sharing_.sm_count() || taken_.meets(sms) ||
      !grantable(a.sms) || g->sessions.empty())
    return false;
  Parts& p = vgpus_[a.vgpu];
  taken_ = taken_ | sms;
  p.held = p.held | sms;
  if (!g->holds()) {
    sharing_.begin_hold(now_ns, a.vgpu);
    const uint32_t generation = sharing_.sessions[g->sessions.front()].generation;
    sharing_.log(out, LogEvent::kGranted, a.vgpu, generation);
  }
  sharing_.charging.meter.set_held(now_ns, a.vgpu, charged_sms(a.vgpu));
  set_due(a.vgpu);
  return true;
}

bool InSpace::evict(uint64_t now_ns, const policy::Action& a, ActionQueue&) {
  const SmSet sms = set_of(a.sms);
  if (!sharing_.vgpu(a.vgpu) || a.launch != 0 || sms.empty() || !grantable(a.sms)) return false;
  Parts& p = vgpus_[a.vgpu];
  // What is just being released needs no eviction any more.
  if (!(p.held | p.released).contains_all(sms)) return false;
  const SmSet more = (sms & p.held) - p.going;
  if (more.empty()) return true;
  if (p.going.empty()) {  // the deadline runs from the first SM that somebody waits for
    sharing_.deadlines.start(now_ns, a.vgpu);
    sharing_.vgpus[a.vgpu].had_in_flight = false;
  }
  p.going = p.going | more;
  set_due(a.vgpu);
  return true;
}

uint64_t InSpace::extra_flags(VgpuId v) const {
  const Parts& p = vgpus_[v];
  return (p.granted.count() != sharing_.sm_count() ? SLUICE_GRANT_PART : 0) |
         (p.moving() ? SLUICE_GRANT_RECALL : 0) |
         (p.state == MoveState::kStaying ? SLUICE_GRANT_KEEP : 0);
}

// ---- moves -----------------------------------------------------------------------------------

void InSpace::set_due(VgpuId v) {
  // While it moves, the next move waits for on_drained().
  if (vgpus_[v].state != MoveState::kSettled) return;
  vgpus_[v].state = MoveState::kDue;
  due_.push_back(v);
}

bool InSpace::reads_pending(VgpuId v) const {
  const auto& sessions = sharing_.vgpus[v].sessions;
  return std::any_of(sessions.begin(), sessions.end(),
                     [&](SessionId s) { return sharing_.sessions[s].reads_pending != 0; });
}

bool InSpace::advance(uint64_t now_ns, ActionQueue& out) {
  bool moved = false;
  for (std::vector<VgpuId> due = std::exchange(due_, {}); !due.empty();) {
    const VgpuId v = due.back();
    due.pop_back();
    if (!sharing_.vgpu(v)) continue;
    if (vgpus_[v].state == MoveState::kAsking && reads_pending(v)) {
      due_.push_back(v);
      continue;
    }
    moved = true;
    move(now_ns, v, out);
  }
  return moved;
}

// Whether launches in flight may stay on SMs of `to`. *leave: the range that they then have to
// leave, perhaps none.
bool InSpace::may_stay(const Parts& p, const SmSet& to, SmSet::Range* leave) const {
  const uint32_t all = sharing_.sm_count();
  // What was launched under the whole GPU is on no list of SMs.
  if (p.before.empty() || to.empty() || p.before.count() == all || to.count() == all) return false;
  const SmSet lost = (p.spread | p.before) - to;
  *leave = lost.next_range();
  for (SmSet::Range r = lost.next_range(); r.lo < r.hi; r = lost.next_range(r.hi)) leave->hi = r.hi;
  return !to.meets(SmSet(leave->lo, leave->hi));
}

// Whether all workers with launches in flight can let them stay.
bool InSpace::workers_keep(VgpuId v, const SmSet& to) const {
  const Parts& p = vgpus_[v];
  const uint32_t needed = ((p.before - to).empty() ? 0 : SLUICE_KEEPS_SHRINK) |
                          ((to - p.before).empty() ? 0 : SLUICE_KEEPS_GROW);
  const auto& sessions = sharing_.vgpus[v].sessions;
  return std::all_of(sessions.begin(), sessions.end(), [&](SessionId s) {
    const ReportSnapshot& r = sharing_.sessions[s].report;
    return r.guest_in_flight == 0 || (r.guest_keeps & needed) == needed;
  });
}

void InSpace::move(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  Parts& p = vgpus_[v];
  const bool asked = std::exchange(p.state, MoveState::kSettled) == MoveState::kAsking;
  const SmSet to = p.held - p.going;
  if (to == p.granted) {
    // Given and taken back in between: nothing of it ever ran there.
    if (!p.going.empty()) release(now_ns, v, p.going, out);
    return;
  }
  p.before = p.granted;
  SmSet::Range leave{0, 0};
  bool stay = false;
  if (may_stay(p, to, &leave)) {
    if (!asked) {
      p.state = MoveState::kAsking;
      due_.push_back(v);
      for (const SessionId s : g.sessions) sharing_.reports.read(s, out);
      return;
    }
    stay = workers_keep(v, to);
  }
  p.spread = stay ? p.spread | p.before | to : to;
  p.granted = to;
  p.move_ns = now_ns;
  if (!p.before.empty()) p.state = stay ? MoveState::kStaying : MoveState::kRecalling;
  g.had_in_flight = false;
  ++g.counters.set_changes;
  const EvictCause cause = g.busy ? EvictCause::kQuantum : EvictCause::kIdle;
  if (p.going.empty())
    sharing_.log(out, LogEvent::kPart, v, to.count());
  else
    sharing_.log(out, LogEvent::kEvictSent, v, static_cast<uint64_t>(cause));
  change_words(now_ns, v, leave, out);
  if (!p.moving() && !p.going.empty()) release(now_ns, v, p.going - to, out);
}

// Brings every session from the set before to the one that is granted. Those whose gates are closed
// meanwhile (crowd.h) leave what they left already.
void InSpace::change_words(uint64_t now_ns, VgpuId v, const SmSet::Range& leave, ActionQueue& out) {
  const Parts& p = vgpus_[v];
  if (p.before.empty()) return sharing_.crowd.open_gates(now_ns, v, out);
  for (const SessionId s : sharing_.vgpus[v].sessions) {
    if (p.granted.empty() || !sharing_.has_open_gate(s))
      sharing_.evict_session(s, out);
    else
      recall_session(s, leave, out);
  }
}

void InSpace::recall_session(SessionId s, const SmSet::Range& leave, ActionQueue& out) {
  const SessionState& x = sharing_.sessions[s];
  const uint32_t old = x.generation;
  bool stays = vgpus_[x.vgpu].state == MoveState::kStaying;
  // Before the grant: a worker that reads that launches may stay relies on this word.
  if (stays && leave.lo < leave.hi)
    sharing_.set_evict(out, s, SLUICE_EVICT_WORD(old, leave.lo, leave.hi));
  sharing_.grant_session(s, out);
  if (x.generation == old) {
    // It has no generation left, or is being ended: it leaves like an evicted one, and for good.
    stays = false;
    sharing_.set_grant(out, s, SLUICE_GRANT_CONTENDED);
  }
  if (!stays) sharing_.set_evict(out, s, SLUICE_EVICT_ALL_SMS(old));
  sharing_.begin_drain(s, stays ? Drain::kOutsideSet : Drain::kAll, old, out);
}

// Everything of the generation before has left.
void InSpace::on_drained(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  Parts& p = vgpus_[v];
  if (!p.moving()) return;  // single sessions gave way to others of v
  const bool stayed = std::exchange(p.state, MoveState::kSettled) == MoveState::kStaying;
  set_due(v);  // what was asked for meanwhile
  if (!stayed && g.had_in_flight && !p.granted.empty())
    sharing_.policy->on_change(now_ns, now_ns - p.move_ns);
  const SmSet lost = (p.before - p.granted) & p.going;
  if (lost.empty()) return;
  const uint64_t took_ns = now_ns - sharing_.deadlines.evicted_at_ns(v);
  if (g.backlogged()) ++g.counters.evictions;
  if (g.had_in_flight) {
    g.counters.eviction_latency.add(took_ns);
    // What it cost for each SM that is handed over: where launches did not stay, all their SMs were
    // idle meanwhile.
    const uint64_t cost_ns = stayed ? took_ns : took_ns * p.before.count() / lost.count();
    sharing_.policy->on_handover(now_ns, cost_ns);
  }
  release(now_ns, v, lost, out);
}

// `sms` of v are nobody's from now on, and the policy hears of it.
void InSpace::release(uint64_t now_ns, VgpuId v, SmSet sms, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  Parts& p = vgpus_[v];
  sharing_.charging.charge_by_clock(now_ns);
  const policy::LeftReason why = sharing_.left_reason(v);
  p.released = sms;
  // The policy must not choose it again for work that it no longer has. It may answer with an evict
  // of what is being released, which is then taken as done.
  if (g.busy && !g.backlogged()) sharing_.reports.turn_idle(now_ns, v, out);
  p.held = p.held - sms;
  p.going = p.going - sms;
  taken_ = taken_ - sms;
  sharing_.deadlines.stop(v);
  if (!p.going.empty()) {
    sharing_.deadlines.start(now_ns, v);
    g.had_in_flight = false;
  }
  if (p.held.empty()) {
    sharing_.charging.clock(v).on_left(now_ns);
    sharing_.charging.charge_by_clock(now_ns);
    sharing_.end_hold(v);
    g.left_ns = now_ns;
    sharing_.log(out, LogEvent::kLeft, v, now_ns - sharing_.deadlines.evicted_at_ns(v));
  }
  sharing_.charging.meter.set_held(now_ns, v, g.holds() ? charged_sms(v) : 0);
  for (SmSet::Range r = sms.next_range(); r.lo < r.hi; r = sms.next_range(r.hi)) {
    const policy::SmRange part{static_cast<uint16_t>(r.lo), static_cast<uint16_t>(r.hi)};
    sharing_.ask(now_ns, out, [&](policy::Actions& a) {
      sharing_.policy->on_released(now_ns, v, 0, part, why, a);
    });
  }
  vgpus_[v].released = SmSet();
}

// ---- what happens to sessions ----------------------------------------------------------------

void InSpace::on_session_removed(uint64_t now_ns, SessionId s, ActionQueue& out) {
  const SessionState& x = sharing_.sessions[s];
  set_unconfined(now_ns, s, false);
  if (sharing_.vgpus[x.vgpu].sessions.empty())
    release_all(now_ns, x.vgpu, out);
  else if (x.drain != Drain::kNone)
    sharing_.session_drained(now_ns, s, out);
}

// v's last session is gone, and with it everything on the GPU.
void InSpace::release_all(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  Parts& p = vgpus_[v];
  sharing_.vgpus[v].draining_sessions = 0;
  if (p.moving()) p.state = MoveState::kSettled;
  if (p.state == MoveState::kAsking) p.state = MoveState::kDue;
  p.granted = p.before = p.spread = SmSet();
  if (p.held.empty()) return;
  if (p.going.empty()) sharing_.deadlines.set_evicted_at(v, now_ns);
  release(now_ns, v, p.held, out);
}

void InSpace::on_report(uint64_t now_ns, SessionId s, ActionQueue& out) {
  SessionState& x = sharing_.sessions[s];
  set_unconfined(now_ns, s, x.report.guest_unconfined > 0);
  // Its worker found that a launch in flight cannot stay.
  if (x.drain != Drain::kOutsideSet || x.report.guest_recall < x.drain_generation) return;
  x.drain = Drain::kAll;
  sharing_.set_evict(out, s, SLUICE_EVICT_ALL_SMS(x.drain_generation));
}

// ---- charging --------------------------------------------------------------------------------

uint32_t InSpace::charged_sms(VgpuId v) const {
  const Parts& p = vgpus_[v];
  return p.unconfined_sessions == 0 ? p.held.count() : sharing_.sm_count();
}

void InSpace::set_unconfined(uint64_t now_ns, SessionId s, bool unconfined) {
  if (unconfined_[s] == unconfined) return;
  sharing_.charging.charge_by_clock(now_ns);
  const VgpuId v = sharing_.sessions[s].vgpu;
  unconfined_[s] = unconfined;
  vgpus_[v].unconfined_sessions += unconfined ? 1 : -1;
  if (sharing_.vgpus[v].holds()) sharing_.charging.meter.set_held(now_ns, v, charged_sms(v));
}

void InSpace::charge_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns) {
  sharing_.charging.correct(now_ns, v, 0, stall_ns * sharing_.sm_count());
}

// ---- pauses ----------------------------------------------------------------------------------

bool InSpace::pauses_count() const { return sharing_.machine().change_ns > 0; }

void InSpace::on_launches_ended(VgpuId v) {
  const VgpuState& g = sharing_.vgpus[v];
  if (pauses_count() && g.holds() && !g.busy) sharing_.reports.mark(v, News::kEndedLaunches);
}

// While its gate is open a vGPU reports when it turns idle, not when it has work again. So its
// reports are read before a policy that waits for it decides.
void InSpace::before_wake(ActionQueue& out) {
  if (!pauses_count()) return;
  for (const VgpuId v : sharing_.holders) {
    if (sharing_.vgpus[v].busy || vgpus_[v].granted.empty()) continue;
    for (const SessionId s : sharing_.vgpus[v].sessions) sharing_.reports.read(s, out);
  }
}

}  // namespace sluice::core
