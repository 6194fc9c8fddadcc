// SPDX-License-Identifier: Apache-2.0
// The default streams. A program names them as null, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD.
// Null is the legacy stream, except in calls of programs compiled for a default stream per thread.
//
// A thread's own stream is a plain blocking stream of the worker's: made in a context when the
// thread first names it there, destroyed when the thread ends. Any thread; a thread's own state.
#pragma once

#include "abi/cuda_driver.h"

namespace sluice::guest {

// In the place of a stream that the program names, the one that the worker knows. In the current
// context. CUDA_ERROR_INVALID_HANDLE: it is no live stream, or a thread's own in a green context.
// CUDA_ERROR_CONTEXT_IS_DESTROYED: its green context is no more.
CUresult resolve_stream(CUstream& stream);

// While it lives, null is the thread's own stream in this thread's calls.
class NullIsPerThread {
 public:
  NullIsPerThread();
  ~NullIsPerThread();
  NullIsPerThread(const NullIsPerThread&) = delete;

 private:
  bool before_;
};

}  // namespace sluice::guest
