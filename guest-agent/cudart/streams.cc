// SPDX-License-Identifier: Apache-2.0
// Streams and events whose call differs from the driver's of the same name.
#include "guest-agent/cudart/calls.h"

namespace sluice::cudart::impl {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return to_runtime(driver().cuStreamCreate(stream, CU_STREAM_DEFAULT));
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return to_runtime(driver().cuEventCreate(event, CU_EVENT_DEFAULT));
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  if (ms == nullptr) return cudaErrorInvalidValue;
  static constinit DriverSymbol function("cuEventElapsedTime_v2");
  return forward(function, ms, start, end);
}

// NVIDIA's driver follows a null value.
cudaError_t cudaStreamGetAttribute(DefaultStream mode, cudaStream_t stream,
                                   cudaLaunchAttributeID attribute,
                                   cudaLaunchAttributeValue* value) {
  if (value == nullptr) return cudaErrorInvalidValue;
  static constinit DriverSymbol function("cuStreamGetAttribute");
  return forward(function, stream_for(mode, stream), attribute, value);
}
cudaError_t cudaStreamSetAttribute(DefaultStream mode, cudaStream_t stream,
                                   cudaLaunchAttributeID attribute,
                                   const cudaLaunchAttributeValue* value) {
  if (value == nullptr) return cudaErrorInvalidValue;
  static constinit DriverSymbol function("cuStreamSetAttribute");
  return forward(function, stream_for(mode, stream), attribute, value);
}

}  // namespace sluice::cudart::impl
