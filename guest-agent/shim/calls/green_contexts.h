// SPDX-License-Identifier: Apache-2.0
// What other files need of green contexts (green_contexts.cc, green_resources.cc). A green context
// is named by one wire handle, also where it is a CUcontext: a thread in which it is current sends
// its records in its name (GreenScope), and the worker takes its default stream for streams 0
// and 1.
#pragma once

#include <cstdint>
#include <vector>

#include "guest-agent/shim/state/api.h"

namespace sluice::guest {

// What a call answers about a handle that names no live green context.
inline CUresult no_green(CUgreenCtx handle) {
  return SLUICE_HANDLE_KIND(wire(handle)) == SLUICE_HANDLE_GREEN ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                                 : CUDA_ERROR_INVALID_CONTEXT;
}
// Its default stream, as the thread names it where it is current, and the others.
std::vector<CUstream> streams_of_green(uint64_t green);
// Waits for all of them; it is current.
CUresult synchronize_green(uint64_t green);
bool has_green_contexts(CUdevice device);

// green_resources.cc. What the descriptor holds, as the worker gets it. False: it is none.
bool find_desc(CUdevResourceDesc handle, sluice_green* to);
CUresult ask_for_green(const Entered& e, uint16_t opcode, const sluice_green& body,
                       sluice_green_reply* to);

}  // namespace sluice::guest
