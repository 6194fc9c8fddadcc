// SPDX-License-Identifier: Apache-2.0
// The file through which several processes share one software GPU: its layout. Mapped shared and
// writable by every process that uses the GPU. abi/soft_gpu.h has what others may look at and
// control (registers, channels, switch log); here is what only the software GPU's own processes
// know.
//
// The first bytes look like BAR0 of a real GPU where accounting reads (abi/registers.h): one device
// row at SLUICE_REG_PTOP_DEVICE_INFO2 (type 0, graphics; 3 words chained by bit 31) that names a
// runlist at kRunlistBase, whose ENGINE_STATUS0(0) tells which channel group is running. A
// context's channel-group id (TSGID) is its slot + 1.
//
// Liveness: the owner of context slot i or process i holds an open-file-description write lock on
// byte kContextLocks + i or kProcessLocks + i of the file. The kernel drops it when the process
// dies, so nothing here depends on process ids. A process that holds the GPU also counts a beat,
// which stops when it is stopped. What a dead process left is cleaned by the process that finds
// it, and one whose beat stops loses the GPU. All processes that map this file trust one another
// not to scribble on it; an index read from it is bounded before use all the same.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>

#include "abi/registers.h"
#include "abi/soft_gpu.h"

namespace sluice::softgpu {

// Contexts, and processes, on one GPU. Waiting sets are one 64-bit word, so not more than 64.
inline constexpr unsigned kMaxContexts = SLUICE_SOFT_CHANNELS;
inline constexpr unsigned kMaxProcesses = SLUICE_SOFT_PROCESSES;
inline constexpr unsigned kMaxSms = SLUICE_SOFT_MAX_SMS;
inline constexpr unsigned kSmWords = kMaxSms / 64;
using SmSet = std::bitset<kMaxSms>;

inline constexpr uint32_t kRunlistBase = 0x10000;

// Lock bytes lie beyond the end of the file, where locks are allowed and nothing is stored.
inline constexpr off_t kInitLock = off_t{1} << 40;   // held while the file is being initialised
inline constexpr off_t kMemoryLock = kInitLock + 1;  // held while memory is being reserved
inline constexpr off_t kContextLocks = kInitLock + 0x1000;
inline constexpr off_t kProcessLocks = kInitLock + 0x2000;

// What a context's blocks take of one SM, packed: registers in units of 64, shared memory in units
// of 128 bytes, threads and blocks. Sums of claims that fit on an SM do not overflow their fields.
struct SmClaim {
  uint32_t registers = 0, shared_bytes = 0, threads = 0, blocks = 0;
  uint64_t packed() const {
    return uint64_t{registers / 64} | uint64_t{shared_bytes / 128} << 16 | uint64_t{threads} << 32 |
           uint64_t{blocks} << 48;
  }
  static SmClaim unpacked(uint64_t w) {
    return {static_cast<uint32_t>(w & 0xffff) * 64, static_cast<uint32_t>(w >> 16 & 0xffff) * 128,
            static_cast<uint32_t>(w >> 32 & 0xffff), static_cast<uint32_t>(w >> 48)};
  }
};

// How urgent blocks of a stream's priority (0 to -5) are, from 1 up.
inline constexpr uint8_t kLeastUrgent = 1;
constexpr uint8_t urgency_of(int priority) {
  return static_cast<uint8_t>(kLeastUrgent + (priority >= 0 ? 0 : priority < -5 ? 5 : -priority));
}

// mps: who goes first where there is room. The more urgent; of equals what came first.
struct Rank {
  uint8_t urgency = kLeastUrgent;
  uint64_t order = 0;  // of GpuState::next_order
  bool is_before(const Rank& other) const {
    return urgency != other.urgency ? urgency > other.urgency : order < other.order;
  }
};

// The place of a context in the queue. Written by its owner, except where a dead one is cleaned up.
struct alignas(64) QueueSlot {
  std::atomic<uint64_t> ticket;  // 0: does not wait; seq_cst
};

// One process.
struct alignas(64) ProcessSlot {
  std::atomic<uint32_t> bell;   // rung (incremented and woken with a futex) to look again
  std::atomic<uint32_t> epoch;  // grows when others have taken its claims away (mps)
  std::atomic<uint64_t> beat;   // grows while it runs blocks
  // mps: how urgent what found no room on each SM is (urgency_of()), 0: nothing, and the order of
  // the first of the most urgent. Count with the process's bit in `starved`.
  std::atomic<uint8_t> starved_at[kMaxSms];
  std::atomic<uint64_t> starved_order;
};

struct GpuState {
  // Who is on the engine: generation << 32 | slot + 1; 0: nobody. Taken by compare-and-swap from 0.
  alignas(64) std::atomic<uint64_t> holder;
  std::atomic<uint64_t> holder_since_ns;  // when the holder's slice began
  // Whose state is in the engine, as the log has it: the same word; 0: nobody's.
  alignas(64) std::atomic<uint64_t> resident;
  alignas(64) std::atomic<uint64_t> next_ticket;
  alignas(64) std::atomic<uint64_t> waiting;  // bit per slot with a ticket; a hint for scans
  alignas(64) std::atomic<uint64_t> running;  // mps: bit per slot that has work
  std::atomic<uint64_t> next_order;           // mps: of grids, as they come
  alignas(64) std::atomic<uint64_t> starved;  // mps: bit per process whose blocks found no room
  // mps: process + 1 that is bringing all blocks of a cooperative grid onto some SMs, this among
  // them, and to whom all room that comes free there is left until then: parts of two such grids
  // would wait for one another. 0: none. Taken in the order of the SMs, so that of two who want
  // some of the same one gets all.
  alignas(64) std::atomic<uint32_t> gathering[kMaxSms];
  QueueSlot queue[kMaxContexts];
  ProcessSlot processes[kMaxProcesses];
  // Every channel stands still until then (CLOCK_MONOTONIC, ns): a kernel of one has faulted.
  alignas(64) std::atomic<uint64_t> stalled_until_ns;
  // mps: what each process has taken of each SM (SmClaim); counts only while the process lives.
  std::atomic<uint64_t> claims[kMaxProcesses][kMaxSms];
};

inline constexpr size_t kGpuFileBytes =
    (SLUICE_SOFT_STATE_OFFSET + sizeof(GpuState) + 4095) & ~size_t{4095};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint8_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint64_t>) == 8 && sizeof(std::atomic<uint32_t>) == 4);
static_assert(SLUICE_REG_PTOP_DEVICE_INFO2 + 12 <= SLUICE_SOFT_INFO_OFFSET);
static_assert(SLUICE_REG_ENGINE_STATUS1(kRunlistBase, 0) + 4 <= SLUICE_SOFT_INFO_OFFSET);
static_assert(SLUICE_SOFT_INFO_OFFSET + sizeof(sluice_soft_info) <= SLUICE_SOFT_FAULTS_OFFSET);
static_assert(SLUICE_SOFT_FAULTS_OFFSET + sizeof(sluice_soft_faults) <=
              SLUICE_SOFT_CHANNELS_OFFSET);
static_assert(SLUICE_SOFT_CHANNELS_OFFSET + kMaxContexts * SLUICE_SOFT_CHANNEL_BYTES <=
              SLUICE_SOFT_ATTENTION_OFFSET);
static_assert(sizeof(sluice_soft_channel) <= SLUICE_SOFT_CHANNEL_BYTES);
static_assert(SLUICE_SOFT_LOG_OFFSET + SLUICE_SWITCH_LOG_RECORDS_AT +
                  SLUICE_SOFT_LOG_RECORDS * sizeof(sluice_switch_record) <=
              SLUICE_SOFT_STATE_OFFSET);
static_assert(sizeof(sluice_switch_record) == 32);
static_assert(kMaxContexts + 1 <= 0x800, "channel-group ids have 12 bits, the last half is ours");

}  // namespace sluice::softgpu
