// SPDX-License-Identifier: Apache-2.0
// Contexts and streams of a session, and what the driver has pinned for it.
#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/worker/launch/green_contexts.h"
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
    int priority, CUresult* result) {
  auto stream = std::make_shared<StreamObject>();
  stream->context = context;
  stream->guest_flags = guest_flags;
  // Where turns are priorities, those above a guest's own two are not its to use.
  if (setup.start.turns_by_priority != 0) priority = std::clamp(priority, 1 - kTurnLevels, 0);
  stream->priority = priority;
  // Always non-blocking in the driver: the engine keeps CUDA's order with the legacy stream,
  // because only it knows which launches are done.
  *result = api.cuStreamCreateWithPriority(&stream->cu, CU_STREAM_NON_BLOCKING, priority);
  if (*result != CUDA_SUCCESS) return nullptr;
  std::lock_guard lock(mutex);
  stream->id = engine.add_stream(context->id, kind);
  streams.add(stream->id, stream);
  return stream;
}

CUresult WorkerSession::open_context(CUcontext cu, CUdevice device, bool primary,
                                     std::shared_ptr<ContextObject>* out) {
  auto c = std::make_shared<ContextObject>();
  c->cu = cu;
  int threads_per_sm = 0;
  c->device = device;
  c->primary = primary;
  c->id = contexts.next_id++;
  CUresult r = make_current(api, cu);
  if (r != CUDA_SUCCESS) return r;
  const std::pair<CUdevice_attribute, int*> attributes[] = {
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &c->multiprocessors},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &threads_per_sm},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &c->clock_khz},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &c->max_threads_per_block},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &c->max_block[0]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &c->max_block[1]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &c->max_block[2]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &c->max_grid[0]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &c->max_grid[1]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &c->max_grid[2]}};
  for (auto [attribute, to] : attributes) {
    if ((r = api.cuDeviceGetAttribute(to, attribute, device)) != CUDA_SUCCESS) return r;
  }
  c->threads_at_once =
      static_cast<uint64_t>(c->multiprocessors) * static_cast<uint64_t>(threads_per_sm);
  for (CUlimit limit :
       {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE}) {
    size_t value = 0;
    if (api.cuCtxGetLimit(&value, limit) == CUDA_SUCCESS) c->limits[limit] = {value, 0};
  }
  if (setup.start.spatial_sms != 0 &&
      static_cast<uint32_t>(c->multiprocessors) != setup.start.spatial_sms) {
    end(CUDA_ERROR_INVALID_DEVICE,
        "the host shares its GPU by SMs (scheduler.spatial) and takes it to have " +
            std::to_string(setup.start.spatial_sms) + "; it has " +
            std::to_string(c->multiprocessors) +
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
  } forwarding{forwarder, cu};
  if ((r = forwarder.open(cu, &c->evict_word)) != CUDA_SUCCESS) return r;
  r = api.cuStreamCreate(&c->transfers, CU_STREAM_NON_BLOCKING);
  if (r != CUDA_SUCCESS) return r;
  c->controls = std::make_unique<ControlPool>(api, c->transfers, pinned.zeros());
  if ((r = c->controls->prepare(4)) != CUDA_SUCCESS) return r;
  constexpr uint32_t kBlocksPerSm = 32;  // the most that any GPU up to compute capability 12 holds
  c->states = std::make_unique<StatePool>(
      api, [this, paying = c.get()](uint64_t bytes) { return pay_pool(*paying, bytes); });
  c->lefts = std::make_unique<LeftPool>(api, c->transfers, pinned.zeros(), ControlPool::kPageBytes,
                                        (setup.start.spatial_sms ? 4 : 2) *
                                            kBlocksPerSm *  // over-launched, of two grids
                                            static_cast<uint32_t>(c->multiprocessors));
  if (setup.start.spatial_sms != 0 && setup.start.green_contexts != 0 && primary)
    c->greens = std::make_shared<GreenContexts>(api, device, c->transfers, setup.start.spatial_sms,
                                                streams.confinement().green);
  SmSet barred;
  CUdeviceptr first = 0;  // so that the first launches need not wait
  if ((r = c->lefts->take(&first, &barred)) != CUDA_SUCCESS) return r;
  c->lefts->give_back(first, barred);
  c->legacy = make_stream(c, StreamKind::kLegacy, CU_STREAM_DEFAULT, 0, &r);
  if (r == CUDA_SUCCESS) c->per_thread = make_stream(c, StreamKind::kBlocking, 0, 0, &r);
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  {
    std::lock_guard lock(mutex);
    if (r == CUDA_SUCCESS) c->handle = handles.add(SLUICE_HANDLE_CONTEXT, c);
    if (r == CUDA_SUCCESS && c->handle == 0) r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
      if (c->legacy) engine.remove_stream(c->legacy->id);
      if (c->per_thread) engine.remove_stream(c->per_thread->id);
      c->legacy = c->per_thread = nullptr;
      streams.forget(*c);
      c->controls->abandon();
      return r;
    }
    ++contexts.open;
    forwarding.stays = true;
    ranges = memory.extents();
  }
  for (auto [offset, bytes] : ranges) pin_extent(offset, bytes);
  *out = c;
  return CUDA_SUCCESS;
}

// Everything that the context has queued is complete (or the session has failed).
void WorkerSession::close_context(const std::shared_ptr<ContextObject>& c) {
  uint64_t charged = 0;
  std::vector<std::shared_ptr<HandleObject>> dead;  // their driver calls without our lock
  std::vector<std::shared_ptr<ModuleObject>> modules;
  std::shared_ptr<ContextObject> other;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  {
    std::lock_guard lock(mutex);
    if (c->closed) return;
    c->closed = true;
    std::vector<std::pair<sluice_handle_kind, uint64_t>> names;
    handles.for_each(SLUICE_HANDLE_FUNCTION, [&](uint64_t h, const auto& o) {
      if (static_cast<FunctionObject&>(*o).module->context == c)
        names.push_back({SLUICE_HANDLE_FUNCTION, h});
    });
    handles.for_each(SLUICE_HANDLE_MODULE, [&](uint64_t h, const auto& o) {
      if (static_cast<ModuleObject&>(*o).context == c) names.push_back({SLUICE_HANDLE_MODULE, h});
    });
    handles.for_each(SLUICE_HANDLE_EVENT, [&](uint64_t h, const auto& o) {
      if (static_cast<EventObject&>(*o).context == c) names.push_back({SLUICE_HANDLE_EVENT, h});
    });
    handles.for_each(SLUICE_HANDLE_STREAM, [&](uint64_t h, const auto& o) {
      if (static_cast<StreamObject&>(*o).context == c) {
        names.push_back({SLUICE_HANDLE_STREAM, h});
        engine.remove_stream(static_cast<StreamObject&>(*o).id);
      }
    });
    handles.for_each(SLUICE_HANDLE_ARRAY, [&](uint64_t h, const auto& o) {
      const auto& array = static_cast<ArrayObject&>(*o);
      if (array.context != c) return;
      names.push_back({SLUICE_HANDLE_ARRAY, h});
      charged += array.charged;
    });
    for (const auto& array : c->kept_arrays) charged += array->charged;
    c->kept_arrays.clear();
    c->textures.clear();
    for (auto [kind, handle] : names) {
      if (kind == SLUICE_HANDLE_MODULE) memory.allocations.remove_owner(handle);
      dead.push_back(handles.remove(kind, handle));
      if (kind == SLUICE_HANDLE_MODULE)
        modules.push_back(std::static_pointer_cast<ModuleObject>(dead.back()));
    }
    engine.remove_stream(c->legacy->id);
    engine.remove_stream(c->per_thread->id);
    c->legacy = c->per_thread = nullptr;
    engine.context_ends(c->id);
    streams.forget(*c);
    c->controls->abandon();
    for (const Allocation& a : memory.allocations.remove_owner(c->handle))
      charged += a.charged_bytes;
    handles.remove(SLUICE_HANDLE_CONTEXT, c->handle);
    --contexts.open;
    other = any_context();
    // Pinned with this context or another: asked anew, which is refused where it still holds.
    pinned.forget_extents();
    ranges = memory.extents();
  }
  dead.clear();
  if (c->greens && make_current(api, c->cu) == CUDA_SUCCESS) c->greens->close();
  forwarder.close(c->cu);
  CUresult r = c->primary ? api.cuDevicePrimaryCtxRelease(c->device) : api.cuCtxDestroy(c->cu);
  forget_current();
  if (r != CUDA_SUCCESS) log::warning("closing a context: {}", gpu::describe(r));
  {
    std::lock_guard lock(mutex);
    engine.context_gone(c->id, monotonic_ns());
  }
  pinned.forget_pages();
  if (other && make_current(api, other->cu) == CUDA_SUCCESS) {
    if ((r = pinned.pin_pages(*other)) != CUDA_SUCCESS)
      log::warning("pinning the stub pages again: {}", gpu::describe(r));
    for (auto [offset, bytes] : ranges) pin_extent(offset, bytes);
  }
  std::lock_guard lock(mutex);
  release_device(charged);
  for (const auto& m : modules) release_module(*m);
  release_context(*c);
}

// The set that was asked for last.
void WorkerSession::make_green_context(const std::shared_ptr<ContextObject>& c) {
  std::optional<GreenContexts::Job> job;
  {
    std::lock_guard lock(mutex);
    if (c->closed || sticky.load() != 0 || make_current(api, c->cu) != CUDA_SUCCESS) return;
    job = c->greens->begin();
  }
  if (!job) return;
  c->greens->run(*job);
  std::lock_guard lock(mutex);
  c->greens->end(std::move(*job), monotonic_ns());
}

}  // namespace sluice::worker
