// SPDX-License-Identifier: Apache-2.0
// The driver API's streams, events and operations on memory words.
#include <algorithm>

#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

template <class F>
CUresult with_event(CUevent handle, F f) {
  return with_state([&](State& s) -> CUresult {
    const std::shared_ptr<Event> event = s.tables.events.find(handle);
    const std::shared_ptr<Context> context = event ? event->context.lock() : nullptr;
    if (!context || context->destroyed.load()) return CUDA_ERROR_INVALID_HANDLE;
    if (const int error = context->error.load(); error != 0) return static_cast<CUresult>(error);
    return f(s, *context, *event);
  });
}

OperationRef recorded(Event& event) {
  std::lock_guard lock(event.mutex);
  return event.recorded;
}

template <class T>
bool compare(T now, T value, unsigned how) {
  switch (how) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<T>>(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & value) != 0;
    default:
      return static_cast<T>(~(now | value)) != 0;
  }
}

template <class T>
CUresult wait_value(CUstream handle, CUdeviceptr address, T value, unsigned flags) {
  return with_stream(handle, [&](State& s, Context& context, Stream& stream) {
    const unsigned how = flags & ~unsigned{CU_STREAM_WAIT_VALUE_FLUSH};
    if (how > CU_STREAM_WAIT_VALUE_NOR || address % sizeof(T) != 0 ||
        context.map.find(address, sizeof(T)).bytes == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto operation = std::make_shared<Operation>();
    operation->kind = Operation::Kind::kWaitValue;
    operation->satisfied = [address, value, how] {
      return compare(__atomic_load_n(reinterpret_cast<T*>(address), __ATOMIC_SEQ_CST), value, how);
    };
    s.scheduler.enqueue(stream, operation);
    return CUDA_SUCCESS;
  });
}

template <class T>
CUresult write_value(CUstream handle, CUdeviceptr address, T value, unsigned flags) {
  return with_stream(handle, [&](State& s, Context& context, Stream& stream) {
    if ((flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) != 0 ||
        address % sizeof(T) != 0 || context.map.find(address, sizeof(T)).bytes == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto operation = std::make_shared<Operation>();
    operation->kind = Operation::Kind::kWriteValue;
    operation->run = [address, value] {
      __atomic_store_n(reinterpret_cast<T*>(address), value, __ATOMIC_SEQ_CST);
    };
    s.scheduler.enqueue(stream, operation);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  return with_context([&](State& s, Context&) {
    if (out == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    const Current top = current();
    if (top.green) flags = CU_STREAM_NON_BLOCKING;  // as the driver's are, whatever is asked for
    *out = s.tables.streams.add(make_stream(s, top.context, top.green, flags, priority));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamCreate(CUstream* out, unsigned int flags) {
  return cuStreamCreateWithPriority(out, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  return with_context([&](State& s, Context&) {
    // What a green context left behind stays, as documented: a leak that every call tells of.
    if (const auto left = s.tables.streams.find(handle); left && orphaned(*left))
      return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    const std::shared_ptr<Stream> stream = s.tables.streams.remove(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (const auto context = stream->context.lock()) s.scheduler.remove_stream(*context, *stream);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return with_stream(handle, [&](State&, Context&, Stream& stream) {
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream.priority;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return with_stream(handle, [&](State&, Context&, Stream&) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  return with_stream(handle, [&](State&, Context&, Stream& stream) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream.flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return with_stream(handle, [&](State&, Context&, Stream& stream) {
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *id = stream.id;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* out) {
  return with_stream(handle, [&](State&, Context& context, Stream& stream) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto green = stream.green.lock();
    *out = green ? green->view : context.handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  return with_stream(handle, [&](State& s, Context&, Stream& stream) {
    if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
    const std::shared_ptr<Event> event = s.tables.events.find(event_handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    const OperationRef before = recorded(*event);
    if (!before || before->is_done()) return CUDA_SUCCESS;
    s.scheduler.enqueue(stream, std::make_shared<Operation>(), before);
    return CUDA_SUCCESS;
  });
}

// Nothing is ever being captured: graphs are not offered.
CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return with_stream(handle, [&](State&, Context&, Stream&) {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t*,
                                   CUgraph*, const CUgraphNode**, const CUgraphEdgeData**,
                                   size_t*) {
  return cuStreamIsCapturing(handle, status);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(*mode, current);
  return CUDA_SUCCESS;
}

// Managed memory is everybody's at any time: only checked.
CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t, unsigned int flags) {
  return with_stream(handle, [&](State&, Context& context, Stream&) {
    std::lock_guard lock(context.mutex);
    const bool known = context.managed.count(address) != 0;
    return known && (flags == 1 || flags == 2 || flags == 4) ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return with_stream(handle, [&](State& s, Context& context, Stream& stream) {
    if (!s.scheduler.is_idle(stream)) return CUDA_ERROR_NOT_READY;
    return outcome(context);
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return with_stream(handle, [&](State& s, Context& context, Stream& stream) {
    s.scheduler.wait(stream);
    return outcome(context);
  });
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                 unsigned int flags) {
  return write_value(stream, address, value, flags);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned int flags) {
  return write_value(stream, address, value, flags);
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned int flags) {
  return wait_value(stream, address, value, flags);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned int flags) {
  return wait_value(stream, address, value, flags);
}

CUresult cuEventCreate(CUevent* out, unsigned int flags) {
  return with_context([&](State& s, Context& context) {
    constexpr unsigned kKnown =
        CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
    if (out == nullptr || (flags & ~kKnown) != 0 ||
        (shared && (flags & CU_EVENT_DISABLE_TIMING) == 0))
      return CUDA_ERROR_INVALID_VALUE;
    if (shared) return CUDA_ERROR_NOT_SUPPORTED;
    auto event = std::make_shared<Event>();
    event->context = context.legacy->context;
    event->flags = flags;
    *out = s.tables.events.add(std::move(event));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventRecordWithFlags(CUevent event_handle, CUstream handle, unsigned int flags) {
  return with_stream(handle, [&](State& s, Context& context, Stream& stream) {
    const std::shared_ptr<Event> event = s.tables.events.find(event_handle);
    if (!event || event->context.lock().get() != &context) return CUDA_ERROR_INVALID_HANDLE;
    if (flags != CU_EVENT_RECORD_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
    auto operation = std::make_shared<Operation>();
    // One step under the event's lock: of two threads that record it, the one that is later in the
    // stream also has the last word in the event.
    std::lock_guard lock(event->mutex);
    s.scheduler.enqueue(stream, operation);
    event->recorded = std::move(operation);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return cuEventRecordWithFlags(event, stream, 0);
}

CUresult cuEventQuery(CUevent handle) {
  return with_event(handle, [&](State&, Context& context, Event& event) {
    const OperationRef operation = recorded(event);
    return !operation || operation->is_done() ? outcome(context) : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuEventSynchronize(CUevent handle) {
  return with_event(handle, [&](State&, Context& context, Event& event) {
    if (const OperationRef operation = recorded(event)) operation->wait();
    return outcome(context);
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return with_state([&](State& s) {
    return s.tables.events.remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  return with_event(start_handle, [&](State& s, Context&, Event& start) {
    const std::shared_ptr<Event> end = s.tables.events.find(end_handle);
    if (!end) return CUDA_ERROR_INVALID_HANDLE;
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (((start.flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
      return CUDA_ERROR_INVALID_HANDLE;
    const OperationRef from = recorded(start), to = recorded(*end);
    if (!from || !to) return CUDA_ERROR_INVALID_HANDLE;
    if (!from->is_done() || !to->is_done()) return CUDA_ERROR_NOT_READY;
    *milliseconds = static_cast<float>(
        static_cast<double>(static_cast<int64_t>(to->done_ns - from->done_ns)) / 1e6);
    return CUDA_SUCCESS;
  });
}
