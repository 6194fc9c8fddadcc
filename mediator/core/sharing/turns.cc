// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/turns.h"

#include <algorithm>
#include <utility>

#include "mediator/core/sharing/sharing.h"

namespace sluice::core {

namespace {

bool is_whole(const policy::Action& a, uint32_t sms) {
  return a.launch == 0 && a.sms.lo == 0 && (a.sms.hi == 0xffff || a.sms.hi >= sms);
}

}  // namespace

void Turns::on_vgpu_added(VgpuId v) {
  reset_record(vgpus_, v);
  holds_.on_vgpu_added(v);
}

bool Turns::gates_open(VgpuId v) const {
  return vgpus_[v].state == TurnState::kTurn || vgpus_[v].state == TurnState::kLingering;
}

uint64_t Turns::extra_flags(VgpuId v) const {
  return SLUICE_GRANT_AT_LEVEL(vgpus_[v].level) | (vgpus_[v].recall ? SLUICE_GRANT_RECALL : 0);
}

uint32_t Turns::charged_sms(VgpuId) const { return sharing_.sm_count(); }

// ---- the policy's actions --------------------------------------------------------------------

bool Turns::run(uint64_t now_ns, const policy::Action& a, ActionQueue& out) {
  const VgpuState* g = sharing_.vgpu(a.vgpu);
  if (!g || !is_whole(a, sharing_.sm_count()) || !sharing_.holders.empty() || g->sessions.empty())
    return false;
  sharing_.begin_hold(now_ns, a.vgpu);
  holds_.on_granted(now_ns, a.vgpu);
  sharing_.charging.meter.set_holder(now_ns, a.vgpu);
  linger_until_ns_ = now_ns + sharing_.config.linger_ns;
  if (vgpus_[a.vgpu].state == TurnState::kLingering) {
    // Its gates are open and its words stand.
    vgpus_[a.vgpu].state = TurnState::kTurn;
    std::erase(lingering_, a.vgpu);
  } else {
    grant(now_ns, a.vgpu, out);
  }
  sharing_.log(out, LogEvent::kGranted, a.vgpu, sharing_.sessions[g->sessions.front()].generation);
  return true;
}

bool Turns::evict(uint64_t now_ns, const policy::Action& a, ActionQueue& out) {
  const VgpuState* g = sharing_.vgpu(a.vgpu);
  if (!g || !is_whole(a, sharing_.sm_count()) || !g->holds()) return false;
  Turn& t = vgpus_[a.vgpu];
  if (t.state != TurnState::kTurn) return true;
  released_ = a.vgpu;
  const bool stays = std::any_of(g->sessions.begin(), g->sessions.end(), [&](SessionId s) {
    return sharing_.sessions[s].report.guest_keeps & SLUICE_KEEPS_SMS;
  });
  if (g->backlogged() && t.level < kVisit && !stays) {
    t.state = TurnState::kLingering;
    lingering_.push_back(a.vgpu);
  } else {
    close(now_ns, a.vgpu, out);
  }
  return true;
}

// ---- words -----------------------------------------------------------------------------------

void Turns::grant(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  const VgpuState& g = sharing_.vgpus[v];
  vgpus_[v].state = TurnState::kTurn;
  vgpus_[v].recall = g.draining_sessions > 0;
  vgpus_[v].level = lingering_.empty() ? turn_level(v) : kVisit;
  sharing_.crowd.open_gates(now_ns, v, out);
}

void Turns::close(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  Turn& t = vgpus_[v];
  t.state = TurnState::kLeaving;
  t.closed_ns = now_ns;
  g.had_in_flight = false;
  if (g.backlogged()) ++g.counters.evictions;
  begin_leaving(now_ns, v);
  const EvictCause cause = g.busy ? EvictCause::kQuantum : EvictCause::kIdle;
  sharing_.log(out, LogEvent::kEvictSent, v, static_cast<uint64_t>(cause));
  for (const SessionId s : g.sessions) sharing_.evict_session(s, out);
}

void Turns::stop_lingering(uint64_t now_ns, ActionQueue& out) {
  for (const VgpuId v : std::exchange(lingering_, {})) close(now_ns, v, out);
  if (!sharing_.holders.empty() && vgpus_[sharing_.holders.front()].level == kVisit)
    go_down(sharing_.holders.front(), out);
}

// To a turn's level: a new generation there, and what was launched on the visit drains.
void Turns::go_down(VgpuId v, ActionQueue& out) {
  vgpus_[v].level = turn_level(v);
  vgpus_[v].recall = true;
  for (const SessionId s : sharing_.vgpus[v].sessions) {
    if (!sharing_.has_open_gate(s) && sharing_.sessions[s].life == SessionLife::kLive) continue;
    const uint32_t old = sharing_.sessions[s].generation;
    sharing_.grant_session(s, out);
    // One that has no generation left, or is being ended, leaves for good.
    if (sharing_.sessions[s].generation == old) sharing_.set_grant(out, s, SLUICE_GRANT_CONTENDED);
    sharing_.set_evict(out, s, SLUICE_EVICT_ALL_SMS(old));
    sharing_.begin_drain(s, Drain::kAll, old, out);
  }
}

// Where v's launches go that have a turn: not where others' that have not ended would run with
// them.
uint32_t Turns::turn_level(VgpuId v) const {
  const auto anyone_at = [&](auto level) {
    return std::any_of(leaving_.begin(), leaving_.end(),
                       [&](VgpuId w) { return w != v && level(vgpus_[w].level); });
  };
  const bool below = anyone_at([](uint32_t level) { return level == 0; });
  const bool above = anyone_at([](uint32_t level) { return level != 0; });
  return below && !above ? 1 : 0;
}

// The deadline of who leaves stands still while the holder is above it.
void Turns::settle_leaver(uint64_t now_ns) {
  const uint64_t ns = now_ns - std::exchange(leaver_since_ns_, now_ns);
  const Leaver was = std::exchange(leaver_, Leaver::kLate);
  if (leaving_.empty()) return;
  if (was == Leaver::kBelowTheHolder) sharing_.deadlines.excuse(leaving_.front(), now_ns, ns);
  if (was == Leaver::kInItsNextTurn) own_turns_ns_ += ns;
  if (sharing_.holders.empty()) return;
  const VgpuId holder = sharing_.holders.front();
  if (holder == leaving_.front())
    leaver_ = Leaver::kInItsNextTurn;
  else if (sharing_.vgpus[holder].backlogged() &&
           vgpus_[holder].level > vgpus_[leaving_.front()].level)
    leaver_ = Leaver::kBelowTheHolder;
}

// ---- leaving ---------------------------------------------------------------------------------

void Turns::begin_leaving(uint64_t now_ns, VgpuId v) {
  // It may not have drained since the last time: its deadline runs on.
  if (std::find(leaving_.begin(), leaving_.end(), v) != leaving_.end()) return;
  leaving_.push_back(v);
  if (leaving_.size() == 1) start_deadline(now_ns);
}

void Turns::end_leaving(uint64_t now_ns, VgpuId v) {
  const bool first = !leaving_.empty() && leaving_.front() == v;
  settle_leaver(now_ns);
  if (first) {
    const uint64_t ns = now_ns - sharing_.deadlines.evicted_at_ns(v);
    const uint64_t late_ns = ns - std::min(ns, sharing_.deadlines.excused_ns(v) + own_turns_ns_);
    sharing_.deadlines.stop(v);
    if (late_ns > sharing_.config.leave_grace_ns)
      holds_.charge_stall(now_ns, v, late_ns - sharing_.config.leave_grace_ns);
  }
  std::erase(leaving_, v);
  if (first && !leaving_.empty()) start_deadline(now_ns);
}

void Turns::start_deadline(uint64_t now_ns) {
  leaver_ = Leaver::kLate;
  leaver_since_ns_ = now_ns;
  own_turns_ns_ = 0;
  sharing_.deadlines.start(now_ns, leaving_.front());
}

void Turns::on_drained(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  Turn& t = vgpus_[v];
  t.recall = false;
  end_leaving(now_ns, v);
  if (t.state != TurnState::kLeaving) return;
  t.state = TurnState::kOut;
  sharing_.log(out, LogEvent::kLeft, v, now_ns - t.closed_ns);
  if (g.had_in_flight) g.counters.eviction_latency.add(now_ns - t.closed_ns);
}

void Turns::on_session_removed(uint64_t now_ns, SessionId s, ActionQueue& out) {
  const SessionState& x = sharing_.sessions[s];
  const VgpuId v = x.vgpu;
  if (x.drain != Drain::kNone) sharing_.session_drained(now_ns, s, out);
  if (!sharing_.vgpus[v].sessions.empty()) return;
  std::erase(lingering_, v);
  if (vgpus_[v].state == TurnState::kTurn) released_ = v;
  vgpus_[v].state = TurnState::kOut;
}

// ---- after each event ------------------------------------------------------------------------

// v's turn is over; the policy chooses the next one.
void Turns::release(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  sharing_.charging.clock(v).on_left(now_ns);
  sharing_.charging.charge_by_clock(now_ns);
  const policy::LeftReason why = sharing_.left_reason(v);
  // The policy must not choose it again for work that it no longer has.
  if (g.busy && !g.backlogged()) sharing_.reports.turn_idle(now_ns, v, out);
  g.left_ns = now_ns;
  sharing_.end_hold(v);
  sharing_.charging.meter.set_holder(now_ns, accounting::ShareMeter::kNobody);
  sharing_.ask(now_ns, out,
               [&](policy::Actions& a) { sharing_.policy->on_released(now_ns, v, 0, {}, why, a); });
}

bool Turns::advance(uint64_t now_ns, ActionQueue& out) {
  settle_leaver(now_ns);
  // So that the policy hears what its sessions have reported last.
  if (released_ != policy::kNoVgpu && !sharing_.reports.outstanding()) {
    release(now_ns, std::exchange(released_, policy::kNoVgpu), out);
    return true;
  }
  if (lingering_.empty() || now_ns < linger_until_ns_) return false;
  stop_lingering(now_ns, out);
  return true;
}

}  // namespace sluice::core
