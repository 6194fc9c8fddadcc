// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/sharing.h"

#include <algorithm>

#include "mediator/core/sharing/strategies/exclusive.h"
#include "mediator/core/sharing/strategies/in_space.h"
#include "mediator/core/sharing/strategies/slices.h"
#include "mediator/core/sharing/strategies/turns.h"

namespace sluice::core {

namespace {

std::unique_ptr<SharingStrategy> make_strategy(Sharing& sharing) {
  if (sharing.machine().spatial) return std::make_unique<InSpace>(sharing);
  if (sharing.machine().preemptor == policy::PreemptorKind::kProportional)
    return std::make_unique<Slices>(sharing);
  if (sharing.config.turns_by_priority) return std::make_unique<Turns>(sharing);
  return std::make_unique<Exclusive>(sharing);
}

// The number of a record that is free, or a new one.
template <class Record>
std::optional<uint32_t> take_id(std::vector<Record>& records, std::vector<uint32_t>& free_ids,
                                uint32_t limit) {
  if (!free_ids.empty()) {
    const uint32_t id = free_ids.back();
    free_ids.pop_back();
    records[id] = {};
    return id;
  }
  if (records.size() >= limit) return std::nullopt;
  records.emplace_back();
  return static_cast<uint32_t>(records.size() - 1);
}

}  // namespace

Sharing::Sharing(const SchedulerConfig& c, const policy::Registration& row)
    : config(c), policy(row.make(c.policy_config)), launches(*this, row.launches) {
  strategy = make_strategy(*this);
}

// ---- vGPUs and sessions ----------------------------------------------------------------------

std::optional<VgpuId> Sharing::new_vgpu() {
  const auto v = take_id(vgpus, free_vgpus_, config.max_vgpus);
  if (v) reset_vgpu(*v);
  return v;
}

void Sharing::reset_vgpu(VgpuId v) {
  vgpus[v].hold = HoldState::kOut;
  charging.reset(v);
  crowd.reset_vgpu(v);
  deadlines.reset_vgpu(v);
  launches.reset_vgpu(v);
  strategy->on_vgpu_added(v);
}

void Sharing::forget_vgpu(VgpuId v) {
  reports.forget_vgpu(v);
  launches.forget_vgpu(v);
  vgpus[v] = {};
}

bool Sharing::forget_departed(uint64_t now_ns, bool oldest, ActionQueue& out) {
  bool some = false;
  for (;; some = true) {
    const auto v = departed.forget(now_ns, oldest && !some);
    if (!v) return some;
    ask(now_ns, out, [&](policy::Actions& a) { policy->on_vgpu_removed(now_ns, *v, a); });
    free_vgpus_.push_back(*v);
  }
}

std::optional<SessionId> Sharing::new_session(VgpuId v) {
  const auto s = take_id(sessions, free_sessions_, config.max_sessions);
  if (!s) return std::nullopt;
  sessions[*s].life = SessionLife::kLive;
  sessions[*s].vgpu = v;
  vgpus[v].sessions.push_back(*s);
  deadlines.reset_session(*s);
  launches.reset_session(*s);
  strategy->on_session_added(*s);
  return s;
}

void Sharing::free_session(SessionId s) {
  sessions[s] = {};
  free_sessions_.push_back(s);
}

policy::LeftReason Sharing::left_reason(VgpuId v) const {
  if (vgpus[v].sessions.empty()) return policy::LeftReason::kGone;
  return vgpus[v].backlogged() ? policy::LeftReason::kEvicted : policy::LeftReason::kIdle;
}

// ---- grant and evict words -------------------------------------------------------------------

uint64_t Sharing::open_flags(VgpuId v) const {
  const bool contended = vgpus[v].hold == HoldState::kContended || policy->hears_at_once(v);
  return SLUICE_GRANT_OPEN | (contended ? SLUICE_GRANT_CONTENDED : 0) | strategy->extra_flags(v);
}

void Sharing::set_grant(ActionQueue& out, SessionId s, uint64_t flags) {
  SessionState& x = sessions[s];
  x.word = x.generation | flags | (x.life == SessionLife::kEnding ? SLUICE_GRANT_ENDING : 0);
  out.push({.kind = Action::Kind::kSetGrant, .session = s, .vgpu = x.vgpu, .word = x.word});
}

void Sharing::set_evict(ActionQueue& out, SessionId s, uint64_t word) const {
  out.push({.kind = Action::Kind::kSetEvict, .session = s, .vgpu = sessions[s].vgpu, .word = word});
}

void Sharing::ring_gate(ActionQueue& out, SessionId s) const {
  out.push({.kind = Action::Kind::kRingGate, .session = s, .vgpu = sessions[s].vgpu});
}

void Sharing::grant_session(SessionId s, ActionQueue& out) {
  SessionState& x = sessions[s];
  if (x.life == SessionLife::kEnding) return;
  if (x.generation >= config.max_generation)
    return end_session(out, s, EndReason::kGenerationsSpent);
  ++x.generation;
  const uint64_t flags = open_flags(x.vgpu);
  if (flags & SLUICE_GRANT_PART)
    out.push({.kind = Action::Kind::kSetSms,
              .session = s,
              .vgpu = x.vgpu,
              .word = x.generation,
              .sms = strategy->granted_sms(x.vgpu)});
  set_grant(out, s, flags);
  ring_gate(out, s);
}

void Sharing::renew_grant(SessionId s, ActionQueue& out) {
  set_grant(out, s, open_flags(sessions[s].vgpu));
  ring_gate(out, s);
}

// The order of the stores and of the reads after them is the gate protocol's (abi/stub.h).
void Sharing::evict_session(SessionId s, ActionQueue& out) {
  const uint32_t generation = sessions[s].generation;
  set_grant(out, s, SLUICE_GRANT_CONTENDED);
  set_evict(out, s, SLUICE_EVICT_ALL_SMS(generation));
  begin_drain(s, Drain::kAll, generation, out);
}

void Sharing::begin_drain(SessionId s, Drain drain, uint32_t generation, ActionQueue& out) {
  SessionState& x = sessions[s];
  if (x.drain == Drain::kNone) ++vgpus[x.vgpu].draining_sessions;
  x.drain = drain;
  x.drain_generation = generation;
  reports.read(s, out);
}

// Only a report that was read after the closed word was stored can show that it has left: the one
// that the eviction asked for is the last in the queue.
void Sharing::check_drained(uint64_t now_ns, SessionId s, ActionQueue& out) {
  const SessionState& x = sessions[s];
  if (x.drain == Drain::kNone || x.reads_pending > 0) return;
  if (x.report.guest_in_flight != 0 && x.report.guest_left_generation < x.drain_generation) {
    vgpus[x.vgpu].had_in_flight = true;
    return;
  }
  strategy->settle_time(now_ns);
  deadlines.on_left(now_ns, s);
  session_drained(now_ns, s, out);
}

void Sharing::session_drained(uint64_t now_ns, SessionId s, ActionQueue& out) {
  SessionState& x = sessions[s];
  x.drain = Drain::kNone;
  if (--vgpus[x.vgpu].draining_sessions == 0) strategy->on_drained(now_ns, x.vgpu, out);
}

void Sharing::end_session(ActionQueue& out, SessionId s, EndReason reason) {
  SessionState& x = sessions[s];
  if (x.life == SessionLife::kEnding) return;
  x.life = SessionLife::kEnding;
  reports.set_backlogged(s, false);
  ++vgpus[x.vgpu].counters.ended;
  set_grant(out, s, x.word & (SLUICE_GRANT_OPEN | SLUICE_GRANT_CONTENDED));
  ring_gate(out, s);
  log(out, LogEvent::kEnded, x.vgpu, static_cast<uint64_t>(reason), s);
  out.push({.kind = Action::Kind::kEndSession, .session = s, .vgpu = x.vgpu, .reason = reason});
}

// ---- holding ---------------------------------------------------------------------------------

void Sharing::begin_hold(uint64_t now_ns, VgpuId v) {
  const bool contended = reports.others_backlogged(v) > 0;
  holders.push_back(v);
  vgpus[v].hold = contended ? HoldState::kContended : HoldState::kAlone;
  vgpus[v].alone_from_ns = contended ? 0 : now_ns;
  ++vgpus[v].counters.grants;
  charging.clock(v).on_granted(now_ns, contended);
}

void Sharing::end_hold(VgpuId v) {
  std::erase(holders, v);
  vgpus[v].hold = HoldState::kOut;
}

// ---- the policy ------------------------------------------------------------------------------

void Sharing::apply(uint64_t now_ns, const policy::Action& a, ActionQueue& out) {
  using Kind = policy::Action::Kind;
  bool done = false;
  switch (a.kind) {
    case Kind::kWake:
      policy_wake_ns_ = a.at_ns;
      return;
    case Kind::kRun:
      done = strategy->run(now_ns, a, out);
      break;
    case Kind::kEvict:
      done = strategy->evict(now_ns, a, out);
      break;
    case Kind::kSetSlice:
      done = strategy->set_slice(a) || departed.contains(a.vgpu);
      break;
  }
  if (!done) log(out, LogEvent::kPolicyViolation, a.vgpu, static_cast<uint64_t>(a.kind));
}

void Sharing::on_timer(uint64_t now_ns, ActionQueue& out) {
  if (armed_ns_ <= now_ns) armed_ns_ = kNever;
  deadlines.enforce(now_ns, out);
  if (policy_wake_ns_ > now_ns) return;
  policy_wake_ns_ = kNever;
  wake_due_ = true;
  strategy->before_wake(out);
}

bool Sharing::wake_policy(uint64_t now_ns, ActionQueue& out) {
  if (!wake_due_ || reports.outstanding()) return false;
  wake_due_ = false;
  ask(now_ns, out, [&](policy::Actions& a) { policy->on_wake(now_ns, a); });
  return true;
}

void Sharing::rearm(ActionQueue& out) {
  const uint64_t next =
      std::min({policy_wake_ns_, deadlines.next_ns(), strategy->next_ns(), crowd.next_ns()});
  if (next == armed_ns_) return;
  armed_ns_ = next;
  out.push({.kind = Action::Kind::kWakeAt, .word = next});
}

void Sharing::finish(uint64_t now_ns, ActionQueue& out) {
  forget_departed(now_ns, false, out);
  do {
    reports.settle(now_ns, out);
  } while (strategy->advance(now_ns, out) || crowd.advance(now_ns, out) ||
           wake_policy(now_ns, out));
  rearm(out);
}

void Sharing::log(ActionQueue& out, LogEvent event, VgpuId v, uint64_t value, SessionId s) const {
  out.push({.kind = Action::Kind::kLog, .session = s, .vgpu = v, .word = value, .event = event});
}

}  // namespace sluice::core
