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

void Exclusive::on_opened(uint64_t now_ns, VgpuId v) {
  granted_ns_[v] = now_ns;
  sharing_.charging.meter.set_holder(now_ns, v);
}

void Exclusive::on_freed(uint64_t now_ns) {
  sharing_.charging.meter.set_holder(now_ns, accounting::ShareMeter::kNobody);
}

// How much of the time since `from_ns` v has held the GPU; of its holds the last one counts.
uint64_t Exclusive::held_since(VgpuId v, uint64_t from_ns, uint64_t now_ns) const {
  const VgpuState& g = sharing_.vgpus[v];
  const uint64_t from = std::max(from_ns, granted_ns_[v]), to = g.holds() ? now_ns : g.left_ns;
  return to > from ? to - from : 0;
}

// Holders were charged by the clock meanwhile: others get that back, and v pays for the rest.
void Exclusive::charge_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns) {
  const uint64_t from_ns = now_ns - std::min(now_ns, stall_ns);
  const uint64_t charged_ns = std::min(stall_ns, held_since(v, from_ns, now_ns));
  for (VgpuId other = 0; other < sharing_.vgpus.size(); ++other) {
    if (other == v || !sharing_.vgpus[other].present()) continue;
    if (const uint64_t held_ns = held_since(other, from_ns, now_ns))
      sharing_.charging.correct(now_ns, other, held_ns * sharing_.sm_count(), 0);
  }
  if (charged_ns < stall_ns)
    sharing_.charging.correct(now_ns, v, 0, (stall_ns - charged_ns) * sharing_.sm_count());
}

}  // namespace sluice::core
