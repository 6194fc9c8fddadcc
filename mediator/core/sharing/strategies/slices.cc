// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/strategies/slices.h"

#include <algorithm>
#include <utility>

#include "mediator/core/sharing/sharing.h"
#include "policies/accounting/engine_use.h"

namespace sluice::core {

bool Slices::set_slice(const policy::Action& a) {
  if (!sharing_.vgpu(a.vgpu)) return false;
  if (a.value == 0 && slice_ns_[a.vgpu] != 0) rides_until_ns_[a.vgpu] = kJustNow;
  slice_ns_[a.vgpu] = a.value;
  return true;
}

// The vGPU that has the GPU alone, until all that it had begun has left, if the policy wants to
// hear of its launches at once: then its gate is open only while it has work.
VgpuId Slices::alone() const {
  if (sharing_.holders.size() != 1) return policy::kNoVgpu;
  const VgpuId v = sharing_.holders.front();
  const bool is_alone = sharing_.reports.others_backlogged(v) == 0;
  return is_alone && sharing_.policy->hears_at_once(v) ? v : policy::kNoVgpu;
}

void Slices::charge_alone(uint64_t now_ns) {
  if (alone_ == policy::kNoVgpu || now_ns <= alone_to_ns_) return;
  const uint64_t ns = now_ns - std::exchange(alone_to_ns_, now_ns);
  sharing_.policy->on_free_usage(now_ns, alone_, {.sm_ns = ns * sharing_.sm_count()});
}

void Slices::charge_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns) {
  if (stall_ns > 0) sharing_.charging.charge_measured(now_ns, v, stall_ns * sharing_.sm_count());
}

// The policy knows of one context of each vGPU, and charges or bears its switches.
uint64_t Slices::on_used(uint64_t now_ns, VgpuId v, uint64_t sm_ns) {
  used_at_ns_[v] = now_ns;
  const Round& r = round_[v];
  const uint32_t more = r.slice_ns > 0 ? r.riders : r.riders - std::min(r.riders, 1u);
  if (more == 0 || sharing_.reports.others_backlogged(v) == 0) return 0;
  const policy::Machine& m = sharing_.machine();
  const uint64_t shortest_ns = m.slice_least_ns ? m.slice_least_ns : kShortestNs;
  const auto slices_ns = static_cast<double>(r.slice_ns + r.riders * shortest_ns);
  const auto switches_ns = static_cast<double>(more * m.handover_ns);
  return static_cast<uint64_t>(static_cast<double>(sm_ns) * switches_ns / slices_ns);
}

// Whether all that have work have run since the last new slices.
bool Slices::round_is_over(uint64_t now_ns) const {
  if (now_ns - set_ns_ > kLongestRoundNs) return true;
  for (VgpuId v = 0; v < sharing_.vgpus.size(); ++v) {
    const VgpuState& g = sharing_.vgpus[v];
    const bool has_work = g.present() && (g.leaving() || (g.holds() && g.backlogged()));
    if (has_work && used_at_ns_[v] < set_ns_) return false;
  }
  return true;
}

// The answer is the same for all in one event.
bool Slices::may_set(uint64_t now_ns) {
  if (asked_ns_ != now_ns) asked_ns_ = now_ns, may_set_ = round_is_over(now_ns);
  return may_set_;
}

void Slices::divide_slice(uint64_t now_ns, VgpuId v, uint64_t slice_ns, ActionQueue& out) {
  const VgpuState& g = sharing_.vgpus[v];
  uint32_t among = 0;
  for (const SessionId s : g.sessions)
    among += sharing_.sessions[s].backlogged && sharing_.crowd.may_launch(s);
  round_[v] = {.slice_ns = among > 0 ? slice_ns : 0};
  for (const SessionId s : g.sessions) {
    if (!sharing_.sessions[s].backlogged) continue;
    const bool has_part = slice_ns > 0 && sharing_.crowd.may_launch(s);
    if (!has_part && !rides(v, s)) continue;
    round_[v].riders += !has_part;
    const uint64_t own_ns = has_part ? std::max<uint64_t>(slice_ns / among, 1) : 1;
    if (session_slice_ns_[s] == own_ns) continue;
    if (session_slice_ns_[s] != 0 && set_ns_ != now_ns && !may_set(now_ns)) continue;
    set_ns_ = now_ns;
    session_slice_ns_[s] = own_ns;
    out.push({.kind = Action::Kind::kSetSlice, .session = s, .vgpu = v, .word = own_ns});
  }
}

// What a gated session had begun keeps its slice, in which most of it ends. Once others have run
// beside it for kEndsNs, for each that leaves, it runs on until it leaves, as shortly as the
// hardware can: cut to 0.1 ms at once, 16 had a third of an H200 between them, and the rest was
// switches.
bool Slices::rides(VgpuId v, SessionId s) {
  if (sharing_.sessions[s].drain == Drain::kNone) return false;
  if (slice_ns_[v] > 0) return true;
  uint64_t& until_ns = rides_until_ns_[v];
  if (until_ns == kJustNow && leaving_ > 0) until_ns = ran_ns_ + kEndsNs * leaving_;
  return until_ns != kJustNow && ran_ns_ > until_ns;
}

bool Slices::advance(uint64_t now_ns, ActionQueue& out) {
  if (sharing_.reports.outstanding()) return false;
  if (runs_) ran_ns_ += now_ns - event_ns_;
  event_ns_ = now_ns;
  runs_ = false;
  bool any = false;
  size_t backlogged = 0, leaving = 0;
  for (VgpuId v = 0; v < sharing_.vgpus.size(); ++v) {
    const VgpuState& g = sharing_.vgpus[v];
    if (!g.present() || g.sessions.empty()) continue;
    backlogged += g.backlogged();
    const bool alone = g.holds() && sharing_.reports.others_backlogged(v) == 0 &&
                       !sharing_.policy->hears_at_once(v);
    const bool wanted = slice_ns_[v] > 0 && (g.busy || alone);
    divide_slice(now_ns, v, wanted ? slice_ns_[v] : 0, out);
    leaving += g.leaving();
    if (g.leaving()) continue;
    if (wanted && !g.holds()) {
      open(now_ns, v, out);
      any = true;
    } else if (!wanted && g.holds()) {
      close(now_ns, v, out);
      sharing_.deadlines.stop(v);
      any = true;
    }
    runs_ |= wanted && g.backlogged();
  }
  leaving_ = leaving;
  if (backlogged > 1) contended_ns_ = now_ns;
  if (const VgpuId v = alone(); v != alone_) {
    charge_alone(now_ns);
    alone_ = v;
    alone_to_ns_ = std::max(now_ns, contended_ns_ + accounting::EngineUse::kAloneNs);
  }
  return any;
}

}  // namespace sluice::core
