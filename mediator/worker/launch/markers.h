// SPDX-License-Identifier: Apache-2.0
// Markers: ends of what is queued in driver streams, as events of the driver. A marker is a number;
// its event is used again for another marker once it has been reached.
//
//   mark()   query(): reached        forget(): its context ends
//   new --------> pending ------> free -------> gone
//                    ^             |             |  the number is used again,
//                    +--- mark() --+             +  with another context's event
//
// An event belongs to one context, so free ones are found by context. Owned by CudaStreams, used
// under its lock. Markers that are pending when their context ends stay so and are not asked about.
#pragma once

#include <cstdint>
#include <vector>

#include "mediator/gpu/driver_api.h"
#include "mediator/worker/launch/objects.h"

namespace sluice::worker {

class Markers {
 public:
  explicit Markers(const gpu::DriverApi& api) : api_(api) {}
  // Marks the end of what is queued in the driver's stream `in` of this context.
  CUresult mark(const ContextObject& context, CUstream in, uint64_t* marker);
  // CUDA_SUCCESS: reached, and the marker is gone. CUDA_ERROR_NOT_READY: not yet.
  CUresult query(uint64_t marker);
  // The context ends, and its events with it.
  void forget(const ContextObject& context);

 private:
  struct Marker {
    CUevent event = nullptr;
    CUcontext context = nullptr;
    ContextId of = 0;  // the context's own name: the driver gives another context the same handle
  };
  static constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t take_free(ContextId of);
  CUresult make(const ContextObject& context, uint64_t* marker);

  const gpu::DriverApi& api_;
  std::vector<Marker> markers_;  // by number
  std::vector<uint64_t> free_, gone_;
};

}  // namespace sluice::worker
