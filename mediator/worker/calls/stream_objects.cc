// SPDX-License-Identifier: Apache-2.0
// Streams and events as objects. What is queued in them: stream_calls.cc.
#include "mediator/worker/calls/generic_calls.h"

#include <memory>
#include <utility>

#include "mediator/worker/limits.h"

namespace sluice::worker {

CUresult GenericCalls::cuStreamCreate(StreamHandle* out, unsigned flags) {
  return cuStreamCreateWithPriority(out, flags, 0);
}

CUresult GenericCalls::cuStreamCreateWithPriority(StreamHandle* out, unsigned flags, int priority) {
  if (!out || (flags & ~unsigned{CU_STREAM_NON_BLOCKING})) return CUDA_ERROR_INVALID_VALUE;
  return make_stream(
      out, flags & CU_STREAM_NON_BLOCKING ? StreamKind::kNonBlocking : StreamKind::kBlocking, flags,
      priority, nullptr);
}

CUresult GenericCalls::make_stream(StreamHandle* out, StreamKind kind, unsigned flags, int priority,
                                   const std::shared_ptr<GreenObject>& green) {
  if (!call.context || call.context->closed) return CUDA_ERROR_INVALID_CONTEXT;
  ContextObject& c = *call.context;
  {
    std::lock_guard lock(s.mutex);
    const uint32_t live = c.charged.streams_live.load() + 1;
    if (live > kMostStreams) return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t one = c.pools.lefts->list_bytes() + kStreamBytes, wanted = live * one;
    if (live > LeftPool::kSlabLists && wanted > c.charged.streams) {
      if (!charge_or_park(wanted - c.charged.streams, ChargeKind::kContexts)) return kParked;
      c.charged.own += wanted - c.charged.streams;
      c.charged.streams = wanted;
    }
  }
  CUresult r;
  auto stream = s.make_stream(call.context, kind, flags, priority, &r, green);
  if (!stream) return r;
  stream->counted = true;
  c.charged.streams_live.fetch_add(1);
  std::lock_guard lock(s.mutex);
  out->value = s.handles.add(SLUICE_HANDLE_STREAM, stream);
  if (out->value != 0) return CUDA_SUCCESS;
  s.work.engine.remove_stream(stream->id);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult GenericCalls::cuStreamDestroy_v2(StreamHandle stream) {
  std::lock_guard lock(s.mutex);
  auto object = s.handles.find<StreamObject>(SLUICE_HANDLE_STREAM, stream.value);
  if (!object) return CUDA_ERROR_INVALID_HANDLE;
  s.handles.remove(SLUICE_HANDLE_STREAM, stream.value);
  s.work.engine.remove_stream(object->id);  // what is queued still runs
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuStreamGetPriority(StreamHandle stream, int* priority) {
  std::lock_guard lock(s.mutex);
  CUresult error;
  auto object = s.find_stream(call, stream.value, &error);
  if (object && priority) *priority = object->priority;
  return error;
}

CUresult GenericCalls::cuStreamGetId(StreamHandle stream, unsigned long long* id) {
  std::lock_guard lock(s.mutex);
  CUresult error;
  auto object = s.find_stream(call, stream.value, &error);
  if (object && id) *id = object->id;
  return error;
}

CUresult GenericCalls::cuEventCreate(EventHandle* out, unsigned flags) {
  constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_EVENT_INTERPROCESS) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags & ~kKnown) return CUDA_ERROR_INVALID_VALUE;
  if (!call.context || call.context->closed) return CUDA_ERROR_INVALID_CONTEXT;
  auto event = std::make_shared<EventObject>(s.api);
  event->context = call.context;
  event->flags = flags;
  CUresult r = s.api.cuEventCreate(&event->cu, flags);
  if (r != CUDA_SUCCESS) return r;
  std::lock_guard lock(s.mutex);
  out->value = s.handles.add(SLUICE_HANDLE_EVENT, std::move(event));
  return out->value != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult GenericCalls::cuEventDestroy_v2(EventHandle event) {
  std::shared_ptr<HandleObject> dead;  // outlives the lock
  std::lock_guard lock(s.mutex);
  dead = s.handles.remove(SLUICE_HANDLE_EVENT, event.value);
  return dead ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult GenericCalls::cuEventElapsedTime_v2(float* milliseconds, EventHandle start,
                                             EventHandle end) {
  std::shared_ptr<EventObject> a, b;
  {
    std::lock_guard lock(s.mutex);
    a = s.handles.find<EventObject>(SLUICE_HANDLE_EVENT, start.value);
    b = s.handles.find<EventObject>(SLUICE_HANDLE_EVENT, end.value);
    if (!a || !b || !milliseconds || !a->latest || !b->latest ||
        ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)) {
      return milliseconds ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    }
    if (!a->latest->complete || !b->latest->complete) {
      // The program may know by the end word what has not been found here yet.
      s.work.engine.poll(monotonic_ns());
      s.after_engine();
    }
    if (!a->latest->complete || !b->latest->complete) return CUDA_ERROR_NOT_READY;
  }
  return s.api.cuEventElapsedTime(milliseconds, a->cu, b->cu);
}

}  // namespace sluice::worker
