// SPDX-License-Identifier: Apache-2.0
// Idling: time in which the whole GPU waits for a vGPU's next launch although others are
// backlogged. All of it together costs at most kIdleLoss of the time, and kIdleBurst hand-overs at
// once. Pure; owned by a policy. Units: ns.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::policy {

class Idling {
 public:
  // Whether the budget covers `for_ns` more.
  bool affords(uint64_t now_ns, uint64_t for_ns, double handover_ns) {
    const double earned = static_cast<double>(now_ns - credit_at_ns_) * kIdleLoss;
    credit_ns_ = std::min(credit_ns_ + earned, kIdleBurst * handover_ns);
    credit_at_ns_ = now_ns;
    return credit_ns_ >= static_cast<double>(for_ns);
  }
  void begin(uint64_t now_ns) { since_ns_ = now_ns; }
  // Begins if the budget covers `for_ns`; true also while it lasts.
  bool may(uint64_t now_ns, uint64_t for_ns, double handover_ns) {
    if (since_ns_) return true;
    if (!affords(now_ns, for_ns, handover_ns)) return false;
    begin(now_ns);
    return true;
  }
  void stop(uint64_t now_ns) {
    if (since_ns_) credit_ns_ -= static_cast<double>(now_ns - since_ns_);
    since_ns_ = 0;
  }

 private:
  static constexpr double kIdleLoss = 0.009, kIdleBurst = 8;
  double credit_ns_ = 0;
  uint64_t credit_at_ns_ = 0, since_ns_ = 0;
};

}  // namespace sluice::policy
