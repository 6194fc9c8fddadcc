// Idling: the time in which the whole GPU waits for somebody's next launch although others have work. All of that together costs
// at most kIdleLoss of the time, and so many hand-overs' lengths at once. Pure; owned by a policy.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::policy {

class Idling {
 public:
  bool may(uint64_t now_ns, uint64_t for_ns, double handover_ns) {
    if (since_ns_) return true;
    credit_ns_ = std::min(credit_ns_ + static_cast<double>(now_ns - credit_at_ns_) * kIdleLoss, kIdleBurst * handover_ns);
    credit_at_ns_ = now_ns;
    if (credit_ns_ < static_cast<double>(for_ns)) return false;
    since_ns_ = now_ns;
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
