// SPDX-License-Identifier: Apache-2.0
// Contexts: primary and others, opened at the pace of the vGPU, each in a place among the GPU's and
// charged; their limits.
#include "mediator/worker/calls/generic_calls.h"

#include <memory>

namespace sluice::worker {

bool GenericCalls::open_or_park() {
  const bool paced = s.setup.start.paced & worker_protocol::kPacedContexts;
  QuotaLease& openings = s.control.quota(worker_protocol::kContextOpenings);
  if (paced && !openings.charge(1)) {
    park(worker_protocol::kContextOpenings, 1);
    return false;
  }
  const bool first = s.contexts.open == 0;  // the session itself has its place
  const bool placed =
      first || s.control.quota(worker_protocol::kContextPlaces).charge(1, ChargeKind::kContexts);
  if (!placed)
    park(worker_protocol::kContextPlaces, 1);
  else if (charge_or_park(s.setup.start.context_bytes, ChargeKind::kContexts))
    return true;
  else if (!first)
    s.control.release_places(1);
  if (paced) openings.release(1);  // for when the call runs again
  return false;
}

// The call is answered when all that was queued in the context has ended.
CUresult GenericCalls::close_after_sync(std::shared_ptr<ContextObject> c) {
  s.post_after_sync(c, [&session = s, c, answered = call] {
    session.close_context(c);
    session.answer(answered, CUDA_SUCCESS);
  });
  s.after_engine();
  return kParked;
}

CUresult GenericCalls::cuDevicePrimaryCtxRetain(ContextHandle* out, CUdevice dev) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard lock(s.mutex);
    if (auto it = s.contexts.primary.find(dev); it != s.contexts.primary.end()) {
      ++it->second->retained;
      out->value = it->second->handle;
      return CUDA_SUCCESS;
    }
    if (s.contexts.open >= s.setup.limits.contexts) return CUDA_ERROR_OUT_OF_MEMORY;
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
  c->charged.own = s.setup.start.context_bytes;
  c->charged.places = s.contexts.open > 1;
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
  return close_after_sync(std::move(c));
}

CUresult GenericCalls::cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  std::lock_guard lock(s.mutex);
  auto it = s.contexts.primary.find(dev);
  if (it == s.contexts.primary.end()) return CUDA_SUCCESS;  // nothing there to reset
  auto c = it->second;
  s.contexts.primary.erase(it);
  return close_after_sync(std::move(c));
}

// At a fault the driver would halt the GPU and write down what is on it, for as long as that takes.
static bool dumps_at_faults(unsigned flags) {
  return (flags & (CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE)) != 0;
}

CUresult GenericCalls::cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags) {
  return dumps_at_faults(flags) ? CUDA_ERROR_NOT_SUPPORTED
                                : s.api.cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult GenericCalls::cuCtxSetFlags(unsigned flags) {
  return dumps_at_faults(flags) ? CUDA_ERROR_NOT_SUPPORTED : s.api.cuCtxSetFlags(flags);
}

// The cache is the whole GPU's, and what neighbours have in it would go. A guest has nothing set
// aside there.
CUresult GenericCalls::cuCtxResetPersistingL2Cache() {
  return call.context && !call.context->closed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult GenericCalls::cuCtxCreate_v2(ContextHandle* out, unsigned flags, CUdevice dev) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (dumps_at_faults(flags)) return CUDA_ERROR_NOT_SUPPORTED;
  {
    std::lock_guard lock(s.mutex);
    if (s.contexts.open >= s.setup.limits.contexts) return CUDA_ERROR_OUT_OF_MEMORY;
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
  c->charged.own = s.setup.start.context_bytes;
  c->charged.places = s.contexts.open > 1;
  out->value = c->handle;
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuCtxDestroy_v2(ContextHandle context) {
  std::lock_guard lock(s.mutex);
  auto c = s.handles.find<ContextObject>(SLUICE_HANDLE_CONTEXT, context.value);
  if (!c || c->primary) return CUDA_ERROR_INVALID_CONTEXT;
  return close_after_sync(std::move(c));
}

// A context that was charged and not made.
CUresult GenericCalls::not_made(CUresult why) {
  std::lock_guard lock(s.mutex);
  s.charges.release_device(s.setup.start.context_bytes, ChargeKind::kContexts);
  if (s.contexts.open > 0) s.control.release_places(1);
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
  // Set aside in the cache of the whole GPU, it would be every neighbour's loss.
  if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE && value != 0) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (!c.charged.limits.count(limit)) return s.api.cuCtxSetLimit(limit, value);
  uint64_t& charged = c.charged.limits[limit].charged;
  uint64_t wanted = 0;
  {
    std::lock_guard lock(s.mutex);
    wanted = limit_bytes(c, limit, value);
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
  uint64_t taken = limit_bytes(c, limit, now);
  if (taken > charged && s.control.device().charge(taken - charged, ChargeKind::kLimits))
    charged = taken;
  if (taken > charged) {  // rounded up beyond what there is
    lock.unlock();
    (void)s.api.cuCtxSetLimit(limit, before);
    r = CUDA_ERROR_OUT_OF_MEMORY;
    lock.lock();
    taken = limit_bytes(c, limit, before);
  }
  if (taken < charged) {
    s.charges.release_device(charged - taken, ChargeKind::kLimits);
    charged = taken;
  }
  return r;
}

}  // namespace sluice::worker
