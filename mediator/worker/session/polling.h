// SPDX-License-Identifier: Apache-2.0
// How the session's threads poll and sleep. Times are nanoseconds of the monotonic clock.
#pragma once

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mediator/worker/session/sleeper.h"

namespace sluice::worker {

// Sleeps between two polls for ends of launches: short after something ended, then doubled.
// While a launch runs in windows: its next window follows within some microseconds.
inline constexpr uint64_t kPollWindowsNs = 2'000;
inline constexpr uint64_t kPollFirstNs = 5'000;
// They are doubled up to this: while a call waits for an end or sluiced recalls the GPU; and
// otherwise.
inline constexpr uint64_t kPollUrgentNs = 50'000;
inline constexpr uint64_t kPollMostNs = 200'000;
// From there they grow by a 256th each, unless sluiced recalls the GPU, up to the longest: an end
// is seen late by at most a 256th of what it was waited for (a 64th would cost launches of 5 to 20
// ms one percent). Sleeps of 50 us took a fifth of a processor, on the software GPU from its
// kernels, for as long as somebody waited for a launch.
inline constexpr uint64_t kPollLongestNs = 2'000'000;
constexpr uint64_t longer_sleep_ns(uint64_t last_ns, uint64_t doubled_to_ns) {
  return last_ns < doubled_to_ns ? std::min(last_ns * 2, doubled_to_ns)
                                 : std::min(last_ns + last_ns / 256, kPollLongestNs);
}
// While the gate is closed: only to see whether sluiced still lives.
inline constexpr uint64_t kPollGateNs = 250'000'000;
// Without sluiced: only to see whether the program still makes calls.
inline constexpr uint64_t kPollOrphanNs = 500'000'000;
// The end that a call waits for is polled for without sleeping from kBeforeEndNs before it is due
// until kAfterEndNs after that. A sleep shorter than the first ends too late on a virtual machine.
inline constexpr uint64_t kBeforeEndNs = 150'000, kAfterEndNs = 200'000;

inline void sleep_on(pollfd* fds, nfds_t n, uint64_t ns) {
  timespec ts{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ::ppoll(fds, n, ns == kForeverNs ? nullptr : &ts, nullptr);
}

}  // namespace sluice::worker
