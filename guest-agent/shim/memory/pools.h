// SPDX-License-Identifier: Apache-2.0
// Memory pools (cuMemPool*). Accounts, kept in the guest: how much each pool has, and how much it
// may have. The memory itself is the worker's driver's, whose own pool reuses it. Any thread.
#pragma once

#include <cstddef>

#include "abi/cuda_memory.h"

namespace sluice::guest {

// The pool of cuMemAllocAsync on the current device.
CUmemoryPool current_pool();
// Before an allocation. CUDA_ERROR_INVALID_VALUE: no such pool; CUDA_ERROR_OUT_OF_MEMORY: it is
// full.
CUresult take_from_pool(CUmemoryPool pool, size_t bytes);
// After a free, or an allocation that failed. Null: nothing.
void return_to_pool(CUmemoryPool pool, size_t bytes);

}  // namespace sluice::guest
