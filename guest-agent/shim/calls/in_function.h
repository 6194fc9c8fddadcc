// SPDX-License-Identifier: Apache-2.0
// Entering a call that is about a kernel. On the caller's stack.
#pragma once

#include "guest-agent/shim/modules/modules.h"
#include "guest-agent/shim/state/api.h"

namespace sluice::guest {

// The handle that the worker knows.
inline CUfunction as_function(const FunctionInfo* info) {
  return reinterpret_cast<CUfunction>(info->handle);
}

// Entered, with the function that the call is about.
struct InFunction : Entered {
  FunctionInfo* info = nullptr;
  explicit InFunction(CUfunction function) : Entered(enter_context()) {
    if (status == CUDA_SUCCESS) info = resolve_function(*this, function, &status);
  }
};

}  // namespace sluice::guest
