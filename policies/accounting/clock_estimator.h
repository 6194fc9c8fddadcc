// ClockEstimator: GPU time of one vGPU by the mediator's own clock, from grant to left, less the time
// in which the vGPU was known to be idle while it held the GPU (nobody else wanted it). Nothing that a
// guest or a worker writes can lower it while the GPU is contended: being idle then means to leave.
//
// It can only be too high: by idle time that nobody told the mediator (a holder that is alone does not
// ring when it turns idle), and by the way from the last block's exit to the mediator's ears. Both are
// bounded by error_ns(). Pure; one thread. An exclusive preemptor only: where vGPUs share the GPU at
// the same time, this clock would charge each for all of it.
#pragma once

#include <cstdint>

namespace sluice::accounting {

class ClockEstimator {
 public:
  void on_granted(uint64_t now_ns) {
    take_used(now_ns);
    holding_ = true;
    idle_ = false;
    since_ns_ = certain_ns_ = now_ns;
  }
  // The GPU is free again. `known_busy`: it had work in flight until (about) now, for all we know.
  void on_left(uint64_t now_ns, bool known_busy) {
    if (!holding_) return;
    settle(now_ns, known_busy);
    holding_ = false;
  }
  // While it holds: a look found it idle (busy). Time since the last look in which it was busy at both
  // ends counts as busy; what lies between busy and idle is the uncertain part.
  void on_look(uint64_t now_ns, bool busy) {
    if (!holding_) return;
    settle(now_ns, busy);
    idle_ = !busy;
  }

  // GPU time since the last take, up to now.
  uint64_t take_used(uint64_t now_ns) {
    if (holding_ && !idle_) add(now_ns);
    since_ns_ = now_ns;
    const uint64_t used = pending_ns_;
    pending_ns_ = 0;
    return used;
  }
  bool holding() const { return holding_; }
  bool idle() const { return idle_; }
  // Totals up to the last call, and by how much the total may be too high.
  uint64_t total_ns() const { return total_ns_; }
  uint64_t error_ns() const { return error_ns_; }

 private:
  void add(uint64_t now_ns) {
    const uint64_t dt = now_ns > since_ns_ ? now_ns - since_ns_ : 0;
    pending_ns_ += dt;
    total_ns_ += dt;
  }
  void settle(uint64_t now_ns, bool busy_now) {
    if (!idle_) add(now_ns);
    // It was seen busy at certain_ns_ and is idle now: it may have stopped right after certain_ns_.
    if (!idle_ && !busy_now && now_ns > certain_ns_) error_ns_ += now_ns - certain_ns_;
    since_ns_ = certain_ns_ = now_ns;
  }

  bool holding_ = false, idle_ = false;
  uint64_t since_ns_ = 0;    // counted up to here
  uint64_t certain_ns_ = 0;  // last time its state was known
  uint64_t pending_ns_ = 0, total_ns_ = 0, error_ns_ = 0;
};

}  // namespace sluice::accounting
