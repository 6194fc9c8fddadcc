// SPDX-License-Identifier: Apache-2.0
// SliceLengths: how long a round and its slices are. Pure; part of SlicedGpu.
//
// Terms   round     each backlogged vGPU has one turn in it
//         turn      a slice and the switch to it, which is charged to the vGPU that it is made for
//         quantum   what a vGPU is entitled to in a round, the switch to it included
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "policies/policy.h"

namespace sluice::policy::slices {

class SliceLengths {
 public:
  static constexpr double kGain = 0.25;  // part of an error that the next round's slices take back
  // A slice is at least and at most so much of its quantum: short ones cost more switches.
  static constexpr double kShorter = 0.75, kLonger = 1.25;
  static constexpr double kLongestForRidersNs = 150e6;
  static constexpr double kSpare = 1.1;  // rounds that grow, beyond what they have to
  static constexpr uint64_t kSoon = 2;   // hand-overs: a pause of no more than so many is short
  static constexpr uint64_t kForLowNs = 200'000, kForNormalNs = 1'000'000;

  explicit SliceLengths(const Config& config)
      : config_(config), handover_ns_(static_cast<double>(config.machine.handover_ns)) {}

  // A hand-over took so long.
  void learn(uint64_t cost_ns) {
    const double bound = static_cast<double>(config_.max_quantum_ns) * config_.handover_loss;
    handover_ns_ += (std::min(static_cast<double>(cost_ns), bound) - handover_ns_) / 8;
  }

  // Whether a vGPU that has the GPU alone may have short slices at no cost (an NVIDIA GPU).
  bool free_alone() const { return config_.machine.slices_are_free_alone; }
  double handover_ns() const { return handover_ns_; }
  double soon_ns() const { return kSoon * handover_ns_; }
  uint64_t floor_ns() const { return std::max<uint64_t>(config_.machine.slice_floor_ns, 1); }
  uint64_t ceiling_ns() const { return std::max(config_.machine.slice_ceiling_ns, floor_ns()); }
  double shortest_turn_ns() const { return static_cast<double>(floor_ns()) + handover_ns_; }
  // Just long enough to pay for a switch.
  uint64_t mean_slice_ns() const {
    const double paid = config_.handover_loss > 0 ? handover_ns_ / config_.handover_loss : 0.0;
    return std::clamp(static_cast<uint64_t>(paid), floor_ns(),
                      std::max(config_.max_quantum_ns, floor_ns()));
  }
  // The longest slice beside one of class low, or of normal, that is expected.
  uint64_t beside_low_ns() const { return std::max(floor_ns(), kForLowNs); }
  // Of a vGPU that has the GPU alone while one of class `low` is expected.
  uint64_t expecting_low_ns() const {
    return config_.machine.slice_least_ns != 0 ? config_.machine.slice_least_ns : beside_low_ns();
  }
  uint64_t beside_normal_ns() const { return std::max(floor_ns(), kForNormalNs); }

  // Begins a round of so many backlogged vGPUs: returns how long it is, switches included.
  // `for_riders`: those that no gate stops, and that are ahead, have no more than their share in a
  // round of that length. `calm`: nobody comes and goes.
  double begin_round(size_t vgpus, double weights, double lightest, double for_riders, bool calm) {
    const auto busy = static_cast<double>(vgpus);
    const double round = round_of(busy, weights, lightest, for_riders, calm);
    per_weight_ns_ = round / weights;
    work_part_ = std::max(1 - busy * handover_ns_ / round, kLeastWork);
    return round;
  }
  double quantum_ns(uint32_t weight) const { return per_weight_ns_ * static_cast<double>(weight); }
  // That as a slice, corrected by what its owner is ahead.
  uint64_t slice_for(uint32_t weight, double lead_ns) const {
    const double quantum = quantum_ns(weight);
    const double turn =
        std::clamp(quantum - kGain * lead_ns, kShorter * quantum, kLonger * quantum);
    // Where use is work without its switches, slices are in proportion to weights.
    const double wanted = free_alone() ? turn * work_part_ : turn - handover_ns_;
    return std::clamp(static_cast<uint64_t>(std::max(wanted, 1.0)), floor_ns(), ceiling_ns());
  }
  // The part of a round that is no switches.
  double work_part() const { return work_part_; }

 private:
  static constexpr double kLeastWork = 0.5;
  // Rounds are whole parts of the window where one more or less of them matters: few would grow
  // much, of many each is little. Fitted.
  static constexpr double kWindowNs = 1e9, kFewRounds = 3, kManyRounds = 150;
  static constexpr double kLongestForAllNs = 60e6;
  // Where nobody waits for a slice to end, short rounds are up to a third longer.
  static constexpr double kCalmNs = 30e6, kCalmer = 1.35;

  // Long enough that the lightest has a turn in each, if that is not long.
  double round_of(double busy, double weights, double lightest, double for_riders,
                  bool calm) const {
    double round = busy * (static_cast<double>(mean_slice_ns()) + handover_ns_);
    if (calm) round = std::max(round, std::min(kCalmNs, kCalmer * round));
    const double for_all = shortest_turn_ns() * weights / lightest;
    if (for_all > round && for_all <= kLongestForAllNs) round = kSpare * for_all;
    if (for_riders > round && for_riders <= kLongestForRidersNs) round = for_riders;
    const double rounds = std::floor(kWindowNs / round);
    return rounds >= kFewRounds && rounds <= kManyRounds ? kWindowNs / rounds : round;
  }

  const Config& config_;
  double handover_ns_;
  double per_weight_ns_ = 0;  // quantum per weight in this round
  double work_part_ = 1;
};

}  // namespace sluice::policy::slices
