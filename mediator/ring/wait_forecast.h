// SPDX-License-Identifier: Apache-2.0
// WaitForecast: when the end of a wait is due, by how long the waits before it took. A sleeper on a
// virtual machine wakes 30 to 90 us late: a program that waits for launches of 5 ms, one after the
// other, loses 2 % of its time (decision 0011), one that waits for launches of 0.3 ms 8 %. A waiter
// that knows when the end is due sleeps until shortly before it and polls for the rest: an eighth
// of the wait on each side, but at least as long as a wake-up may be late.
//
// One object per waiter and thread. Times in ns.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice {

class WaitForecast {
 public:
  // Sleep for so long, if at all, then poll for so long. Zeros: not known; sleep until woken.
  struct Plan {
    uint64_t sleep_ns = 0, poll_ns = 0;
  };

  // How long a wait is expected to take; 0: not known.
  uint64_t expected_ns() const {
    return known_ && last_ns_ >= kLeastNs && last_ns_ <= kMostNs ? last_ns_ : 0;
  }

  // For a wait that has lasted for `waited_ns`.
  Plan plan(uint64_t waited_ns) const {
    const uint64_t takes_ns = expected_ns();
    if (takes_ns == 0) return {};
    const uint64_t margin_ns = std::clamp(takes_ns / kPart, kLeastMarginNs, kMostMarginNs);
    const uint64_t until_ns = takes_ns + margin_ns;
    if (waited_ns >= until_ns) return {};
    const uint64_t from_ns = takes_ns - margin_ns;
    if (waited_ns + kLeastSleepNs >= from_ns) return {0, until_ns - waited_ns};
    return {from_ns - waited_ns, 2 * margin_ns};
  }

  // A wait that no spin at its beginning caught took this long in all.
  void took(uint64_t ns) {
    const uint64_t difference = std::max(ns, last_ns_) - std::min(ns, last_ns_);
    known_ = difference <= last_ns_ / kPart;
    last_ns_ = ns;
  }

 private:
  static constexpr uint64_t kPart = 8;
  // Shorter ones are for a spin. Longer: nobody notices the wake-up.
  static constexpr uint64_t kLeastNs = 150'000, kMostNs = 1'000'000'000;
  // Of a hundred wake-ups nearly all are less late than the first. More than the longest of them
  // costs processor time for nothing.
  static constexpr uint64_t kLeastMarginNs = 120'000, kMostMarginNs = 300'000;
  // A shorter sleep is not worth its wake-up.
  static constexpr uint64_t kLeastSleepNs = 50'000;
  static_assert(kLeastNs > kLeastMarginNs);

  uint64_t last_ns_ = 0;
  bool known_ = false;  // the last two took about the same
};

}  // namespace sluice
