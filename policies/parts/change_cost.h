// SPDX-License-Identifier: Apache-2.0
// ChangeCost: how long a vGPU stands still when its set of SMs changes, a mean of what was measured
// that begins with what the machine declares. Never less than that, because drivers measure until
// launches have left and not until they work again; and at most four times that: a launch that
// would not leave says nothing of the next. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::policy {

class ChangeCost {
 public:
  explicit ChangeCost(uint64_t declared_ns) : declared_ns_(static_cast<double>(declared_ns)) {}
  void learn(uint64_t cost_ns) {
    ns_ += (std::clamp(static_cast<double>(cost_ns), declared_ns_, 4 * declared_ns_) - ns_) / 8;
  }
  double ns() const { return ns_; }

 private:
  const double declared_ns_;
  double ns_ = declared_ns_;
};

}  // namespace sluice::policy
