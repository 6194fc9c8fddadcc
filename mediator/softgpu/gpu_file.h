// The file through which several processes share one software GPU: its layout. Mapped shared and
// writable by every process that uses the GPU; sluiced maps it read-only and samples the registers.
//
// The first kRegisterBytes look like BAR0 of a real GPU where accounting looks (abi/registers.h):
// one device row at SLUICE_REG_PTOP_DEVICE_INFO2 (type 0, graphics; 3 words chained by bit 31) that
// names a runlist at kRunlistBase, whose ENGINE_STATUS0(0) tells which channel group is running. A
// context's channel-group id (TSGID) is its slot + 1.
//
// Liveness: whoever owns context slot i or process i holds an open-file-description write lock on
// byte kContextLocks + i or kProcessLocks + i of the file. The kernel drops it when the process
// dies, so nothing here rests on process ids. What a dead owner left is cleaned by whoever finds
// it. All processes that map this file trust one another not to scribble on it; an index read from
// it is bounded before use all the same.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "abi/registers.h"

namespace sluice::softgpu {

inline constexpr uint64_t kGpuFileMagic = 0x5550'4745'4349'554cull;
inline constexpr uint32_t kGpuFileVersion = 1;

// Contexts, and processes, on one GPU. The waiting set is one 64-bit word, so not more than 64.
inline constexpr unsigned kMaxContexts = 64;
inline constexpr unsigned kMaxProcesses = 64;

inline constexpr size_t kRegisterBytes = 0x30000;
inline constexpr uint32_t kRunlistBase = 0x10000;
inline constexpr size_t kStateOffset = kRegisterBytes;

// Lock bytes lie beyond the end of the file, where locks are allowed and nothing is stored.
inline constexpr off_t kInitLock = off_t{1} << 40;   // held while the file is being initialised
inline constexpr off_t kMemoryLock = kInitLock + 1;  // held while memory is being reserved
inline constexpr off_t kContextLocks = kInitLock + 0x1000;
inline constexpr off_t kProcessLocks = kInitLock + 0x2000;

// One context. Written by its owner, except where a dead one is cleaned up.
struct alignas(128) ContextSlot {
  std::atomic<uint64_t> ticket;        // place in the queue, 0: does not wait; seq_cst
  std::atomic<uint32_t> generation;    // grows with each owner, so that an old holder word is seen
  std::atomic<uint32_t> process;       // whose bell to ring
  std::atomic<uint64_t> memory_bytes;  // charged to this context; changed under kMemoryLock
  std::atomic<uint64_t> engine_ns;     // time on the engine, finished turns only; relaxed
  std::atomic<uint64_t> kernels;       // physical launches ended; relaxed
};

// Rung (incremented and woken with a futex) when a waiting process should look again.
struct alignas(64) Bell {
  std::atomic<uint32_t> word;
};

struct GpuState {
  std::atomic<uint64_t> magic;  // written last by whoever initialises; release
  uint32_t version;
  uint32_t sms;
  uint32_t blocks_per_sm;
  uint32_t pad;
  uint64_t memory_bytes;
  // Who is on the engine: generation << 32 | slot + 1; 0: nobody. Taken by compare-and-swap from 0.
  alignas(64) std::atomic<uint64_t> holder;
  alignas(64) std::atomic<uint64_t> next_ticket;
  alignas(64) std::atomic<uint64_t> waiting;  // bit per slot with a ticket; a hint for scans
  ContextSlot contexts[kMaxContexts];
  Bell bells[kMaxProcesses];
};

inline constexpr size_t kGpuFileBytes = (kStateOffset + sizeof(GpuState) + 4095) & ~size_t{4095};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(offsetof(GpuState, holder) == 64 && offsetof(GpuState, contexts) == 256);
static_assert(sizeof(ContextSlot) == 128 && sizeof(Bell) == 64);
static_assert(SLUICE_REG_PTOP_DEVICE_INFO2 + 12 <= kRegisterBytes);
static_assert(SLUICE_REG_ENGINE_STATUS1(kRunlistBase, 0) + 4 <= kRegisterBytes);
static_assert(kMaxContexts + 1 <= 0xfff, "channel-group ids have 12 bits");

}  // namespace sluice::softgpu
