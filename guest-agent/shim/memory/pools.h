// SPDX-License-Identifier: Apache-2.0
// Memory pools (cuMemPool*). Accounts, kept in the guest: how much each pool has in use, how much
// it has reserved, and how much it may have. The memory itself is the worker's driver's, whose own
// pool reuses it: what a pool keeps reserved is no less free for others. Any thread.
//
// A pool for several programs is a file descriptor in which its number lies, and each of its
// allocations a handle as of cuIpcGetMemHandle with that number (shared_pools.cc).
//
//   used      allocated and not freed
//   reserved  used, and what was freed and not released; released by cuMemPoolTrimTo, and above the
//             release threshold when the program synchronises
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "abi/cuda_memory.h"

namespace sluice::guest {

// The pool of cuMemAllocAsync on the current device.
CUmemoryPool current_pool();
// Before an allocation. CUDA_ERROR_INVALID_VALUE: no such pool; CUDA_ERROR_OUT_OF_MEMORY: it is
// full.
CUresult take_from_pool(CUmemoryPool pool, size_t bytes);
// After an allocation that was made: it counts as reserved, and in the high marks.
void reserve_in_pool(CUmemoryPool pool);
// After a free, or an allocation that failed. Null: nothing.
void return_to_pool(CUmemoryPool pool, size_t bytes);
// Of a pool for several programs; the same in all of them. None is all zeros.
using PoolNumber = std::array<uint64_t, 2>;
struct SharedPool {
  PoolNumber number{};
  CUdevice device = 0;
  bool imported = false;  // has nothing but imported allocations
};
// Nothing: there is no such pool, or its program has it alone.
std::optional<SharedPool> shared_pool(CUmemoryPool pool);
CUmemoryPool add_imported_pool(const SharedPool& pool);
// Ends an allocation that was imported. Nothing: there is none at this address.
std::optional<CUresult> free_imported(CUdeviceptr address);
// The end of a call that synchronises a stream, an event or a context; returns its result.
CUresult synchronised(CUresult result);

}  // namespace sluice::guest
