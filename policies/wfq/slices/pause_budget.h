// SPDX-License-Identifier: Apache-2.0
// PauseBudget: all gates may stay shut for a switch's length, for the sake of a vGPU that may be
// back at once (ski rental). All such waiting costs kIdleLoss of the time at most. Pure; part of
// WfqSlices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace sluice::policy::slices {

class PauseBudget {
 public:
  // All who are backlogged are gated, and one that may be back has become idle. Whether they wait
  // for it. `paid`: the pause belongs to its turn, so that it pays. A pause that goes on already
  // ends.
  bool begin(uint64_t now_ns, bool paid, double handover_ns) {
    end(now_ns);
    if (!paid && !can_pay(now_ns, handover_ns)) return false;
    state_ = paid ? State::kPaid : State::kOpen;
    since_ns_ = now_ns;
    return true;
  }
  // Whether there was one.
  bool end(uint64_t now_ns) {
    if (state_ == State::kOpen) credit_ns_ -= static_cast<double>(now_ns - since_ns_);
    return std::exchange(state_, State::kNone) != State::kNone;
  }

 private:
  enum class State : uint8_t { kNone, kOpen, kPaid };
  static constexpr double kIdleLoss = 0.01;    // work conservation is at least what is left
  static constexpr double kMostHandovers = 8;  // that it saves up

  bool can_pay(uint64_t now_ns, double handover_ns) {
    credit_ns_ += static_cast<double>(now_ns - credit_at_ns_) * kIdleLoss;
    credit_ns_ = std::min(credit_ns_, kMostHandovers * handover_ns);
    credit_at_ns_ = now_ns;
    return credit_ns_ >= handover_ns;
  }

  State state_ = State::kNone;
  double credit_ns_ = 0;
  uint64_t credit_at_ns_ = 0, since_ns_ = 0;
};

}  // namespace sluice::policy::slices
