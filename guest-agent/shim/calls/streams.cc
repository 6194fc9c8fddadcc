// SPDX-License-Identifier: Apache-2.0
// Streams and events. Recording, waiting and querying are small records; making and destroying are
// generic calls. Handles that are not live are refused here, at once, as CUDA does it.
#include <algorithm>

#include "abi/cuda_graph.h"
#include "guest-agent/graphs/capture.h"
#include "guest-agent/graphs/in_context.h"
#include "guest-agent/graphs/works.h"
#include "guest-agent/shim/calls/green_contexts.h"
#include "guest-agent/shim/calls/shared_events.h"
#include "guest-agent/shim/calls/stream_attributes.h"
#include "guest-agent/shim/memory/pools.h"
#include "guest-agent/shim/modules/clones.h"
#include "guest-agent/shim/state/api.h"

using namespace sluice::guest;
namespace graphs = sluice::graphs;

namespace {

CUresult add_stream(const Entered& e, CUresult made, CUstream stream, unsigned flags,
                    uint64_t green = 0) {
  if (made != CUDA_SUCCESS) return made;
  const bool kept = state().streams.add(wire(stream), [&](StreamInfo& info) {
    info.context = e.context;
    info.flags = flags;
    info.green = green;
  });
  return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// In a green context no stream waits for a default one, whatever its flags say.
CUresult make_green_stream(const Entered& e, CUstream* stream, uint64_t green, unsigned flags,
                           int priority) {
  if (const CUresult bad = clamp_priority(priority); bad != CUDA_SUCCESS) return bad;
  const CUresult r =
      SLUICE_CALL(cuGreenCtxStreamCreate, *e.link, e.context, stream,
                  reinterpret_cast<CUgreenCtx>(green), unsigned{CU_STREAM_NON_BLOCKING}, priority);
  return add_stream(e, r, r == CUDA_SUCCESS ? *stream : nullptr, flags, green);
}

// `context`: whose work it is about.
CUresult sync_call(const Entered& e, uint16_t opcode, sluice_sync_what what, uint64_t handle,
                   uint64_t context) {
  if (e.link->all_ended(context)) return e.link->with_deferred(CUDA_SUCCESS);
  sluice_synchronize body{};
  body.what = what;
  body.handle = handle;
  return e.link->with_deferred(opcode == SLUICE_CALL_SYNCHRONIZE
                                   ? e.link->synchronize(e.context, body)
                                   : e.link->call(opcode, e.context, body));
}

// A stream may be of another context than the thread's.
uint64_t context_of(const Entered& e, CUstream stream) {
  const StreamInfo* info = state().streams.find(wire(stream));
  return info != nullptr ? info->context : e.context;
}

CUresult stream_event(uint16_t opcode, CUstream stream, CUevent event, unsigned flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  static_assert(CU_EVENT_RECORD_EXTERNAL == 1 && CU_EVENT_WAIT_EXTERNAL == 1);
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  EventInfo* info = state().events.find(wire(event));
  if (info == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A stream may wait for another context's event, but not record it.
  if (opcode == SLUICE_CALL_EVENT_RECORD && info->context != context_of(e, stream))
    return CUDA_ERROR_INVALID_HANDLE;
  if (const auto r = opcode == SLUICE_CALL_EVENT_RECORD
                         ? graphs::capture_record(stream, event, flags)
                         : graphs::capture_wait(stream, event, flags))
    return *r;
  sluice_stream_event body{};
  body.stream = wire(stream);
  body.event = wire(event);
  body.flags = flags;
  KnownIdle::Mark* mark = opcode == SLUICE_CALL_EVENT_RECORD ? &info->mark : nullptr;
  return e.link->post(opcode, e.context, body, mark);
}

// Asks for the event, or waits for it.
CUresult event_call(uint16_t opcode, CUevent event) {
  const Entered e = enter();
  if (!e) return e.status;
  const EventInfo* info = state().events.find(wire(event));
  if (info == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult r = graphs::refuse_for_event(event); r != CUDA_SUCCESS) return r;
  if (const CUresult r = graphs::refuse_unsafe(); r != CUDA_SUCCESS) return r;
  const KnownIdle::Mark mark = e.link->mark_of(info->mark);
  const CUresult r = sync_call(e, opcode, SLUICE_SYNC_EVENT, wire(event), info->context);
  if (r == CUDA_SUCCESS && opcode == SLUICE_CALL_SYNCHRONIZE) e.link->ended(info->mark, mark);
  return r;
}

// A word of 32 bits or, with a value of that type, of 64.
template <class T>
CUresult stream_value(CUstream stream, CUdeviceptr addr, T value, unsigned flags,
                      CUstreamBatchMemOpType operation) {
  constexpr bool kWide = sizeof(T) == 8;
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  if (addr % sizeof value != 0 || !state().pointers.find(addr, sizeof value))
    return CUDA_ERROR_INVALID_VALUE;
  if (const auto r = graphs::capture_node(stream, [&] {
        CUstreamBatchMemOpParams kept{};
        kept.waitValue.operation = operation;
        kept.waitValue.address = addr;
        kept.waitValue.value64 = value;
        kept.waitValue.flags = flags;
        return graphs::value_work(kept, e.context);
      })) {
    return *r;
  }
  std::conditional_t<kWide, sluice_stream_value64, sluice_stream_value> body{};
  body.stream = wire(stream);
  body.address = addr;
  body.value = value;
  body.flags = flags;
  body.is_wait =
      operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  if (body.is_wait != 0) streams_wait_for_the_program();
  if constexpr (kWide)
    return e.link->call(SLUICE_CALL_STREAM_VALUE64, e.context, body);
  else
    return e.link->post(SLUICE_CALL_STREAM_VALUE, e.context, body);
}

}  // namespace

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (stream == nullptr || (flags & ~CU_STREAM_NON_BLOCKING) != 0) return CUDA_ERROR_INVALID_VALUE;
  // Where a green context is current, the driver's are non-blocking, whatever is asked for.
  if (current_green() != 0)
    return make_green_stream(e, stream, current_green(), CU_STREAM_NON_BLOCKING, 0);
  const CUresult r = SLUICE_CALL(cuStreamCreate, *e.link, e.context, stream, flags);
  return add_stream(e, r, r == CUDA_SUCCESS ? *stream : nullptr, flags);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (stream == nullptr || (flags & ~CU_STREAM_NON_BLOCKING) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (current_green() != 0)
    return make_green_stream(e, stream, current_green(), CU_STREAM_NON_BLOCKING, priority);
  if (const CUresult bad = clamp_priority(priority); bad != CUDA_SUCCESS) return bad;
  const CUresult r =
      SLUICE_CALL(cuStreamCreateWithPriority, *e.link, e.context, stream, flags, priority);
  return add_stream(e, r, r == CUDA_SUCCESS ? *stream : nullptr, flags);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  const Entered e = enter();
  if (!e) return e.status;
  const StreamInfo* info = state().streams.find(wire(stream));
  if (info == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (info->green != 0 && state().greens.find(info->green) == nullptr)
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const uint64_t context = info->context;
  if (!state().streams.remove(wire(stream))) return CUDA_ERROR_INVALID_HANDLE;
  graphs::end_captures_of_stream(stream);
  forget_attributes(stream);
  return SLUICE_CALL(cuStreamDestroy_v2, *e.link, context, stream);
}

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  if (const auto later = later_priority(stream)) {
    *priority = *later;
    return CUDA_SUCCESS;
  }
  return SLUICE_CALL(cuStreamGetPriority, *e.link, e.context, stream, priority);
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int* flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  const StreamInfo* info = state().streams.find(wire(stream));
  *flags = info != nullptr ? info->flags : unsigned{CU_STREAM_DEFAULT};
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long* stream_id) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (stream_id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  return SLUICE_CALL(cuStreamGetId, *e.link, e.context, stream, stream_id);
}

CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx green, unsigned int flags,
                                int priority) {
  Entered e = enter();
  if (!e) return e.status;
  const GreenInfo* info = state().greens.find(wire(green));
  if (info == nullptr) return no_green(green);
  if (stream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  const graphs::InContext there(wire(green));
  if (there.status != CUDA_SUCCESS) return there.status;
  e.context = info->context;
  return make_green_stream(e, stream, wire(green), flags, priority);
}

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx* green) {
  CUcontext context = nullptr;
  if (const CUresult r = cuStreamGetCtx(stream, &context); r != CUDA_SUCCESS) return r;
  if (green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *green = reinterpret_cast<CUgreenCtx>(green_of(stream));
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* ctx, CUgreenCtx* green) {
  const CUresult r = cuStreamGetCtx(stream, ctx);
  if (r != CUDA_SUCCESS) return r;
  const auto of = reinterpret_cast<CUgreenCtx>(green_of(stream));
  if (green != nullptr) *green = of;
  if (const GreenInfo* info = state().greens.find(wire(of)))
    *ctx = reinterpret_cast<CUcontext>(info->context);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* pctx) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  const uint64_t green = green_of(stream);
  *pctx = reinterpret_cast<CUcontext>(green != 0 ? green : context_of(e, stream));
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
  CUcontext context = nullptr;
  if (const CUresult r = cuStreamGetCtx(stream, &context); r != CUDA_SUCCESS) return r;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto info = state().context(wire(context));
  if (!info) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *device = info->device;
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  if (const CUresult r = graphs::refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = graphs::refuse_unsafe(); r != CUDA_SUCCESS) return r;
  return synchronised(sync_call(e, SLUICE_CALL_SYNCHRONIZE, SLUICE_SYNC_STREAM, wire(stream),
                                context_of(e, stream)));
}

CUresult cuStreamQuery(CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  if (const CUresult r = graphs::refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = graphs::refuse_unsafe(); r != CUDA_SUCCESS) return r;
  return sync_call(e, SLUICE_CALL_QUERY, SLUICE_SYNC_STREAM, wire(stream), context_of(e, stream));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  if (const auto r = wait_for_shared(stream, event)) return *r;
  return stream_event(SLUICE_CALL_STREAM_WAIT, stream, event, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags) {
  return stream_value(stream, addr, value, flags, CU_STREAM_MEM_OP_WRITE_VALUE_32);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags) {
  return stream_value(stream, addr, value, flags, CU_STREAM_MEM_OP_WRITE_VALUE_64);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
  return stream_value(stream, addr, value, flags, CU_STREAM_MEM_OP_WAIT_VALUE_32);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
  return stream_value(stream, addr, value, flags, CU_STREAM_MEM_OP_WAIT_VALUE_64);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  const Entered e = enter();
  if (!e) return e.status;
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  std::swap(graphs::thread_capture_mode(), *mode);
  return CUDA_SUCCESS;
}

// ---- events ----

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  constexpr unsigned kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
  if (event == nullptr || (flags & ~kKnown) != 0 ||
      (shared && (flags & CU_EVENT_DISABLE_TIMING) == 0))
    return CUDA_ERROR_INVALID_VALUE;
  // For the host it is an ordinary one.
  const CUresult r = SLUICE_CALL(cuEventCreate, *e.link, e.context, event,
                                 flags & ~unsigned{CU_EVENT_INTERPROCESS});
  if (r != CUDA_SUCCESS) return r;
  const bool kept = state().events.add(wire(*event), [&](EventInfo& info) {
    info.context = e.context;
    info.flags = flags;
    info.mark = {};
  });
  return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuEventDestroy_v2(CUevent event) {
  const Entered e = enter();
  if (!e) return e.status;
  const EventInfo* info = state().events.find(wire(event));
  if (info == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t context = info->context;
  if (!state().events.remove(wire(event))) return CUDA_ERROR_INVALID_HANDLE;
  forget_shared(event);
  return SLUICE_CALL(cuEventDestroy_v2, *e.link, context, event);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  if (const auto r = record_shared(event, stream)) return *r;
  return stream_event(SLUICE_CALL_EVENT_RECORD, stream, event, 0);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  if (const auto r = record_shared(event, stream)) return *r;
  return stream_event(SLUICE_CALL_EVENT_RECORD, stream, event, flags);
}

CUresult cuEventQuery(CUevent event) {
  if (const auto r = query_shared(event)) return *r;
  return event_call(SLUICE_CALL_QUERY, event);
}

CUresult cuEventSynchronize(CUevent event) {
  if (const auto r = synchronize_shared(event)) return *r;
  return synchronised(event_call(SLUICE_CALL_SYNCHRONIZE, event));
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  const Entered e = enter();
  if (!e) return e.status;
  const EventInfo* first = state().events.find(wire(start));
  const EventInfo* last = state().events.find(wire(end));
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (first == nullptr || last == nullptr ||
      ((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING) != 0)
    return CUDA_ERROR_INVALID_HANDLE;
  return SLUICE_CALL(cuEventElapsedTime_v2, *e.link, first->context, milliseconds, start, end);
}

// ---- values, several at a time ----

namespace {

constexpr unsigned kMostBatchOps = 256;  // as CUDA has it

CUresult check_op(const CUstreamBatchMemOpParams& op) {
  if (op.operation == CU_STREAM_MEM_OP_BARRIER) return CUDA_SUCCESS;
  if (op.operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES)
    return static_cast<CUresult>(not_supported("cuStreamBatchMemOp", "flushes of remote writes"));
  const unsigned bytes = graphs::value_bytes(op.operation);
  const bool there = bytes != 0 && op.waitValue.address % bytes == 0 &&
                     state().pointers.find(op.waitValue.address, bytes);
  return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

// All of them, or none: checked before the first is queued.
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* params, unsigned int flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (count > kMostBatchOps || (count != 0 && params == nullptr) || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  for (unsigned i = 0; i < count; ++i)
    if (const CUresult r = check_op(params[i]); r != CUDA_SUCCESS) return r;
  for (unsigned i = 0; i < count; ++i)
    if (const CUresult r = graphs::run_value(params[i], stream); r != CUDA_SUCCESS) return r;
  return CUDA_SUCCESS;
}
CUresult sluice_batch_mem_op_v1(CUstream stream, unsigned int count,
                                CUstreamBatchMemOpParams* params, unsigned int flags) {
  return cuStreamBatchMemOp_v2(stream, count, params, flags);
}
