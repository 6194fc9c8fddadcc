// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/strategies/turns.h"

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
  const Turn& t = vgpus_[v];
  const bool fill = sharing_.vgpus[v].share.latency == policy::LatencyClass::kLow;
  const bool standby = t.state == TurnState::kStandby;
  // One that does not hold has no contended flag of its own.
  return SLUICE_GRANT_AT_LEVEL(t.level) | (t.recall ? SLUICE_GRANT_RECALL : 0) |
         (fill ? SLUICE_GRANT_FILL : 0) | (standby ? SLUICE_GRANT_STANDBY : 0) |
         (standby || t.fills ? SLUICE_GRANT_CONTENDED : 0);
}

uint32_t Turns::charged_sms(VgpuId) const { return sharing_.sm_count(); }

bool Turns::is_leaving(VgpuId v) const {
  return std::find(leaving_.begin(), leaving_.end(), v) != leaving_.end();
}

VgpuId Turns::holder() const {
  return sharing_.holders.empty() ? policy::kNoVgpu : sharing_.holders.front();
}

// ---- the policy's actions --------------------------------------------------------------------

bool Turns::run(uint64_t now_ns, const policy::Action& a, ActionQueue& out) {
  const VgpuState* g = sharing_.vgpu(a.vgpu);
  if (!g || !is_whole(a, sharing_.sm_count()) || !sharing_.holders.empty() || g->sessions.empty())
    return false;
  settle(now_ns);
  sharing_.charging.charge_by_clock(now_ns);
  sharing_.begin_hold(now_ns, a.vgpu);
  if (runs_ != a.vgpu) sharing_.charging.clock(a.vgpu).on_left(now_ns);
  holds_.on_granted(now_ns, a.vgpu);
  goes_down_ = false;
  Turn& t = vgpus_[a.vgpu];
  const bool visits = a.value != 0 && sharing_.reports.others_backlogged(a.vgpu) > 0;
  let_linger(now_ns + sharing_.config.linger_ns + (visits ? a.value : 0));
  if (t.state == TurnState::kLingering) {
    // Its gates are open and its words stand.
    t.state = TurnState::kTurn;
    std::erase(lingering_, a.vgpu);
    const bool filled = std::exchange(t.fills, false);
    if (filled && turn_level(a.vgpu) > t.level) rise(a.vgpu, out);
  } else if (t.state == TurnState::kStandby && visits && visit_level(a.vgpu) == kVisit) {
    accept(now_ns, a.vgpu, out);
  } else {
    if (t.state == TurnState::kStandby) {
      std::erase(standing_by_, a.vgpu);
      close(now_ns, a.vgpu, out);
    }
    t.level = visits ? visit_level(a.vgpu) : turn_level(a.vgpu);
    t.state = TurnState::kWaiting;
  }
  // First, so that it waits for what they leave.
  close_lingering_from(now_ns, t.level, out);
  if (t.state == TurnState::kWaiting && has_place(a.vgpu, t.level)) grant(now_ns, a.vgpu, out);
  settle(now_ns);
  sharing_.log(out, LogEvent::kGranted, a.vgpu, sharing_.sessions[g->sessions.front()].generation);
  return true;
}

bool Turns::evict(uint64_t now_ns, const policy::Action& a, ActionQueue& out) {
  const VgpuState* g = sharing_.vgpu(a.vgpu);
  if (!g || !is_whole(a, sharing_.sm_count()) || !g->holds()) return false;
  Turn& t = vgpus_[a.vgpu];
  if (t.state != TurnState::kTurn && t.state != TurnState::kWaiting) return true;
  settle(now_ns);
  released_ = a.vgpu;
  const bool lingers = g->backlogged() && (a.value != 0 || may_fill_below(a.vgpu, a.next));
  if (t.state == TurnState::kWaiting) {
    t.state = g->draining_sessions > 0 ? TurnState::kLeaving : TurnState::kOut;
  } else if (lingers && t.level < kVisit && !keeps_sms(a.vgpu)) {
    t.state = TurnState::kLingering;
    lingering_.push_back(a.vgpu);
  } else if (may_stand_by(a.vgpu)) {
    stand_by(a.vgpu, out);
  } else {
    close(now_ns, a.vgpu, out);
  }
  settle(now_ns);
  return true;
}

// ---- words -----------------------------------------------------------------------------------

void Turns::grant(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  Turn& t = vgpus_[v];
  t.state = TurnState::kTurn;
  t.recall = sharing_.vgpus[v].draining_sessions > 0;
  if (!t.recall) t.opened_ns = t.since_ns = t.sent_ns = now_ns;
  t.runs_level = t.level;
  sharing_.crowd.open_gates(now_ns, v, out);
}

void Turns::close(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  Turn& t = vgpus_[v];
  if (t.state == TurnState::kStandby && launches_left(v) > 0)
    t.since_ns = std::min(in_flight_since_ns(v), t.heard_ns);
  t.state = TurnState::kLeaving;
  t.fills = false;
  t.closed_ns = now_ns;
  g.had_in_flight = false;
  if (g.backlogged()) ++g.counters.evictions;
  t.closed_level = t.level;
  begin_leaving(now_ns, v);
  const EvictCause cause = g.busy ? EvictCause::kQuantum : EvictCause::kIdle;
  sharing_.log(out, LogEvent::kEvictSent, v, static_cast<uint64_t>(cause));
  for (const SessionId s : g.sessions) sharing_.evict_session(s, out);
}

void Turns::renew_grants(VgpuId v, ActionQueue& out) {
  for (const SessionId s : sharing_.vgpus[v].sessions)
    if (sharing_.has_open_gate(s)) sharing_.renew_grant(s, out);
}

void Turns::read_reports(VgpuId v, ActionQueue& out) {
  for (const SessionId s : sharing_.vgpus[v].sessions) sharing_.reports.read(s, out);
}

void Turns::stop_lingering(uint64_t now_ns, ActionQueue& out) {
  for (const VgpuId v : std::exchange(lingering_, {})) close(now_ns, v, out);
  const VgpuId v = holder();
  goes_down_ = v != policy::kNoVgpu && vgpus_[v].state == TurnState::kTurn;
  // One that leaves no gaps has told nothing meanwhile: not whether it is above now.
  if (goes_down_) read_reports(v, out);
}

// Who lingers is below the holder, or does not linger: what it launches would run first, and only
// the holder is charged.
void Turns::close_lingering_from(uint64_t now_ns, uint32_t level, ActionQueue& out) {
  for (const VgpuId v : std::vector<VgpuId>(lingering_))
    if (vgpus_[v].level >= level) {
      std::erase(lingering_, v);
      close(now_ns, v, out);
    }
}

// To a turn's level: a new generation there, and what was launched on the visit drains.
bool Turns::go_down(ActionQueue& out) {
  const VgpuId v = holder();
  if (v == policy::kNoVgpu || vgpus_[v].state != TurnState::kTurn) return goes_down_ = false;
  // What those that lingered have left is known with their reports.
  if (sharing_.reports.outstanding()) return false;
  const uint32_t level = turn_level(v);
  if (level < vgpus_[v].level && !has_place(v, level)) return false;
  goes_down_ = false;
  if (level >= vgpus_[v].level) return false;
  vgpus_[v].level = level;
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
  return true;
}

// ---- standing by -----------------------------------------------------------------------------

bool Turns::may_stand_by(VgpuId v) const {
  const VgpuState& g = sharing_.vgpus[v];
  if (vgpus_[v].level != kVisit || g.draining_sessions > 0 || g.paused ||
      g.sessions.size() > sharing_.config.sessions_at_once || !sharing_.policy->comes_unasked(v))
    return false;
  return std::all_of(g.sessions.begin(), g.sessions.end(), [&](SessionId s) {
    const SessionState& x = sharing_.sessions[s];
    return sharing_.has_open_gate(s) && !x.backlogged && x.reads_pending == 0;
  });
}

// What a session has found to do before it sees the word is known with its report.
void Turns::stand_by(VgpuId v, ActionQueue& out) {
  vgpus_[v].state = TurnState::kStandby;
  vgpus_[v].heard_ns = 0;
  if (!proven(v)) ++vgpus_[v].in_time;
  standing_by_.push_back(v);
  for (const SessionId s : sharing_.vgpus[v].sessions) {
    sharing_.set_grant(out, s, sharing_.open_flags(v));
    sharing_.reports.read(s, out);
  }
  sharing_.log(out, LogEvent::kLeft, v, 0);
}

// It has begun its visit. What it holds back may go now.
void Turns::accept(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  vgpus_[v].state = TurnState::kTurn;
  vgpus_[v].opened_ns = now_ns;
  ++sharing_.vgpus[v].counters.unasked;
  std::erase(standing_by_, v);
  renew_grants(v, out);
}

// Those whose gates must not stay open. False: there is none.
bool Turns::dismiss(uint64_t now_ns, ActionQueue& out) {
  return close_one(now_ns, standing_by_, out, [&](VgpuId v) {
    const VgpuState& g = sharing_.vgpus[v];
    return g.paused || g.backlogged() || !sharing_.policy->comes_unasked(v);
  });
}

// It runs since its worker let the first launch in, or since the one that came before it has ended,
// a hand-over before that was known. Meanwhile `instead` was charged.
void Turns::charge_unasked(uint64_t now_ns, VgpuId v, VgpuId instead) {
  const bool waited = vgpus_[v].heard_ns != now_ns;
  const uint64_t most_ns =
      waited ? sharing_.config.policy_config.machine.handover_ns : sharing_.config.visit_ns;
  const uint64_t ns = now_ns - std::min(in_flight_since_ns(v), now_ns);
  const uint64_t sm_ns = std::min(ns, most_ns) * sharing_.sm_count();
  sharing_.charging.correct(now_ns, v, 0, sm_ns);
  if (instead != policy::kNoVgpu && sharing_.vgpus[instead].present())
    sharing_.charging.correct(now_ns, instead, sm_ns, 0);
}

// ---- levels ----------------------------------------------------------------------------------

// And waits for each, as far as its launch records say.
bool Turns::wants_one_launch(VgpuId v, uint64_t longest_ns) const {
  const uint64_t sm_ns = sharing_.launches.reported_sm_ns(v);
  return vgpus_[v].waits && launches_wanted(v) == 1 && sm_ns > 0 &&
         sm_ns <= longest_ns * sharing_.sm_count();
}

uint64_t Turns::launches_wanted(VgpuId v) const { return sum_of(v, &ReportSnapshot::guest_demand); }

uint32_t Turns::visit_level(VgpuId v) const {
  const uint64_t longest_ns = sharing_.launches.longest_ns(v);
  return longest_ns > 0 && longest_ns <= sharing_.config.visit_ns ? kVisit : kAboveTurns;
}

uint32_t Turns::turn_level(VgpuId v) const {
  // Alone it is below whoever comes.
  if (sharing_.reports.others_backlogged(v) == 0) return kTurnLevel;
  if (wants_one_launch(v, sharing_.config.visit_ns)) return kAboveTurns;
  const bool above = std::any_of(leaving_.begin(), leaving_.end(), [&](VgpuId w) {
    return w != v && has_left_at(w, kTurnLevel) &&
           (has_left_much(w) ||
            sharing_.vgpus[w].share.priority < sharing_.vgpus[v].share.priority);
  });
  return above ? kAboveTurns : kTurnLevel;
}

// The oldest or the newest of what it has left.
bool Turns::has_left_at(VgpuId v, uint32_t level) const {
  return vgpus_[v].left_level == level || vgpus_[v].closed_level == level;
}

uint64_t Turns::launches_left(VgpuId v) const {
  return sum_of(v, &ReportSnapshot::guest_in_flight);
}

// As its workers say.
uint64_t Turns::in_flight_since_ns(VgpuId v) const {
  uint64_t since_ns = kNever;
  for (const SessionId s : sharing_.vgpus[v].sessions) {
    const ReportSnapshot& report = sharing_.sessions[s].report;
    if (report.guest_in_flight > 0) since_ns = std::min(since_ns, report.guest_in_flight_ns);
  }
  return since_ns;
}

// In all, as its workers say.
uint64_t Turns::flight_ns(uint64_t now_ns, VgpuId v) const {
  uint64_t sum_ns = 0;
  for (const SessionId s : sharing_.vgpus[v].sessions) {
    const ReportSnapshot& report = sharing_.sessions[s].report;
    sum_ns += report.guest_flight_ns;
    if (report.guest_in_flight > 0) sum_ns += now_ns - std::min(report.guest_in_flight_ns, now_ns);
  }
  return sum_ns;
}

// Waiting for it would be worse than going above it.
bool Turns::has_left_much(VgpuId v) const {
  const uint64_t launches = launches_left(v), longest_ns = sharing_.launches.longest_ns(v);
  return launches > 1 && (longest_ns == 0 ||
                          launches > sharing_.config.policy_config.latency_target_ns / longest_ns);
}

bool Turns::has_place(VgpuId v, uint32_t level) const {
  if (level == kVisit) return true;
  // What those whose gates have closed have left is known with their reports.
  if (!leaving_.empty() && sharing_.reports.outstanding()) return false;
  return std::none_of(leaving_.begin(), leaving_.end(), [&](VgpuId w) {
    if (w == v || !has_left_at(w, level)) return false;
    return launches_left(w) > 1 && (level == kAboveTurns || !has_left_much(w));
  });
}

// ---- who runs --------------------------------------------------------------------------------

VgpuId Turns::runner() const {
  const VgpuId first = first_but(policy::kNoVgpu);
  return first == policy::kNoVgpu ? holder() : first;
}

// Of those that have something in flight or to launch, without `but`; kNoVgpu: nobody has.
VgpuId Turns::first_but(VgpuId but) const {
  const VgpuId h = holder();
  VgpuId first = policy::kNoVgpu;
  uint32_t level = 0;
  const auto offer = [&](VgpuId v, uint32_t at) {
    if (v == but) return;
    if (first == policy::kNoVgpu || at > level || (at == level && came_before(v, first)))
      first = v, level = at;
  };
  for (const VgpuId v : leaving_) offer(v, vgpus_[v].left_level);
  const auto offer_lingering = [&](bool fills) {
    for (const VgpuId v : lingering_)
      if (vgpus_[v].fills == fills && sharing_.vgpus[v].backlogged()) offer(v, vgpus_[v].level);
  };
  offer_lingering(/*fills=*/false);
  for (const VgpuId v : standing_by_)
    if (launches_left(v) > 0) offer(v, vgpus_[v].level);
  // What it launches now comes behind what it has left.
  if (h != policy::kNoVgpu && vgpus_[h].state == TurnState::kTurn &&
      sharing_.vgpus[h].backlogged() && !is_leaving(h))
    offer(h, vgpus_[h].runs_level);
  offer_lingering(/*fills=*/true);  // they came after what the holder has in flight
  return first;
}

// What v has in flight, one launch, came before all that w has. One that came unasked did so no
// later than when that was known, whatever its worker says.
bool Turns::came_before(VgpuId v, VgpuId w) const {
  const uint64_t since_ns = vgpus_[w].state == TurnState::kStandby
                                ? std::min(in_flight_since_ns(w), vgpus_[w].heard_ns)
                                : vgpus_[w].since_ns;
  const uint64_t sent_ns = vgpus_[v].state == TurnState::kStandby ? 0 : vgpus_[v].sent_ns;
  return launches_left(v) == 1 && std::max(in_flight_since_ns(v), sent_ns) < since_ns;
}

// Whose blocks may keep v, of the highest level, from beginning; kNoVgpu: nobody's.
VgpuId Turns::blocker_of(uint64_t now_ns, VgpuId v) const {
  if (v == policy::kNoVgpu || !is_leaving(v) || vgpus_[v].cleared_for) return policy::kNoVgpu;
  if (now_ns < vgpus_[v].left_ns + sharing_.config.evict_warn_ns) return policy::kNoVgpu;
  VgpuId first = policy::kNoVgpu;
  const auto offer = [&](VgpuId w, uint32_t at) {
    if (at >= vgpus_[v].left_level || launches_left(w) == 0) return;
    if (vgpus_[w].opened_ns >= vgpus_[v].opened_ns || (!proven(v) && proven(w))) return;
    if (first == policy::kNoVgpu || vgpus_[w].opened_ns < vgpus_[first].opened_ns) first = w;
  };
  for (const VgpuId w : leaving_) offer(w, vgpus_[w].left_level);
  for (const VgpuId w : lingering_) offer(w, vgpus_[w].level);
  if (const VgpuId h = holder(); h != policy::kNoVgpu && vgpus_[h].state == TurnState::kTurn)
    offer(h, vgpus_[h].runs_level);
  return first;
}

void Turns::count_above(uint64_t now_ns) {
  const uint64_t ns = now_ns - std::exchange(counted_ns_, now_ns);
  if (below_ != policy::kNoVgpu) vgpus_[runs_].above_ns += ns;
}

// v's report has been read. Its launches may have run in another vGPU's gaps, which it is charged
// for; and between its own launches the one below may have run, whose report is read next.
void Turns::charge_gaps(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  count_above(now_ns);
  Turn& t = vgpus_[v];
  const uint64_t above_ns = std::exchange(t.above_ns, 0), all_ns = flight_ns(now_ns, v);
  const uint64_t flew_ns = all_ns - std::min(all_ns, std::exchange(t.flight_ns, all_ns));
  t.below_ns += flew_ns;
  if (const uint64_t gaps_ns = std::min(std::exchange(t.gaps_ns, 0), t.below_ns);
      gaps_ns > 0 && sharing_.vgpus[t.gaps_of].present()) {
    t.below_ns -= gaps_ns;
    sharing_.charging.charge_by_clock(now_ns);
    sharing_.charging.correct(now_ns, t.gaps_of, gaps_ns * sharing_.sm_count(), 0);
    sharing_.charging.correct(now_ns, v, 0, gaps_ns * sharing_.sm_count());
  }
  // A worker of an older version never says.
  if (v != runs_ || below_ == policy::kNoVgpu || all_ns == 0 || flew_ns >= above_ns) return;
  Turn& below = vgpus_[below_];
  if (std::exchange(below.gaps_of, v) != v) below.gaps_ns = 0;
  below.gaps_ns += above_ns - flew_ns;
  // Not of all that it has: reports of two vGPUs with many would cost sluiced their product.
  for (const SessionId s : sharing_.vgpus[below_].sessions)
    if (sharing_.has_open_gate(s) || sharing_.sessions[s].drain != Drain::kNone)
      sharing_.reports.read(s, out);
}

// Stops the deadlines' clocks of all that leave but did not run in the time that has passed.
void Turns::settle(uint64_t now_ns) {
  count_above(now_ns);
  const uint64_t ns = now_ns - std::exchange(settled_ns_, now_ns);
  const bool is_stuck = blocker_ != policy::kNoVgpu;
  const VgpuId ran = is_stuck ? blocker_ : runs_;
  // Whose deadline runs instead may be excused for as long as its limit, if its worker starves.
  const uint32_t limits = is_stuck || (ran != policy::kNoVgpu && !proven(ran)) ? 2 : 1;
  for (const VgpuId v : leaving_)
    if (v != ran) sharing_.deadlines.excuse(v, now_ns, ns, limits);
  if (const VgpuId next = runner(); next != runs_) change_runner(now_ns, next);
  const VgpuId below = runs_ == policy::kNoVgpu ? runs_ : first_but(runs_);
  if (below != policy::kNoVgpu && below != below_) {
    vgpus_[below].below_ns = 0;
    vgpus_[below].flight_ns = flight_ns(now_ns, below);
  }
  below_ = below;
  blocker_ = blocker_of(now_ns, runs_);
}

void Turns::change_runner(uint64_t now_ns, VgpuId next) {
  const VgpuId before = runs_;
  if (runs_ != policy::kNoVgpu && sharing_.vgpus[runs_].present()) {
    sharing_.charging.clock(runs_).on_left(now_ns);
    sharing_.charging.charge_clock_of(now_ns, runs_);
  }
  runs_ = next;
  sharing_.charging.meter.set_holder(
      now_ns, next == policy::kNoVgpu ? accounting::ShareMeter::kNobody : next);
  if (next == policy::kNoVgpu) return;
  const bool contended = next != holder() || sharing_.reports.others_backlogged(next) > 0;
  sharing_.charging.clock(next).on_granted(now_ns, contended);
  if (vgpus_[next].state == TurnState::kStandby) charge_unasked(now_ns, next, before);
}

// ---- leaving ---------------------------------------------------------------------------------

void Turns::begin_leaving(uint64_t now_ns, VgpuId v) {
  if (is_leaving(v)) return;
  set_oldest(now_ns, v, vgpus_[v].runs_level);
}

// From now on what it had launched when its gates closed last is the oldest, at this level. It came
// behind what others had launched when theirs closed before.
void Turns::set_oldest(uint64_t now_ns, VgpuId v, uint32_t level) {
  Turn& t = vgpus_[v];
  t.left_level = level;
  t.left_ns = t.state == TurnState::kLeaving ? t.closed_ns : now_ns;
  std::erase(leaving_, v);
  leaving_.insert(std::upper_bound(leaving_.begin(), leaving_.end(), t.left_ns,
                                   [&](uint64_t ns, VgpuId w) { return ns < vgpus_[w].left_ns; }),
                  v);
  for (const SessionId s : sharing_.vgpus[v].sessions) {
    if (s >= due_.size()) due_.resize(s + 1);
    due_[s] = sharing_.sessions[s].drain == Drain::kNone ? sharing_.sessions[s].generation
                                                         : sharing_.sessions[s].drain_generation;
  }
  sharing_.deadlines.stop(v);
  sharing_.deadlines.start(now_ns, v);
}

// Of who came first the holder's report tells.
void Turns::note_unasked(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  Turn& t = vgpus_[v];
  if (t.state != TurnState::kStandby) return;
  if (launches_left(v) == 0) {
    t.heard_ns = 0;
  } else if (t.heard_ns == 0) {
    t.heard_ns = now_ns;
    if (const VgpuId h = holder(); h != policy::kNoVgpu && vgpus_[h].level == t.level)
      read_reports(h, out);
  }
}

void Turns::on_report(uint64_t now_ns, SessionId s, ActionQueue& out) {
  const VgpuId v = sharing_.sessions[s].vgpu;
  if (const uint64_t done = launches_done(v); done != vgpus_[v].had_done) {
    vgpus_[v].had_done = done;
    vgpus_[v].sent_ns = now_ns;
    if (gates_open(v) && !vgpus_[v].recall && done >= vgpus_[v].risen_at)
      vgpus_[v].runs_level = vgpus_[v].level;
  }
  if (const uint64_t launches = launches_wanted(v); launches != 1) vgpus_[v].waits = launches == 0;
  charge_gaps(now_ns, v, out);
  note_unasked(now_ns, v, out);
  note_progress(now_ns, v);
  if (!is_leaving(v) || sharing_.vgpus[v].draining_sessions == 0) return;
  for (const SessionId x : sharing_.vgpus[v].sessions) {
    const SessionState& y = sharing_.sessions[x];
    if (y.drain != Drain::kNone && (y.drain_generation == due_[x] || y.reads_pending > 0 ||
                                    y.report.guest_left_generation < due_[x]))
      return;
  }
  settle(now_ns);
  set_oldest(now_ns, v, vgpus_[v].closed_level);
  vgpus_[v].since_ns = vgpus_[v].sent_ns = vgpus_[v].left_ns;
  settle(now_ns);
}

void Turns::on_drained(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  Turn& t = vgpus_[v];
  settle(now_ns);
  t.recall = t.cleared_for = false;
  t.runs_level = t.level;
  sharing_.deadlines.stop(v);
  std::erase(leaving_, v);
  if (t.state == TurnState::kLeaving) {
    t.state = TurnState::kOut;
    if (now_ns - t.closed_ns <= sharing_.config.evict_warn_ns && t.in_time < kProven) ++t.in_time;
    sharing_.log(out, LogEvent::kLeft, v, now_ns - t.closed_ns);
    if (g.had_in_flight) g.counters.eviction_latency.add(now_ns - t.closed_ns);
  }
  settle(now_ns);
}

void Turns::on_session_removed(uint64_t now_ns, SessionId s, ActionQueue& out) {
  const SessionState& x = sharing_.sessions[s];
  const VgpuId v = x.vgpu;
  // One that goes by itself shows nothing: its vGPU may have others.
  if (v == blocker_ && x.life == SessionLife::kEnding) vgpus_[runs_].cleared_for = true;
  if (x.life == SessionLife::kEnding) vgpus_[v].in_time = 0;
  if (x.drain != Drain::kNone) sharing_.session_drained(now_ns, s, out);
  if (!sharing_.vgpus[v].sessions.empty()) return;
  settle(now_ns);
  std::erase(lingering_, v);
  std::erase(standing_by_, v);
  if (v == holder()) released_ = v;
  vgpus_[v].state = TurnState::kOut;
  vgpus_[v].fills = false;
  settle(now_ns);
}

// ---- after each event ------------------------------------------------------------------------

// v's turn is over; the policy chooses the next one.
void Turns::release(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  const policy::LeftReason why = sharing_.left_reason(v);
  sharing_.charging.charge_by_clock(now_ns);
  // The policy must not choose it again for work that it no longer has.
  if (g.busy && !g.backlogged()) sharing_.reports.turn_idle(now_ns, v, out);
  g.left_ns = now_ns;
  sharing_.end_hold(v);
  settle(now_ns);
  sharing_.ask(now_ns, out,
               [&](policy::Actions& a) { sharing_.policy->on_released(now_ns, v, 0, {}, why, a); });
}

bool Turns::advance(uint64_t now_ns, ActionQueue& out) {
  settle(now_ns);
  // So that the policy hears what its sessions have reported last.
  if (released_ != policy::kNoVgpu && !sharing_.reports.outstanding()) {
    release(now_ns, std::exchange(released_, policy::kNoVgpu), out);
    return true;
  }
  if (!sharing_.reports.outstanding() && dismiss(now_ns, out)) return true;
  const VgpuId h = holder();
  if (h != policy::kNoVgpu && vgpus_[h].state == TurnState::kWaiting &&
      has_place(h, vgpus_[h].level)) {
    grant(now_ns, h, out);
    settle(now_ns);
    return true;
  }
  if (goes_down_ && go_down(out)) return true;
  if (close_filler(now_ns, out) || open_filler(now_ns, out)) return true;
  if (lingering_.empty() || now_ns < linger_until_ns_) return false;
  if (may_go_on_lingering()) {
    let_linger(now_ns + sharing_.config.linger_ns);
    return false;
  }
  stop_lingering(now_ns, out);
  settle(now_ns);
  return true;
}

}  // namespace sluice::core
