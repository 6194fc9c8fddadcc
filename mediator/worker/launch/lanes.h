// SPDX-License-Identifier: Apache-2.0
// Lanes: the driver's streams in which a guest's stream continues. It has its own, one for each
// level of priority above it, and one for each green context that it ran in (GreenContexts makes
// those). Of a stream of the guest's own green context all but the last are in that one. The tail
// is the lane with its newest work:
//
//   tail == lane   move_to(lane) does nothing
//   tail != lane   move_to(lane): the lane waits for an event behind the tail, and becomes the tail
//
// A lane gets a second stream when a launch first needs two: a second grid, or windows.
//
// Owned by CudaStreams, used under the session's lock, with the stream's context current. Errors
// are the driver's.
#pragma once

#include <cstdint>

#include "mediator/gpu/driver_api.h"
#include "mediator/worker/launch/objects.h"

namespace sluice::worker {

class Lanes {
 public:
  explicit Lanes(const gpu::DriverApi& api) : api_(api) {}

  CUresult move_to(StreamObject& stream, Lane& lane);
  // The lane for grants of `level`, from 1 on. Null: the driver refuses one.
  Lane* at_level(StreamObject& stream, uint32_t level);
  // The second stream, and its events. Nothing if it has them.
  CUresult make_second(Lane& lane);
  // Whether all that was queued has ended. CUDA_ERROR_NOT_READY: not yet.
  CUresult idle(const StreamObject& stream);
  // A stream of the driver's where the lane's are: all of its green context, or of none.
  CUresult make_stream(const Lane& of, CUstream* to) const;
  // The stream's own lane and those of levels.
  void destroy(StreamObject& stream);

 private:
  void destroy(Lane& lane);

  const gpu::DriverApi& api_;
};

}  // namespace sluice::worker
