// SPDX-License-Identifier: Apache-2.0
// ClockEstimator: GPU time of one vGPU by the mediator's own clock, from grant to left. Pure; one
// thread. For an exclusive preemptor only: where vGPUs share the GPU at the same time, this clock
// would charge each for all of it.
//
// While the GPU is contended nothing that a guest or a worker writes can lower it, because a holder
// that says it is idle loses the GPU, and its clock runs until it has left. The way from the last
// block's exit to the mediator's ears is charged too.
// While no other vGPU is backlogged the holder does not report when it is idle; the mediator polls
// now and then. Time between a busy read and the next one counts as used, and after an idle read
// it does not, but what happened between two polls is not known: error_ns() adds up those
// intervals. Such time is shown to people; no share is computed from it.
#pragma once

#include <cstdint>

namespace sluice::accounting {

class ClockEstimator {
 public:
  void on_granted(uint64_t now_ns, bool contended) {
    holding_ = true;
    idle_ = false;
    contended_ = contended;
    since_ns_ = now_ns;
  }
  void on_contended(uint64_t now_ns, bool contended) {
    settle(now_ns);
    contended_ = contended;
  }
  // A read of its report found it busy or idle.
  void on_report(uint64_t now_ns, bool busy) {
    settle(now_ns);
    idle_ = !busy;
  }
  // The GPU is free again.
  void on_left(uint64_t now_ns) {
    settle(now_ns);
    holding_ = false;
  }

  // GPU time since the last take, up to now.
  uint64_t take_used(uint64_t now_ns) {
    settle(now_ns);
    const uint64_t used = pending_ns_;
    pending_ns_ = 0;
    return used;
  }
  bool holding() const { return holding_; }
  // Up to now: GPU time, and by how much it may be wrong (either way).
  uint64_t total_ns(uint64_t now_ns) const { return total_ns_ + (counts() ? open_ns(now_ns) : 0); }
  uint64_t error_ns(uint64_t now_ns) const {
    return error_ns_ + (holding_ && !contended_ ? open_ns(now_ns) : 0);
  }

 private:
  // A contended holder counts as running whatever it says.
  bool counts() const { return holding_ && (contended_ || !idle_); }
  uint64_t open_ns(uint64_t now_ns) const { return now_ns > since_ns_ ? now_ns - since_ns_ : 0; }
  void settle(uint64_t now_ns) {
    const uint64_t dt = open_ns(now_ns);
    if (counts()) {
      pending_ns_ += dt;
      total_ns_ += dt;
    }
    if (holding_ && !contended_) error_ns_ += dt;
    since_ns_ = now_ns;
  }

  bool holding_ = false, idle_ = false, contended_ = false;
  uint64_t since_ns_ = 0;  // counted up to here
  uint64_t pending_ns_ = 0, total_ns_ = 0, error_ns_ = 0;
};

}  // namespace sluice::accounting
