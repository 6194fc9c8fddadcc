// SPDX-License-Identifier: Apache-2.0
// Modules and the kernels in them, as the guest keeps them. Process-wide; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "guest-agent/shim/state/state.h"

namespace sluice::guest {

// What a CUfunction (a wire handle) or a CUkernel (a handle of our own, in the current context)
// means for a launch or a query; null with *why.
FunctionInfo* resolve_function(const Entered& entered, CUfunction function, CUresult* why);

// The context is gone, and with it every module, function and variable in it.
void forget_modules_of(uint64_t context);

}  // namespace sluice::guest
