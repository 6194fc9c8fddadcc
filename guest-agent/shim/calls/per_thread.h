// SPDX-License-Identifier: Apache-2.0
// A driver call as a program makes it that was compiled for a default stream per thread: null is
// the calling thread's own stream. Which calls have such a form: SLUICE_CUDA_PER_THREAD_FUNCTIONS.
#pragma once

#include "abi/cuda_driver.h"
#include "guest-agent/shim/state/default_stream.h"

namespace sluice::guest {

template <auto Function>
struct PerThread;
template <class... A, CUresult (*Function)(A...)>
struct PerThread<Function> {
  static CUresult call(A... a) {
    const NullIsPerThread here;
    return Function(a...);
  }
};

}  // namespace sluice::guest
