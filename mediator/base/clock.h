// SPDX-License-Identifier: Apache-2.0
// The host's monotonic clock. Only I/O code reads it; policies, kernels and core are given `now`.
#pragma once

#include <time.h>

#include <cstdint>

namespace sluice {

// CLOCK_MONOTONIC in nanoseconds; any thread.
inline uint64_t monotonic_ns() {
  timespec ts;
  ::clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(ts.tv_nsec);
}

}  // namespace sluice
