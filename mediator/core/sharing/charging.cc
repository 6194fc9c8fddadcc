// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/charging.h"

#include <algorithm>

#include "mediator/core/sharing/sharing.h"

namespace sluice::core {

void Charging::charge_by_clock(uint64_t now_ns) {
  if (!sharing_.strategy->charges_by_clock()) return sharing_.strategy->charge_alone(now_ns);
  for (const VgpuId v : sharing_.holders) charge_clock_of(now_ns, v);
  const VgpuId beside = sharing_.strategy->runs_beside();
  if (beside != policy::kNoVgpu) charge_clock_of(now_ns, beside);
}

void Charging::charge_clock_of(uint64_t now_ns, VgpuId v) {
  Account& a = vgpus_[v];
  const uint64_t used = a.clock.take_used(now_ns);
  if (used == 0) return;
  const uint64_t sm_ns = used * sharing_.strategy->charged_sms(v);
  a.used_sm_ns += sm_ns;
  a.counted_ns = a.clock.total_ns(now_ns);
  charge(now_ns, v, sm_ns);
}

// A refund that is due is taken off first.
void Charging::charge(uint64_t now_ns, VgpuId v, uint64_t sm_ns) {
  Account& a = vgpus_[v];
  const uint64_t refund = std::min(a.refund_due_sm_ns, sm_ns);
  a.refund_due_sm_ns -= refund;
  a.refunded_sm_ns += refund;
  if (sm_ns == refund) return;
  a.charged_sm_ns += sm_ns - refund;
  sharing_.policy->on_usage(now_ns, v, {.sm_ns = sm_ns - refund});
}

void Charging::charge_measured(uint64_t now_ns, VgpuId v, uint64_t sm_ns, bool free) {
  Account& a = vgpus_[v];
  a.used_sm_ns += sm_ns;
  if (free) return;
  a.charged_sm_ns += sm_ns;
  meter.add_used(now_ns, v, sm_ns / sharing_.sm_count());
  sharing_.policy->on_usage(now_ns, v, {.sm_ns = sm_ns});
}

void Charging::correct(uint64_t now_ns, VgpuId v, uint64_t refund_sm_ns, uint64_t extra_sm_ns) {
  charge_by_clock(now_ns);
  Account& a = vgpus_[v];
  // However wrong a source is, nobody runs for longer than this for nothing.
  const uint64_t max_quantum_sm_ns =
      sharing_.config.policy_config.max_quantum_ns * sharing_.sm_count();
  const uint64_t most = std::min(a.charged_sm_ns, max_quantum_sm_ns);
  a.refund_due_sm_ns = std::min(a.refund_due_sm_ns + std::min(refund_sm_ns, most), most);
  if (extra_sm_ns == 0) return;
  a.charged_sm_ns += extra_sm_ns;
  a.extra_sm_ns += extra_sm_ns;
  sharing_.policy->on_usage(now_ns, v, {.sm_ns = extra_sm_ns});
}

void Charging::fill(uint64_t now_ns, VgpuId v, VgpuStats& stats) const {
  const Account& a = vgpus_[v];
  uint64_t used_sm_ns = a.used_sm_ns;
  if (sharing_.strategy->charges_by_clock())
    used_sm_ns += (a.clock.total_ns(now_ns) - a.counted_ns) * sharing_.strategy->charged_sms(v);
  stats.gpu_ns = used_sm_ns / sharing_.sm_count();
  stats.gpu_error_ns = a.clock.error_ns(now_ns);
  stats.charged_sm_ns = a.charged_sm_ns;
  stats.refunded_sm_ns = a.refunded_sm_ns;
  stats.extra_sm_ns = a.extra_sm_ns;
  stats.contended = meter.contended(v);
  stats.shares = meter.totals(now_ns, v);
}

}  // namespace sluice::core
