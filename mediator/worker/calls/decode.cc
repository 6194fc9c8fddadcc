// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/calls/decode.h"

#include <cstring>
#include <type_traits>
#include <vector>

#include "abi/cuda_calls.h"
#include "mediator/worker/calls/custom_calls.h"
#include "mediator/worker/calls/generic_calls.h"

namespace sluice::worker {

namespace {

using Bytes = std::span<const std::byte>;

// A custom call's struct, and as many bytes behind it as its field `bytes_behind` says. False: the
// body is shorter, or longer than padding explains.
template <class Request, class Tail>
bool read_request(Bytes body, Request& to, Tail bytes_behind, Bytes& tail) {
  if (body.size() < sizeof to) return false;
  std::memcpy(&to, body.data(), sizeof to);
  body = body.subspan(sizeof to);
  size_t bytes = 0;
  if constexpr (!std::is_null_pointer_v<Tail>) bytes = to.*bytes_behind;
  if (bytes > body.size() || body.size() - bytes >= SLUICE_RECORD_ALIGN) return false;
  tail = body.first(bytes);
  return true;
}

void decode_custom(WorkerSession& s, const Call& call, Bytes body) {
  using calls::kNoTail;
  switch (call.opcode) {
#define SLUICE_CALL_HANDLER(opcode, name, Request, bytes_behind)                         \
  case opcode: {                                                                         \
    Request request;                                                                     \
    Bytes tail;                                                                          \
    if (!read_request(body, request, bytes_behind, tail)) s.violation("record: " #name); \
    return handle_##name(s, call, request, tail);                                        \
  }
    SLUICE_CUSTOM_CALLS(SLUICE_CALL_HANDLER)
#undef SLUICE_CALL_HANDLER
  }
}

// cuTexObjectCreate of a libcuda from before a texture could have a view, which was its last
// argument: none is sent as zeros.
constexpr uint16_t kTextureWithoutView = 0x0b2;

void decode_generic(WorkerSession& s, Call call, Bytes body) {
  std::vector<std::byte> longer;
  if (call.opcode == kTextureWithoutView) {
    call.opcode = calls::kOpcode_cuTexObjectCreate;
    longer.assign(body.begin(), body.end());
    longer.resize(body.size() + 1 + sizeof(CUDA_RESOURCE_VIEW_DESC));
    body = longer;
  }
  const calls::Status when = calls::call_status(call.opcode);
  if (when == calls::Status::kAtOnce) return run_generic(s, call, body);
  auto job = generic_job(s, call, body);
  if (when == calls::Status::kAfterWork && call.context) {
    std::lock_guard lock(s.mutex);
    s.post_after_sync(call.context, std::move(job));
    return s.after_engine();
  }
  s.jobs.post(std::move(job));
}

// What is answered after a fault as before: devices; virtual memory; and extents, without which the
// program could not even copy its error.
bool works_after_fault(uint16_t opcode) {
  return calls::is_device_call(opcode) || calls::is_virtual_memory_call(opcode) ||
         opcode == SLUICE_CALL_EXTENT_ALLOC || opcode == SLUICE_CALL_EXTENT_FREE;
}

}  // namespace

void decode(WorkerSession& s, const sluice_record& record, Bytes body) {
  Call call;
  call.call_id = record.call_id;
  call.opcode = record.opcode;
  call.flags = record.flags;
  if (record.flags & ~SLUICE_RECORD_NO_REPLY) s.violation("unknown flags of a record");
  if (record.call_id == 0 && !(record.flags & SLUICE_RECORD_NO_REPLY))
    s.violation("a call without an id wants an answer");
  if (record.context != 0) {
    std::lock_guard lock(s.mutex);
    call.green = s.handles.find<GreenObject>(SLUICE_HANDLE_GREEN, record.context);
    call.context = call.green
                       ? call.green->context
                       : s.handles.find<ContextObject>(SLUICE_HANDLE_CONTEXT, record.context);
  }
  if (const int sticky = s.sticky.load(); sticky != 0 && !works_after_fault(call.opcode))
    return s.answer(call, static_cast<CUresult>(sticky));
  // Of a later libcuda than this worker. Its program has to know, or its order would be lost.
  if (!calls::is_call(call.opcode) && call.opcode != kTextureWithoutView) {
    if (call.flags & SLUICE_RECORD_NO_REPLY)
      s.violation("unknown opcode " + std::to_string(call.opcode) + " without an answer");
    return s.answer(call, CUDA_ERROR_NOT_SUPPORTED);
  }
  const bool no_such_context = record.context != 0 && !call.context;
  if (no_such_context && !calls::is_device_call(call.opcode) &&
      !calls::is_virtual_memory_call(call.opcode)) {
    return s.answer(call, CUDA_ERROR_INVALID_CONTEXT);
  }
  if (calls::is_custom(call.opcode)) return decode_custom(s, call, body);
  decode_generic(s, call, body);
}

std::function<void()> generic_job(WorkerSession& s, Call call, Bytes body) {
  call.is_job = true;
  return [&s, call = std::move(call), kept = std::make_shared<KeptBody>(s.work.queued, body)] {
    run_generic(s, call, kept->bytes());
  };
}

void run_generic(WorkerSession& s, const Call& call, Bytes body) {
  thread_local std::vector<std::byte> room(calls::kMaxOutBytes + 256);
  calls::ReplyWriter reply(room);
  CUcontext cu = call.context && !call.context->closed ? call.context->cu : nullptr;
  if (s.sticky.load() != 0 && calls::is_virtual_memory_call(call.opcode)) cu = nullptr;
  if (CUresult r = make_current(s.api, cu); r != CUDA_SUCCESS) return s.answer(call, r);
  GenericCalls generic{s, call, body};
  const Result<CUresult> status = calls::dispatch_call(generic, s.api, call.opcode, body, reply);
  if (!status) s.violation(status.error().message);
  if (*status == kParked) return;
  s.answer(call, *status, reply.written());
}

}  // namespace sluice::worker
