// SPDX-License-Identifier: Apache-2.0
// Modules unloaded, their globals, and attributes of functions.
#include "mediator/worker/calls/generic_calls.h"

#include <memory>
#include <vector>

namespace sluice::worker {

static CUresult unload(const gpu::DriverApi& api, const ModuleObject& m) {
  CUresult r = m.other != nullptr ? api.cuModuleUnload(m.other) : CUDA_SUCCESS;
  return r == CUDA_SUCCESS ? api.cuModuleUnload(m.cu) : r;
}

CUresult GenericCalls::cuModuleUnload(ModuleHandle module) {
  std::shared_ptr<ModuleObject> m;
  {
    std::lock_guard lock(s.mutex);
    m = s.handles.find<ModuleObject>(SLUICE_HANDLE_MODULE, module.value);
    if (!m) return CUDA_ERROR_INVALID_HANDLE;
    for (const auto& [name, h] : m->functions) s.handles.remove(SLUICE_HANDLE_FUNCTION, h);
    s.handles.remove(SLUICE_HANDLE_MODULE, module.value);
    s.memory.allocations.remove_owner(module.value);
  }
  CUresult r = make_current(s.api, m->context->cu);
  for (const auto& clones : m->of_clones)
    if (r == CUDA_SUCCESS) r = unload(s.api, *clones);
  if (r == CUDA_SUCCESS) r = unload(s.api, *m);
  // Only what is gone; a module that the driver keeps is the context's until it ends.
  std::lock_guard lock(s.mutex);
  if (r == CUDA_SUCCESS) {
    s.charges.release_module(*m);
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

// What a program sets of a function holds for whatever is launched in its place. Session lock.
static std::vector<CUfunction> clones_of(const FunctionObject& f) {
  std::vector<CUfunction> all{f.clone, f.clamped, f.one_task, f.one_task_clamped, f.window};
  std::erase(all, nullptr);
  return all;
}

CUresult GenericCalls::cuFuncSetAttribute(FunctionHandle handle, CUfunction_attribute attribute,
                                          int value) {
  // NVIDIA's driver (580) reads beyond its table of attributes.
  if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  auto f = function(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  CUresult r = s.api.cuFuncSetAttribute(f->original, attribute, value);
  if (r != CUDA_SUCCESS) return r;
  std::lock_guard lock(s.mutex);
  // The clones follow; their dynamic shared memory has room for the slots besides, and is raised
  // when it is launched (LaunchPlanner::variant_of), so here only what the program lowers or else
  // sets.
  // Clusters are the original's: a kernel that sees them has no clones, and the grids of those of
  // others need be no multiple of a cluster.
  const bool of_clusters = attribute >= CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && !of_clusters) {
    f->attributes[attribute] = value;
    for (CUfunction clone : clones_of(*f)) (void)s.api.cuFuncSetAttribute(clone, attribute, value);
  }
  f->variants.clear();  // occupancy may have changed
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuFuncSetCacheConfig(FunctionHandle handle, CUfunc_cache config) {
  auto f = function(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  CUresult r = s.api.cuFuncSetCacheConfig(f->original, config);
  if (r != CUDA_SUCCESS) return r;
  std::lock_guard lock(s.mutex);
  f->cache_config = config;
  for (CUfunction clone : clones_of(*f)) (void)s.api.cuFuncSetCacheConfig(clone, config);
  return r;
}

CUresult GenericCalls::cuFuncSetSharedMemConfig(FunctionHandle handle, CUsharedconfig config) {
  auto f = function(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  CUresult r = s.api.cuFuncSetSharedMemConfig(f->original, config);
  if (r != CUDA_SUCCESS) return r;
  std::lock_guard lock(s.mutex);
  for (CUfunction clone : clones_of(*f)) (void)s.api.cuFuncSetSharedMemConfig(clone, config);
  return r;
}

CUresult GenericCalls::cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, FunctionHandle handle,
                                                               int blocks, int threads) {
  // NVIDIA's driver (580) writes to a null pointer.
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  auto f = function(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  return s.api.cuOccupancyAvailableDynamicSMemPerBlock(bytes, f->original, blocks, threads);
}

}  // namespace sluice::worker
