// SPDX-License-Identifier: Apache-2.0
// The driver API's contexts. A context handle is never dereferenced, only looked up.
#include "mediator/softgpu/grid/child_grids.h"
#include "mediator/softgpu/softgpu.h"
#include "mediator/softgpu/state/state.h"

#include <algorithm>
#include <cstdio>

using namespace sluice::softgpu;

namespace {

bool valid_flags(unsigned flags) {
  return (flags & ~unsigned{CU_CTX_FLAGS_MASK}) == 0 &&
         ((flags & CU_CTX_SCHED_MASK) & ((flags & CU_CTX_SCHED_MASK) - 1)) == 0;  // one way at most
}

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  return with_state([&](State& s) {
    if (out == nullptr || !valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    auto context = make_context(s, flags, false);
    if (!context) {
      s.log(context.error().message);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context_stack().push_back({*context, nullptr});
    *out = (*context)->handle;
    return CUDA_SUCCESS;
  });
}

// The context that `handle` names, or with null the current one; a failed one too. Of a green
// context the primary one.
template <class F>
CUresult with_named(CUcontext handle, F f) {
  return with_state([&](State& s) -> CUresult {
    const Current named = handle == nullptr ? current() : find_context(s, handle);
    return named ? f(s, *named.context) : CUDA_ERROR_INVALID_CONTEXT;
  });
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  return with_state([&](State& s) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    const std::shared_ptr<Context> primary = retain_primary(s);
    if (primary == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = primary->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return with_state([&](State& s) {
    return device != 0 ? CUDA_ERROR_INVALID_DEVICE : release_primary(s, nullptr, false);
  });
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return with_state([&](State& s) {
    return device != 0 ? CUDA_ERROR_INVALID_DEVICE : release_primary(s, nullptr, true);
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  return with_state([&](State& s) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(s.mutex);
    s.primary_flags = flags;
    if (s.primary) s.primary->flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return with_state([&](State& s) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(s.mutex);
    *flags = s.primary_flags;
    *active = s.primary != nullptr;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice device) {
  return create(out, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam_st*, int count, unsigned int flags,
                        CUdevice device) {
  return count != 0 ? CUDA_ERROR_NOT_SUPPORTED : create(out, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned int flags,
                        CUdevice device) {
  if (params != nullptr && (params->numExecAffinityParams != 0 || params->cigParams != nullptr)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return create(out, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
  return with_state([&](State& s) {
    const std::shared_ptr<Context> context = s.tables.contexts.find(handle);
    if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (current().context == context) context_stack().pop_back();
    destroy_context(s, context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  return with_state([&](State& s) {
    Current named = find_context(s, handle);
    if (!named) return CUDA_ERROR_INVALID_CONTEXT;
    context_stack().push_back(std::move(named));
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  return with_state([&](State&) {
    auto& stack = context_stack();
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (out != nullptr) *out = stack.back().handle();
    stack.pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  return with_state([&](State& s) {
    auto& stack = context_stack();
    if (handle == nullptr) {
      if (!stack.empty()) stack.pop_back();
      return CUDA_SUCCESS;
    }
    Current named = find_context(s, handle);
    if (!named) return CUDA_ERROR_INVALID_CONTEXT;
    if (stack.empty()) {
      stack.push_back(std::move(named));
    } else {
      stack.back() = std::move(named);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* out) {
  return with_state([&](State&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = current().handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return with_named(nullptr, [&](State&, Context&) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return with_named(nullptr, [&](State&, Context& context) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return with_context([&](State&, Context& context) {
    if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    context.flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return with_state([&](State& s) {
    const Current named = handle == nullptr ? current() : find_context(s, handle);
    if (!named) return CUDA_ERROR_INVALID_CONTEXT;
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *id = named.green ? named.green->id : named.context->id;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return with_context([](State& s, Context& context) {
    if (const Current top = current(); top.green) {
      s.scheduler.wait(*top.green);
    } else {
      s.scheduler.wait(context);  // its green contexts, too
    }
    return outcome(context);
  });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return with_context([&](State& s, Context& context) {
    if (static_cast<unsigned>(limit) >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(context.mutex);
    const auto it = context.limits.find(limit);
    if (it == context.limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit == CU_LIMIT_STACK_SIZE) {
      if (value > sluice::exec::kMaxStackBytes) return CUDA_ERROR_INVALID_VALUE;
      value = (value + 15) / 16 * 16;
    }
    // Hints to a cache that is not there, of which nothing can be set aside.
    constexpr size_t kMostFetched = 128;
    if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY) value = std::min(value, kMostFetched);
    if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE) value = 0;
    if (limit == CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT) value = kMostWaitingChildren;
    if (!reserve_limit(s, context, limit, it->second, value)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (limit == CU_LIMIT_STACK_SIZE) context.stack_bytes = value;
    // Not once a kernel has taken memory from it.
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && !context.heap.resize(value)) {
      (void)reserve_limit(s, context, limit, value, it->second);
      return CUDA_ERROR_INVALID_VALUE;
    }
    it->second = value;  // printf's buffer has no limit: what kernels print is written at once
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  return with_context([&](State&, Context& context) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (static_cast<unsigned>(limit) >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(context.mutex);
    const auto it = context.limits.find(limit);
    if (it == context.limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = it->second;
    return CUDA_SUCCESS;
  });
}

// There are no caches or banks to configure: accepted and without effect.
CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  return with_context([&](State&, Context&) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
  });
}
CUresult cuCtxSetCacheConfig(CUfunc_cache) {
  return with_context([](State&, Context&) { return CUDA_SUCCESS; });
}
CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  return with_context([&](State&, Context&) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
  });
}
CUresult cuCtxSetSharedMemConfig(CUsharedconfig) {
  return with_context([](State&, Context&) { return CUDA_SUCCESS; });
}
CUresult cuCtxResetPersistingL2Cache() {
  return with_context([](State&, Context&) { return CUDA_SUCCESS; });
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  return with_named(handle, [&](State&, Context&) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return with_context([&](State&, Context&) {
    if (least != nullptr) *least = kLeastPriority;
    if (greatest != nullptr) *greatest = kGreatestPriority;
    return CUDA_SUCCESS;
  });
}

CUresult sluice_softgpu_tsgid(CUcontext handle, unsigned int* tsgid) {
  return with_named(handle, [&](State&, Context& context) {
    if (tsgid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *tsgid = SharedGpu::tsgid(context.slot);
    return CUDA_SUCCESS;
  });
}

CUresult sluice_softgpu_fault(CUcontext handle, char* text, size_t bytes) {
  return with_named(handle, [&](State&, Context& context) {
    if (text == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(context.mutex);
    std::snprintf(text, bytes, "%s", context.fault.c_str());
    return outcome(context);
  });
}
