// Spinning before sleeping: how long, and how without starving the peer. One Spinner per waiter;
// belongs to one thread. Sleeping itself (poll on the wake descriptor) is the caller's.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "mediator/base/clock.h"
#include "mediator/ring/fence.h"

namespace sluice {

// A spin that found nothing halves the next one; one that found something restores the full budget.
// So a busy pair never sleeps, and an idle one soon costs nothing.
class Spinner {
 public:
  // `budget_us` 0: never spin. On machines of one or two processors the peer probably needs this
  // very processor: there, every round offers it (sched_yield), and the budget is counted all the same.
  explicit Spinner(uint32_t budget_us = 50)
      : budget_ns_(uint64_t{budget_us} * 1000), next_ns_(budget_ns_) {
    yield_ = ::sysconf(_SC_NPROCESSORS_ONLN) <= 2;
  }

  // Spins until ready() or until the present budget is spent; returns the last ready().
  template <class Ready>
  bool spin(Ready&& ready) {
    if (ready()) return true;
    if (budget_ns_ == 0) return false;
    const uint64_t end = monotonic_ns() + next_ns_;
    for (;;) {
      for (int i = 0; i < kLooksPerClock; ++i) {
        cpu_relax();
        if (ready()) {
          next_ns_ = budget_ns_;
          return true;
        }
      }
      if (yield_) ::sched_yield();
      if (monotonic_ns() >= end) break;
    }
    next_ns_ = std::max(next_ns_ / 2, std::min(budget_ns_, kLeastNs));
    return ready();
  }

  // Tells that the sleep after a spin in vain lasted `ns`: if spinning would have caught it, the next
  // spin is a full one again.
  void slept(uint64_t ns) {
    if (ns < budget_ns_) next_ns_ = budget_ns_;
  }

 private:
  static constexpr int kLooksPerClock = 16;
  // Below this the wake-up saved is cheaper than the clock; it keeps the budget able to grow again.
  static constexpr uint64_t kLeastNs = 1000;

  uint64_t budget_ns_;
  uint64_t next_ns_;
  bool yield_;
};

// Takes the count off a non-blocking eventfd; true if there was one.
inline bool drain_eventfd(int fd) {
  uint64_t count;
  return ::read(fd, &count, sizeof count) == static_cast<ssize_t>(sizeof count);
}

}  // namespace sluice
