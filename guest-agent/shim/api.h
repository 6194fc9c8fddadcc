// What every file with driver functions needs. The functions themselves are declared in
// abi/cuda_driver.h and described in NVIDIA's CUDA Driver API reference; comments here tell only
// what is ours. Any thread may call any of them.
#pragma once

#include "abi/cuda_driver.h"
#include "guest-agent/shim/call_stub.h"
#include "guest-agent/shim/log.h"
#include "guest-agent/shim/session.h"
#include "guest-agent/shim/state.h"

namespace sluice::guest {

// The calling thread's current context is this one for a while.
class InContext {
 public:
  explicit InContext(uint64_t context) : status(cuCtxPushCurrent(reinterpret_cast<CUcontext>(context))) {}
  ~InContext() {
    CUcontext popped = nullptr;
    if (status == CUDA_SUCCESS) (void)cuCtxPopCurrent(&popped);
  }
  InContext(const InContext&) = delete;
  const CUresult status;
};

}  // namespace sluice::guest
