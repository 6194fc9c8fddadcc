// SPDX-License-Identifier: Apache-2.0
// PreemptBudget: hand-overs that short launches may cause before a turn is over: handover_loss of
// the time, kBurst at once (a token bucket). Pure; owned by a form of wfq.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::policy {

class PreemptBudget {
 public:
  explicit PreemptBudget(double handover_loss) : loss_(handover_loss) {}
  bool affords(uint64_t now_ns, double handover_ns) {
    const double earned = static_cast<double>(now_ns - at_ns_) * loss_ / std::max(handover_ns, 1.0);
    tokens_ = std::min(tokens_ + earned, kBurst);
    at_ns_ = now_ns;
    return tokens_ >= 1;
  }
  void spend() { tokens_ -= 1; }

 private:
  static constexpr double kBurst = 4;
  const double loss_;
  double tokens_ = kBurst;
  uint64_t at_ns_ = 0;
};

}  // namespace sluice::policy
