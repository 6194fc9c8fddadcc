// SPDX-License-Identifier: Apache-2.0
// Limits of what one worker may take of the host, each with what breaks if it changes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::spawner::limits {

// Threads of a worker's uid. The software GPU has up to 256 for its SMs, NVIDIA's driver some tens,
// a session a handful; fewer and a GPU of many SMs does not start.
inline constexpr uint64_t kThreads = 1024;
// The same of all workers of a vGPU, where they share a uid (code_caches.h), 64 for each of its
// slots. Fewer, and a vGPU with all of them in use cannot start threads; more, and two that were
// taken over leave a host of 32,768 process ids none.
inline constexpr uint64_t kThreadsOfVgpu = 4096;
// Of the range of uids one in so many is for a cache of machine code and not for a worker. More:
// hosts with many vGPUs have no caches for some of them.
inline constexpr uint32_t kIdsToCode = 8;
// The share of processor time of a vGPU's cgroup, whatever its workers, and in it of a worker's,
// whatever its threads: that of every other one. Lower: other groups in the unit come before all
// workers.
inline constexpr uint64_t kCpuWeight = 100;
// ... and that of sluiced's own, beside them: it takes little, and is to have it at once. Lower: it
// waits for each worker's turn.
inline constexpr uint64_t kHostCpuWeight = 1000;
// Shared memory that sluiced may ask a worker to be given room for: the largest region.
inline constexpr uint64_t kSharedMib = 16u << 10;
// Descriptors. NVIDIA's driver opens its device files once per context and GPU.
inline constexpr uint64_t kDescriptors = 4096;
// Workers at once, whatever the range of uids: a slot each in the file of what runs.
inline constexpr size_t kWorkers = 4096;
// Records of the kernel's log that are read before workers are served again.
inline constexpr int kKernelLogBurst = 256;
// A worker's own /tmp and /dev/shm, in memory.
inline constexpr const char* kTmpSize = "64m";
// Files and folders there. Each costs a kilobyte of the kernel's memory, which the size does not
// count; by default there may be one for every second page of the host's memory. Fewer: NVIDIA's
// driver cannot keep its temporary files.
inline constexpr const char* kTmpFiles = "16k";
// A worker's place among those that the kernel ends when memory is short: first, whatever it has.
// Lower: one that takes all memory has a virtual machine ended in its place.
inline constexpr const char* kOomScore = "1000";
// The GPU's context-switch log: records that the driver keeps until they are read, more than two
// seconds of as many switches as a GPU can make (7,500 a second).
inline constexpr uint32_t kSwitchLogRecords = 16384;
// How often it is read while vGPUs compete (0.5 percent of a core), and while they do not: seldom
// enough to cost nothing, often enough that nothing is dropped.
inline constexpr int kSwitchLogFlushMs = 10, kSwitchLogRestMs = 1000;
// Comparisons of the clocks before the first record, and how long a driver may take to open the
// log: it may have to wake the GPU up.
inline constexpr int kSwitchLogMatches = 8, kSwitchLogStartMs = 20000;
// After an error of sending that passes.
inline constexpr int kSendAgainMs = 10;
// How long a process of an earlier sluiced may take to die of SIGKILL, and an earlier spawner to
// end by itself. What is stuck in the kernel for longer is logged and left.
inline constexpr int kEndMs = 10000;

}  // namespace sluice::spawner::limits
