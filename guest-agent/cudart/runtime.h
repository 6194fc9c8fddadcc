// SPDX-License-Identifier: Apache-2.0
// The state of the runtime: initialisation, the device of a thread and its primary context, errors.
// One per process, never destroyed, because programs call it from their static destructors. Any
// thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "guest-agent/cudart/driver.h"
#include "guest-agent/cudart/functions.h"
#include "guest-agent/cudart/types.h"

namespace sluice::cudart {

struct LaunchConfiguration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  cudaStream_t stream;
};

// How deeply launches may stand in the arguments of launches.
inline constexpr int kMaxConfigurations = 32;

// Has no destructor: those of a program's own thread-local objects may call the runtime.
struct Thread {
  cudaError_t last_error = cudaSuccess;
  int device = 0;
  int configuration_count = 0;
  LaunchConfiguration configurations[kMaxConfigurations];  // of <<<>>>, innermost last
};
Thread& thread();

// cuInit, once. In a child that was forked after it: cudaErrorInitializationError, as the driver's
// own answer is.
cudaError_t ensure_driver();
bool is_forked();  // this is such a child
// Some context is current to the thread; the primary one of its device where the program set none.
cudaError_t ensure_context();
// The thread uses this device from now on, and its primary context is current.
cudaError_t use_device(int device);
// The device whose context is current, or would be. Needs the driver.
int current_device();
int device_count();
// Its primary context; null where the runtime has not used the device.
CUcontext primary_context(int device);
// Ends the primary context with all that is in it; the next call that needs one makes another.
cudaError_t reset_device(int device);
cudaError_t set_device_flags(unsigned flags);

// The error becomes the thread's last. One that ends a context comes back from the driver with each
// later call; the thread's last error is forgotten as any other.
cudaError_t record(cudaError_t error);
// The thread's last error, and forgets it.
cudaError_t take_last_error();
// The runtime's error of the same meaning.
cudaError_t to_runtime(CUresult result);

}  // namespace sluice::cudart
