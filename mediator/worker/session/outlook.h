// SPDX-License-Identifier: Apache-2.0
// Outlook: what the decoder knows of its streams without the session's lock, as of the last poll of
// the stream engine: whether work is in flight or waits for the gate, and when the end that the
// program waits for is due.
//
// A wait is expected to last as long as the waits before it, where those took about the same and
// there are processors to spin on; else as long as the engine expects of its launches.
//
// Owned by the WorkerSession. follow(): under its lock; the rest: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mediator/ring/wait_forecast.h"

namespace sluice::worker {

class Outlook {
 public:
  // With more operations queued, the end that a call waits for is not near. A thread that sleeps
  // keeps the driver's queue filled as well; one that spins would only take a processor from the
  // software GPU.
  static constexpr size_t kNearOperations = 8;

  struct Poll {
    bool in_flight = false, at_gate = false;
    bool waited_for = false;  // calls wait for streams
    size_t operations = 0;    // in streams
  };

  // `may_spin`: there are processors to spare (Spinner::may_spin_for_long).
  explicit Outlook(bool may_spin) : may_spin_(may_spin) {}

  // `now`: the clock, read when a wait begins or ends. `engine_end`: when the engine expects the
  // end; 0: it does not know.
  template <class Now, class EngineEnd>
  void follow(const Poll& poll, Now now, EngineEnd engine_end) {
    in_flight_.store(poll.in_flight, std::memory_order_relaxed);
    follow_waits(poll.waited_for, now);
    const bool near = poll.in_flight && poll.waited_for && poll.operations <= kNearOperations;
    end_ns_.store(near ? expected_end_ns(engine_end) : 0, std::memory_order_relaxed);
    at_gate_.store(poll.at_gate, std::memory_order_relaxed);
    end_is_near_.store(near, std::memory_order_relaxed);
  }

  bool in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  bool at_gate() const { return at_gate_.load(std::memory_order_relaxed); }
  // Somebody waits for an end, and little is queued before it.
  bool end_is_near() const { return end_is_near_.load(std::memory_order_relaxed); }
  // When that end is due; 0: not known.
  uint64_t end_ns() const { return end_ns_.load(std::memory_order_relaxed); }

 private:
  template <class Now>
  void follow_waits(bool waited_for, Now now) {
    if (waited_for == (wait_began_ns_ != 0)) return;
    const uint64_t now_ns = now();
    if (wait_began_ns_ != 0) waits_.took(now_ns - wait_began_ns_);
    wait_began_ns_ = waited_for ? now_ns : 0;
  }
  template <class EngineEnd>
  uint64_t expected_end_ns(EngineEnd engine_end) const {
    const uint64_t takes_ns = wait_began_ns_ != 0 && may_spin_ ? waits_.expected_ns() : 0;
    return takes_ns != 0 ? wait_began_ns_ + takes_ns : engine_end();
  }

  const bool may_spin_;
  std::atomic<bool> in_flight_{false}, end_is_near_{false}, at_gate_{false};
  std::atomic<uint64_t> end_ns_{0};
  WaitForecast waits_;          // how long waits take
  uint64_t wait_began_ns_ = 0;  // 0: nobody waits
};

}  // namespace sluice::worker
