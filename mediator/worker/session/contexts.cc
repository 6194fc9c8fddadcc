// SPDX-License-Identifier: Apache-2.0
// Contexts and streams of a session, and what the driver has pinned for it.
#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/worker/launch/sms/green_contexts.h"
#include "mediator/worker/limits.h"
#include "mediator/worker/session/worker_session.h"

namespace sluice::worker {

std::shared_ptr<ContextObject> WorkerSession::any_context() const {
  std::shared_ptr<ContextObject> any;
  handles.for_each(SLUICE_HANDLE_CONTEXT, [&](uint64_t, const auto& object) {
    any = std::static_pointer_cast<ContextObject>(object);
  });
  return any;
}

void WorkerSession::pin_extent(uint64_t offset, uint64_t bytes) {
  if (pinned.has_extent(offset)) return;
  std::shared_ptr<ContextObject> context;
  {
    std::lock_guard lock(mutex);
    context = any_context();
  }
  if (!context || make_current(api, context->cu) != CUDA_SUCCESS) return;
  pinned.pin_extent(offset, bytes);
}

std::shared_ptr<StreamObject> WorkerSession::make_stream(
    const std::shared_ptr<ContextObject>& context, StreamKind kind, unsigned guest_flags,
    int priority, CUresult* result, const std::shared_ptr<GreenObject>& green) {
  auto stream = std::make_shared<StreamObject>();
  stream->context = context;
  stream->guest_flags = guest_flags;
  // Where turns are priorities a guest has none of its own: above what a neighbour has left at the
  // same level it would keep that from ending, although that came first.
  if (setup.start.turns_by_priority != 0) priority = 0;
  stream->priority = priority;
  // Always non-blocking in the driver: the engine keeps CUDA's order with the legacy stream,
  // because only it knows which launches are done.
  stream->of = green;
  // Where SMs are shared a launch is kept to its vGPU's, of which those may be none.
  if (green && setup.start.spatial_sms == 0) stream->green = green->cu;
  *result = work.streams.make_lane(*stream);
  if (*result != CUDA_SUCCESS) return nullptr;
  std::lock_guard lock(mutex);
  stream->id = work.engine.add_stream(context->id, kind);
  work.streams.add(stream->id, stream);
  return stream;
}

namespace {

// What the device and the new context, which is current, are like.
CUresult ask_device(const gpu::DriverApi& api, ContextObject* c) {
  int threads_per_sm = 0;
  const std::pair<CUdevice_attribute, int*> attributes[] = {
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &c->shape.multiprocessors},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &threads_per_sm},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &c->shape.clock_khz},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &c->shape.max_threads_per_block},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &c->shape.max_block[0]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &c->shape.max_block[1]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &c->shape.max_block[2]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &c->shape.max_grid[0]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &c->shape.max_grid[1]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &c->shape.max_grid[2]}};
  for (auto [attribute, to] : attributes) {
    const CUresult r = api.cuDeviceGetAttribute(to, attribute, c->device);
    if (r != CUDA_SUCCESS) return r;
  }
  c->shape.threads_at_once =
      static_cast<uint64_t>(c->shape.multiprocessors) * static_cast<uint64_t>(threads_per_sm);
  for (CUlimit limit :
       {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE}) {
    size_t value = 0;
    if (api.cuCtxGetLimit(&value, limit) == CUDA_SUCCESS) c->charged.limits[limit] = {value, 0};
  }
  return CUDA_SUCCESS;
}

// What launches in the new context, which is current, take their memory from.
CUresult make_pools(WorkerSession& s, ContextObject* c, std::function<bool(uint64_t)> pay) {
  CUresult r = s.api.cuStreamCreate(&c->transfers, CU_STREAM_NON_BLOCKING);
  if (r != CUDA_SUCCESS) return r;
  c->pools.controls = std::make_unique<ControlPool>(s.api, c->transfers, s.pinned.zeros());
  if ((r = c->pools.controls->prepare(4)) != CUDA_SUCCESS) return r;
  c->pools.states = std::make_unique<StatePool>(s.api, std::move(pay));
  constexpr uint32_t kBlocksPerSm = 32;  // the most that any GPU up to compute capability 12 holds
  const worker_protocol::Start& start = s.setup.start;
  const uint32_t over_launched = start.spatial_sms ? 4 : 2;  // of two grids
  c->pools.lefts = std::make_unique<LeftPool>(
      s.api, c->transfers, s.pinned.zeros(), ControlPool::kPageBytes,
      over_launched * kBlocksPerSm * static_cast<uint32_t>(c->shape.multiprocessors));
  if (start.spatial_sms != 0 && start.green_contexts != 0 && c->primary)
    c->pools.greens = std::make_shared<GreenContexts>(
        s.api, c->device, c->transfers, start.spatial_sms, s.work.streams.confinement().green);
  SmSet barred;
  CUdeviceptr first = 0;  // so that the first launches need not wait
  if ((r = c->pools.lefts->take(&first, &barred)) != CUDA_SUCCESS) return r;
  c->pools.lefts->give_back(first, barred);
  return CUDA_SUCCESS;
}

}  // namespace

// With `mutex` held: gives the context its handle, or takes back what was made for it.
CUresult WorkerSession::enter_context(const std::shared_ptr<ContextObject>& c, CUresult r) {
  if (r == CUDA_SUCCESS) c->handle = handles.add(SLUICE_HANDLE_CONTEXT, c);
  if (r == CUDA_SUCCESS && c->handle == 0) r = CUDA_ERROR_OUT_OF_MEMORY;
  if (r == CUDA_SUCCESS) {
    ++contexts.open;
    return r;
  }
  if (c->legacy) work.engine.remove_stream(c->legacy->id);
  if (c->per_thread) work.engine.remove_stream(c->per_thread->id);
  c->legacy = c->per_thread = nullptr;
  work.streams.forget(*c);
  c->pools.controls->abandon();
  return r;
}

CUresult WorkerSession::open_context(CUcontext cu, CUdevice device, bool primary,
                                     std::shared_ptr<ContextObject>* out) {
  auto c = std::make_shared<ContextObject>();
  c->cu = cu;
  c->device = device;
  c->primary = primary;
  c->id = contexts.next_id++;
  CUresult r = make_current(api, cu);
  if (r == CUDA_SUCCESS) r = ask_device(api, c.get());
  if (r != CUDA_SUCCESS) return r;
  if (setup.start.spatial_sms != 0 &&
      static_cast<uint32_t>(c->shape.multiprocessors) != setup.start.spatial_sms) {
    end(CUDA_ERROR_INVALID_DEVICE,
        "the host shares its GPU by SMs (scheduler.spatial) and takes it to have " +
            std::to_string(setup.start.spatial_sms) + "; it has " +
            std::to_string(c->shape.multiprocessors) +
            ": device.soft_sms or device.nvidia_sms in its sluice.toml is wrong",
        false);
  }
  if ((r = pinned.pin_pages(*c)) != CUDA_SUCCESS) return r;
  // Whatever fails from here on, no eviction is brought to a context that is gone.
  struct Forwarding {
    EvictForwarder& forwarder;
    CUcontext cu;
    bool stays = false;
    ~Forwarding() {
      if (!stays) forwarder.close(cu);
    }
  } forwarding{engine_thread.forwarder, cu};
  if ((r = engine_thread.forwarder.open(cu, &c->evict_word)) != CUDA_SUCCESS) return r;
  r = make_pools(*this, c.get(), [this, paying = c.get()](uint64_t bytes) {
    return charges.pay_pool(*paying, bytes);
  });
  if (r != CUDA_SUCCESS) return r;
  c->legacy = make_stream(c, StreamKind::kLegacy, CU_STREAM_DEFAULT, 0, &r);
  if (r == CUDA_SUCCESS) c->per_thread = make_stream(c, StreamKind::kBlocking, 0, 0, &r);
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  {
    std::lock_guard lock(mutex);
    if ((r = enter_context(c, r)) != CUDA_SUCCESS) return r;
    forwarding.stays = true;
    ranges = memory.extents();
  }
  for (auto [offset, bytes] : ranges) pin_extent(offset, bytes);
  *out = c;
  return CUDA_SUCCESS;
}

// What goes with a context. The objects end outside of the session's lock: they call the driver.
struct WorkerSession::ContextRemains {
  uint64_t charged = 0;
  std::vector<Allocation> allocations;
  std::vector<SharedMemory::Wire> imports;
  std::vector<std::shared_ptr<HandleObject>> dead;
  std::vector<std::shared_ptr<ModuleObject>> modules;
};

// With `mutex` held: no handle names anything of the context from here on.
void WorkerSession::forget_handles(ContextObject* c, ContextRemains* remains) {
  std::vector<std::pair<sluice_handle_kind, uint64_t>> names;
  handles.for_each(SLUICE_HANDLE_FUNCTION, [&](uint64_t h, const auto& o) {
    if (static_cast<FunctionObject&>(*o).module->context.get() == c)
      names.push_back({SLUICE_HANDLE_FUNCTION, h});
  });
  handles.for_each(SLUICE_HANDLE_MODULE, [&](uint64_t h, const auto& o) {
    if (static_cast<ModuleObject&>(*o).context.get() == c)
      names.push_back({SLUICE_HANDLE_MODULE, h});
  });
  handles.for_each(SLUICE_HANDLE_EVENT, [&](uint64_t h, const auto& o) {
    if (static_cast<EventObject&>(*o).context.get() == c) names.push_back({SLUICE_HANDLE_EVENT, h});
  });
  handles.for_each(SLUICE_HANDLE_STREAM, [&](uint64_t h, const auto& o) {
    if (static_cast<StreamObject&>(*o).context.get() != c) return;
    names.push_back({SLUICE_HANDLE_STREAM, h});
    work.engine.remove_stream(static_cast<StreamObject&>(*o).id);
  });
  handles.for_each(SLUICE_HANDLE_GREEN, [&](uint64_t h, const auto& o) {
    auto& green = static_cast<GreenObject&>(*o);
    if (green.context.get() != c) return;
    names.push_back({SLUICE_HANDLE_GREEN, h});
    if (const auto its = std::exchange(green.default_stream, nullptr))
      work.engine.remove_stream(its->id);
  });
  for (const auto kind : {SLUICE_HANDLE_ARRAY, SLUICE_HANDLE_MIPMAP})
    handles.for_each(kind, [&](uint64_t h, const auto& o) {
      const auto& array = static_cast<ArrayObject&>(*o);
      if (array.context.get() != c) return;
      names.push_back({kind, h});
      remains->charged += array.charged;
    });
  for (auto [kind, handle] : names) {
    if (kind == SLUICE_HANDLE_MODULE) memory.allocations.remove_owner(handle);
    remains->dead.push_back(handles.remove(kind, handle));
    if (kind == SLUICE_HANDLE_MODULE)
      remains->modules.push_back(std::static_pointer_cast<ModuleObject>(remains->dead.back()));
  }
}

// With `mutex` held: nothing of the session's finds the context from here on.
void WorkerSession::forget_context(const std::shared_ptr<ContextObject>& c,
                                   ContextRemains* remains) {
  c->closed = true;
  forget_handles(c.get(), remains);
  for (const auto& array : c->kept_arrays) remains->charged += array->charged;
  c->kept_arrays.clear();
  charges.textures.fetch_sub(static_cast<uint32_t>(c->textures.size()));
  c->textures.clear();
  work.engine.remove_stream(c->legacy->id);
  work.engine.remove_stream(c->per_thread->id);
  c->legacy = c->per_thread = nullptr;
  work.engine.context_ends(c->id);
  work.streams.forget(*c);
  c->pools.controls->abandon();
  for (const Allocation& a : memory.freed.remove_owner(c->handle))
    remains->charged += a.charged_bytes;
  remains->allocations = memory.allocations.remove_owner(c->handle);
  for (const SharedMemory::Import& import : memory.shared.take_imports(c.get())) {
    memory.allocations.remove_owner(import.base);
    remains->imports.push_back(import.wire);
  }
  handles.remove(SLUICE_HANDLE_CONTEXT, c->handle);
  --contexts.open;
}

// Everything that the context has queued is complete (or the session has failed).
void WorkerSession::close_context(const std::shared_ptr<ContextObject>& c) {
  ContextRemains remains;
  std::shared_ptr<ContextObject> other;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  {
    std::lock_guard lock(mutex);
    if (c->closed) return;
    forget_context(c, &remains);
    other = any_context();
    // Pinned with this context or another: asked anew, which is refused where it still holds.
    pinned.forget_extents();
    ranges = memory.extents();
  }
  remains.dead.clear();
  if (c->pools.greens && make_current(api, c->cu) == CUDA_SUCCESS) c->pools.greens->close();
  engine_thread.forwarder.close(c->cu);
  CUresult r = c->primary ? api.cuDevicePrimaryCtxRelease(c->device) : api.cuCtxDestroy(c->cu);
  forget_current();
  if (r != CUDA_SUCCESS) log::warning("closing a context: {}", gpu::describe(r));
  {
    std::lock_guard lock(mutex);
    work.engine.context_gone(c->id, monotonic_ns());
  }
  pinned.forget_pages();
  if (other && make_current(api, other->cu) == CUDA_SUCCESS) {
    if ((r = pinned.pin_pages(*other)) != CUDA_SUCCESS)
      log::warning("pinning the stub pages again: {}", gpu::describe(r));
    for (auto [offset, bytes] : ranges) pin_extent(offset, bytes);
  }
  std::lock_guard lock(mutex);
  charges.release_device(remains.charged);
  for (const Allocation& a : remains.allocations) charges.release_allocation(a);
  for (const auto& wire : remains.imports) control.end_import(wire);
  for (const auto& m : remains.modules) charges.release_module(*m);
  charges.release_context(*c);
}

// The set that was asked for last.
void WorkerSession::make_green_context(const std::shared_ptr<ContextObject>& c) {
  std::optional<GreenContexts::Job> job;
  {
    std::lock_guard lock(mutex);
    if (c->closed || sticky.load() != 0 || make_current(api, c->cu) != CUDA_SUCCESS) return;
    job = c->pools.greens->begin();
  }
  if (!job) return;
  c->pools.greens->run(*job);
  std::lock_guard lock(mutex);
  c->pools.greens->end(std::move(*job), monotonic_ns());
}

}  // namespace sluice::worker
