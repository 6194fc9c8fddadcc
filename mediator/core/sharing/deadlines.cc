// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/deadlines.h"

#include <algorithm>

#include "mediator/core/sharing/sharing.h"

namespace sluice::core {

namespace {
// A session is seen so often at least before it is ended.
constexpr uint64_t kLeastSamples = 8;
}  // namespace

uint64_t Deadlines::limit_ns(VgpuId v) const {
  const uint64_t own = evictions_[v].limit_ns;
  return own ? own : sharing_.config.evict_end_ns;
}

uint64_t Deadlines::warn_ns(VgpuId v) const {
  return std::min(limit_ns(v), sharing_.config.evict_warn_ns);
}

void Deadlines::start(uint64_t now_ns, VgpuId v) {
  Eviction& e = evictions_[v];
  e = {
      .stage = Stage::kRunning, .since_ns = now_ns, .limit_ns = e.limit_ns, .shown_ns = e.shown_ns};
  running_.push_back(v);
}

void Deadlines::stop(VgpuId v) {
  if (evictions_[v].stage == Stage::kStopped) return;
  evictions_[v].stage = Stage::kStopped;
  std::erase(running_, v);
}

void Deadlines::excuse(VgpuId v, uint64_t now_ns, uint64_t ns, uint32_t limits) {
  Eviction& e = evictions_[v];
  if (e.stage == Stage::kStopped) return;
  ns = std::min(ns, now_ns - e.since_ns - e.excused_ns);
  e.excused_ns = std::max(e.excused_ns, std::min(e.excused_ns + ns, limits * limit_ns(v)));
}

void Deadlines::excuse_others(VgpuId v, uint64_t now_ns, uint64_t ns) {
  for (const VgpuId w : running_)
    if (w != v) excuse(w, now_ns, ns);
}

// Whoever asked: the count is the same.
void Deadlines::on_starved(uint64_t now_ns, SessionId s, uint64_t starved_ns, ActionQueue& out) {
  answer_ungranted(s, starved_ns, out);
  Starved& x = starved_[s];
  if (x.pending == 0) return;
  --x.pending;
  const VgpuId v = sharing_.sessions[s].vgpu;
  Eviction& e = evictions_[v];
  if (!x.before_ns) x.before_ns = starved_ns;
  const uint64_t since_ns = starved_ns - std::min(*x.before_ns, starved_ns);
  e.starved_ns = std::max(e.starved_ns, since_ns);
  if (!is_answered(v) || (e.stage != Stage::kWarned && e.stage != Stage::kAsked)) return;
  if (e.from_ns == 0) e.from_ns = now_ns;
  e.known_ns = now_ns;
}

void Deadlines::ask(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  evictions_[v].looked_ns = now_ns;
  for (const SessionId s : sharing_.vgpus[v].sessions) {
    if (sharing_.sessions[s].drain == Drain::kNone) continue;
    sharing_.reports.read(s, out);
    ++starved_[s].pending;
    out.push({.kind = Action::Kind::kAskStarved, .session = s, .vgpu = v});
  }
}

bool Deadlines::is_answered(VgpuId v) const {
  const auto& sessions = sharing_.vgpus[v].sessions;
  return std::none_of(sessions.begin(), sessions.end(), [&](SessionId s) {
    return sharing_.sessions[s].drain != Drain::kNone && starved_[s].pending > 0;
  });
}

void Deadlines::warn(uint64_t now_ns, VgpuId v, uint64_t since_ns, ActionQueue& out) {
  evictions_[v].stage = Stage::kWarned;
  ++sharing_.vgpus[v].counters.overdue;
  sharing_.log(out, LogEvent::kOverdue, v, since_ns);
  for (const SessionId s : sharing_.vgpus[v].sessions) starved_[s].before_ns.reset();
  ask(now_ns, v, out);
}

void Deadlines::end(VgpuId v, ActionQueue& out) {
  evictions_[v].stage = Stage::kEnded;
  for (const SessionId s : sharing_.vgpus[v].sessions)
    if (sharing_.sessions[s].drain != Drain::kNone)
      sharing_.end_session(out, s, EndReason::kDidNotLeave);
}

// As far as it counts.
uint64_t Deadlines::starved_ns(VgpuId v) const {
  const Eviction& e = evictions_[v];
  return std::min(e.starved_ns, limit_ns(v) - std::min(e.excused_ns, limit_ns(v)));
}

uint64_t Deadlines::overstay_ns(SessionId s, EndReason reason) const {
  const VgpuId v = sharing_.sessions[s].vgpu;
  const Ungranted& u = ungranted_[s];
  if (reason == EndReason::kRanUngranted) return std::max(u.sum_ns, limit_ns(v)) + u.excused_ns;
  return limit_ns(v) + (reason == EndReason::kDidNotLeave ? starved_ns(v) : 0);
}

// Samples that would excuse the rest may be as far apart as that.
uint64_t Deadlines::known_stay_ns(VgpuId v) const {
  const Eviction& e = evictions_[v];
  uint64_t free_ns = e.from_ns + starved_ns(v);
  if (e.excused_ns > 0) free_ns += e.excused_ns + sharing_.config.longest_sample_ns;
  const uint64_t stay = e.known_ns - std::min(e.known_ns, free_ns);
  if (e.from_ns == 0 || stay < warn_ns(v)) return 0;
  return std::min(stay + warn_ns(v), limit_ns(v));
}

void Deadlines::on_left(uint64_t now_ns, SessionId s) {
  const VgpuId v = sharing_.sessions[s].vgpu;
  Eviction& e = evictions_[v];
  if (e.stage == Stage::kStopped) return;
  const uint64_t stay = now_ns - std::min(now_ns, e.since_ns + e.excused_ns);
  e.shown_ns = std::max(e.shown_ns, std::min(stay, limit_ns(v)));
}

uint64_t Deadlines::take_stay_ns(SessionId s) {
  const SessionState& x = sharing_.sessions[s];
  Eviction& e = evictions_[x.vgpu];
  if (x.drain == Drain::kNone || e.stage == Stage::kStopped || e.stage == Stage::kEnded) return 0;
  const uint64_t stay = known_stay_ns(x.vgpu), free_ns = std::max(e.shown_ns, e.counted_ns);
  e.counted_ns = std::max(stay, e.counted_ns);
  return stay - std::min(stay, free_ns);
}

uint64_t Deadlines::deadline_ns(VgpuId v) const {
  const Eviction& e = evictions_[v];
  return e.since_ns + e.excused_ns + starved_ns(v) + limit_ns(v);
}

// Of one that was warned. One that was asked is not asked again at once: its answer may excuse
// nearly all the time until it came.
uint64_t Deadlines::end_at_ns(VgpuId v) const {
  const Eviction& e = evictions_[v];
  const uint64_t limit = limit_ns(v), warn = warn_ns(v);
  return std::max({deadline_ns(v), e.warned_ns + limit - warn, e.asked_ns ? e.asked_ns + warn : 0});
}

// Rarely: an answer may have the spawner wait for the kernel.
uint64_t Deadlines::look_at_ns(VgpuId v) const {
  const Eviction& e = evictions_[v];
  return is_answered(v) ? 2 * e.looked_ns - e.since_ns : kNever;
}

void Deadlines::enforce(uint64_t now_ns, ActionQueue& out) {
  for (const VgpuId v : running_) {
    Eviction& e = evictions_[v];
    const uint64_t since_ns = now_ns - e.since_ns - e.excused_ns;
    if (e.stage == Stage::kRunning && since_ns >= warn_ns(v)) {
      warn(now_ns, v, since_ns, out);
      e.warned_ns = now_ns;
    }
    if (e.stage == Stage::kWarned && now_ns >= end_at_ns(v)) {
      e.stage = Stage::kAsked;
      e.asked_ns = now_ns;
      ask(now_ns, v, out);
    }
    if (e.stage == Stage::kWarned && now_ns >= look_at_ns(v)) ask(now_ns, v, out);
    if (e.stage != Stage::kAsked) continue;
    if (!is_answered(v) && now_ns < e.asked_ns + limit_ns(v)) continue;
    if (e.asked_ns < deadline_ns(v))
      e.stage = Stage::kWarned;
    else
      end(v, out);
  }
}

void Deadlines::ask_ungranted(uint64_t now_ns, SessionId s, ActionQueue& out) {
  ungranted_[s].asked_ns = now_ns;
  out.push({.kind = Action::Kind::kAskStarved, .session = s, .vgpu = sharing_.sessions[s].vgpu});
}

void Deadlines::answer_ungranted(SessionId s, uint64_t starved_ns, ActionQueue& out) {
  Ungranted& u = ungranted_[s];
  if (u.asked_ns == 0) return;
  u.asked_ns = 0;
  const bool again = u.before_ns.has_value();
  const uint64_t limit = limit_ns(sharing_.sessions[s].vgpu);
  const uint64_t since_ns = starved_ns - std::min(u.before_ns.value_or(starved_ns), starved_ns);
  const uint64_t excused_ns = std::min({since_ns, u.sum_ns, limit - std::min(u.excused_ns, limit)});
  u.before_ns = starved_ns;
  u.sum_ns -= excused_ns;
  u.excused_ns += excused_ns;
  if (again && u.sum_ns >= limit) sharing_.end_session(out, s, EndReason::kRanUngranted);
}

void Deadlines::sample(uint64_t now_ns, SessionId running, ActionQueue& out) {
  const SchedulerConfig& c = sharing_.config;
  uint64_t stands_for_ns =
      sampled_ns_ == 0 ? 0 : std::min(now_ns - sampled_ns_, c.longest_sample_ns);
  sampled_ns_ = now_ns;
  const SessionState* x = sharing_.session(running);
  if (!x || !sharing_.strategy->has_deadlines()) return;
  const VgpuState& g = sharing_.vgpus[x->vgpu];
  if (g.holds() || now_ns < g.left_ns + c.ungranted_grace_ns) return;

  for (const VgpuId v : running_) {
    Eviction& e = evictions_[v];
    if (v != x->vgpu) e.excused_ns += std::min(stands_for_ns, now_ns - e.since_ns - e.excused_ns);
  }
  Ungranted& u = ungranted_[running];
  const uint64_t limit = limit_ns(x->vgpu);
  const uint64_t leaked = (now_ns - u.at_ns) / std::max(c.ungranted_leak, 1u);
  // What it starved shrinks after the sum: else each time that all was excused would be its first.
  if (u.sum_ns <= leaked)
    u = {.excused_ns = u.excused_ns - std::min(u.excused_ns, leaked - u.sum_ns)};
  const bool excused = silent_until_ns_ != 0 && now_ns < silent_until_ns_ + limit;
  stands_for_ns = std::min(stands_for_ns, limit / kLeastSamples);
  u.sum_ns = u.sum_ns - std::min(u.sum_ns, leaked) + (excused ? 0 : stands_for_ns);
  u.at_ns = now_ns;
  if (u.asked_ns != 0) {  // who should answer does not
    if (now_ns >= u.asked_ns + limit && u.sum_ns >= limit)
      sharing_.end_session(out, running, EndReason::kRanUngranted);
  } else if (u.sum_ns >= (u.before_ns ? limit : limit / 2)) {
    ask_ungranted(now_ns, running, out);
  }
}

uint64_t Deadlines::next_ns() const {
  uint64_t next = kNever;
  for (const VgpuId v : running_) {
    const Eviction& e = evictions_[v];
    if (e.stage == Stage::kRunning) next = std::min(next, e.since_ns + e.excused_ns + warn_ns(v));
    if (e.stage == Stage::kWarned) next = std::min({next, end_at_ns(v), look_at_ns(v)});
    if (e.stage == Stage::kAsked) next = std::min(next, e.asked_ns + limit_ns(v));
  }
  return next;
}

}  // namespace sluice::core
