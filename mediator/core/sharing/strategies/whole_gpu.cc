// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/strategies/whole_gpu.h"

#include "mediator/core/sharing/sharing.h"

namespace sluice::core {

bool WholeGpu::gates_open(VgpuId v) const {
  return sharing_.vgpus[v].holds() && !sharing_.vgpus[v].leaving();
}

uint32_t WholeGpu::charged_sms(VgpuId) const { return sharing_.sm_count(); }

void WholeGpu::open(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  sharing_.begin_hold(now_ns, v);
  on_opened(now_ns, v);
  sharing_.crowd.open_gates(now_ns, v, out);
  sharing_.log(out, LogEvent::kGranted, v, sharing_.sessions[g.sessions.back()].generation);
}

void WholeGpu::close(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  g.hold = HoldState::kLeaving;
  g.had_in_flight = false;
  sharing_.deadlines.start(now_ns, v);
  const EvictCause cause = g.busy ? EvictCause::kQuantum : EvictCause::kIdle;
  sharing_.log(out, LogEvent::kEvictSent, v, static_cast<uint64_t>(cause));
  for (const SessionId s : g.sessions) sharing_.evict_session(s, out);
}

void WholeGpu::on_drained(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  const bool evicted = g.leaving();             // else its last session is gone
  if (!evicted && !g.sessions.empty()) return;  // single sessions gave way to others of v
  const uint64_t evicted_at_ns = sharing_.deadlines.evicted_at_ns(v);
  const uint64_t took_ns = evicted ? now_ns - evicted_at_ns : 0;
  sharing_.log(out, LogEvent::kLeft, v, took_ns);
  sharing_.deadlines.stop(v);
  g.left_ns = now_ns;
  sharing_.charging.clock(v).on_left(now_ns);
  sharing_.charging.charge_by_clock(now_ns);
  if (evicted && g.backlogged()) ++g.counters.evictions;
  if (evicted && g.had_in_flight) {
    g.counters.eviction_latency.add(took_ns);
    on_evicted_running(evicted_at_ns);
  }
  const policy::LeftReason why = sharing_.left_reason(v);
  // The policy must not choose it again for work that it no longer has. It may answer with an
  // evict, which a leaving vGPU takes as done.
  g.hold = HoldState::kLeaving;
  if (g.busy && !g.backlogged()) sharing_.reports.turn_idle(now_ns, v, out);
  sharing_.end_hold(v);
  on_freed(now_ns);
  sharing_.ask(now_ns, out,
               [&](policy::Actions& a) { sharing_.policy->on_released(now_ns, v, 0, {}, why, a); });
}

void WholeGpu::on_session_removed(uint64_t now_ns, SessionId s, ActionQueue& out) {
  const SessionState& x = sharing_.sessions[s];
  const VgpuState& g = sharing_.vgpus[x.vgpu];
  if (x.drain != Drain::kNone)
    sharing_.session_drained(now_ns, s, out);
  else if (g.holds() && !g.leaving() && g.sessions.empty())
    on_drained(now_ns, x.vgpu, out);
}

}  // namespace sluice::core
