// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/strategies/exclusive.h"

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

// ---- holding ---------------------------------------------------------------------------------

void Exclusive::on_opened(uint64_t now_ns, VgpuId v) {
  holds_.on_granted(now_ns, v);
  sharing_.charging.meter.set_holder(now_ns, v);
}

void Exclusive::on_freed(uint64_t now_ns) {
  sharing_.charging.meter.set_holder(now_ns, accounting::ShareMeter::kNobody);
}

}  // namespace sluice::core
