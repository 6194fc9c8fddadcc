// SPDX-License-Identifier: Apache-2.0
// Limits of `sluicectl doctor`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::cli::doctor_limits {

// Of one file of /proc, /sys or /etc. Those that are read have some kilobytes; more is cut.
inline constexpr size_t kMaxFileBytes = 1u << 20;
// The end of the kernel's log. Less could miss a denial that came before much else.
inline constexpr size_t kMaxLogBytes = 8u << 20;
// Least free bytes of /dev/shm: CUDA's MPS and NVIDIA's driver keep their own files there, some
// megabytes for each client.
inline constexpr uint64_t kLeastShmBytes = 64u << 20;

}  // namespace sluice::cli::doctor_limits
