// SPDX-License-Identifier: Apache-2.0
// Streams and events that take less than the driver's call of the same name.
#include "guest-agent/cudart/calls.h"

namespace sluice::cudart::impl {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return to_runtime(driver().cuStreamCreate(stream, CU_STREAM_DEFAULT));
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return to_runtime(driver().cuEventCreate(event, CU_EVENT_DEFAULT));
}

}  // namespace sluice::cudart::impl
