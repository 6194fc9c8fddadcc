// SPDX-License-Identifier: Apache-2.0
// Contexts. Which one is current is the guest's business: every record carries its context, so the
// worker needs no messages about it. The primary context is retained once on the host, however
// often the program does it.
#include "abi/cuda_graph.h"
#include "guest-agent/graphs/capture.h"
#include "guest-agent/graphs/in_context.h"
#include "guest-agent/graphs/memory.h"
#include "guest-agent/shim/calls/green_contexts.h"
#include "guest-agent/shim/memory/pools.h"
#include "guest-agent/shim/modules/modules.h"
#include "guest-agent/shim/state/api.h"

using namespace sluice::guest;
namespace graphs = sluice::graphs;

namespace {

CUcontext as_context(uint64_t handle) { return reinterpret_cast<CUcontext>(handle); }

GreenScope scope_of(uint64_t handle) {
  const GreenInfo* green = state().greens.find(handle);
  return {green != nullptr ? green->context : handle, handle};
}

void push(uint64_t handle) {
  ContextStack& stack = context_stack();
  stack.items[stack.depth++] = green_scope() = scope_of(handle);
}

CUresult set_top(uint64_t handle) {
  ContextStack& stack = context_stack();
  if (stack.depth > 0) --stack.depth;
  if (handle != 0)
    push(handle);
  else
    green_scope() = stack.depth == 0 ? GreenScope{} : stack.items[stack.depth - 1];
  return CUDA_SUCCESS;
}

void forget_memory_of(uint64_t handle) {
  graphs::GraphMemory::forget_context(handle);
  for (const Range& range : state().pointers.remove_context(handle))
    return_to_pool(range.pool, range.bytes);
}

void forget_context(uint64_t handle) {
  graphs::end_captures_of_context(handle);
  State& s = state();
  {
    std::lock_guard lock(s.contexts_mutex);
    s.contexts.erase(handle);
  }
  forget_memory_of(handle);
  forget_modules_of(handle);
}

bool valid_device(CUdevice dev) { return dev >= 0 && dev < kMaxDevices; }

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  State& s = state();
  std::lock_guard lock(s.contexts_mutex);  // held over the call: two first retains are one
  State::Primary& primary = s.primaries[dev];
  if (primary.users == 0) {
    CUcontext made = nullptr;
    const CUresult r = SLUICE_CALL(cuDevicePrimaryCtxRetain, *e.link, 0, &made, dev);
    if (r != CUDA_SUCCESS) return r;
    primary.handle = wire(made);
    s.contexts[primary.handle] = {dev, true};
  }
  ++primary.users;
  *pctx = as_context(primary.handle);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  State& s = state();
  uint64_t handle;
  {
    std::lock_guard lock(s.contexts_mutex);
    State::Primary& primary = s.primaries[dev];
    if (primary.users == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary.users > 0) return CUDA_SUCCESS;
    handle = primary.handle;
    const CUresult r = SLUICE_CALL(cuDevicePrimaryCtxRelease_v2, *e.link, 0, dev);
    if (r != CUDA_SUCCESS) return r;
  }
  forget_context(handle);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  const Entered e = enter();
  if (!e) return e.status;
  return SLUICE_CALL(cuDevicePrimaryCtxSetFlags_v2, *e.link, 0, dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  const Entered e = enter();
  if (!e) return e.status;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuDevicePrimaryCtxGetState, *e.link, 0, dev, flags, active);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (has_green_contexts(dev)) return CUDA_ERROR_NOT_PERMITTED;
  const CUresult r = SLUICE_CALL(cuDevicePrimaryCtxReset_v2, *e.link, 0, dev);
  if (r != CUDA_SUCCESS) return r;
  e.link->forget_fault();
  State& s = state();
  uint64_t handle;
  {
    std::lock_guard lock(s.contexts_mutex);
    handle = s.primaries[dev].handle;
    if (const auto it = s.contexts.find(handle); it != s.contexts.end()) ++it->second.resets;
  }
  // Retained handles stay; what lay in the context is gone.
  forget_memory_of(handle);
  forget_modules_of(handle);
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context_stack().depth == ContextStack::kDepth) return CUDA_ERROR_OUT_OF_MEMORY;
  CUcontext made = nullptr;
  const CUresult r = SLUICE_CALL(cuCtxCreate_v2, *e.link, 0, &made, flags, dev);
  if (r != CUDA_SUCCESS) return r;
  State& s = state();
  {
    std::lock_guard lock(s.contexts_mutex);
    s.contexts[wire(made)] = {dev, false};
  }
  push(wire(made));
  *pctx = made;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam_st*, int num_params,
                        unsigned int flags, CUdevice dev) {
  if (num_params != 0) return static_cast<CUresult>(not_supported("cuCtxCreate_v3", "affinity"));
  return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* params, unsigned int flags,
                        CUdevice dev) {
  if (params != nullptr && (params->numExecAffinityParams != 0 || params->cigParams != nullptr))
    return static_cast<CUresult>(not_supported("cuCtxCreate_v4", "affinity or graphics sharing"));
  return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  const Entered e = enter();
  if (!e) return e.status;
  const auto info = state().context(wire(ctx));
  if (!info || info->primary) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult r = SLUICE_CALL(cuCtxDestroy_v2, *e.link, 0, ctx);
  if (r != CUDA_SUCCESS) return r;
  if (current_context() == wire(ctx)) set_top(0);
  forget_context(wire(ctx));
  return CUDA_SUCCESS;
}

// Attached, a context is used once more; only that of the caller can be, and flags are 0.
CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(state().contexts_mutex);
  const auto it = state().contexts.find(e.context);
  if (it == state().contexts.end() || it->second.primary) return CUDA_ERROR_INVALID_CONTEXT;
  ++it->second.attached;
  *pctx = as_context(e.context);
  return CUDA_SUCCESS;
}
CUresult cuCtxDetach(CUcontext ctx) {
  const Entered e = enter();
  if (!e) return e.status;
  {
    std::lock_guard lock(state().contexts_mutex);
    const auto it = state().contexts.find(wire(ctx));
    if (it == state().contexts.end() || it->second.primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (it->second.attached > 0) {
      --it->second.attached;
      return CUDA_SUCCESS;
    }
  }
  return cuCtxDestroy(ctx);
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam* affinity, CUexecAffinityType type) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (affinity == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  int sms = 0;
  const CUresult r = sms_of(*e.link, current_green(), &sms);
  if (r != CUDA_SUCCESS) return r;
  affinity->type = type;
  affinity->param.smCount.val = static_cast<unsigned>(sms);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  const Entered e = enter();
  if (!e) return e.status;
  if (!state().context(wire(ctx))) return CUDA_ERROR_INVALID_CONTEXT;
  if (context_stack().depth == ContextStack::kDepth) return CUDA_ERROR_OUT_OF_MEMORY;
  push(wire(ctx));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  const Entered e = enter();
  if (!e) return e.status;
  if (e.context == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = as_context(current_handle());
  return set_top(0);
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  const Entered e = enter();
  if (!e) return e.status;
  if (ctx != nullptr && !state().context(wire(ctx))) return CUDA_ERROR_INVALID_CONTEXT;
  return set_top(wire(ctx));
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  const Entered e = enter();
  if (!e) return e.status;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = as_context(current_handle());
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto info = state().context(e.context);
  if (!info) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *device = info->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (ctx == nullptr) return cuCtxGetDevice(device);
  const Entered e = enter();
  if (!e) return e.status;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto info = state().context(wire(ctx));
  if (!info) return CUDA_ERROR_INVALID_CONTEXT;
  *device = info->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  if (ctx == nullptr) return cuCtxSynchronize();
  const Entered e = enter();
  if (!e) return e.status;
  if (!state().context(wire(ctx))) return CUDA_ERROR_INVALID_CONTEXT;
  const graphs::InContext there(wire(ctx));
  return there.status == CUDA_SUCCESS ? cuCtxSynchronize() : there.status;
}

CUresult cuCtxSynchronize() {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult r = graphs::refuse_for_context(e.context); r != CUDA_SUCCESS) return r;
  if (const uint64_t green = current_green(); green != 0)
    return synchronised(synchronize_green(green));
  if (e.link->all_ended(e.context)) return synchronised(e.link->with_deferred(CUDA_SUCCESS));
  sluice_synchronize body{};
  body.what = SLUICE_SYNC_CONTEXT;
  return synchronised(e.link->with_deferred(e.link->synchronize(e.context, body)));
}

#define SLUICE_IN_CONTEXT(function, ...) \
  const Entered e = enter_context();     \
  if (!e) return e.status;               \
  return SLUICE_CALL(function, *e.link, e.context __VA_OPT__(, ) __VA_ARGS__)

CUresult cuCtxGetFlags(unsigned int* flags) { SLUICE_IN_CONTEXT(cuCtxGetFlags, flags); }
CUresult cuCtxSetFlags(unsigned int flags) { SLUICE_IN_CONTEXT(cuCtxSetFlags, flags); }
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  SLUICE_IN_CONTEXT(cuCtxSetLimit, limit, value);
}
CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  SLUICE_IN_CONTEXT(cuCtxGetLimit, value, limit);
}
CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  SLUICE_IN_CONTEXT(cuCtxGetCacheConfig, config);
}
CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  SLUICE_IN_CONTEXT(cuCtxSetCacheConfig, config);
}
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  SLUICE_IN_CONTEXT(cuCtxGetStreamPriorityRange, least, greatest);
}
CUresult cuCtxResetPersistingL2Cache() { SLUICE_IN_CONTEXT(cuCtxResetPersistingL2Cache); }
CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  SLUICE_IN_CONTEXT(cuCtxGetSharedMemConfig, config);
}
CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  SLUICE_IN_CONTEXT(cuCtxSetSharedMemConfig, config);
}
CUresult cuCtxGetId(CUcontext ctx, unsigned long long* id) {
  const Entered e = ctx == nullptr ? enter_context() : enter();
  if (!e) return e.status;
  if (ctx == nullptr) ctx = as_context(current_handle());
  if (state().greens.find(wire(ctx)) != nullptr)
    return cuGreenCtxGetId(reinterpret_cast<CUgreenCtx>(ctx), id);
  return SLUICE_CALL(cuCtxGetId, *e.link, e.context, ctx, id);
}
CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  const Entered e = ctx == nullptr ? enter_context() : enter();
  if (!e) return e.status;
  ctx = as_context(ctx == nullptr ? e.context : scope_of(wire(ctx)).context);
  return SLUICE_CALL(cuCtxGetApiVersion, *e.link, e.context, ctx, version);
}
