// SPDX-License-Identifier: Apache-2.0
// PollsAside: sluiced's loop polls before it sleeps, for 3 ms (Config::spin_us), and for 20 ms
// where an urgent vGPU probably rings soon (Config::spin_low_us). A guest can ring so often that
// the loop polls for good. What that may cost others is bounded:
//   - the loop polls outside of real time (LoopPriority::stand_back()), at its niceness. In real
//     time it would use that budget up, and answer late for the rest of each second;
//   - it takes a processor that nobody else wants: once it has had none for kMostLostNs in a
//     second, it polls no more for the next one.
// Owned by the loop's thread and used by it.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>

#include "mediator/base/clock.h"
#include "mediator/base/process/processor_time.h"
#include "mediator/io/loop_priority.h"

namespace sluice::io {

class PollsAside {
 public:
  // Less: what interrupts a processor anyway ends it. More: others wait for that processor longer.
  static constexpr uint64_t kMostLostNs = 5'000'000;

  // What `poll`, which polls for some time, returns; false if it may not poll now.
  template <class Poll>
  bool run(Poll&& poll) {
    const uint64_t from_ns = monotonic_ns();
    if (!may_poll(from_ns)) return false;
    nap(from_ns);
    if (!LoopPriority::stand_back()) return false;
    const uint64_t cpu_ns = thread_cpu_ns();
    const bool found = poll();
    const uint64_t now_ns = monotonic_ns();
    polled(now_ns, now_ns - from_ns, thread_cpu_ns() - cpu_ns);
    LoopPriority::step_forward();
    return found;
  }

  bool may_poll(uint64_t now_ns) const { return now_ns >= rests_until_ns_; }
  // It polled for `ns` until now, and had a processor for cpu_ns of that.
  void polled(uint64_t now_ns, uint64_t ns, uint64_t cpu_ns) {
    if (now_ns >= second_ns_ + kSecondNs) {
      second_ns_ = now_ns;
      lost_ns_ = 0;
      rest_ns_ = kSecondNs;
    }
    lost_ns_ += ns > cpu_ns ? ns - cpu_ns : 0;
    if (lost_ns_ < kMostLostNs) return;
    second_ns_ = rests_until_ns_ = now_ns + rest_ns_;
    lost_ns_ = 0;
    rest_ns_ = std::min(2 * rest_ns_, kLongestRestNs);
  }

 private:
  static constexpr uint64_t kSecondNs = 1'000'000'000;
  static constexpr uint64_t kLongestRestNs = 16 * kSecondNs;
  // A thread in real time that never sleeps loses that after LoopPriority::kRunMs of running.
  void nap(uint64_t now_ns) {
    if (now_ns - napped_ns_ < LoopPriority::kRunMs * 1'000'000 / 4) return;
    napped_ns_ = now_ns;
    const timespec shortest{0, 1};
    ::nanosleep(&shortest, nullptr);
  }

  uint64_t second_ns_ = 0, lost_ns_ = 0;  // when it began; what was lost of it
  uint64_t rest_ns_ = kSecondNs, rests_until_ns_ = 0;
  uint64_t napped_ns_ = 0;
};

}  // namespace sluice::io
