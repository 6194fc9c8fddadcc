// The scheduler and what stops the whole GPU: who pays for a fault, and deadlines of those who stopped it before.
#include <algorithm>

#include "mediator/core/scheduler_impl.h"

namespace sluice::core {
namespace {

// How much of the time since `from_ns` it has held the GPU; of its holds the last one counts.
uint64_t held_since(const scheduler_detail::Vgpu& g, uint64_t from_ns, uint64_t now_ns) {
  const uint64_t from = std::max(from_ns, g.granted_ns), to = g.holds ? now_ns : g.left_ns;
  return to > from ? to - from : 0;
}

}  // namespace

void Scheduler::set_evict_end(VgpuId v, uint64_t evict_end_ns) {
  if (scheduler_detail::Vgpu* g = impl_->vgpu(v)) g->evict_end_ns = evict_end_ns;
}

uint64_t Scheduler::evict_end_ns(VgpuId v) const {
  const scheduler_detail::Vgpu* g = impl_->vgpu(v);
  return g ? impl_->evict_end_ns(*g) : impl_->config.evict_end_ns;
}

void Scheduler::on_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns, ActionQueue& out) {
  Impl& m = *impl_;
  scheduler_detail::Vgpu* g = m.vgpu(v);
  if (!g) return;
  const uint64_t from_ns = now_ns - std::min(now_ns, stall_ns);
  const uint64_t sms = m.config.policy_config.machine.sm_count;
  if (m.slices()) return on_used(now_ns, v, stall_ns * sms);
  if (m.spatial()) return on_measured(now_ns, v, 0, stall_ns * sms, out);
  const uint64_t charged = std::min(stall_ns, held_since(*g, from_ns, now_ns));
  for (VgpuId other = 0; other < m.vgpus.size(); ++other) {
    if (other == v || !m.vgpus[other].present) continue;
    if (const uint64_t held = held_since(m.vgpus[other], from_ns, now_ns))
      on_measured(now_ns, other, held * sms, 0, out);
  }
  if (charged < stall_ns) on_measured(now_ns, v, 0, (stall_ns - charged) * sms, out);
}

}  // namespace sluice::core
