// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/calls/generic_calls.h"

#include <algorithm>
#include <vector>

#include "mediator/base/clock.h"
#include "mediator/worker/calls/decode.h"
#include "mediator/worker/limits.h"

namespace sluice::worker {

using namespace calls;

// --- tables ---

std::optional<void*> GenericCalls::Handles::driver_object(sluice_handle_kind kind,
                                                          uint64_t guest_handle) {
  std::lock_guard lock(s.mutex);
  auto object = s.handles.find(kind, guest_handle);
  if (!object) return std::nullopt;
  switch (kind) {
    case SLUICE_HANDLE_CONTEXT:
      return static_cast<ContextObject&>(*object).cu;
    case SLUICE_HANDLE_MODULE:
      return static_cast<ModuleObject&>(*object).cu;
    case SLUICE_HANDLE_FUNCTION:
      return static_cast<FunctionObject&>(*object).original;
    case SLUICE_HANDLE_STREAM:
      return static_cast<StreamObject&>(*object).cu;
    case SLUICE_HANDLE_EVENT:
      return static_cast<EventObject&>(*object).cu;
    default:
      return std::nullopt;
  }
}

bool GenericCalls::Handles::has_room(sluice_handle_kind) { return false; }
uint64_t GenericCalls::Handles::add(sluice_handle_kind, void*) {
  SLUICE_CHECK(!"a row that makes a handle has no method");
  return 0;
}
void GenericCalls::Handles::remove(uint64_t) {
  SLUICE_CHECK(!"a row that ends a handle has no method");
}

bool GenericCalls::owns_device_address(CUdeviceptr guest_address) {
  std::lock_guard lock(s.mutex);
  return s.memory.owns_range(guest_address, 0);
}

// --- devices ---

CUresult GenericCalls::cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  size_t real = 0;
  CUresult r = s.api.cuDeviceTotalMem(&real, dev);
  if (r == CUDA_SUCCESS && bytes) *bytes = std::min<size_t>(real, s.setup.start.memory_limit_bytes);
  return bytes ? r : CUDA_ERROR_INVALID_VALUE;
}

// --- contexts ---

CUresult GenericCalls::cuDevicePrimaryCtxRetain(ContextHandle* out, CUdevice dev) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard lock(s.mutex);
    if (auto it = s.contexts.primary.find(dev); it != s.contexts.primary.end()) {
      ++it->second->retained;
      out->value = it->second->handle;
      return CUDA_SUCCESS;
    }
    if (s.contexts.open >= s.limits.contexts) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!open_or_park()) return kParked;
  }
  CUcontext cu = nullptr;
  CUresult r = s.api.cuDevicePrimaryCtxRetain(&cu, dev);
  if (r != CUDA_SUCCESS) return not_made(r);
  std::shared_ptr<ContextObject> c;
  if ((r = s.open_context(cu, dev, true, &c)) != CUDA_SUCCESS) {
    (void)s.api.cuDevicePrimaryCtxRelease(dev);
    forget_current();
    return not_made(r);
  }
  std::lock_guard lock(s.mutex);
  c->charged = s.setup.start.context_bytes;
  c->retained = 1;
  s.contexts.primary[dev] = c;
  out->value = c->handle;
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  std::shared_ptr<ContextObject> c;
  std::lock_guard lock(s.mutex);
  auto it = s.contexts.primary.find(dev);
  if (it == s.contexts.primary.end()) return CUDA_ERROR_INVALID_CONTEXT;
  if (--it->second->retained != 0) return CUDA_SUCCESS;
  c = it->second;
  s.contexts.primary.erase(it);
  s.post_after_sync(c, [&session = s, c, answered = call] {
    session.close_context(c);
    session.answer(answered, CUDA_SUCCESS);
  });
  s.after_engine();
  return kParked;
}

CUresult GenericCalls::cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  std::lock_guard lock(s.mutex);
  auto it = s.contexts.primary.find(dev);
  if (it == s.contexts.primary.end()) return CUDA_SUCCESS;  // nothing there to reset
  auto c = it->second;
  s.contexts.primary.erase(it);
  s.post_after_sync(c, [&session = s, c, answered = call] {
    session.close_context(c);
    session.answer(answered, CUDA_SUCCESS);
  });
  s.after_engine();
  return kParked;
}

CUresult GenericCalls::cuCtxCreate_v2(ContextHandle* out, unsigned flags, CUdevice dev) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard lock(s.mutex);
    if (s.contexts.open >= s.limits.contexts) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!open_or_park()) return kParked;
  }
  CUcontext cu = nullptr;
  CUresult r = s.api.cuCtxCreate_v2(&cu, flags, dev);
  if (r != CUDA_SUCCESS) return not_made(r);
  // It was pushed onto this thread's stack of contexts, which we do not use.
  CUcontext popped = nullptr;
  (void)s.api.cuCtxPopCurrent(&popped);
  forget_current();
  std::shared_ptr<ContextObject> c;
  if ((r = s.open_context(cu, dev, false, &c)) != CUDA_SUCCESS) {
    (void)s.api.cuCtxDestroy(cu);
    forget_current();
    return not_made(r);
  }
  std::lock_guard lock(s.mutex);
  c->charged = s.setup.start.context_bytes;
  out->value = c->handle;
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuCtxDestroy_v2(ContextHandle context) {
  std::lock_guard lock(s.mutex);
  auto c = s.handles.find<ContextObject>(SLUICE_HANDLE_CONTEXT, context.value);
  if (!c || c->primary) return CUDA_ERROR_INVALID_CONTEXT;
  s.post_after_sync(c, [&session = s, c, answered = call] {
    session.close_context(c);
    session.answer(answered, CUDA_SUCCESS);
  });
  s.after_engine();
  return kParked;
}

// A context that was charged and not made.
CUresult GenericCalls::not_made(CUresult why) {
  std::lock_guard lock(s.mutex);
  s.release_device(s.setup.start.context_bytes, ChargeKind::kContexts);
  return why;
}

// The stack of each thread, printf's buffer and malloc's heap are device memory: charged before
// they grow. What the driver takes for kernels that launch kernels it does not say: their limits
// only get lower.
CUresult GenericCalls::cuCtxSetLimit(CUlimit limit, size_t value) {
  if (!call.context || call.context->closed) return CUDA_ERROR_INVALID_CONTEXT;
  ContextObject& c = *call.context;
  if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH ||
      limit == CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT) {
    size_t now = 0;
    const CUresult r = s.api.cuCtxGetLimit(&now, limit);
    if (r != CUDA_SUCCESS) return r;
    return value > now ? CUDA_ERROR_OUT_OF_MEMORY : s.api.cuCtxSetLimit(limit, value);
  }
  if (!c.limits.count(limit)) return s.api.cuCtxSetLimit(limit, value);
  uint64_t& charged = c.limits[limit].charged;
  uint64_t wanted = 0;
  {
    std::lock_guard lock(s.mutex);
    wanted = WorkerSession::limit_bytes(c, limit, value);
    if (wanted > s.setup.start.memory_limit_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    if (wanted > charged) {
      if (!charge_or_park(wanted - charged, ChargeKind::kLimits)) return kParked;
      charged = wanted;
    }
  }
  size_t before = 0;
  (void)s.api.cuCtxGetLimit(&before, limit);
  CUresult r = s.api.cuCtxSetLimit(limit, value);
  // What it is now, as the driver has rounded it or left it.
  size_t now = value;
  (void)s.api.cuCtxGetLimit(&now, limit);
  std::unique_lock lock(s.mutex);
  uint64_t taken = WorkerSession::limit_bytes(c, limit, now);
  if (taken > charged && s.control.device().charge(taken - charged, ChargeKind::kLimits))
    charged = taken;
  if (taken > charged) {  // rounded up beyond what there is
    lock.unlock();
    (void)s.api.cuCtxSetLimit(limit, before);
    r = CUDA_ERROR_OUT_OF_MEMORY;
    lock.lock();
    taken = WorkerSession::limit_bytes(c, limit, before);
  }
  if (taken < charged) {
    s.release_device(charged - taken, ChargeKind::kLimits);
    charged = taken;
  }
  return r;
}

// --- modules and functions ---

CUresult GenericCalls::cuModuleUnload(ModuleHandle module) {
  std::shared_ptr<ModuleObject> m;
  {
    std::lock_guard lock(s.mutex);
    m = s.handles.find<ModuleObject>(SLUICE_HANDLE_MODULE, module.value);
    if (!m) return CUDA_ERROR_INVALID_HANDLE;
    for (uint64_t h : m->functions) s.handles.remove(SLUICE_HANDLE_FUNCTION, h);
    s.handles.remove(SLUICE_HANDLE_MODULE, module.value);
    s.memory.allocations.remove_owner(module.value);
  }
  CUresult r = make_current(s.api, m->context->cu);
  if (r == CUDA_SUCCESS) r = s.api.cuModuleUnload(m->cu);
  // Only what is gone; a module that the driver keeps is the context's until it ends.
  std::lock_guard lock(s.mutex);
  if (r == CUDA_SUCCESS) {
    s.release_module(*m);
  } else {
    m->context->kept_modules.push_back(std::move(m));
  }
  return r;
}

CUresult GenericCalls::cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes,
                                            ModuleHandle module, const char* name) {
  std::shared_ptr<ModuleObject> m;
  {
    std::lock_guard lock(s.mutex);
    m = s.handles.find<ModuleObject>(SLUICE_HANDLE_MODULE, module.value);
  }
  if (!m) return CUDA_ERROR_INVALID_HANDLE;
  CUdeviceptr at = 0;
  size_t size = 0;
  CUresult r = s.api.cuModuleGetGlobal(&at, &size, m->cu, name);
  if (r != CUDA_SUCCESS) return r;
  if (size != 0) {
    std::lock_guard lock(s.mutex);
    if (!s.memory.allocations.add({at, size, module.value, 0})) return CUDA_ERROR_INVALID_VALUE;
  }
  if (address) *address = at;
  if (bytes) *bytes = size;
  return CUDA_SUCCESS;
}

std::shared_ptr<FunctionObject> GenericCalls::function(FunctionHandle handle) {
  std::lock_guard lock(s.mutex);
  return s.handles.find<FunctionObject>(SLUICE_HANDLE_FUNCTION, handle.value);
}

// What a program sets of a function holds for whatever is launched in its place.
static std::vector<CUfunction> clones_of(const FunctionObject& f) {
  std::vector<CUfunction> all{f.clone, f.clamped, f.one_task, f.one_task_clamped, f.window};
  std::erase(all, nullptr);
  return all;
}

CUresult GenericCalls::cuFuncSetAttribute(FunctionHandle handle, CUfunction_attribute attribute,
                                          int value) {
  auto f = function(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  CUresult r = s.api.cuFuncSetAttribute(f->original, attribute, value);
  if (r != CUDA_SUCCESS || !f->clone) return r;
  // The clones follow; their dynamic shared memory has room for the slots besides, and is raised
  // when it is launched (CudaStreams::variant_of), so here only what the program lowers or else
  // sets.
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    for (CUfunction clone : clones_of(*f)) (void)s.api.cuFuncSetAttribute(clone, attribute, value);
  }
  std::lock_guard lock(s.mutex);
  f->variants.clear();  // occupancy may have changed
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuFuncSetCacheConfig(FunctionHandle handle, CUfunc_cache config) {
  auto f = function(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  CUresult r = s.api.cuFuncSetCacheConfig(f->original, config);
  if (r != CUDA_SUCCESS) return r;
  for (CUfunction clone : clones_of(*f)) (void)s.api.cuFuncSetCacheConfig(clone, config);
  return r;
}

CUresult GenericCalls::cuFuncSetSharedMemConfig(FunctionHandle handle, CUsharedconfig config) {
  auto f = function(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  CUresult r = s.api.cuFuncSetSharedMemConfig(f->original, config);
  if (r != CUDA_SUCCESS) return r;
  for (CUfunction clone : clones_of(*f)) (void)s.api.cuFuncSetSharedMemConfig(clone, config);
  return r;
}

// --- memory ---

CUresult GenericCalls::cuMemGetInfo_v2(size_t* free, size_t* total) {
  size_t real_free = 0, real_total = 0;
  CUresult r = s.api.cuMemGetInfo(&real_free, &real_total);
  if (r != CUDA_SUCCESS) return r;
  std::lock_guard lock(s.mutex);
  const size_t limit = std::min<size_t>(real_total, s.setup.start.memory_limit_bytes);
  const size_t used = s.control.device().used_bytes();
  if (total) *total = limit;
  // What other processes of this vGPU use is not known here: it shows when a lease is refused.
  if (free) *free = std::min(real_free, limit > used ? limit - used : 0);
  return CUDA_SUCCESS;
}

bool GenericCalls::charge_or_park(uint64_t charge, ChargeKind kind) {
  if (s.control.device().charge(charge, kind)) return true;
  park(worker_protocol::kDeviceMemory, s.control.device().lacking(charge));
  return false;
}

void GenericCalls::park(worker_protocol::Resource resource, uint64_t lacking) {
  s.ask_lease(
      lacking,
      [&session = s, again = call,
       copy = std::vector<std::byte>(body.begin(), body.end())](bool granted) {
        if (!granted) return session.answer(again, CUDA_ERROR_OUT_OF_MEMORY);
        session.jobs.post([&session, again, copy] { run_generic(session, again, copy); });
      },
      resource);
}

bool GenericCalls::open_or_park() {
  const bool paced = s.setup.start.paced & worker_protocol::kPacedContexts;
  QuotaLease& openings = s.control.quota(worker_protocol::kContextOpenings);
  if (paced && !openings.charge(1)) {
    park(worker_protocol::kContextOpenings, 1);
    return false;
  }
  if (charge_or_park(s.setup.start.context_bytes, ChargeKind::kContexts)) return true;
  if (paced) openings.release(1);  // for when the call runs again
  return false;
}

CUresult GenericCalls::allocate(CUdeviceptr* address, size_t bytes,
                                const std::function<CUresult(CUdeviceptr*)>& by_driver) {
  const uint64_t charge = QuotaLease::charge_for(bytes);
  if (!call.context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!address || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (charge == 0 || charge > s.setup.start.memory_limit_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    std::lock_guard lock(s.mutex);
    if (!charge_or_park(charge)) return kParked;
  }
  CUdeviceptr at = 0;
  CUresult r = by_driver(&at);
  std::lock_guard lock(s.mutex);
  if (r == CUDA_SUCCESS && !s.memory.allocations.add({at, bytes, call.context->handle, charge})) {
    (void)s.api.cuMemFree(at);
    r = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (r != CUDA_SUCCESS) {
    s.release_device(charge);
    return r;
  }
  *address = at;
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return allocate(address, bytes, [&](CUdeviceptr* at) { return s.api.cuMemAlloc(at, bytes); });
}

CUresult GenericCalls::cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width,
                                          size_t height, unsigned element_bytes) {
  if (!pitch || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
    return CUDA_ERROR_INVALID_VALUE;
  // Our own pitch, so that the charge is known before: a multiple of what every device so far
  // wants.
  constexpr size_t kPitchUnit = 512;
  size_t row, bytes;
  if (__builtin_add_overflow(width, kPitchUnit - 1, &row)) return CUDA_ERROR_OUT_OF_MEMORY;
  row = row / kPitchUnit * kPitchUnit;
  if (__builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult r =
      allocate(address, bytes, [&](CUdeviceptr* at) { return s.api.cuMemAlloc(at, bytes); });
  if (r == CUDA_SUCCESS) *pitch = row;
  return r;
}

CUresult GenericCalls::cuMemFree_v2(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  std::optional<Allocation> a;
  std::shared_ptr<ContextObject> owner;
  {
    std::lock_guard lock(s.mutex);
    a = s.memory.allocations.remove(address);
    if (!a) return CUDA_ERROR_INVALID_VALUE;
    owner = s.handles.find<ContextObject>(SLUICE_HANDLE_CONTEXT, a->owner);
  }
  CUresult r = owner ? make_current(s.api, owner->cu) : CUDA_ERROR_INVALID_CONTEXT;
  if (r == CUDA_SUCCESS) r = s.api.cuMemFree(address);
  std::lock_guard lock(s.mutex);
  s.release_device(a->charged_bytes);
  return r;
}

CUresult GenericCalls::cuMemAllocAsync(CUdeviceptr* address, size_t bytes, StreamHandle stream) {
  {
    std::lock_guard lock(s.mutex);
    CUresult error;
    if (!s.find_stream(call, stream.value, &error)) return error;
  }
  // Earlier in the stream than asked for is allowed.
  return cuMemAlloc_v2(address, bytes);
}

CUresult GenericCalls::cuMemFreeAsync(CUdeviceptr address, StreamHandle stream) {
  std::lock_guard lock(s.mutex);
  CUresult error;
  auto found = s.find_stream(call, stream.value, &error);
  if (!found) return error;
  // Not the program's any more from here on; freed when the stream gets there.
  auto a = s.memory.allocations.remove(address);
  if (!a) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t token = s.waiting.add([&session = s, a = *a, context = found->context](CUresult) {
    session.jobs.post([&session, a, context] {
      if (make_current(session.api, context->cu) == CUDA_SUCCESS)
        (void)session.api.cuMemFree(a.address);
      std::lock_guard relock(session.mutex);
      session.release_device(a.charged_bytes);
    });
  });
  s.engine.notify_stream(found->id, token, monotonic_ns());
  s.after_engine();
  return CUDA_SUCCESS;
}

// --- streams and events ---

CUresult GenericCalls::cuStreamCreate(StreamHandle* out, unsigned flags) {
  return cuStreamCreateWithPriority(out, flags, 0);
}

CUresult GenericCalls::cuStreamCreateWithPriority(StreamHandle* out, unsigned flags, int priority) {
  if (!out || (flags & ~unsigned{CU_STREAM_NON_BLOCKING})) return CUDA_ERROR_INVALID_VALUE;
  if (!call.context || call.context->closed) return CUDA_ERROR_INVALID_CONTEXT;
  ContextObject& c = *call.context;
  {
    std::lock_guard lock(s.mutex);
    const uint32_t live = c.streams_live.load() + 1;
    if (live > kMostStreams) return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t one = c.lefts->list_bytes() + kStreamBytes, wanted = live * one;
    if (live > LeftPool::kSlabLists && wanted > c.charged_streams) {
      if (!charge_or_park(wanted - c.charged_streams, ChargeKind::kContexts)) return kParked;
      c.charged += wanted - c.charged_streams;
      c.charged_streams = wanted;
    }
  }
  CUresult r;
  auto stream = s.make_stream(
      call.context,
      flags & CU_STREAM_NON_BLOCKING ? StreamKind::kNonBlocking : StreamKind::kBlocking, flags,
      priority, &r);
  if (!stream) return r;
  stream->counted = true;
  c.streams_live.fetch_add(1);
  std::lock_guard lock(s.mutex);
  out->value = s.handles.add(SLUICE_HANDLE_STREAM, stream);
  if (out->value != 0) return CUDA_SUCCESS;
  s.engine.remove_stream(stream->id);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult GenericCalls::cuStreamDestroy_v2(StreamHandle stream) {
  std::lock_guard lock(s.mutex);
  auto object = s.handles.find<StreamObject>(SLUICE_HANDLE_STREAM, stream.value);
  if (!object) return CUDA_ERROR_INVALID_HANDLE;
  s.handles.remove(SLUICE_HANDLE_STREAM, stream.value);
  s.engine.remove_stream(object->id);  // what is queued still runs
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
    if (!a->latest->complete || !b->latest->complete) return CUDA_ERROR_NOT_READY;
  }
  return s.api.cuEventElapsedTime(milliseconds, a->cu, b->cu);
}

}  // namespace sluice::worker
