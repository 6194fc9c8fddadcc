// SPDX-License-Identifier: Apache-2.0
// TurnLength: how long a turn on the whole GPU lasts. Pure; owned by a form of wfq. Units: ns.
//
//   least_quantum()  hand-overs cost handover_loss of the time; no turn between equals is shorter
//   of(part)         the turn of a vGPU whose entitlement is `part` of the GPU:
//     cheap          long enough for hand-overs of kCheapLoss, no longer than latency_target allows
//     even           a whole number of turns in kWindowNs, so that any second holds as many of each
//     light          entitled to fewer than kFewTurns of them: that many shorter ones, while
//                    handover_loss pays for them
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "policies/policy.h"

namespace sluice::policy {

class TurnLength {
 public:
  // No turn is shorter, whatever the configuration says: with turns of nothing a policy would be
  // asked again at the same time for ever.
  static constexpr uint64_t kTickNs = 10'000;

  explicit TurnLength(const Config& config)
      : config_(config), handover_ns_(static_cast<double>(config.machine.handover_ns)) {}

  // The mean cost of a hand-over, which short preemptions go by.
  double handover_ns() const { return handover_ns_; }
  // No more than is known of the machine: a vGPU that leaves slowly, as one whose launch cannot, is
  // charged for that time, and most of it is work. Learnt as a cost of everybody's, it would make
  // all turns longer, and use up what preemptions may cost.
  void learn(uint64_t cost_ns) {
    const double known = std::max(static_cast<double>(config_.machine.handover_ns), kLeastKnownNs);
    const double cost = std::min(static_cast<double>(cost_ns), known);
    handover_ns_ += (cost - handover_ns_) / 8;
    // Turns do not follow each hand-over: a number of turns in a second that changed all the time
    // would make them uneven.
    slow_handover_ns_ += (cost - slow_handover_ns_) / std::min(++handovers_, 64u);
    if (slow_handover_ns_ > 1.25 * turn_handover_ns_ || slow_handover_ns_ < 0.8 * turn_handover_ns_)
      turn_handover_ns_ = slow_handover_ns_;
  }

  uint64_t least_quantum() const { return least_quantum(handover_ns_); }
  uint64_t of(double part) const {
    const double cheap = std::max(part * kPreciseNs, turn_handover_ns_ / kCheapLoss);
    const double wanted = std::min(part * static_cast<double>(config_.latency_target_ns), cheap);
    // The time to leave is charged, too.
    const double turn =
        std::max(wanted, static_cast<double>(least_quantum(turn_handover_ns_))) + turn_handover_ns_;
    const double entitled = part * kWindowNs, turns = std::floor(entitled / turn);
    const double length = turns >= kFewTurns ? entitled / turns : light(entitled, turn);
    return std::clamp(static_cast<uint64_t>(length), kTickNs,
                      std::max(config_.max_quantum_ns, kTickNs));
  }

 private:
  static constexpr double kPreciseNs = 10e6;  // n turns of this / n are 1 % of a second
  static constexpr double kWindowNs = 1e9;
  static constexpr double kFewTurns = 3;
  static constexpr double kCheapLoss = 0.01;
  // Rewritten kernels leave GPUs within 90 to 320 us. With twice this, who works for 1 ms and
  // pauses as long beside launches of 1 to 2 ms that cannot leave keeps half of what this leaves
  // it; beside kernels that take 300 us to leave this costs 2 % of the GPU.
  static constexpr double kLeastKnownNs = 100e3;
  static constexpr uint32_t kKnownHandovers = 16;  // before that their cost is a guess
  static constexpr double kLeastHandovers = 4;

  uint64_t least_quantum(double handover_ns) const {
    const double paid = config_.handover_loss > 0 ? handover_ns / config_.handover_loss : 0.0;
    const uint64_t least = std::max(config_.min_quantum_ns, static_cast<uint64_t>(paid));
    return std::max(std::min(least, config_.max_quantum_ns), kTickNs);
  }
  double light(double entitled, double turn) const {
    if (config_.handover_loss <= 0) return turn;
    // Too long a turn now would cost it a second for each part of a second that it was entitled to.
    if (handovers_ < kKnownHandovers) {
      const double least = static_cast<double>(config_.min_quantum_ns);
      return std::min(turn, std::max(least, entitled / kFewTurns));
    }
    const double least = turn_handover_ns_ / config_.handover_loss + turn_handover_ns_;
    const double turns = std::clamp(std::floor(entitled / least), 1.0, kFewTurns);
    return std::min(std::max(entitled / turns, kLeastHandovers * turn_handover_ns_), turn);
  }

  const Config config_;
  double handover_ns_;
  double slow_handover_ns_ = handover_ns_, turn_handover_ns_ = handover_ns_;
  uint32_t handovers_ = 0;
};

}  // namespace sluice::policy
