// SPDX-License-Identifier: Apache-2.0
// Limits of what one worker may take of the host, each with what breaks if it changes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::spawner::limits {

// Threads of a worker's uid. The software GPU has up to 256 for its SMs, NVIDIA's driver some tens,
// a session a handful; fewer and a GPU of many SMs does not start.
inline constexpr uint64_t kThreads = 1024;
// Descriptors. NVIDIA's driver opens its device files once per context and GPU.
inline constexpr uint64_t kDescriptors = 4096;
// Workers at once, whatever the range of uids: a slot each in the file of what runs.
inline constexpr size_t kWorkers = 4096;
// Records of the kernel's log that are read before workers are served again.
inline constexpr int kKernelLogBurst = 256;
// A worker's own /tmp and /dev/shm, in memory.
inline constexpr const char* kTmpSize = "64m";
// How long a process of an earlier sluiced may take to die of SIGKILL, and an earlier spawner to
// end by itself. What is stuck in the kernel for longer is logged and left.
inline constexpr int kEndMs = 10000;

}  // namespace sluice::spawner::limits
