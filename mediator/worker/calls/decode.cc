// The decoder: from a record's private copy to work in a stream, a job, or an answer.
#include <algorithm>
#include <cstring>

#include "abi/cuda_calls.h"
#include "mediator/base/clock.h"
#include "mediator/worker/calls/generic_calls.h"
#include "mediator/worker/session/session.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {

// A custom call's struct. False: the body is shorter, or longer than padding explains.
template <class T>
bool read_struct(std::span<const std::byte> body, T& to) {
  if (body.size() < sizeof to || body.size() - sizeof to >= SLUICE_RECORD_ALIGN) return false;
  std::memcpy(&to, body.data(), sizeof to);
  return true;
}
// The same with `bytes(to)` bytes behind it.
template <class T>
bool read_struct(std::span<const std::byte> body, T& to, uint32_t T::*bytes,
                 std::span<const std::byte>& tail) {
  if (body.size() < sizeof to) return false;
  std::memcpy(&to, body.data(), sizeof to);
  body = body.subspan(sizeof to);
  if (to.*bytes > body.size() || body.size() - to.*bytes >= SLUICE_RECORD_ALIGN) return false;
  tail = body.first(to.*bytes);
  return true;
}

// More dynamic shared memory than any GPU has; below, the driver says what is too much.
constexpr uint32_t kMaxDynamicShared = 1u << 20;
constexpr uint32_t kMaxLogBytes = 4096;

}  // namespace

void Session::decode(const sluice_record& record, std::span<const std::byte> body) {
  Call call;
  call.call_id = record.call_id;
  call.opcode = record.opcode;
  call.flags = record.flags;
  if (record.flags & ~SLUICE_RECORD_NO_REPLY) violation("unknown flags of a record");
  if (record.call_id == 0 && !(record.flags & SLUICE_RECORD_NO_REPLY))
    violation("a call without an id wants an answer");
  if (record.context != 0) {
    std::lock_guard lock(mutex_);
    call.context = handles_.find<ContextObject>(SLUICE_HANDLE_CONTEXT, record.context);
  }
  const bool no_such_context = record.context != 0 && !call.context;
  const bool device_call = record.opcode < 0x020, of_no_context = is_of_no_context(record.opcode);
  if (const int sticky = sticky_.load(); sticky != 0 && !device_call) {
    // Extents are no business of the GPU; without them the program could not even copy its error.
    if (record.opcode != SLUICE_CALL_EXTENT_ALLOC && record.opcode != SLUICE_CALL_EXTENT_FREE &&
        !of_no_context)
      return answer(call, static_cast<CUresult>(sticky));
  }
  if (no_such_context && !device_call && !of_no_context)
    return answer(call, CUDA_ERROR_INVALID_CONTEXT);
  if (calls::is_custom(record.opcode)) {
    decode_custom(std::move(call), body);
  } else {
    decode_generic(std::move(call), body);
  }
}

void Session::run_generic(const Call& call, std::span<const std::byte> body) {
  thread_local std::vector<std::byte> room(calls::kMaxOutBytes + 256);
  calls::ReplyWriter reply(room);
  CUcontext cu = call.context && !call.context->closed ? call.context->cu : nullptr;
  if (sticky_.load() != 0 && is_of_no_context(call.opcode)) cu = nullptr;
  if (CUresult r = make_current(api_, cu); r != CUDA_SUCCESS) return answer(call, r);
  GenericCalls session{*this, call, body};
  Result<CUresult> status = calls::dispatch_call(session, api_, call.opcode, body, reply);
  if (!status) violation(status.error().message);
  if (*status == kParked) return;
  answer(call, *status, reply.written());
}

void Session::decode_generic(Call call, std::span<const std::byte> body) {
  if (is_quick(call.opcode)) return run_generic(call, body);
  auto job = [this, call, copy = std::vector<std::byte>(body.begin(), body.end())] {
    run_generic(call, copy);
  };
  if (synchronises(call.opcode) && call.context) {
    std::lock_guard lock(mutex_);
    post_after_sync(call.context, std::move(job));
    return after_engine();
  }
  post(std::move(job));
}

void Session::decode_custom(Call call, std::span<const std::byte> body) {
  switch (call.opcode) {
    case SLUICE_CALL_MODULE_LOAD:
      return module_load(std::move(call), body);
    case SLUICE_CALL_FUNCTION_GET:
      return function_get(std::move(call), body);
    case SLUICE_CALL_LAUNCH:
      return launch(std::move(call), body);
    case SLUICE_CALL_COPY:
      return copy(std::move(call), body);
    case SLUICE_CALL_MEMSET:
      return memset(std::move(call), body);
    case SLUICE_CALL_SYNCHRONIZE:
      return synchronize(std::move(call), body);
    case SLUICE_CALL_QUERY:
      return query(std::move(call), body);
    case SLUICE_CALL_EVENT_RECORD:
      return event_record(std::move(call), body);
    case SLUICE_CALL_STREAM_WAIT:
      return stream_wait(std::move(call), body);
    case SLUICE_CALL_STREAM_VALUE:
      return stream_value(std::move(call), body);
    case SLUICE_CALL_HOST_FUNC:
      return host_func(std::move(call), body);
    case SLUICE_CALL_HOST_FUNC_DONE:
      return host_func_done(std::move(call), body);
    case SLUICE_CALL_EXTENT_ALLOC:
      return extent_alloc(std::move(call), body);
    case SLUICE_CALL_EXTENT_FREE:
      return extent_free(std::move(call), body);
  }
  violation("unknown opcode " + std::to_string(call.opcode));
}

void Session::module_load(Call call, std::span<const std::byte> body) {
  sluice_module_load m;
  std::span<const std::byte> text;
  if (!read_struct(body, m, &sluice_module_load::inline_bytes, text)) violation("module_load");
  if (m.log_bytes > kMaxLogBytes) violation("module_load: log");
  if (m.bulk.bytes == 0) {
    return post(
        [this, call, log = m.log_bytes,
         ptx = std::string(reinterpret_cast<const char*>(text.data()), text.size())]() mutable {
          load_module(call, std::move(ptx), log);
        });
  }
  if (m.bulk.bytes > limits_.module_bytes) return answer(call, CUDA_ERROR_OUT_OF_MEMORY);
  {
    std::lock_guard lock(mutex_);
    if (!owns_region(m.bulk.offset, m.bulk.bytes)) violation("module_load: bulk range");
  }
  // Copied in the job: while it is not answered the program keeps the range; if it does not, only
  // its own text is spoilt, and only before the copy.
  post([this, call, log = m.log_bytes, bulk = m.bulk] {
    std::string ptx;
    {
      std::lock_guard lock(mutex_);
      if (!owns_region(bulk.offset, bulk.bytes)) return answer(call, CUDA_ERROR_INVALID_VALUE);
    }
    ptx.assign(reinterpret_cast<const char*>(region_ + bulk.offset), bulk.bytes);
    load_module(call, std::move(ptx), log);
  });
}

void Session::function_get(Call call, std::span<const std::byte> body) {
  sluice_function_get g;
  std::span<const std::byte> text;
  if (!read_struct(body, g, &sluice_function_get::name_bytes, text)) violation("function_get");
  std::string name(reinterpret_cast<const char*>(text.data()), text.size());
  if (name.empty() || name.find('\0') != std::string::npos)
    return answer(call, CUDA_ERROR_NOT_FOUND);
  post([this, call, g, name = std::move(name)] {
    get_function(call, g.module, name, g.flags, g.state_bytes);
  });
}

// A cluster has all three of its sides; the driver knows which sizes there are.
static bool known_flags(uint64_t guest_flags) {
  const auto side = [&](int i) { return SLUICE_LAUNCHED_CLUSTER_DIM(guest_flags, i) != 0; };
  return (guest_flags & 0xffff & ~SLUICE_LAUNCHED_COOPERATIVE) == 0 && side(0) == side(1) &&
         side(1) == side(2);
}

void Session::launch(Call call, std::span<const std::byte> body) {
  sluice_launch l;
  std::span<const std::byte> params;
  if (!read_struct(body, l, &sluice_launch::param_bytes, params)) violation("launch");
  std::lock_guard lock(mutex_);
  auto function = handles_.find<FunctionObject>(SLUICE_HANDLE_FUNCTION, l.function);
  if (!function) return answer(call, CUDA_ERROR_INVALID_HANDLE);
  CUresult error;
  auto stream = find_stream(call, l.stream, &error);
  if (!stream) return answer(call, error);
  const ContextObject& c = *stream->context;
  if (function->module->context != stream->context) return answer(call, CUDA_ERROR_INVALID_CONTEXT);
  if (l.param_bytes != function->param_bytes || !known_flags(l.flags) ||
      l.dynamic_shared_bytes > kMaxDynamicShared) {
    return answer(call, CUDA_ERROR_INVALID_VALUE);
  }
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (l.grid[i] == 0 || l.block[i] == 0 || l.grid[i] > static_cast<uint32_t>(c.max_grid[i]) ||
        l.block[i] > static_cast<uint32_t>(c.max_block[i])) {
      return answer(call, CUDA_ERROR_INVALID_VALUE);
    }
    threads *= l.block[i];
  }
  if (threads > static_cast<uint64_t>(c.max_threads_per_block))
    return answer(call, CUDA_ERROR_INVALID_VALUE);

  auto work = std::make_shared<LaunchWork>();
  work->function = std::move(function);
  std::copy_n(l.grid, 3, work->grid);
  std::copy_n(l.block, 3, work->block);
  work->dynamic_shared = l.dynamic_shared_bytes;
  work->flags = l.flags;
  work->params.assign(params.begin(), params.end());
  work->queued_bytes = &queued_bytes_;
  queued_bytes_ += work->params.size();
  work->ready_ns = monotonic_ns();
  charge_local(*stream, work->function->local_bytes, &work->local);
  streams_.plan(*work, gate_.contended());
  const OpKind kind = work->geometry.evictable ? OpKind::kLaunch : OpKind::kOpaque;
  const uint64_t now = work->ready_ns;
  engine_.submit(stream->id, kind, std::move(work), 0, now);
  after_engine();
  // Queued; what becomes of it shows at the next synchronisation.
  answer(call, CUDA_SUCCESS);
}

void Session::copy(Call call, std::span<const std::byte> body) {
  sluice_copy c;
  if (!read_struct(body, c)) violation("copy");
  if (c.dst_kind > SLUICE_COPY_BULK || c.src_kind > SLUICE_COPY_BULK) violation("copy: kind");
  std::lock_guard lock(mutex_);
  CUresult error;
  auto stream = find_stream(call, c.stream, &error);
  if (!stream) return answer(call, error);
  if (c.width == 0 || c.height == 0) return answer(call, CUDA_SUCCESS);
  if (c.dst_kind == SLUICE_COPY_BULK && c.src_kind == SLUICE_COPY_BULK)
    return answer(call, CUDA_ERROR_INVALID_VALUE);
  auto work = std::make_shared<CopyWork>();
  CUDA_MEMCPY2D& to = work->copy;
  to.WidthInBytes = c.width;
  to.Height = c.height;
  to.srcPitch = c.src_pitch;
  to.dstPitch = c.dst_pitch;
  auto side = [&](uint32_t kind, uint64_t address, uint64_t pitch, bool is_source) {
    const auto span = rows_span(c.width, pitch, c.height);
    if (!span) return false;
    if (kind == SLUICE_COPY_BULK) {
      // What the program can only have made up, since it got its ranges from us.
      if (!owns_region(address, *span)) violation("copy: bulk range");
      if (is_source) {
        to.srcMemoryType = CU_MEMORYTYPE_HOST;
        to.srcHost = region_ + address;
      } else {
        to.dstMemoryType = CU_MEMORYTYPE_HOST;
        to.dstHost = region_ + address;
      }
      return true;
    }
    if (!owns_range(address, *span)) return false;
    if (is_source) {
      to.srcMemoryType = CU_MEMORYTYPE_DEVICE;
      to.srcDevice = address;
    } else {
      to.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      to.dstDevice = address;
    }
    return true;
  };
  if (!side(c.dst_kind, c.dst, c.dst_pitch, false) || !side(c.src_kind, c.src, c.src_pitch, true))
    return answer(call, CUDA_ERROR_INVALID_VALUE);
  const bool wait = c.wait != 0;
  const uint64_t token = wait ? park([this, call](CUresult status) { answer(call, status); }) : 0;
  engine_.submit(stream->id, OpKind::kWork, std::move(work), token, monotonic_ns());
  after_engine();
  if (!wait) answer(call, CUDA_SUCCESS);
}

void Session::memset(Call call, std::span<const std::byte> body) {
  sluice_memset m;
  if (!read_struct(body, m)) violation("memset");
  std::lock_guard lock(mutex_);
  CUresult error;
  auto stream = find_stream(call, m.stream, &error);
  if (!stream) return answer(call, error);
  if (m.element_bytes != 1 && m.element_bytes != 2 && m.element_bytes != 4)
    violation("memset: element");
  if (m.width == 0 || m.height == 0) return answer(call, CUDA_SUCCESS);
  uint64_t row;
  if (__builtin_mul_overflow(m.width, uint64_t{m.element_bytes}, &row) ||
      m.dst % m.element_bytes != 0 || (m.height > 1 && m.pitch % m.element_bytes != 0) ||
      !owns_device_rows(m.dst, row, m.pitch, m.height)) {
    return answer(call, CUDA_ERROR_INVALID_VALUE);
  }
  auto work = std::make_shared<MemsetWork>();
  work->args = m;
  const bool wait = m.wait != 0;
  const uint64_t token = wait ? park([this, call](CUresult status) { answer(call, status); }) : 0;
  engine_.submit(stream->id, OpKind::kWork, std::move(work), token, monotonic_ns());
  after_engine();
  if (!wait) answer(call, CUDA_SUCCESS);
}

void Session::synchronize(Call call, std::span<const std::byte> body) {
  sluice_synchronize s;
  if (!read_struct(body, s)) violation("synchronize");
  std::lock_guard lock(mutex_);
  auto done = [this, call](CUresult status) { answer(call, status); };
  const uint64_t now = monotonic_ns();
  switch (s.what) {
    case SLUICE_SYNC_CONTEXT:
      if (!call.context) return answer(call, CUDA_ERROR_INVALID_CONTEXT);
      engine_.notify_context(call.context->id, park(done), now);
      break;
    case SLUICE_SYNC_STREAM: {
      CUresult error;
      auto stream = find_stream(call, s.handle, &error);
      if (!stream) return answer(call, error);
      engine_.notify_stream(stream->id, park(done), now);
      break;
    }
    case SLUICE_SYNC_EVENT: {
      auto event = handles_.find<EventObject>(SLUICE_HANDLE_EVENT, s.handle);
      if (!event) return answer(call, CUDA_ERROR_INVALID_HANDLE);
      engine_.notify_record(event->latest, park(done));
      break;
    }
    default:
      violation("synchronize: what");
  }
  after_engine();
}

void Session::query(Call call, std::span<const std::byte> body) {
  sluice_synchronize s;
  if (!read_struct(body, s)) violation("query");
  std::lock_guard lock(mutex_);
  engine_.poll(monotonic_ns());
  after_engine();
  if (const int sticky = sticky_.load()) return answer(call, static_cast<CUresult>(sticky));
  switch (s.what) {
    case SLUICE_SYNC_STREAM: {
      CUresult error;
      auto stream = find_stream(call, s.handle, &error);
      if (!stream) return answer(call, error);
      return answer(call, engine_.idle(stream->id) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
    }
    case SLUICE_SYNC_EVENT: {
      auto event = handles_.find<EventObject>(SLUICE_HANDLE_EVENT, s.handle);
      if (!event) return answer(call, CUDA_ERROR_INVALID_HANDLE);
      return answer(
          call, !event->latest || event->latest->complete ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
    }
    default:
      violation("query: what");
  }
}

void Session::event_record(Call call, std::span<const std::byte> body) {
  sluice_stream_event e;
  if (!read_struct(body, e)) violation("event_record");
  std::lock_guard lock(mutex_);
  auto event = handles_.find<EventObject>(SLUICE_HANDLE_EVENT, e.event);
  CUresult error;
  auto stream = find_stream(call, e.stream, &error);
  if (!stream) return answer(call, error);
  if (!event || event->context != stream->context) return answer(call, CUDA_ERROR_INVALID_HANDLE);
  if (e.flags & ~uint64_t{CU_EVENT_RECORD_EXTERNAL}) return answer(call, CUDA_ERROR_INVALID_VALUE);
  auto work = std::make_shared<RecordWork>();
  work->event = event;
  event->latest = engine_.submit_record(stream->id, std::move(work), monotonic_ns());
  after_engine();
  answer(call, CUDA_SUCCESS);
}

void Session::stream_wait(Call call, std::span<const std::byte> body) {
  sluice_stream_event e;
  if (!read_struct(body, e)) violation("stream_wait");
  std::lock_guard lock(mutex_);
  auto event = handles_.find<EventObject>(SLUICE_HANDLE_EVENT, e.event);
  CUresult error;
  auto stream = find_stream(call, e.stream, &error);
  if (!stream) return answer(call, error);
  if (!event) return answer(call, CUDA_ERROR_INVALID_HANDLE);
  if (e.flags & ~uint64_t{CU_EVENT_WAIT_EXTERNAL}) return answer(call, CUDA_ERROR_INVALID_VALUE);
  engine_.submit_wait(stream->id, event->latest, monotonic_ns());
  after_engine();
  answer(call, CUDA_SUCCESS);
}

void Session::stream_value(Call call, std::span<const std::byte> body) {
  sluice_stream_value v;
  if (!read_struct(body, v)) violation("stream_value");
  std::lock_guard lock(mutex_);
  CUresult error;
  auto stream = find_stream(call, v.stream, &error);
  if (!stream) return answer(call, error);
  if (v.address % 4 != 0 || !owns_range(v.address, 4))
    return answer(call, CUDA_ERROR_INVALID_VALUE);
  auto work = std::make_shared<ValueWork>();
  work->address = v.address;
  work->value = v.value;
  work->flags = v.flags;
  work->is_wait = v.is_wait != 0;
  const OpKind kind = work->is_wait ? OpKind::kValueWait : OpKind::kWork;
  engine_.submit(stream->id, kind, std::move(work), 0, monotonic_ns());
  after_engine();
  answer(call, CUDA_SUCCESS);
}

void Session::host_func(Call call, std::span<const std::byte> body) {
  sluice_synchronize s;
  if (!read_struct(body, s)) violation("host_func");
  if (call.call_id == 0 || (call.flags & SLUICE_RECORD_NO_REPLY))
    violation("host_func without an answer");
  std::lock_guard lock(mutex_);
  CUresult error;
  auto stream = find_stream(call, s.handle, &error);
  if (!stream) return answer(call, error);
  if (host_funcs_.count(call.call_id)) violation("host_func: call id in use");
  const uint64_t token = park([this, call](CUresult status) {
    if (status != CUDA_SUCCESS) host_funcs_.erase(call.call_id);
    answer(call, status);
  });
  host_funcs_[call.call_id] = token;
  engine_.submit(stream->id, OpKind::kHostFunc, nullptr, token, monotonic_ns());
  after_engine();
}

void Session::host_func_done(Call call, std::span<const std::byte> body) {
  uint64_t id;
  if (!read_struct(body, id)) violation("host_func_done");
  std::lock_guard lock(mutex_);
  auto it = host_funcs_.find(id);
  if (it == host_funcs_.end() || !engine_.host_func_done(it->second, monotonic_ns()))
    return answer(call, CUDA_ERROR_INVALID_VALUE);
  host_funcs_.erase(id);
  after_engine();
  answer(call, CUDA_SUCCESS);
}

void Session::extent_alloc(Call call, std::span<const std::byte> body) {
  sluice_extent e;
  if (!read_struct(body, e)) violation("extent_alloc");
  if (e.bytes == 0) return answer(call, CUDA_ERROR_INVALID_VALUE);
  if (e.bytes > p_.start.region_bytes || sluiced_gone_)
    return answer(call, CUDA_ERROR_OUT_OF_MEMORY);
  std::lock_guard lock(mutex_);
  if (extent_waiters_.size() >= limits_.parked_calls) violation("extent_alloc: too many");
  const uint64_t request = next_request_++;
  extent_waiters_[request] = call;
  wp::Message m{};
  m.type = wp::Type::kExtentRequest;
  m.request = request;
  m.bytes = (e.bytes + SLUICE_EXTENT_BYTES - 1) / SLUICE_EXTENT_BYTES * SLUICE_EXTENT_BYTES;
  send(m);
}

void Session::extent_free(Call call, std::span<const std::byte> body) {
  sluice_bulk b;
  if (!read_struct(body, b)) violation("extent_free");
  std::lock_guard lock(mutex_);
  auto it = extents_.find(b.offset);
  // The staging extents are the session's as long as it lives.
  if (it == extents_.end() || it->second != b.bytes || b.offset == p_.start.staging_offset)
    return answer(call, CUDA_ERROR_INVALID_VALUE);
  extents_.erase(it);  // no copy may name it from here on
  post_after_sync_all([this, call, b] {
    bool pinned;
    std::shared_ptr<ContextObject> context;
    {
      std::lock_guard relock(mutex_);
      pinned = registered_.erase(b.offset) != 0;
      handles_.for_each(SLUICE_HANDLE_CONTEXT, [&](uint64_t, const auto& object) {
        context = std::static_pointer_cast<ContextObject>(object);
      });
    }
    if (pinned && context && make_current(api_, context->cu) == CUDA_SUCCESS)
      (void)api_.cuMemHostUnregister(region_ + b.offset);
    wp::Message m{};
    m.type = wp::Type::kExtentReturn;
    m.offset = b.offset;
    m.bytes = b.bytes;
    send(m);
    answer(call, CUDA_SUCCESS);
  });
  after_engine();
}

}  // namespace sluice::worker
