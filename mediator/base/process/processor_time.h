// SPDX-License-Identifier: Apache-2.0
// Processor time of the calling thread. One that others keep from the processor takes none.
#pragma once

#include <time.h>

#include <cstdint>

namespace sluice {

// CLOCK_THREAD_CPUTIME_ID in nanoseconds; also in a signal's handler.
inline uint64_t thread_cpu_ns() {
  timespec ts;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(ts.tv_nsec);
}

}  // namespace sluice
