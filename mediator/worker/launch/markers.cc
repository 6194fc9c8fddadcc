// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/markers.h"

#include "mediator/base/check.h"
#include "mediator/worker/launch/cuda_streams.h"

namespace sluice::worker {

CUresult Markers::mark(const ContextObject& context, CUstream in, uint64_t* marker) {
  if (CUresult r = make_current(api_, context.cu); r != CUDA_SUCCESS) return r;
  uint64_t id = take_free(context.id);
  if (id == kNone)
    if (CUresult r = make(context, &id); r != CUDA_SUCCESS) return r;
  CUresult r = api_.cuEventRecord(markers_[id].event, in);
  if (r != CUDA_SUCCESS) {
    free_.push_back(id);
    return r;
  }
  *marker = id;
  return CUDA_SUCCESS;
}

// The one that became free last.
uint64_t Markers::take_free(ContextId of) {
  for (size_t i = free_.size(); i-- > 0;) {
    const uint64_t id = free_[i];
    if (markers_[id].of != of) continue;
    free_[i] = free_.back();
    free_.pop_back();
    return id;
  }
  return kNone;
}

CUresult Markers::make(const ContextObject& context, uint64_t* marker) {
  Marker m{.context = context.cu, .of = context.id};
  if (CUresult r = api_.cuEventCreate(&m.event, CU_EVENT_DISABLE_TIMING); r != CUDA_SUCCESS)
    return r;
  if (gone_.empty()) {
    gone_.push_back(markers_.size());
    markers_.emplace_back();
  }
  *marker = gone_.back();
  gone_.pop_back();
  markers_[*marker] = m;
  return CUDA_SUCCESS;
}

CUresult Markers::query(uint64_t marker) {
  SLUICE_CHECK(marker < markers_.size());
  if (CUresult r = make_current(api_, markers_[marker].context); r != CUDA_SUCCESS) return r;
  CUresult r = api_.cuEventQuery(markers_[marker].event);
  if (r == CUDA_SUCCESS) free_.push_back(marker);
  return r;
}

void Markers::forget(const ContextObject& context) {
  std::erase_if(free_, [&](uint64_t id) {
    if (markers_[id].of != context.id) return false;
    gone_.push_back(id);
    return true;
  });
}

}  // namespace sluice::worker
