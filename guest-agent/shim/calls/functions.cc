// SPDX-License-Identifier: Apache-2.0
// Kernels: attributes and occupancy.
#include <algorithm>
#include <climits>

#include "guest-agent/shim/calls/in_function.h"
#include "guest-agent/shim/calls/launches.h"

using namespace sluice::guest;

// ---- attributes ----

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  const InFunction f(hfunc);
  if (!f) return f.status;
  if (pi == nullptr || attrib < 0) return CUDA_ERROR_INVALID_VALUE;
  const auto index = static_cast<size_t>(attrib);
  if (index < f.info->attributes.size() && f.info->attributes[index] != INT_MIN) {
    *pi = f.info->attributes[index];
    return CUDA_SUCCESS;
  }
  const CUresult r =
      SLUICE_CALL(cuFuncGetAttribute, *f.link, f.context, pi, attrib, as_function(f.info));
  if (r == CUDA_SUCCESS && index < f.info->attributes.size()) f.info->attributes[index] = *pi;
  return r;
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  const InFunction f(hfunc);
  if (!f) return f.status;
  const CUresult r =
      SLUICE_CALL(cuFuncSetAttribute, *f.link, f.context, as_function(f.info), attrib, value);
  const auto index = static_cast<size_t>(attrib);
  // What the driver makes of a value, it says when asked next. Launches go by what is known of
  // clusters.
  if (r == CUDA_SUCCESS && index < f.info->attributes.size()) f.info->attributes[index] = INT_MIN;
  int made = 0;
  if (r == CUDA_SUCCESS && attrib >= CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET)
    (void)cuFuncGetAttribute(&made, attrib, hfunc);
  if (r == CUDA_SUCCESS && attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    f.info->attributes[index] = value;
  return r;
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  const InFunction f(hfunc);
  if (!f) return f.status;
  return SLUICE_CALL(cuFuncSetCacheConfig, *f.link, f.context, as_function(f.info), config);
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  const InFunction f(hfunc);
  if (!f) return f.status;
  return SLUICE_CALL(cuFuncSetSharedMemConfig, *f.link, f.context, as_function(f.info), config);
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  if (name == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const InFunction f(hfunc);
  if (!f) return f.status;
  *name = f.info->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t index, size_t* offset, size_t* size) {
  const InFunction f(func);
  if (!f) return f.status;
  if (offset == nullptr || index >= f.info->params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = f.info->params[index].first;
  if (size != nullptr) *size = f.info->params[index].second;
  return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  const InFunction f(function);
  if (!f) return f.status;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) { return InFunction(function).status; }

// ---- occupancy ----

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* num_blocks, CUfunction func,
                                                     int block_size, size_t dynamic_smem_size) {
  const InFunction f(func);
  if (!f) return f.status;
  if (num_blocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, *f.link, f.context, num_blocks,
                     as_function(f.info), block_size, dynamic_smem_size);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* num_blocks, CUfunction func,
                                                              int block_size,
                                                              size_t dynamic_smem_size,
                                                              unsigned int flags) {
  const InFunction f(func);
  if (!f) return f.status;
  if (num_blocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, *f.link, f.context,
                     num_blocks, as_function(f.info), block_size, dynamic_smem_size, flags);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamic_smem_size, CUfunction func,
                                                 int num_blocks, int block_size) {
  const InFunction f(func);
  if (!f) return f.status;
  if (dynamic_smem_size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuOccupancyAvailableDynamicSMemPerBlock, *f.link, f.context, dynamic_smem_size,
                     as_function(f.info), num_blocks, block_size);
}

// ---- clusters ----

namespace {

CUresult clusters(int* to, CUfunction func, const CUlaunchConfig* config,
                  sluice_clusters_what what) {
  if (func == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const InFunction f(func);
  if (!f) return f.status;
  if (to == nullptr || config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  sluice_clusters body{};
  body.function = f.info->handle;
  const uint32_t grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const uint32_t block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  std::copy_n(grid, 3, body.grid);
  std::copy_n(block, 3, body.block);
  body.dynamic_shared_bytes = config->sharedMemBytes;
  body.what = what;
  std::vector<CUevent> events;
  CUresult r = flags_of_attributes(config->attrs, config->numAttrs, &body.flags, &events);
  if (r != CUDA_SUCCESS) return r;
  body.flags &= ~SLUICE_LAUNCHED_COOPERATIVE;
  // A launch in clusters of one block is one without; a driver finds no clusters in that.
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && body.flags == 0)
      body.flags = SLUICE_LAUNCHED_CLUSTER(1, 1, 1);
  Pending pending;
  r = f.link->call(SLUICE_CALL_CLUSTERS, f.context, body, pending);
  if (r != CUDA_SUCCESS) return r;
  int32_t number = 0;
  if (!pending.read(number)) return CUDA_ERROR_UNKNOWN;
  *to = number;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuOccupancyMaxActiveClusters(int* num_clusters, CUfunction func,
                                      const CUlaunchConfig* config) {
  return clusters(num_clusters, func, config, SLUICE_CLUSTERS_ACTIVE);
}
CUresult cuOccupancyMaxPotentialClusterSize(int* cluster_size, CUfunction func,
                                            const CUlaunchConfig* config) {
  return clusters(cluster_size, func, config, SLUICE_CLUSTERS_SIZE);
}

// The size function is the program's, so the search runs here: the largest multiple of a warp that
// gives most threads on an SM.
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* min_grid_size, int* block_size,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize smem_of_block,
                                                   size_t dynamic_smem_size, int block_size_limit,
                                                   unsigned int flags) {
  const InFunction f(func);
  if (!f) return f.status;
  if (min_grid_size == nullptr || block_size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int most = 0, warp = 0, sms = 0;
  CUresult r = cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, func);
  const CUdevice device = current_device();
  if (r == CUDA_SUCCESS)
    r = device_attribute(*f.link, device, CU_DEVICE_ATTRIBUTE_WARP_SIZE, &warp);
  if (r == CUDA_SUCCESS) r = sms_of(*f.link, current_green(), &sms);
  if (r != CUDA_SUCCESS) return r;
  if (block_size_limit > 0) most = std::min(most, block_size_limit);
  int best_threads = 0, best_blocks = 0, best_size = 0;
  for (int size = most; size > 0; size = (size - 1) / warp * warp) {
    const size_t shared = smem_of_block != nullptr ? smem_of_block(size) : dynamic_smem_size;
    int blocks = 0;
    r = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, func, size, shared, flags);
    if (r != CUDA_SUCCESS) return r;
    if (blocks * size <= best_threads) continue;
    best_threads = blocks * size;
    best_blocks = blocks;
    best_size = size;
  }
  if (best_size == 0) return CUDA_ERROR_INVALID_VALUE;
  *min_grid_size = best_blocks * sms;
  *block_size = best_size;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* min_grid_size, int* block_size, CUfunction func,
                                          CUoccupancyB2DSize smem_of_block,
                                          size_t dynamic_smem_size, int block_size_limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid_size, block_size, func, smem_of_block,
                                                   dynamic_smem_size, block_size_limit, 0);
}
