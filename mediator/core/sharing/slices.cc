// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/slices.h"

#include <algorithm>

#include "mediator/core/sharing/sharing.h"

namespace sluice::core {

bool Slices::set_slice(const policy::Action& a) {
  if (!sharing_.vgpu(a.vgpu)) return false;
  slice_ns_[a.vgpu] = a.value;
  return true;
}

void Slices::charge_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns) {
  if (stall_ns > 0) sharing_.charging.charge_measured(now_ns, v, stall_ns * sharing_.sm_count());
}

void Slices::divide_slice(VgpuId v, uint64_t slice_ns, ActionQueue& out) {
  const VgpuState& g = sharing_.vgpus[v];
  uint32_t among = 0;
  for (const SessionId s : g.sessions)
    among += sharing_.sessions[s].backlogged && sharing_.crowd.may_launch(s);
  for (const SessionId s : g.sessions) {
    if (!sharing_.sessions[s].backlogged) continue;
    // What a gated session had begun runs on until it leaves, as shortly as the hardware can.
    const bool has_part = slice_ns > 0 && sharing_.crowd.may_launch(s);
    const uint64_t own_ns = has_part ? std::max<uint64_t>(slice_ns / among, 1) : 1;
    if (session_slice_ns_[s] == own_ns) continue;
    session_slice_ns_[s] = own_ns;
    out.push({.kind = Action::Kind::kSetSlice, .session = s, .vgpu = v, .word = own_ns});
  }
}

bool Slices::advance(uint64_t now_ns, ActionQueue& out) {
  if (sharing_.reports.outstanding()) return false;
  bool any = false;
  for (VgpuId v = 0; v < sharing_.vgpus.size(); ++v) {
    const VgpuState& g = sharing_.vgpus[v];
    if (!g.present() || g.sessions.empty()) continue;
    const bool alone = g.holds() && sharing_.reports.others_backlogged(v) == 0;
    const bool wanted = slice_ns_[v] > 0 && (g.busy || alone);
    divide_slice(v, wanted ? slice_ns_[v] : 0, out);
    if (g.leaving() || wanted == g.holds()) continue;
    any = true;
    if (wanted) {
      open(now_ns, v, out);
    } else {
      close(now_ns, v, out);
      sharing_.deadlines.stop(v);
    }
  }
  return any;
}

}  // namespace sluice::core
