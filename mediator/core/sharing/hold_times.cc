// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/hold_times.h"

#include <algorithm>

#include "mediator/core/sharing/sharing.h"

namespace sluice::core {

// How much of the time since `from_ns` v has held the GPU.
uint64_t HoldTimes::held_since(VgpuId v, uint64_t from_ns, uint64_t now_ns) const {
  const VgpuState& g = sharing_.vgpus[v];
  const uint64_t from = std::max(from_ns, granted_ns_[v]), to = g.holds() ? now_ns : g.left_ns;
  return to > from ? to - from : 0;
}

void HoldTimes::charge_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns) {
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
