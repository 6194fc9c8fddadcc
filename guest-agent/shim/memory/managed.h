// SPDX-License-Identifier: Apache-2.0
// Managed memory: pinned memory of the shared region, at one address in the guest, the worker and
// the GPU. Nothing migrates: the GPU reads and writes it across the bus, at the bus's speed, and it
// counts against the region and not against the GPU's memory. Any thread.
#pragma once

#include <optional>

#include "abi/cuda_driver.h"
#include "guest-agent/shim/state/state.h"

namespace sluice::guest {

// cuMemFree of what may be managed: nothing, it is not. Waits for the context's work.
std::optional<CUresult> free_managed(CUdeviceptr address);

// A managed variable of a module (modules/managed_variables.h): as memory of cuMemAllocManaged, but
// not the program's to free. Behind it, at *copy_of_address, lies its address once more, for a copy
// to the GPU.
CUresult allocate_managed_variable(const Entered& entered, size_t bytes, CUdeviceptr* address,
                                   CUdeviceptr* copy_of_address);
// Without the session only what the guest knows of it ends.
void free_managed_variable(const Entered& entered, CUdeviceptr address);

}  // namespace sluice::guest
