// SPDX-License-Identifier: Apache-2.0
// OneByOne: while a vGPU that pauses lags by half of a burst, the rest have turns one by one, the
// furthest behind first (as in WF2Q and EEVDF), and it has one between any two of theirs.
// Pure; part of WfqSlices.
#pragma once

#include <cstdint>

#include "policies/wfq/slices/gpu.h"

namespace sluice::policy::slices {

class OneByOne {
 public:
  explicit OneByOne(SlicedGpu& gpu) : gpu_(gpu) {}

  bool active() const { return active_; }
  // A round of `round_ns` begins: whether the rest have their turns one by one in it. `weights`: of
  // all of the highest level.
  bool applies(uint64_t now_ns, double round_ns, double weights);
  // Opens the gates for the next turn of the rest, or for as many as fit between two turns of those
  // that pause. Returns how long all of them take.
  double begin_round(uint64_t now_ns);

 private:
  // A turn between two of one that pauses, by what that one uses: or switches cost more than they
  // bring.
  static constexpr double kLeastOfBurst = 0.75;
  static constexpr double kTurnIsOver = 0.2;  // part of it that is not worth a turn of its own

  void find_rest(uint64_t now_ns);
  void order_rest();

  SlicedGpu& gpu_;
  bool active_ = false;
  // Of those that pause, as the round began:
  bool some_come_between_ = false;
  double bursts_ns_ = 0;      // a turn of each
  double least_turn_ns_ = 0;  // of one of the rest between them
  double cycle_ns_ = 0;       // how far apart the turns of each of those that pause must be; 0: any
};

}  // namespace sluice::policy::slices
