// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/crowd.h"

#include <algorithm>
#include <utility>

#include "mediator/core/sharing/sharing.h"

namespace sluice::core {

size_t Crowd::most(VgpuId v) const {
  const VgpuState& g = sharing_.vgpus[v];
  return g.hold == HoldState::kAlone ? g.sessions.size() : sharing_.config.sessions_at_once;
}

// The usual case, without allocation: there is no crowd, and all gates are open.
bool Crowd::all_launch(VgpuId v) const {
  const std::vector<SessionId>& all = sharing_.vgpus[v].sessions;
  return all.size() <= most(v) && std::all_of(all.begin(), all.end(), [&](SessionId s) {
           return sharing_.has_open_gate(s);
         });
}

Crowd::Places Crowd::places(VgpuId v) const {
  const VgpuState& g = sharing_.vgpus[v];
  const bool alone = g.hold == HoldState::kAlone;
  Places p;
  for (const SessionId s : g.sessions) {
    const SessionState& x = sharing_.sessions[s];
    const bool drains = x.drain != Drain::kNone;
    if (sharing_.has_open_gate(s)) {
      p.open.push_back(s);
      p.working += x.backlogged;
      p.recalled |= drains;
    } else if (drains) {
      ++p.leaving;
    } else if (x.life == SessionLife::kLive && (alone || x.backlogged)) {
      p.waiting.push_back(s);
    }
  }
  return p;
}

bool Crowd::has_room(VgpuId v) const {
  const Places p = places(v);
  return sharing_.vgpus[v].hold == HoldState::kAlone || p.open.size() + p.leaving < most(v);
}

bool Crowd::may_launch(SessionId s) const {
  const VgpuId v = sharing_.sessions[s].vgpu;
  const VgpuState& g = sharing_.vgpus[v];
  return !g.holds() || g.sessions.size() <= most(v) || sharing_.has_open_gate(s);
}

void Crowd::open_gates(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  vgpus_[v] = {.since_ns = now_ns};
  const std::vector<SessionId>& all = sharing_.vgpus[v].sessions;
  const size_t limit = most(v);
  if (all.size() <= limit) {
    for (const SessionId s : all) sharing_.grant_session(s, out);
    return;
  }
  std::vector<SessionId> chosen;
  for (const SessionId s : all)
    if (sharing_.sessions[s].drain == Drain::kNone) chosen.push_back(s);
  const size_t leaving = all.size() - chosen.size();
  std::stable_partition(chosen.begin(), chosen.end(),
                        [&](SessionId s) { return sharing_.sessions[s].backlogged; });
  chosen.resize(std::min(chosen.size(), limit - std::min(limit, leaving)));
  grant(now_ns, v, chosen, out);
}

void Crowd::grant(uint64_t now_ns, VgpuId v, const std::vector<SessionId>& sessions,
                  ActionQueue& out) {
  vgpus_[v].since_ns = now_ns;
  for (const SessionId s : sessions) {
    std::erase(sharing_.vgpus[v].sessions, s);
    sharing_.vgpus[v].sessions.push_back(s);
    sharing_.grant_session(s, out);
  }
}

void Crowd::give_way(const Places& p, size_t count, ActionQueue& out) {
  std::vector<SessionId> order = p.open;
  std::stable_partition(order.begin(), order.end(),
                        [&](SessionId s) { return !sharing_.sessions[s].backlogged; });
  order.resize(std::min(count, order.size()));
  for (const SessionId s : order) sharing_.evict_session(s, out);
}

bool Crowd::advance(uint64_t now_ns, ActionQueue& out) {
  if (sharing_.reports.outstanding()) return false;
  next_ns_ = kNever;
  for (VgpuId v = 0; v < sharing_.vgpus.size(); ++v)
    if (sharing_.vgpus[v].present() && sharing_.strategy->gates_open(v) && advance(now_ns, v, out))
      return true;
  return false;
}

bool Crowd::advance(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  if (all_launch(v)) return false;
  Round& round = vgpus_[v];
  const bool asked = std::exchange(round.asked, false);
  const bool rotates = sharing_.strategy->rotates();
  const size_t limit = most(v);
  Places p = places(v);
  // Those that are being moved or recalled answer first.
  if (rotates && p.recalled) return false;
  if (rotates && p.open.size() > limit) {
    give_way(p, p.open.size() - limit, out);
    return true;
  }
  if (p.waiting.empty()) return false;
  const size_t taken = p.open.size() + p.leaving;
  if (taken < limit) {
    p.waiting.resize(std::min(p.waiting.size(), limit - taken));
    grant(now_ns, v, p.waiting, out);
    return true;
  }
  if (p.open.empty() || p.leaving > 0) return false;
  if (p.working == 0) {
    const uint64_t due_ns = round.since_ns + sharing_.config.session_idle_ns;
    if (rotates && now_ns < due_ns) {
      next_ns_ = std::min(next_ns_, due_ns);
      return false;
    }
    if (asked) {
      give_way(p, p.open.size(), out);
      return true;
    }
    round.asked = true;
    for (const SessionId s : p.open) sharing_.reports.read(s, out);
    return true;
  }
  if (!rotates) return false;
  const size_t idle = p.open.size() - p.working;
  const SchedulerConfig& c = sharing_.config;
  const uint64_t due_ns = round.since_ns + (idle > 0 ? c.session_idle_ns : c.session_turn_ns);
  if (now_ns < due_ns) {
    next_ns_ = std::min(next_ns_, due_ns);
    return false;
  }
  const bool turn_is_over = now_ns >= round.since_ns + c.session_turn_ns;
  give_way(p, std::min(p.waiting.size(), turn_is_over ? p.open.size() : idle), out);
  return true;
}

}  // namespace sluice::core
