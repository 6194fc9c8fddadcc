// SPDX-License-Identifier: Apache-2.0
// WaitForecast: when the end of a wait is due, by how long the waits before it took. A sleeper on a
// virtual machine wakes 30 to 90 us late; a program that waits for launches of 5 ms, one after the
// other, loses 2 % of its time so (decision 0011). Who knows when the end is due sleeps until
// shortly before it and polls for the rest, an eighth of the wait at most on each side.
//
// One a waiter, of one thread. Times in ns.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice {

class WaitForecast {
 public:
  // Sleep for so long, then poll for so long. Zeros: not known; sleep until woken.
  struct Plan {
    uint64_t sleep_ns = 0, poll_ns = 0;
  };

  // For a wait that has lasted for `waited_ns`.
  Plan plan(uint64_t waited_ns) const {
    if (!known_ || last_ns_ < kLeastNs || last_ns_ > kMostNs) return {};
    const uint64_t margin_ns = std::min(last_ns_ / kPart, kMostMarginNs);
    const uint64_t from_ns = last_ns_ - margin_ns;
    if (waited_ns >= from_ns) return {};
    return {from_ns - waited_ns, 2 * margin_ns};
  }

  // A wait that no spin at its beginning caught took so long in all.
  void took(uint64_t ns) {
    const uint64_t difference = std::max(ns, last_ns_) - std::min(ns, last_ns_);
    known_ = difference <= last_ns_ / kPart;
    last_ns_ = ns;
  }

 private:
  static constexpr uint64_t kPart = 8;
  // Shorter: the sleep is not worth its wake-up. Longer: nobody notices the wake-up.
  static constexpr uint64_t kLeastNs = 400'000, kMostNs = 1'000'000'000;
  // More than the longest of a hundred wake-ups costs processor time for nothing.
  static constexpr uint64_t kMostMarginNs = 300'000;

  uint64_t last_ns_ = 0;
  bool known_ = false;  // the last two took about the same
};

}  // namespace sluice
