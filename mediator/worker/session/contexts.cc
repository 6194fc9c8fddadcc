// Contexts and streams of a session, and what the driver has pinned for it.
#include <sys/mman.h>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/worker/launch/green_contexts.h"
#include "mediator/worker/session/session.h"

namespace sluice::worker {

// The signal page and the launch records, as the GPU addresses them in this context. The report
// page is neither pinned nor mapped there: what says who has left is out of every kernel's reach.
CUresult Session::register_pages(ContextObject& c) {
  auto* signal = const_cast<sluice_signal_page*>(p_.signal);
  if (!pages_registered_) {
    const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    // Still pinned where the program's last context has gone and another comes, and the driver
    // keeps it.
    const auto pin = [this](void* at, size_t bytes, unsigned how) {
      const CUresult r = api_.cuMemHostRegister(at, bytes, how);
      return r == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED ? CUDA_SUCCESS : r;
    };
    // Read-only where the device can: a kernel must not forge its own eviction word.
    CUresult r = pin(signal, SLUICE_STUB_PAGE_BYTES, flags | CU_MEMHOSTREGISTER_READ_ONLY);
    if (r != CUDA_SUCCESS) r = pin(signal, SLUICE_STUB_PAGE_BYTES, flags);
    if (r != CUDA_SUCCESS) return r;
    r = pin(p_.records, SLUICE_RECORDS_BYTES, flags);
    if (r != CUDA_SUCCESS) return r;
    if (!zeros_) {
      zeros_ = ::mmap(nullptr, ControlPool::kPageBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (zeros_ == MAP_FAILED) {
        zeros_ = nullptr;
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
    }
    // Control blocks begin as copies of it, so no kernel is to write it either.
    if (pin(zeros_, ControlPool::kPageBytes,
            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY) != CUDA_SUCCESS)
      (void)pin(zeros_, ControlPool::kPageBytes, CU_MEMHOSTREGISTER_PORTABLE);
    pages_registered_ = true;
  }
  CUresult r = api_.cuMemHostGetDevicePointer(&c.signal, signal, 0);
  if (r == CUDA_SUCCESS) r = api_.cuMemHostGetDevicePointer(&c.records, p_.records, 0);
  return r;
}

// Pins a range of the region, so that copies to and from it are the copy engine's and kernels can
// address it. Without it copies still work, only slower.
void Session::register_region(uint64_t offset, uint64_t bytes) {
  std::shared_ptr<ContextObject> context;
  {
    std::lock_guard lock(mutex_);
    if (registered_.count(offset)) return;
    handles_.for_each(SLUICE_HANDLE_CONTEXT, [&](uint64_t, const auto& object) {
      context = std::static_pointer_cast<ContextObject>(object);
    });
  }
  if (!context || make_current(api_, context->cu) != CUDA_SUCCESS) return;
  CUresult r = api_.cuMemHostRegister(region_ + offset, bytes,
                                      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (r != CUDA_SUCCESS && r != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
    log::info("bulk memory at {} is not pinned: {}", offset, gpu::describe(r));
    return;
  }
  std::lock_guard lock(mutex_);
  registered_[offset] = bytes;
}

std::shared_ptr<StreamObject> Session::make_stream(const std::shared_ptr<ContextObject>& context,
                                                   StreamKind kind, unsigned guest_flags,
                                                   int priority, CUresult* result) {
  auto stream = std::make_shared<StreamObject>();
  stream->context = context;
  stream->guest_flags = guest_flags;
  stream->priority = priority;
  // Always non-blocking in the driver: the engine keeps CUDA's order with the legacy stream,
  // because only it knows which launches are done.
  *result = api_.cuStreamCreateWithPriority(&stream->cu, CU_STREAM_NON_BLOCKING, priority);
  if (*result != CUDA_SUCCESS) return nullptr;
  std::lock_guard lock(mutex_);
  stream->id = engine_.add_stream(context->id, kind);
  streams_.add(stream->id, stream);
  return stream;
}

CUresult Session::open_context(CUcontext cu, CUdevice device, bool primary,
                               std::shared_ptr<ContextObject>* out) {
  auto c = std::make_shared<ContextObject>();
  c->cu = cu;
  int threads_per_sm = 0;
  c->device = device;
  c->primary = primary;
  c->id = next_context_++;
  CUresult r = make_current(api_, cu);
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
    if ((r = api_.cuDeviceGetAttribute(to, attribute, device)) != CUDA_SUCCESS) return r;
  }
  c->threads_at_once =
      static_cast<uint64_t>(c->multiprocessors) * static_cast<uint64_t>(threads_per_sm);
  for (CUlimit limit :
       {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE}) {
    size_t value = 0;
    if (api_.cuCtxGetLimit(&value, limit) == CUDA_SUCCESS) c->limits[limit] = {value, 0};
  }
  if (p_.start.spatial_sms != 0 &&
      static_cast<uint32_t>(c->multiprocessors) != p_.start.spatial_sms) {
    end(CUDA_ERROR_INVALID_DEVICE,
        "the host shares its GPU by SMs (scheduler.spatial) and takes it to have " +
            std::to_string(p_.start.spatial_sms) + "; it has " +
            std::to_string(c->multiprocessors) +
            ": device.soft_sms or device.nvidia_sms in its sluice.toml is wrong",
        false);
  }
  if ((r = register_pages(*c)) != CUDA_SUCCESS) return r;
  // Whatever fails from here on, no eviction is brought to a context that is gone.
  struct Forwarding {
    EvictForwarder& forwarder;
    CUcontext cu;
    bool stays = false;
    ~Forwarding() {
      if (!stays) forwarder.close(cu);
    }
  } forwarding{forwarder_, cu};
  if ((r = forwarder_.open(cu, &c->evict_word)) != CUDA_SUCCESS) return r;
  r = api_.cuStreamCreate(&c->transfers, CU_STREAM_NON_BLOCKING);
  if (r != CUDA_SUCCESS) return r;
  c->controls = std::make_unique<ControlPool>(api_, c->transfers, zeros_);
  if ((r = c->controls->prepare(4)) != CUDA_SUCCESS) return r;
  constexpr uint32_t kBlocksPerSm = 32;  // the most that any GPU up to compute capability 12 holds
  c->states = std::make_unique<StatePool>(
      api_, [this, paying = c.get()](uint64_t bytes) { return pay_pool(*paying, bytes); });
  c->lefts = std::make_unique<LeftPool>(api_, c->transfers, zeros_, ControlPool::kPageBytes,
                                        (p_.start.spatial_sms ? 4 : 2) *
                                            kBlocksPerSm *  // over-launched, of two grids
                                            static_cast<uint32_t>(c->multiprocessors));
  if (p_.start.spatial_sms != 0 && p_.start.green_contexts != 0 && primary)
    c->greens = std::make_shared<GreenContexts>(api_, device, c->transfers, p_.start.spatial_sms,
                                                streams_.green);
  SmSet barred;
  CUdeviceptr first = 0;  // so that the first launches need not wait
  if ((r = c->lefts->take(&first, &barred)) != CUDA_SUCCESS) return r;
  c->lefts->give_back(first, barred);
  c->legacy = make_stream(c, StreamKind::kLegacy, CU_STREAM_DEFAULT, 0, &r);
  if (r == CUDA_SUCCESS) c->per_thread = make_stream(c, StreamKind::kBlocking, 0, 0, &r);
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  {
    std::lock_guard lock(mutex_);
    if (r == CUDA_SUCCESS) c->handle = handles_.add(SLUICE_HANDLE_CONTEXT, c);
    if (r == CUDA_SUCCESS && c->handle == 0) r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
      if (c->legacy) engine_.remove_stream(c->legacy->id);
      if (c->per_thread) engine_.remove_stream(c->per_thread->id);
      c->legacy = c->per_thread = nullptr;
      streams_.forget(*c);
      c->controls->abandon();
      return r;
    }
    ++contexts_open_;
    forwarding.stays = true;
    ranges.assign(extents_.begin(), extents_.end());
  }
  for (auto [offset, bytes] : ranges) register_region(offset, bytes);
  *out = c;
  return CUDA_SUCCESS;
}

// Everything that the context has queued is complete (or the session has failed).
void Session::close_context(const std::shared_ptr<ContextObject>& c) {
  uint64_t charged = 0;
  std::vector<std::shared_ptr<HandleObject>> dead;  // their driver calls without our lock
  std::vector<std::shared_ptr<ModuleObject>> modules;
  std::shared_ptr<ContextObject> other;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  {
    std::lock_guard lock(mutex_);
    if (c->closed) return;
    c->closed = true;
    std::vector<std::pair<sluice_handle_kind, uint64_t>> names;
    handles_.for_each(SLUICE_HANDLE_FUNCTION, [&](uint64_t h, const auto& o) {
      if (static_cast<FunctionObject&>(*o).module->context == c)
        names.push_back({SLUICE_HANDLE_FUNCTION, h});
    });
    handles_.for_each(SLUICE_HANDLE_MODULE, [&](uint64_t h, const auto& o) {
      if (static_cast<ModuleObject&>(*o).context == c) names.push_back({SLUICE_HANDLE_MODULE, h});
    });
    handles_.for_each(SLUICE_HANDLE_EVENT, [&](uint64_t h, const auto& o) {
      if (static_cast<EventObject&>(*o).context == c) names.push_back({SLUICE_HANDLE_EVENT, h});
    });
    handles_.for_each(SLUICE_HANDLE_STREAM, [&](uint64_t h, const auto& o) {
      if (static_cast<StreamObject&>(*o).context == c) {
        names.push_back({SLUICE_HANDLE_STREAM, h});
        engine_.remove_stream(static_cast<StreamObject&>(*o).id);
      }
    });
    for (auto [kind, handle] : names) {
      if (kind == SLUICE_HANDLE_MODULE) allocations_.remove_owner(handle);
      dead.push_back(handles_.remove(kind, handle));
      if (kind == SLUICE_HANDLE_MODULE)
        modules.push_back(std::static_pointer_cast<ModuleObject>(dead.back()));
    }
    engine_.remove_stream(c->legacy->id);
    engine_.remove_stream(c->per_thread->id);
    c->legacy = c->per_thread = nullptr;
    engine_.context_ends(c->id);
    streams_.forget(*c);
    c->controls->abandon();
    for (const Allocation& a : allocations_.remove_owner(c->handle)) charged += a.charged_bytes;
    handles_.remove(SLUICE_HANDLE_CONTEXT, c->handle);
    --contexts_open_;
    handles_.for_each(SLUICE_HANDLE_CONTEXT, [&](uint64_t, const auto& o) {
      other = std::static_pointer_cast<ContextObject>(o);
    });
    // Pinned with this context or another: asked anew, which is refused where it still holds.
    registered_.clear();
    ranges.assign(extents_.begin(), extents_.end());
  }
  dead.clear();
  if (c->greens && make_current(api_, c->cu) == CUDA_SUCCESS) c->greens->close();
  forwarder_.close(c->cu);
  CUresult r = c->primary ? api_.cuDevicePrimaryCtxRelease(c->device) : api_.cuCtxDestroy(c->cu);
  forget_current();
  if (r != CUDA_SUCCESS) log::warning("closing a context: {}", gpu::describe(r));
  {
    std::lock_guard lock(mutex_);
    engine_.context_gone(c->id, monotonic_ns());
  }
  pages_registered_ = false;
  if (other && make_current(api_, other->cu) == CUDA_SUCCESS) {
    if ((r = register_pages(*other)) != CUDA_SUCCESS)
      log::warning("pinning the stub pages again: {}", gpu::describe(r));
    for (auto [offset, bytes] : ranges) register_region(offset, bytes);
  }
  std::lock_guard lock(mutex_);
  return_lease(charged);
  for (const auto& m : modules) release_module(*m);
  release_context(*c);
}

// The set that was asked for last.
void Session::make_green_context(const std::shared_ptr<ContextObject>& c) {
  std::optional<GreenContexts::Job> job;
  {
    std::lock_guard lock(mutex_);
    if (c->closed || sticky_.load() != 0 || make_current(api_, c->cu) != CUDA_SUCCESS) return;
    job = c->greens->begin();
  }
  if (!job) return;
  c->greens->run(*job);
  std::lock_guard lock(mutex_);
  c->greens->end(std::move(*job), monotonic_ns());
}

}  // namespace sluice::worker
