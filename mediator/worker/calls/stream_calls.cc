// SPDX-License-Identifier: Apache-2.0
// Custom calls that queue work in a stream, or wait for it.
#include <algorithm>

#include "mediator/base/clock.h"
#include "mediator/worker/calls/custom_calls.h"

namespace sluice::worker {

namespace {
// More dynamic shared memory than any GPU has; below, the driver says what is too much.
constexpr uint32_t kMaxDynamicShared = 1u << 20;

// A cluster has all three of its sides; the driver knows which sizes there are.
bool known_flags(uint64_t guest_flags) {
  constexpr uint64_t kPlain = SLUICE_LAUNCHED_COOPERATIVE | SLUICE_LAUNCHED_AT_ONCE;
  const auto side = [&](int i) { return SLUICE_LAUNCHED_CLUSTER_DIM(guest_flags, i) != 0; };
  return (guest_flags & 0xffff & ~kPlain) == 0 && side(0) == side(1) && side(1) == side(2);
}

// What the driver would say of a launch; nothing is queued.
CUresult ask_for_clusters(const gpu::DriverApi& api, CUfunction function, const sluice_clusters& c,
                          int* to) {
  CUlaunchAttribute attribute{};
  CUlaunchConfig config{};
  config.gridDimX = c.grid[0];
  config.gridDimY = c.grid[1];
  config.gridDimZ = c.grid[2];
  config.blockDimX = c.block[0];
  config.blockDimY = c.block[1];
  config.blockDimZ = c.block[2];
  config.sharedMemBytes = c.dynamic_shared_bytes;
  config.attrs = &attribute;
  if (SLUICE_LAUNCHED_CLUSTER_DIM(c.flags, 0) != 0) {
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {SLUICE_LAUNCHED_CLUSTER_DIM(c.flags, 0),
                                  SLUICE_LAUNCHED_CLUSTER_DIM(c.flags, 1),
                                  SLUICE_LAUNCHED_CLUSTER_DIM(c.flags, 2)};
    config.numAttrs = 1;
  }
  return c.what == SLUICE_CLUSTERS_SIZE
             ? api.cuOccupancyMaxPotentialClusterSize(to, function, &config)
             : api.cuOccupancyMaxActiveClusters(to, function, &config);
}

}  // namespace

void handle_clusters(WorkerSession& s, const Call& call, const sluice_clusters& c,
                     std::span<const std::byte>) {
  std::shared_ptr<FunctionObject> function;
  {
    std::lock_guard lock(s.mutex);
    function = s.handles.find<FunctionObject>(SLUICE_HANDLE_FUNCTION, c.function);
  }
  if (!function) return s.answer(call, CUDA_ERROR_INVALID_HANDLE);
  const ContextObject& context = *function->module->context;
  if (function->module->context != call.context || context.closed)
    return s.answer(call, CUDA_ERROR_INVALID_CONTEXT);
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (c.grid[i] == 0 || c.block[i] == 0 ||
        c.grid[i] > static_cast<uint32_t>(context.shape.max_grid[i]) ||
        c.block[i] > static_cast<uint32_t>(context.shape.max_block[i]))
      return s.answer(call, CUDA_ERROR_INVALID_VALUE);
    threads *= c.block[i];
  }
  if (threads > static_cast<uint64_t>(context.shape.max_threads_per_block) ||
      !known_flags(c.flags) || (c.flags & 0xffff) != 0 ||
      c.dynamic_shared_bytes > kMaxDynamicShared || c.what > SLUICE_CLUSTERS_SIZE)
    return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  CUresult r = make_current(s.api, context.cu);
  int number = 0;
  if (r == CUDA_SUCCESS) r = ask_for_clusters(s.api, function->original, c, &number);
  if (r != CUDA_SUCCESS) return s.answer(call, r);
  const int32_t reply[2] = {number, 0};
  s.answer(call, CUDA_SUCCESS, std::as_bytes(std::span(reply)));
}

void handle_launch(WorkerSession& s, const Call& call, const sluice_launch& l,
                   std::span<const std::byte> params) {
  std::lock_guard lock(s.mutex);
  auto function = s.handles.find<FunctionObject>(SLUICE_HANDLE_FUNCTION, l.function);
  if (!function) return s.answer(call, CUDA_ERROR_INVALID_HANDLE);
  CUresult error;
  auto stream = s.find_stream(call, l.stream, &error);
  if (!stream) return s.answer(call, error);
  const ContextObject& c = *stream->context;
  if (function->module->context != stream->context)
    return s.answer(call, CUDA_ERROR_INVALID_CONTEXT);
  if (l.param_bytes != function->param_bytes || !known_flags(l.flags) ||
      l.dynamic_shared_bytes > kMaxDynamicShared) {
    return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  }
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (l.grid[i] == 0 || l.block[i] == 0 ||
        l.grid[i] > static_cast<uint32_t>(c.shape.max_grid[i]) ||
        l.block[i] > static_cast<uint32_t>(c.shape.max_block[i])) {
      return s.answer(call, CUDA_ERROR_INVALID_VALUE);
    }
    threads *= l.block[i];
  }
  if (threads > static_cast<uint64_t>(c.shape.max_threads_per_block))
    return s.answer(call, CUDA_ERROR_INVALID_VALUE);

  LaunchRequest asked;
  asked.function = std::move(function);
  std::copy_n(l.grid, 3, asked.grid);
  std::copy_n(l.block, 3, asked.block);
  asked.dynamic_shared = l.dynamic_shared_bytes;
  asked.flags = l.flags;
  asked.params.assign(params);
  if (asked.function->clone) asked.input_bytes = s.memory.bytes_behind(params);
  asked.ready_ns = monotonic_ns();
  auto work = std::make_shared<LaunchWork>(std::move(asked));
  work->queued_bytes = &s.work.queued.bytes;
  s.work.queued.bytes += work->request.params.size();
  s.charge_local(*stream, work->request.function->local_bytes, &work->local);
  s.work.streams.planner().plan(*work, s.work.gate.contended());
  if (s.work.streams.planner().wants_clones(*work)) s.slot.want_clones(l.function);
  const OpKind kind = work->plan.geometry.evictable ? OpKind::kLaunch : OpKind::kOpaque;
  const uint64_t now = work->request.ready_ns;
  s.work.engine.submit(stream->id, kind, std::move(work), 0, now);
  s.after_engine();
  // Queued; what becomes of it shows at the next synchronisation.
  s.answer(call, CUDA_SUCCESS);
}

void handle_copy(WorkerSession& s, const Call& call, const sluice_copy& c,
                 std::span<const std::byte> tail) {
  if (c.dst_kind > SLUICE_COPY_BULK || c.src_kind > SLUICE_COPY_BULK) s.violation("copy: kind");
  std::lock_guard lock(s.mutex);
  CUresult error;
  auto stream = s.find_stream(call, c.stream, &error);
  if (!stream) return s.answer(call, error);
  if (c.width == 0 || c.height == 0) return s.answer(call, CUDA_SUCCESS);
  if (c.dst_kind == SLUICE_COPY_BULK && c.src_kind == SLUICE_COPY_BULK)
    return s.answer(call, CUDA_ERROR_INVALID_VALUE);
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
      if (!s.memory.owns_region(address, *span)) s.violation("copy: bulk range");
      if (is_source) {
        to.srcMemoryType = CU_MEMORYTYPE_HOST;
        to.srcHost = s.setup.region + address;
      } else {
        to.dstMemoryType = CU_MEMORYTYPE_HOST;
        to.dstHost = s.setup.region + address;
      }
      return true;
    }
    if (!s.memory.owns_range(address, *span)) return false;
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
    return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  s.submit_work(call, *stream, std::move(work), c.wait != 0);
}

void handle_memset(WorkerSession& s, const Call& call, const sluice_memset& m,
                   std::span<const std::byte> tail) {
  std::lock_guard lock(s.mutex);
  CUresult error;
  auto stream = s.find_stream(call, m.stream, &error);
  if (!stream) return s.answer(call, error);
  if (m.element_bytes != 1 && m.element_bytes != 2 && m.element_bytes != 4)
    s.violation("memset: element");
  if (m.width == 0 || m.height == 0) return s.answer(call, CUDA_SUCCESS);
  uint64_t row;
  if (__builtin_mul_overflow(m.width, uint64_t{m.element_bytes}, &row) ||
      m.dst % m.element_bytes != 0 || (m.height > 1 && m.pitch % m.element_bytes != 0) ||
      !s.memory.owns_rows(m.dst, row, m.pitch, m.height)) {
    return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  }
  auto work = std::make_shared<MemsetWork>();
  work->args = m;
  s.submit_work(call, *stream, std::move(work), m.wait != 0);
}

void handle_synchronize(WorkerSession& s, const Call& call, const sluice_synchronize& request,
                        std::span<const std::byte> tail) {
  std::lock_guard lock(s.mutex);
  auto done = [&s, call](CUresult status) { s.answer(call, status); };
  const uint64_t now = monotonic_ns();
  const uint32_t guest_word = request.end_word;
  const uint64_t word_at = guest_word != 0 ? s.end_word() : 0;
  switch (request.what) {
    case SLUICE_SYNC_CONTEXT:
      if (!call.context) return s.answer(call, CUDA_ERROR_INVALID_CONTEXT);
      if (word_at != 0 &&
          s.work.engine.write_end_word_of_context(call.context->id, word_at, guest_word, now))
        s.decoder.expect_word(guest_word);
      s.work.engine.notify_context(call.context->id, s.work.waiting.add(done), now);
      break;
    case SLUICE_SYNC_STREAM: {
      CUresult error;
      auto stream = s.find_stream(call, request.handle, &error);
      if (!stream) return s.answer(call, error);
      if (word_at != 0 && s.work.engine.write_end_word(stream->id, word_at, guest_word, now))
        s.decoder.expect_word(guest_word);
      s.work.engine.notify_stream(stream->id, s.work.waiting.add(done), now);
      break;
    }
    case SLUICE_SYNC_EVENT: {
      auto event = s.handles.find<EventObject>(SLUICE_HANDLE_EVENT, request.handle);
      if (!event) return s.answer(call, CUDA_ERROR_INVALID_HANDLE);
      s.work.engine.notify_record(event->latest, s.work.waiting.add(done));
      break;
    }
    default:
      s.violation("synchronize: what");
  }
  s.after_engine();
}

void handle_query(WorkerSession& s, const Call& call, const sluice_synchronize& request,
                  std::span<const std::byte> tail) {
  std::lock_guard lock(s.mutex);
  s.work.engine.poll(monotonic_ns());
  s.after_engine();
  if (const int sticky = s.sticky.load()) return s.answer(call, static_cast<CUresult>(sticky));
  switch (request.what) {
    case SLUICE_SYNC_STREAM: {
      CUresult error;
      auto stream = s.find_stream(call, request.handle, &error);
      if (!stream) return s.answer(call, error);
      return s.answer(call, s.work.engine.idle(stream->id) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
    }
    case SLUICE_SYNC_EVENT: {
      auto event = s.handles.find<EventObject>(SLUICE_HANDLE_EVENT, request.handle);
      if (!event) return s.answer(call, CUDA_ERROR_INVALID_HANDLE);
      return s.answer(
          call, !event->latest || event->latest->complete ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
    }
    default:
      s.violation("query: what");
  }
}

void handle_event_record(WorkerSession& s, const Call& call, const sluice_stream_event& e,
                         std::span<const std::byte> tail) {
  std::lock_guard lock(s.mutex);
  auto event = s.handles.find<EventObject>(SLUICE_HANDLE_EVENT, e.event);
  CUresult error;
  auto stream = s.find_stream(call, e.stream, &error);
  if (!stream) return s.answer(call, error);
  if (!event || event->context != stream->context) return s.answer(call, CUDA_ERROR_INVALID_HANDLE);
  if (e.flags & ~uint64_t{CU_EVENT_RECORD_EXTERNAL})
    return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  auto work = std::make_shared<RecordWork>();
  work->event = event;
  event->latest = s.work.engine.submit_record(stream->id, std::move(work), monotonic_ns());
  s.after_engine();
  s.answer(call, CUDA_SUCCESS);
}

void handle_stream_wait(WorkerSession& s, const Call& call, const sluice_stream_event& e,
                        std::span<const std::byte> tail) {
  std::lock_guard lock(s.mutex);
  auto event = s.handles.find<EventObject>(SLUICE_HANDLE_EVENT, e.event);
  CUresult error;
  auto stream = s.find_stream(call, e.stream, &error);
  if (!stream) return s.answer(call, error);
  if (!event) return s.answer(call, CUDA_ERROR_INVALID_HANDLE);
  if (e.flags & ~uint64_t{CU_EVENT_WAIT_EXTERNAL}) return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  s.work.engine.submit_wait(stream->id, event->latest, monotonic_ns());
  s.after_engine();
  s.answer(call, CUDA_SUCCESS);
}

namespace {

template <class Value>
void queue_value(WorkerSession& s, const Call& call, const Value& v) {
  constexpr unsigned kBytes = sizeof v.value;
  std::lock_guard lock(s.mutex);
  CUresult error;
  auto stream = s.find_stream(call, v.stream, &error);
  if (!stream) return s.answer(call, error);
  if (v.address % kBytes != 0 || !s.memory.owns_range(v.address, kBytes))
    return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  auto work = std::make_shared<ValueWork>();
  work->address = v.address;
  work->value = v.value;
  work->value_bytes = kBytes;
  work->flags = v.flags;
  work->is_wait = v.is_wait != 0;
  const OpKind kind = work->is_wait ? OpKind::kValueWait : OpKind::kWork;
  s.work.engine.submit(stream->id, kind, std::move(work), 0, monotonic_ns());
  s.after_engine();
  s.answer(call, CUDA_SUCCESS);
}

}  // namespace

void handle_stream_value(WorkerSession& s, const Call& call, const sluice_stream_value& v,
                         std::span<const std::byte> tail) {
  queue_value(s, call, v);
}

void handle_stream_value64(WorkerSession& s, const Call& call, const sluice_stream_value64& v,
                           std::span<const std::byte> tail) {
  queue_value(s, call, v);
}

void handle_host_func(WorkerSession& s, const Call& call, const sluice_synchronize& request,
                      std::span<const std::byte> tail) {
  if (call.call_id == 0 || (call.flags & SLUICE_RECORD_NO_REPLY))
    s.violation("host_func without an answer");
  std::lock_guard lock(s.mutex);
  CUresult error;
  auto stream = s.find_stream(call, request.handle, &error);
  if (!stream) return s.answer(call, error);
  if (s.work.waiting.has_host_function(call.call_id)) s.violation("host_func: call id in use");
  const uint64_t token = s.work.waiting.add([&s, call](CUresult status) {
    if (status != CUDA_SUCCESS) s.work.waiting.remove_host_function(call.call_id);
    s.answer(call, status);
  });
  s.work.waiting.add_host_function(call.call_id, token);
  s.work.engine.submit(stream->id, OpKind::kHostFunc, nullptr, token, monotonic_ns());
  s.after_engine();
}

void handle_host_func_done(WorkerSession& s, const Call& call, const uint64_t& id,
                           std::span<const std::byte> tail) {
  std::lock_guard lock(s.mutex);
  const std::optional<uint64_t> token = s.work.waiting.host_function(id);
  if (!token || !s.work.engine.host_func_done(*token, monotonic_ns()))
    return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  s.work.waiting.remove_host_function(id);
  s.after_engine();
  s.answer(call, CUDA_SUCCESS);
}

}  // namespace sluice::worker
