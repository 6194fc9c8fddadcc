// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/exclusive.h"

#include <algorithm>
#include <utility>

#include "mediator/core/sharing/sharing.h"

namespace sluice::core {

bool Exclusive::is_whole(const policy::Action& a) const {
  return a.launch == 0 && a.sms.lo == 0 && (a.sms.hi == 0xffff || a.sms.hi >= sharing_.sm_count());
}

bool Exclusive::run(uint64_t now_ns, const policy::Action& a, ActionQueue& out) {
  const VgpuState* g = sharing_.vgpu(a.vgpu);
  if (!g || !is_whole(a) || !sharing_.holders.empty() || g->sessions.empty()) return false;
  open(now_ns, a.vgpu, out);
  if (const uint64_t since_ns = std::exchange(handover_since_ns_, 0))
    sharing_.policy->on_handover(now_ns, now_ns - since_ns);
  return true;
}

bool Exclusive::evict(uint64_t now_ns, const policy::Action& a, ActionQueue& out) {
  const VgpuState* g = sharing_.vgpu(a.vgpu);
  if (!g || !is_whole(a) || !g->holds()) return false;
  if (!g->leaving()) close(now_ns, a.vgpu, out);
  return true;
}

// ---- sessions of the holder ------------------------------------------------------------------

bool Exclusive::is_open(SessionId s) const {
  const SessionState& x = sharing_.sessions[s];
  return x.life == SessionLife::kLive && (x.word & SLUICE_GRANT_OPEN) != 0;
}

uint32_t Exclusive::open_count(VgpuId v) const {
  const auto& all = sharing_.vgpus[v].sessions;
  return static_cast<uint32_t>(
      std::count_if(all.begin(), all.end(), [&](SessionId s) { return is_open(s); }));
}

bool Exclusive::opens_new_session(VgpuId v) const {
  return WholeGpu::opens_new_session(v) && (sharing_.vgpus[v].hold == HoldState::kAlone ||
                                            open_count(v) < sharing_.config.sessions_at_once);
}

// Those with work first.
void Exclusive::open_gates(VgpuId v, ActionQueue& out) {
  asked_ = false;
  const VgpuState& g = sharing_.vgpus[v];
  const size_t most = sharing_.config.sessions_at_once;
  if (g.hold == HoldState::kAlone || g.sessions.size() <= most) return WholeGpu::open_gates(v, out);
  std::vector<SessionId> chosen = g.sessions;
  std::stable_partition(chosen.begin(), chosen.end(),
                        [&](SessionId s) { return sharing_.sessions[s].backlogged; });
  chosen.resize(most);
  grant_in_turn(v, chosen, out);
}

void Exclusive::grant_in_turn(VgpuId v, const std::vector<SessionId>& sessions, ActionQueue& out) {
  for (const SessionId s : sessions) {
    std::erase(sharing_.vgpus[v].sessions, s);
    sharing_.vgpus[v].sessions.push_back(s);
    sharing_.grant_session(s, out);
  }
}

bool Exclusive::advance(uint64_t, ActionQueue& out) {
  if (sharing_.holders.empty() || sharing_.reports.outstanding()) return false;
  const VgpuId v = sharing_.holders.front();
  const VgpuState& g = sharing_.vgpus[v];
  if (g.leaving()) return false;
  const bool alone = g.hold == HoldState::kAlone;
  std::vector<SessionId> open, waiting;
  bool working = false;
  for (const SessionId s : g.sessions) {
    const SessionState& x = sharing_.sessions[s];
    if (is_open(s)) {
      open.push_back(s);
      working |= x.backlogged;
    } else if (x.life == SessionLife::kLive && x.drain == Drain::kNone && (alone || x.backlogged)) {
      waiting.push_back(s);
    }
  }
  const size_t most = alone ? g.sessions.size() : sharing_.config.sessions_at_once;
  const bool full = open.size() >= most;
  const bool asked = std::exchange(asked_, false);
  if (waiting.empty() || (full && working)) return false;
  if (full && !asked) {  // a session with an open gate does not report that it has work again
    asked_ = true;
    for (const SessionId s : open) sharing_.reports.read(s, out);
    return true;
  }
  if (full)
    for (const SessionId s : std::exchange(open, {})) sharing_.evict_session(s, out);
  waiting.resize(std::min(waiting.size(), most - open.size()));
  grant_in_turn(v, waiting, out);
  return true;
}

// ---- holding ---------------------------------------------------------------------------------

void Exclusive::on_opened(uint64_t now_ns, VgpuId v) {
  holds_.on_granted(now_ns, v);
  sharing_.charging.meter.set_holder(now_ns, v);
}

void Exclusive::on_freed(uint64_t now_ns) {
  sharing_.charging.meter.set_holder(now_ns, accounting::ShareMeter::kNobody);
}

}  // namespace sluice::core
