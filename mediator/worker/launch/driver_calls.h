// SPDX-License-Identifier: Apache-2.0
// What an operation of a stream is as a call of the driver: the current context, kernel launches,
// copies and fills. Functions without state but one: which context each thread has current.
//
// The context of the stream is current for all but make_current().
#pragma once

#include <cstdint>

#include "abi/preempt.h"
#include "mediator/gpu/driver_api.h"
#include "mediator/worker/launch/objects.h"

namespace sluice::worker {

// Makes a context (or none: null) the calling thread's, unless it is already.
CUresult make_current(const gpu::DriverApi& api, CUcontext context);
// After a driver call that may have changed it, or has destroyed a context: no thread's
// make_current() rests on what it knew.
void forget_current();

// A clone with `block`, what it has appended to the original's parameters.
CUresult launch_kernel(const gpu::DriverApi& api, CUstream to, LaunchWork& w, void* block,
                       const uint32_t grid[3], uint32_t dynamic_shared);
// A loop, or one task a block.
CUresult launch_clone(const gpu::DriverApi& api, CUstream to, LaunchWork& w,
                      const sluice_preempt_params& p, uint32_t blocks);
// With the attributes that the program asked for.
CUresult launch_original(const gpu::DriverApi& api, CUstream to, LaunchWork& w);

CUresult copy(const gpu::DriverApi& api, CUstream to, const CUDA_MEMCPY2D& c);
CUresult fill(const gpu::DriverApi& api, CUstream to, const sluice_memset& m);

}  // namespace sluice::worker
