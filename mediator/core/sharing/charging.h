// SPDX-License-Identifier: Apache-2.0
// Charging: how much GPU time each vGPU is charged, and what the policy hears of it.
//
// On a whole GPU and in space the mediator's clock charges, from grant to *left*, times the SMs
// held. Corrections by the GPU's own sources come afterwards: a refund is taken off the next
// charges, extra use is charged at once. On time slices only measured use is charged.
// Owned by Sharing, one thread. Amounts are SM-ns.
#pragma once

#include <cstdint>
#include <vector>

#include "mediator/core/sharing/entitlements.h"
#include "mediator/core/sharing/state.h"
#include "policies/accounting/clock_estimator.h"
#include "policies/accounting/share_meter.h"

namespace sluice::core {

struct Sharing;

class Charging {
 public:
  explicit Charging(Sharing& sharing) : sharing_(sharing) {}

  void reset(VgpuId v) { reset_record(vgpus_, v); }
  accounting::ClockEstimator& clock(VgpuId v) { return vgpus_[v].clock; }

  // Charges what the clocks of all holders have counted until now.
  void charge_by_clock(uint64_t now_ns);
  void charge_clock_of(uint64_t now_ns, VgpuId v);
  // On time slices: v's contexts have used so much.
  // `free`: it is shown, and not charged.
  void charge_measured(uint64_t now_ns, VgpuId v, uint64_t sm_ns, bool free = false);
  // On the rest: corrects what the clock has charged (Scheduler::on_measured()).
  void correct(uint64_t now_ns, VgpuId v, uint64_t refund_sm_ns, uint64_t extra_sm_ns);

  uint64_t charged_sm_ns(VgpuId v) const { return vgpus_[v].charged_sm_ns; }
  void fill(uint64_t now_ns, VgpuId v, VgpuStats& stats) const;

  accounting::ShareMeter meter;
  Entitlements entitlements{meter};

 private:
  struct Account {
    accounting::ClockEstimator clock;
    uint64_t used_sm_ns = 0;  // by the clock, or measured on time slices
    uint64_t counted_ns = 0;  // the clock's total that `used_sm_ns` contains
    uint64_t refund_due_sm_ns = 0;
    uint64_t charged_sm_ns = 0, refunded_sm_ns = 0, extra_sm_ns = 0;
  };
  void charge(uint64_t now_ns, VgpuId v, uint64_t sm_ns);

  Sharing& sharing_;
  std::vector<Account> vgpus_;
};

}  // namespace sluice::core
