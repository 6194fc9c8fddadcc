// SPDX-License-Identifier: Apache-2.0
// Block: one resident thread block and its whole state: registers, shared and local memory,
// barriers. run() goes on where it stopped, so that a caller can interleave many resident blocks on
// one host thread, stop them, and go on later or elsewhere.
//
// Threads: one thread at a time per Block; different Blocks at the same time on different threads,
// over the same global memory (its atomics are host atomics). Owned by the software GPU's SM loop.
// Does not: schedule blocks, allocate device memory, know of streams or contexts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/exec/block/environment.h"
#include "kernels/exec/memory/fault.h"
#include "kernels/exec/memory/memory_map.h"
#include "kernels/exec/program/program.h"
#include "mediator/base/result.h"

namespace sluice::exec {

inline constexpr uint32_t kWarpLanes = 32;
inline constexpr uint32_t kMaxBlockThreads = 1024;
inline constexpr uint32_t kMaxSharedBytes = 227 * 1024;  // static + dynamic, as on sm_90

// Generic addresses of the spaces that are not global. Non-canonical on x86-64 and above user space
// on every 64-bit Linux, so no host address is ever among them. A pointer minus its window's base
// is the address inside the space (what cvta.to gives).
inline constexpr uint64_t kSharedWindow = 0xa000'0000'0000'0000ull;
inline constexpr uint64_t kLocalWindow = 0xa100'0000'0000'0000ull;
inline constexpr uint64_t kParamWindow = 0xa200'0000'0000'0000ull;
inline constexpr uint64_t kCodeWindow = 0xa300'0000'0000'0000ull;    // addresses of functions
inline constexpr uint64_t kKernelWindow = 0xa400'0000'0000'0000ull;  // and of kernels
inline constexpr uint64_t kFunctionStride = 16;
inline constexpr uint64_t kWindowBytes = 1ull << 32;
// In the window of shared memory the block of rank r has the addresses from (r + 1) * kRankStride
// on as well, which are its own for every block of the cluster. An address below is the reader's.
inline constexpr uint32_t kRankShift = 24;
inline constexpr uint64_t kRankStride = 1ull << kRankShift;
// What a GPU keeps of a block's shared memory for the toolkit's own code, as tiles of several warps
// (%reserved_smem_offset_begin and kin): in the middle of the block's addresses, so that what is
// beyond either end of its variables is a fault.
inline constexpr uint32_t kReservedSharedBytes = 1024;
inline constexpr uint64_t kReservedShared = kRankStride / 2;

inline constexpr uint64_t kDefaultStackBytes = 1024;  // CUDA's own default
// Of one thread, as the hardware has it; what LaunchShape asks beyond is not given.
inline constexpr uint64_t kMaxStackBytes = 512 * 1024;
class DeviceHeap;
class DeviceLaunches;

// Blocks of a cluster at most (what an H100 takes when it is asked to; without, 8).
inline constexpr uint32_t kMaxClusterBlocks = 16;

struct LaunchShape {
  Dim3 grid;
  Dim3 block;
  uint32_t dynamic_shared_bytes = 0;
  uint64_t grid_id = 0;  // %gridid
  // What recursion and alloca may take of a thread's local memory (cuCtxSetLimit's stack size).
  uint64_t stack_bytes = kDefaultStackBytes;
  // Where cooperative groups' barrier of the whole grid is (%envreg1: the upper half, %envreg2); 0:
  // no cooperative launch.
  uint64_t grid_workspace = 0;
  // Blocks that are resident together and may synchronise; the grid is a multiple of it.
  Dim3 cluster;
  bool explicit_cluster = false;  // %is_explicit_cluster: the launch or the kernel names the size
  DeviceHeap* heap = nullptr;     // for malloc and free in kernels; null: malloc returns null
  DeviceLaunches* launches = nullptr;  // of kernels by kernels; null: one is a fault
};

// The SM a block is resident on.
struct SmPlace {
  uint32_t smid = 0;
  uint32_t nsmid = 1;
};

enum class RunState : uint8_t {
  kDone,     // every thread has left
  kYielded,  // the step budget is used up, or nothing can go on before the world changes
  kFault,    // see fault(); the block will not run again
};

struct RunResult {
  RunState state = RunState::kYielded;
  uint64_t steps = 0;    // warp instructions executed by this call
  bool waiting = false;  // kYielded: all its warps only polled or slept, so there is no hurry
};

class Block {
 public:
  // Of a launch with clusters the Block is a whole cluster: its blocks take turns on the thread in
  // run(), so nothing of one is touched by two threads at once.
  // `params`: exactly entry->param_bytes, copied. `map` and `environment` must outlive the block.
  // Errors: unknown entry, shape out of range, wrong parameter size.
  static Result<std::unique_ptr<Block>> make(std::shared_ptr<const Image> image,
                                             std::string_view entry, const LaunchShape& shape,
                                             std::span<const std::byte> params, MemoryMap& map,
                                             Environment& environment);
  virtual ~Block() = default;

  // Begins the block `ctaid` (of a cluster its first one) from its first instruction. Must be
  // called before the first run; may be called again after kDone for another block of the same
  // launch, which saves the allocations.
  virtual void start(Dim3 ctaid, SmPlace place) = 0;
  // Executes until the end, a fault, or about `max_steps` warp instructions.
  virtual RunResult run(uint64_t max_steps) = 0;
  virtual const Fault& fault() const = 0;
  // The block goes on on another SM (it was preempted and restored there): what %smid says from now
  // on. Between two run() calls only.
  virtual void move(SmPlace place) { (void)place; }
  // The same for one block of a cluster; start() puts all where the first one is.
  virtual void move_rank(uint32_t rank, SmPlace place) {
    if (rank == 0) move(place);
  }
};

}  // namespace sluice::exec
