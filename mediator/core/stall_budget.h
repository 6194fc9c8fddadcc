// SPDX-License-Identifier: Apache-2.0
// StallBudget: how fast one vGPU may do what stops its neighbours for a moment inside the driver:
// open contexts, load modules. Beside core/penalty.h, which is for faults: those are nobody's
// right, these are every program's beginning, so the first ones never wait.
//
//   debt     stall that the vGPU has caused while others were there, less kForgivenPerSecond
//   wait     0 below kFree; from there on the time after which enough is forgiven. It grows with
//            each one, and all sessions of a vGPU share it.
//
// The bound: a vGPU that waits as required costs others in any time T at most
// kFree + one stall + kForgivenPerSecond * T.
//
// Pure: no clock, time is an argument (ns, must not go back). Owned by a VgpuServer. One thread. No
// errors.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::core {

class StallBudget {
 public:
  // ns of debt that a second works off, 3 % of it. More: neighbours keep less than 0.95 beside a
  // flood. Less: programs that start often wait for each other.
  static constexpr uint64_t kForgivenPerSecond = 30'000'000;
  // Debt that nobody waits for: a burst of 10 contexts of 10 ms. More: neighbours lose more than
  // 5 % of the first two seconds.
  static constexpr uint64_t kFree = 100'000'000;

  void spend(uint64_t now_ns, uint64_t cost_ns) {
    debt_ns_ = debt_ns(now_ns) + cost_ns;
    at_ns_ = now_ns;
    spent_ns_ += cost_ns;
  }
  // 0: the next one may begin now.
  uint64_t wait_ns(uint64_t now_ns) const {
    const uint64_t debt = debt_ns(now_ns);
    return debt < kFree ? 0 : (debt - kFree + 1) * kPerForgiven;
  }
  uint64_t debt_ns(uint64_t now_ns) const {
    const uint64_t forgiven = now_ns > at_ns_ ? (now_ns - at_ns_) / kPerForgiven : 0;
    return debt_ns_ - std::min(debt_ns_, forgiven);
  }
  uint64_t spent_ns() const { return spent_ns_; }  // in all

 private:
  static constexpr uint64_t kPerForgiven = 1'000'000'000 / kForgivenPerSecond + 1;
  uint64_t debt_ns_ = 0, at_ns_ = 0;  // the debt as of then
  uint64_t spent_ns_ = 0;
};

}  // namespace sluice::core
