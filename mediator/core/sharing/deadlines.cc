// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/deadlines.h"

#include <algorithm>

#include "mediator/core/sharing/sharing.h"

namespace sluice::core {

uint64_t Deadlines::limit_ns(VgpuId v) const {
  const uint64_t own = evictions_[v].limit_ns;
  return own ? own : sharing_.config.evict_end_ns;
}

void Deadlines::start(uint64_t now_ns, VgpuId v) {
  Eviction& e = evictions_[v];
  e.stage = Stage::kRunning;
  e.since_ns = now_ns;
  e.excused_ns = 0;
  running_.push_back(v);
}

void Deadlines::stop(VgpuId v) {
  if (evictions_[v].stage == Stage::kStopped) return;
  evictions_[v].stage = Stage::kStopped;
  std::erase(running_, v);
}

void Deadlines::excuse(VgpuId v, uint64_t now_ns, uint64_t ns) {
  Eviction& e = evictions_[v];
  if (e.stage == Stage::kStopped) return;
  ns = std::min(ns, now_ns - e.since_ns - e.excused_ns);
  e.excused_ns = std::min(e.excused_ns + ns, limit_ns(v));
}

void Deadlines::warn(VgpuId v, uint64_t since_ns, ActionQueue& out) {
  evictions_[v].stage = Stage::kWarned;
  ++sharing_.vgpus[v].counters.overdue;
  sharing_.log(out, LogEvent::kOverdue, v, since_ns);
  // Polled once more, in case a worker's bug lost a ring.
  for (const SessionId s : sharing_.vgpus[v].sessions)
    if (sharing_.sessions[s].drain != Drain::kNone) sharing_.reports.read(s, out);
}

// Of one that was warned.
uint64_t Deadlines::end_at_ns(VgpuId v) const {
  const Eviction& e = evictions_[v];
  const uint64_t limit = limit_ns(v), warn = std::min(limit, sharing_.config.evict_warn_ns);
  return std::max(e.since_ns + e.excused_ns + limit, e.warned_ns + limit - warn);
}

void Deadlines::enforce(uint64_t now_ns, ActionQueue& out) {
  for (const VgpuId v : running_) {
    Eviction& e = evictions_[v];
    const uint64_t since_ns = now_ns - e.since_ns - e.excused_ns;
    if (e.stage == Stage::kRunning &&
        since_ns >= std::min(limit_ns(v), sharing_.config.evict_warn_ns)) {
      warn(v, since_ns, out);
      e.warned_ns = now_ns;
    }
    if (e.stage != Stage::kWarned || now_ns < end_at_ns(v)) continue;
    e.stage = Stage::kEnded;
    for (const SessionId s : sharing_.vgpus[v].sessions)
      if (sharing_.sessions[s].drain != Drain::kNone)
        sharing_.end_session(out, s, EndReason::kDidNotLeave);
  }
}

void Deadlines::sample(uint64_t now_ns, SessionId running, ActionQueue& out) {
  const SchedulerConfig& c = sharing_.config;
  const uint64_t stands_for_ns =
      sampled_ns_ == 0 ? 0 : std::min(now_ns - sampled_ns_, c.longest_sample_ns);
  sampled_ns_ = now_ns;
  const SessionState* x = sharing_.session(running);
  if (!x || !sharing_.strategy->has_deadlines()) return;
  const VgpuState& g = sharing_.vgpus[x->vgpu];
  if (g.holds() || now_ns < g.left_ns + c.ungranted_grace_ns) return;

  Ungranted& u = ungranted_[running];
  const uint64_t leaked = (now_ns - u.at_ns) / std::max(c.ungranted_leak, 1u);
  u.sum_ns = u.sum_ns - std::min(u.sum_ns, leaked) + stands_for_ns;
  u.at_ns = now_ns;
  for (const VgpuId v : running_) {
    Eviction& e = evictions_[v];
    if (v != x->vgpu) e.excused_ns += std::min(stands_for_ns, now_ns - e.since_ns - e.excused_ns);
  }
  if (u.sum_ns >= limit_ns(x->vgpu)) sharing_.end_session(out, running, EndReason::kRanUngranted);
}

uint64_t Deadlines::next_ns() const {
  uint64_t next = kNever;
  for (const VgpuId v : running_) {
    const Eviction& e = evictions_[v];
    if (e.stage == Stage::kRunning)
      next = std::min(
          next, e.since_ns + e.excused_ns + std::min(limit_ns(v), sharing_.config.evict_warn_ns));
    if (e.stage == Stage::kWarned) next = std::min(next, end_at_ns(v));
  }
  return next;
}

}  // namespace sluice::core
