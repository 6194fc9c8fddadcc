// SPDX-License-Identifier: Apache-2.0
// Registered host memory. It stays the program's own, pageable memory, until it has to have a
// device address: then its pages are mapped anew, over extents of the shared region that have the
// same contents, so that the program and the GPU see the same bytes at two addresses.
//
//   program   [ its range ]      whole pages, of private memory that it may read and write
//                  |  the same pages
//   window    [ extents   ]      the device address; also where the worker and the GPU have them
//
// Copies then go to and from the extents as with pinned memory, not through staging. Unregistering
// waits for all that is queued, and puts private memory with the contents of that moment there; so
// does a fork in the child. Limits: the range is whole pages; what other threads write to it during
// the call may be lost. Any thread.
#pragma once

#include <optional>

#include "abi/cuda_driver.h"
#include "guest-agent/shim/state/state.h"

namespace sluice::guest {

// The device address of `address`, which lies in registered memory; mapped if it has to be.
CUresult device_address_of_registered(const Entered& entered, uint64_t address, CUdeviceptr* to);
// The same, if it has one already; all of `bytes` behind it.
std::optional<CUdeviceptr> known_device_address(uint64_t address, uint64_t bytes = 1);

}  // namespace sluice::guest
