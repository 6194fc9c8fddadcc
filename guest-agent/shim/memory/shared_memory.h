// SPDX-License-Identifier: Apache-2.0
// Device memory of other programs of this VM: opening and closing what the worker and sluiced know
// by a token (abi/wire.h, sluice_ipc_handle; mediator/worker/calls/ipc_calls.cc), and which
// addresses it has here. Any thread. Errors are CUDA's.
#pragma once

#include "abi/cuda_memory.h"
#include "guest-agent/shim/state/state.h"

namespace sluice::guest {

// In the current context. `pool`: it was imported to; null: cuIpcOpenMemHandle. Opened once more it
// has the same address.
CUresult open_shared_memory(const Entered& entered, const CUipcMemHandle& handle, CUmemoryPool pool,
                            CUdeviceptr* address);
// Closes it once; waits for all that its context has queued. `range`: an opened one.
CUresult close_shared_memory(const Entered& entered, const Range& range);

}  // namespace sluice::guest
