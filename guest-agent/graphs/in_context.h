// SPDX-License-Identifier: Apache-2.0
// The calling thread's current context is another one for a while. By the public driver API alone.
#pragma once

#include <cstdint>

#include "abi/cuda_driver.h"

namespace sluice::graphs {

class InContext {
 public:
  explicit InContext(uint64_t context)
      : status(cuCtxPushCurrent(reinterpret_cast<CUcontext>(context))) {}
  ~InContext() {
    CUcontext popped = nullptr;
    if (status == CUDA_SUCCESS) (void)cuCtxPopCurrent(&popped);
  }
  InContext(const InContext&) = delete;
  const CUresult status;
};

}  // namespace sluice::graphs
