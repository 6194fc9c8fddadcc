// The scheduler where the GPU shares itself by time slices (a proportional preemptor): several vGPUs hold the GPU at
// once, the hardware goes round among their contexts, and the policy says how long each one's turn is.
//
//   - The gate of a vGPU that has work is open while its slice is not 0. With 0 it is *gated*: its gate closes and its
//     launches are called back as in an eviction, but nobody waits for that, so it has no deadline.
//   - Who is idle while somebody else has work has its gate closed, so that it rings when it has work again; who has the
//     GPU alone keeps it open (disengaged).
//   - The slice is a vGPU's; its sessions that have work share it.
//   - Time that is held says nothing of time that is used, so it is measured by the caller (on_used()), not by the clock.
// All vGPUs are looked at after each event.
#include <algorithm>

#include "mediator/core/scheduler_impl.h"

namespace sluice::core {

void Scheduler::Impl::set_slices(VgpuId v, uint64_t slice_ns, ActionQueue& out) {
  const Vgpu& g = vgpus[v];
  for (const SessionId s : g.sessions) {
    Session& x = sessions[s];
    if (!x.wants) continue;
    // What a gated one had begun runs on until it leaves, as shortly as the hardware can.
    const uint64_t own_ns = std::max<uint64_t>(slice_ns / g.wanting_sessions, 1);
    if (x.slice_ns == own_ns) continue;
    x.slice_ns = own_ns;
    out.push({.kind = Action::Kind::kSetSlice, .session = s, .vgpu = v, .word = own_ns});
  }
}

// Opens and closes what has to be. False: nothing was to be done.
bool Scheduler::Impl::open_and_gate(uint64_t now_ns, ActionQueue& out) {
  if (!slices() || outstanding > 0) return false;
  bool any = false;
  for (VgpuId v = 0; v < vgpus.size(); ++v) {
    Vgpu& g = vgpus[v];
    if (!g.present || g.sessions.empty()) continue;
    const bool open = g.slice_ns > 0 && (g.busy || (g.holds && others_wanting(v) == 0));
    set_slices(v, open ? g.slice_ns : 0, out);
    if (g.leaving || open == g.holds) continue;
    any = true;
    if (open) {
      grant(now_ns, v, out);
    } else {
      evict(now_ns, v, out);
      std::erase(leaving, v);
    }
  }
  return any;
}

void Scheduler::on_used(uint64_t now_ns, VgpuId v, uint64_t sm_ns) {
  Impl& m = *impl_;
  auto* g = m.vgpu(v);
  if (!g || !m.slices() || sm_ns == 0) return;
  g->charged_sm_ns += sm_ns;
  g->used_sm_ns += sm_ns;
  m.meter.add_used(now_ns, v, sm_ns / m.sm_count());
  m.policy->on_usage(now_ns, v, {.sm_ns = sm_ns});
}

}  // namespace sluice::core
