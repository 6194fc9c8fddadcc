// SPDX-License-Identifier: Apache-2.0
// Spinning before sleeping: how long, and how without starving the peer. One Spinner per waiter;
// belongs to one thread. Sleeping itself (poll on the wake descriptor) is the caller's.
#pragma once

#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "mediator/base/clock.h"
#include "mediator/ring/fence.h"

namespace sluice {

// A spin that found nothing halves the next one; one that found something restores the full budget.
// So a busy pair never sleeps, and an idle one soon costs nothing.
//
// A spinner may also be what the peer waits for: when both were put on one processor, the peer runs
// only once we sleep, and spinning turns a hand-over of some 5 us into one of the whole budget.
// (Offering the processor with sched_yield is not enough there: measured,
// docs/notes/2026-11-22-benchmarks.md.) It shows: what was waited for in vain comes as soon as we
// sleep. Then the spinner stands aside and sleeps at once, and only tries a short spin now and then
// to see whether the peer has moved. It is no longer in the way where a sleep lasts: work that
// takes a little more than the budget each time looks the same at first.
class Spinner {
 public:
  // From so many processors on, one that only waits takes nothing from others.
  static constexpr int kManyProcessors = 8;

  // `budget_us` 0: never spin. On machines of one or two processors the peer probably needs this
  // very processor: there, every round offers it (sched_yield), and the budget is counted all the
  // same.
  explicit Spinner(uint32_t budget_us = 50)
      : budget_ns_(uint64_t{budget_us} * 1000), next_ns_(budget_ns_) {
    yield_ = processors() <= 2;
  }

  // For waits as long as a launch: as long as a hypervisor polls for a halted processor, where
  // there are processors to spare. Longer: idle waiters cost more; shorter: the end of a launch of
  // 100 us is found by a sleeper, 30 to 90 us late (a virtual machine's timer and wake-up).
  static uint32_t longest_us() { return may_spin_for_long() ? 200 : 50; }
  // For a program's wait for its work: natively it spins until that ends. Where a processor more
  // does not matter; else as above. A wait that takes longer is polled for at its end only
  // (wait_forecast.h), and the next spin is half as long.
  static uint32_t wait_us() { return processors() >= kManyProcessors ? 5000 : longest_us(); }
  static bool may_spin_for_long() {
    static const bool may = processors() > 2;
    return may;
  }
  // That this process may use: a container has few of many.
  static int processors() {
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  }

  // Spins until ready() or until the present budget is spent; returns the last ready().
  template <class Ready>
  bool spin(Ready&& ready) {
    spun_ = stood_aside_ = false;
    if (ready()) return true;
    if (budget_ns_ == 0) return false;
    uint64_t budget_ns = next_ns_;
    if (aside_ > 0) {
      if (--aside_ > 0) {
        stood_aside_ = true;
        return false;
      }
      budget_ns = std::min(budget_ns_, kTrialNs);
    }
    const uint64_t end = monotonic_ns() + budget_ns;
    for (;;) {
      for (int i = 0; i < kPollsPerClock; ++i) {
        cpu_relax();
        if (ready()) {
          next_ns_ = budget_ns_;
          in_the_way_ = 0;
          stand_aside_ = kFirstAside;
          return true;
        }
      }
      if (yield_) ::sched_yield();
      if (monotonic_ns() >= end) break;
    }
    spun_ = true;
    next_ns_ = std::max(next_ns_ / 2, std::min(budget_ns_, kLeastNs));
    return ready();
  }

  // Spins until ready() or until that time, whatever was in vain before; returns the last ready().
  template <class Ready>
  static bool spin_until(uint64_t until_ns, Ready&& ready) {
    while (monotonic_ns() < until_ns)
      for (int i = 0; i < kPollsPerClock; ++i) {
        cpu_relax();
        if (ready()) return true;
      }
    return false;
  }

  // Tells that the sleep after spin() returned false lasted `ns`. If spinning would have caught
  // what ended it, the next spin is a full one again; if it came as soon as we slept, see above.
  void slept(uint64_t ns) {
    found_after(ns);
    if (stood_aside_ && ns >= kAtOnceNs) {
      aside_ = 0;
      stand_aside_ = kFirstAside;
    }
    if (!spun_) return;
    spun_ = false;
    if (ns >= kAtOnceNs) {
      in_the_way_ = 0;
    } else if (++in_the_way_ >= kInTheWay) {
      in_the_way_ = kInTheWay - 1;  // a trial in vain is proof enough
      aside_ = stand_aside_;
      stand_aside_ = std::min(2 * stand_aside_, kMostAside);
    }
  }

  // From the next spin on.
  void set_budget(uint32_t budget_us) {
    budget_ns_ = uint64_t{budget_us} * 1000;
    next_ns_ = budget_ns_;
  }

  // The same where somebody else found it, so that nothing is known about whose processor it was.
  void found_after(uint64_t ns) {
    if (ns < budget_ns_) next_ns_ = budget_ns_;
  }

 private:
  static constexpr int kPollsPerClock = 64;
  // Below this the wake-up saved is cheaper than the clock; it keeps the budget able to grow again.
  static constexpr uint64_t kLeastNs = 1000;
  // What a short answer takes from the peer's wake-up on: two changes of thread and the call.
  static constexpr uint64_t kAtOnceNs = 20'000;
  // Spins in a row that were in the way. One may be chance: the answer was due.
  static constexpr uint32_t kInTheWay = 2;
  // Waits without a spin before the next trial: a trial in vain may cost kTrialNs, so that it is
  // soon well below a microsecond a wait.
  static constexpr uint32_t kFirstAside = 16, kMostAside = 256;
  static constexpr uint64_t kTrialNs = 10'000;

  uint64_t budget_ns_;
  uint64_t next_ns_;
  bool yield_;
  bool spun_ = false;         // the last spin() spun in vain
  bool stood_aside_ = false;  // the last spin() did not try
  uint32_t in_the_way_ = 0;
  uint32_t aside_ = 0;
  uint32_t stand_aside_ = kFirstAside;
};

// Adds one to an eventfd; a full one is a signal already.
inline void signal_eventfd(int fd) {
  const uint64_t one = 1;
  (void)!::write(fd, &one, sizeof one);
}

// Takes the count off a non-blocking eventfd; true if there was one.
inline bool drain_eventfd(int fd) {
  uint64_t count;
  return ::read(fd, &count, sizeof count) == static_cast<ssize_t>(sizeof count);
}

// The same of one whose description somebody else shares: never waits, whatever its flags are.
// Kernels from 5.12 on know RWF_NOWAIT for eventfds. Before, EOPNOTSUPP: the count stays, and a
// level-triggered watch asks again.
inline bool drain_shared_eventfd(int fd) {
  uint64_t count;
  iovec to{&count, sizeof count};
  return ::preadv2(fd, &to, 1, -1, RWF_NOWAIT) == static_cast<ssize_t>(sizeof count);
}

}  // namespace sluice
