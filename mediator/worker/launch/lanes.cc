// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/lanes.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "mediator/worker/launch/driver_calls.h"
#include "mediator/worker/limits.h"

namespace sluice::worker {

CUresult Lanes::move_to(StreamObject& s, Lane& lane) {
  if (s.tail == &lane) return CUDA_SUCCESS;
  if (CUresult r = api_.cuEventRecord(s.passed_on, s.tail->cu); r != CUDA_SUCCESS) return r;
  if (CUresult r = api_.cuStreamWaitEvent(lane.cu, s.passed_on, 0); r != CUDA_SUCCESS) return r;
  s.tail = &lane;
  return CUDA_SUCCESS;
}

Lane* Lanes::at_level(StreamObject& s, uint32_t level) {
  std::unique_ptr<Lane>& there = s.above[std::min(level, SLUICE_GRANT_LEVELS - 1u) - 1];
  if (there) return there.get();
  if (make_current(api_, s.context->cu) != CUDA_SUCCESS) return nullptr;
  auto lane = std::make_unique<Lane>();
  lane->priority = s.priority - static_cast<int>(level) * kTurnLevels;
  lane->green = s.green;
  CUresult r = make_stream(*lane, &lane->cu);
  if (r == CUDA_SUCCESS && !s.passed_on)
    r = api_.cuEventCreate(&s.passed_on, CU_EVENT_DISABLE_TIMING);
  if (r != CUDA_SUCCESS) {
    destroy(*lane);
    return nullptr;
  }
  there = std::move(lane);
  return there.get();
}

CUresult Lanes::make_second(Lane& lane) {
  if (lane.second) return CUDA_SUCCESS;
  CUresult r = CUDA_SUCCESS;
  for (CUevent* event : {&lane.joined, &lane.forked, &lane.ended[0], &lane.ended[1]})
    if (r == CUDA_SUCCESS && !*event) r = api_.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
  for (CUevent* event : {&lane.began, &lane.over})
    if (r == CUDA_SUCCESS && !*event) r = api_.cuEventCreate(event, CU_EVENT_DEFAULT);
  if (r != CUDA_SUCCESS) return r;
  return make_stream(lane, &lane.second);
}

CUresult Lanes::make_stream(const Lane& of, CUstream* to) const {
  return of.green ? api_.cuGreenCtxStreamCreate(to, of.green, CU_STREAM_NON_BLOCKING, of.priority)
                  : api_.cuStreamCreateWithPriority(to, CU_STREAM_NON_BLOCKING, of.priority);
}

// Whatever went before in other lanes, the tail waits for it; but a lane's second stream may not
// have been joined.
CUresult Lanes::idle(const StreamObject& s) {
  CUresult status = CUDA_SUCCESS;
  const auto ask = [&](CUstream in) {
    const CUresult r = in ? api_.cuStreamQuery(in) : CUDA_SUCCESS;
    if (r != CUDA_SUCCESS && status != CUDA_ERROR_NOT_READY) status = r;
  };
  for (const CUstream in : {s.tail->cu, s.tail->second, s.second}) ask(in);
  for (const auto& lane : s.above)
    if (lane) ask(lane->second);
  return status;
}

void Lanes::destroy(StreamObject& s) {
  destroy(static_cast<Lane&>(s));
  for (const auto& lane : s.above)
    if (lane) destroy(*lane);
  if (s.passed_on) (void)api_.cuEventDestroy(s.passed_on);
}

// An error means that the context is gone, and the stream with it.
void Lanes::destroy(Lane& lane) {
  for (const CUstream stream : {lane.cu, lane.second})
    if (stream) (void)api_.cuStreamDestroy(stream);
  for (const CUevent event :
       {lane.joined, lane.forked, lane.ended[0], lane.ended[1], lane.began, lane.over})
    if (event) (void)api_.cuEventDestroy(event);
}

}  // namespace sluice::worker
