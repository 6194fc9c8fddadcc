// SPDX-License-Identifier: Apache-2.0
// Kernels: launches, attributes, occupancy, libraries.
#include <algorithm>

#include "guest-agent/cudart/binaries.h"
#include "guest-agent/cudart/calls.h"
#include "guest-agent/cudart/launch.h"
#include "guest-agent/cudart/version.h"

namespace sluice::cudart {
namespace {

CUfunction as_function(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

int device_limit(CUdevice_attribute attribute) {
  int value = 0;
  driver().cuDeviceGetAttribute(&value, attribute, current_device());
  return value;
}

// Whether no kernel at all could have such a grid or block.
bool is_beyond_the_device(dim3 grid, dim3 block) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || uint64_t{grid.x} * grid.y == 0 || grid.z == 0) return true;
  const auto over = [](unsigned n, CUdevice_attribute attribute) {
    return n > static_cast<unsigned>(device_limit(attribute));
  };
  return threads > static_cast<uint64_t>(device_limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) ||
         over(block.x, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) ||
         over(block.y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y) ||
         over(block.z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z) ||
         over(grid.x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) ||
         over(grid.y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y) ||
         over(grid.z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
}

// The runtime of 12 has an error of its own for that; since 13 it is a wrong value as any other.
cudaError_t launch_error(CUresult r, dim3 grid, dim3 block) {
  if (kRuntimeVersion < 13000 && r == CUDA_ERROR_INVALID_VALUE &&
      is_beyond_the_device(grid, block)) {
    return cudaErrorInvalidConfiguration;
  }
  return to_runtime(r);
}

// The driver's function of a kernel in the current context, for calls that take no kernels.
cudaError_t function_of(const void* named, CUfunction* function) {
  CUkernel kernel = nullptr;
  if (const cudaError_t error = resolve_kernel(named, &kernel); error != cudaSuccess) return error;
  return to_runtime(driver().cuKernelGetFunction(function, kernel));
}

// What is no kernel is no resource in a launch, and no function where it is asked for.
cudaError_t of_a_symbol(cudaError_t error) {
  return error == cudaErrorInvalidResourceHandle ? cudaErrorInvalidDeviceFunction : error;
}

CUlaunchConfig driver_config(const cudaLaunchConfig_t& c, cudaStream_t stream) {
  CUlaunchConfig out = {};
  out.gridDimX = c.gridDim.x;
  out.gridDimY = c.gridDim.y;
  out.gridDimZ = c.gridDim.z;
  out.blockDimX = c.blockDim.x;
  out.blockDimY = c.blockDim.y;
  out.blockDimZ = c.blockDim.z;
  out.sharedMemBytes = static_cast<unsigned>(c.dynamicSmemBytes);
  out.hStream = stream;
  out.attrs = reinterpret_cast<CUlaunchAttribute*>(c.attrs);
  out.numAttrs = c.numAttrs;
  return out;
}

template <class Query>
cudaError_t with_function(const void* named, Query query) {
  CUfunction function = nullptr;
  const cudaError_t error = function_of(named, &function);
  return error != cudaSuccess ? error : to_runtime(query(function));
}

}  // namespace

cudaError_t launch(CUkernel kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                   cudaStream_t stream) {
  if (shared_bytes > UINT32_MAX) return cudaErrorInvalidValue;
  const CUresult r =
      driver().cuLaunchKernel(as_function(kernel), grid.x, grid.y, grid.z, block.x, block.y,
                              block.z, static_cast<unsigned>(shared_bytes), stream, args, nullptr);
  return r == CUDA_SUCCESS ? cudaSuccess : launch_error(r, grid, block);
}

namespace impl {

cudaError_t cudaLaunchKernel(DefaultStream mode, const void* func, dim3 grid, dim3 block,
                             void** args, size_t shared_bytes, cudaStream_t stream) {
  CUkernel kernel = nullptr;
  const cudaError_t error = resolve_kernel(func, &kernel);
  return error != cudaSuccess
             ? error
             : launch(kernel, grid, block, args, shared_bytes, stream_for(mode, stream));
}

cudaError_t cudaLaunchCooperativeKernel(DefaultStream mode, const void* func, dim3 grid, dim3 block,
                                        void** args, size_t shared_bytes, cudaStream_t stream) {
  CUkernel kernel = nullptr;
  if (const cudaError_t error = resolve_kernel(func, &kernel); error != cudaSuccess) return error;
  if (shared_bytes > UINT32_MAX) return cudaErrorInvalidValue;
  const CUresult r = driver().cuLaunchCooperativeKernel(
      as_function(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
      static_cast<unsigned>(shared_bytes), stream_for(mode, stream), args);
  return r == CUDA_SUCCESS ? cudaSuccess : launch_error(r, grid, block);
}

cudaError_t cudaLaunchKernelExC(DefaultStream mode, const cudaLaunchConfig_t* config,
                                const void* func, void** args) {
  if (config == nullptr || config->dynamicSmemBytes > UINT32_MAX) return cudaErrorInvalidValue;
  CUkernel kernel = nullptr;
  if (const cudaError_t error = resolve_kernel(func, &kernel); error != cudaSuccess) return error;
  const CUlaunchConfig c = driver_config(*config, stream_for(mode, config->stream));
  const CUresult r = driver().cuLaunchKernelEx(&c, as_function(kernel), args, nullptr);
  return r == CUDA_SUCCESS ? cudaSuccess : launch_error(r, config->gridDim, config->blockDim);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attr, const void* func) {
  if (attr == nullptr) return cudaErrorInvalidValue;
  CUfunction function = nullptr;
  if (const cudaError_t error = function_of(func, &function); error != cudaSuccess) return error;
  CUresult status = CUDA_SUCCESS;
  const auto get = [&](CUfunction_attribute attribute) {
    int value = 0;
    const CUresult r = driver().cuFuncGetAttribute(&value, attribute, function);
    if (r != CUDA_SUCCESS && status == CUDA_SUCCESS) status = r;
    return value;
  };
  *attr = {};
  attr->sharedSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  attr->constSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES));
  attr->localSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  attr->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  attr->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
  attr->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
  attr->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
  attr->cacheModeCA = get(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA);
  attr->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  attr->preferredShmemCarveout = get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
  if (status != CUDA_SUCCESS) return to_runtime(status);
  attr->clusterDimMustBeSet = get(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET);
  attr->requiredClusterWidth = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
  attr->requiredClusterHeight = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT);
  attr->requiredClusterDepth = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH);
  attr->clusterSchedulingPolicyPreference =
      get(CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
  attr->nonPortableClusterSizeAllowed = get(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* func, cudaFuncAttribute attr, int value) {
  return with_function(func, [&](CUfunction f) {
    return driver().cuFuncSetAttribute(f, static_cast<CUfunction_attribute>(attr), value);
  });
}
cudaError_t cudaFuncSetCacheConfig(const void* func, cudaFuncCache config) {
  return with_function(func, [&](CUfunction f) {
    return driver().cuFuncSetCacheConfig(f, static_cast<CUfunc_cache>(config));
  });
}
cudaError_t cudaFuncSetSharedMemConfig(const void* func, cudaSharedMemConfig config) {
  return with_function(func, [&](CUfunction f) {
    return driver().cuFuncSetSharedMemConfig(f, static_cast<CUsharedconfig>(config));
  });
}
cudaError_t cudaFuncGetName(const char** name, const void* func) {
  if (name == nullptr) return cudaErrorInvalidValue;
  return with_function(func, [&](CUfunction f) { return driver().cuFuncGetName(name, f); });
}
cudaError_t cudaFuncGetParamInfo(const void* func, size_t index, size_t* offset, size_t* size) {
  return with_function(
      func, [&](CUfunction f) { return driver().cuFuncGetParamInfo(f, index, offset, size); });
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
  if (function == nullptr) return cudaErrorInvalidValue;
  return of_a_symbol(function_of(symbol, function));
}
cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* entry) {
  return kernel == nullptr ? cudaErrorInvalidValue : of_a_symbol(resolve_kernel(entry, kernel));
}
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attr, int value,
                                            int device) {
  const auto attribute = static_cast<CUfunction_attribute>(attr);
  const CUresult r = driver().cuKernelSetAttribute(attribute, value, kernel, device);
  CUfunction loaded = nullptr;
  CUdevice current = -1;
  // A function that was loaded before keeps what it had, by NVIDIA's driver; cudaFuncGetAttributes
  // is about it.
  if (r == CUDA_SUCCESS && driver().cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device &&
      driver().cuKernelGetFunction(&loaded, kernel) == CUDA_SUCCESS)
    (void)driver().cuFuncSetAttribute(loaded, attribute, value);
  return to_runtime(r);
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  const CUresult r = driver().cuLibraryGetKernel(kernel, library, name);
  if (r == CUDA_SUCCESS) remember_kernel(*kernel);
  return to_runtime(r);
}
cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t* kernels, unsigned count,
                                        cudaLibrary_t library) {
  if (kernels != nullptr) std::fill_n(kernels, count, nullptr);
  const CUresult r = driver().cuLibraryEnumerateKernels(kernels, count, library);
  for (unsigned i = 0; r == CUDA_SUCCESS && i < count && kernels[i] != nullptr; ++i)
    remember_kernel(kernels[i]);
  return to_runtime(r);
}
cudaError_t cudaLibraryGetManaged(void** address, size_t* bytes, cudaLibrary_t library,
                                  const char* name) {
  return to_runtime(call_driver<void**, size_t*, CUlibrary, const char*>(
      "cuLibraryGetManaged", address, bytes, library, name));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* func,
                                                          int block_size, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, func, block_size,
                                                                shared_bytes, 0);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* func,
                                                                   int block_size,
                                                                   size_t shared_bytes,
                                                                   unsigned flags) {
  return with_function(func, [&](CUfunction f) {
    return driver().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, block_size,
                                                                         shared_bytes, flags);
  });
}
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* func, int blocks,
                                                      int block_size) {
  return with_function(func, [&](CUfunction f) {
    return driver().cuOccupancyAvailableDynamicSMemPerBlock(bytes, f, blocks, block_size);
  });
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* func,
                                           const cudaLaunchConfig_t* config) {
  if (config == nullptr) return cudaErrorInvalidValue;
  const CUlaunchConfig c = driver_config(*config, config->stream);
  return with_function(func, [&](CUfunction f) {
    return call_driver<int*, CUfunction, const CUlaunchConfig*>("cuOccupancyMaxActiveClusters",
                                                                clusters, f, &c);
  });
}
cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void* func,
                                                 const cudaLaunchConfig_t* config) {
  if (config == nullptr) return cudaErrorInvalidValue;
  const CUlaunchConfig c = driver_config(*config, config->stream);
  return with_function(func, [&](CUfunction f) {
    return call_driver<int*, CUfunction, const CUlaunchConfig*>(
        "cuOccupancyMaxPotentialClusterSize", size, f, &c);
  });
}

}  // namespace impl
}  // namespace sluice::cudart
