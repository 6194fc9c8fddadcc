// SPDX-License-Identifier: Apache-2.0
// Registered host memory. Its pages are mapped anew, over extents of the shared region that have
// the same contents, so that the program and the GPU see the same bytes at two addresses.
//
//   program   [ its range ]      whole pages, of private memory that it may read and write
//                  |  the same pages
//   window    [ extents   ]      the device address; also where the worker and the GPU have them
//
// Copies then go to and from the extents as with pinned memory, not through staging. Unregistering
// waits for all that is queued, and puts private memory with the contents of that moment there; so
// does a fork in the child. Limits: the range is whole pages; what other threads write to it during
// the call may be lost. Any thread.
//
// A range for which the program has not asked for a device address (unasked) is mapped when it is
// registered, for its copies, where nothing can be lost by it: the program has one thread then, and
// such ranges are a quarter of the region at most. Else it stays pageable until the program asks.
#pragma once

#include <optional>

#include "abi/cuda_driver.h"
#include "guest-agent/shim/state/state.h"

namespace sluice::guest {

// The device address of `address`, which lies in registered memory; mapped if it has to be.
CUresult device_address_of_registered(const Entered& entered, uint64_t address, CUdeviceptr* to);
// The same, if it has one already.
std::optional<CUdeviceptr> known_device_address(uint64_t address);
// Where all of `bytes` from `address` on are in the region, if they are. `asked`: the program will
// know it.
std::optional<CUdeviceptr> copied_as_pinned(uint64_t address, uint64_t bytes, bool asked = false);
// Pinned memory for the program. Where there is no room, unasked ranges are pageable again.
CUresult allocate_pinned(const Entered& entered, size_t bytes, void** address);

}  // namespace sluice::guest
