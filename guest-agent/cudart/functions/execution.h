// SPDX-License-Identifier: Apache-2.0
// Kernels: launches, attributes, occupancy, libraries. One row each; functions.h says what the
// columns mean.
#pragma once

// clang-format off
#define SLUICE_CUDART_EXECUTION(F, S, D, T, A, P, H) \
  F(cudaFuncGetAttributes, kContext, (cudaFuncAttributes* attr, const void* func), (attr, func)) \
  F(cudaFuncGetName, kContext, (const char** name, const void* func), (name, func)) \
  F(cudaFuncGetParamInfo, kContext, (const void* func, size_t param_index, size_t* param_offset, \
    size_t* param_size), (func, param_index, param_offset, param_size)) \
  F(cudaFuncSetAttribute, kContext, (const void* func, cudaFuncAttribute attr, int value), \
    (func, attr, value)) \
  F(cudaFuncSetCacheConfig, kContext, (const void* func, cudaFuncCache cache_config), (func, \
    cache_config)) \
  F(cudaFuncSetSharedMemConfig, kContext, (const void* func, cudaSharedMemConfig config), (func, \
    config)) \
  F(cudaGetFuncBySymbol, kContext, (cudaFunction_t* function_ptr, const void* symbol_ptr), \
    (function_ptr, symbol_ptr)) \
  F(cudaGetKernel, kContext, (cudaKernel_t* kernel_ptr, const void* entry_func_addr), \
    (kernel_ptr, entry_func_addr)) \
  F(cudaKernelSetAttributeForDevice, kContext, (cudaKernel_t kernel, cudaFuncAttribute attr, int \
    value, int device), (kernel, attr, value, device)) \
  S(cudaLaunchCooperativeKernel, ptsz, kContext, (const void* func, dim3 grid_dim, dim3 \
    block_dim, void** args, size_t shared_mem, cudaStream_t stream), (mode, func, grid_dim, \
    block_dim, args, shared_mem, stream)) \
  S(cudaLaunchKernel, ptsz, kContext, (const void* func, dim3 grid_dim, dim3 block_dim, void** \
    args, size_t shared_mem, cudaStream_t stream), (mode, func, grid_dim, block_dim, args, \
    shared_mem, stream)) \
  S(cudaLaunchKernelExC, ptsz, kContext, (const cudaLaunchConfig_t* config, const void* func, \
    void** args), (mode, config, func, args)) \
  F(cudaLibraryEnumerateKernels, kContext, (cudaKernel_t* kernels, unsigned int num_kernels, \
    cudaLibrary_t lib), (kernels, num_kernels, lib)) \
  D(cudaLibraryGetGlobal, kContext, (void** dptr, size_t* bytes, cudaLibrary_t library, const \
    char* name), (dptr, bytes, library, name), cuLibraryGetGlobal) \
  F(cudaLibraryGetKernel, kContext, (cudaKernel_t* kernel, cudaLibrary_t library, const char* \
    name), (kernel, library, name)) \
  D(cudaLibraryGetKernelCount, kContext, (unsigned int* count, cudaLibrary_t lib), (count, lib), \
    cuLibraryGetKernelCount) \
  F(cudaLibraryGetManaged, kContext, (void** dptr, size_t* bytes, cudaLibrary_t library, const \
    char* name), (dptr, bytes, library, name)) \
  D(cudaLibraryGetUnifiedFunction, kContext, (void** fptr, cudaLibrary_t library, const char* \
    symbol), (fptr, library, symbol), cuLibraryGetUnifiedFunction) \
  D(cudaLibraryLoadData, kContext, (cudaLibrary_t* library, const void* code, cudaJitOption* \
    jit_options, void** jit_options_values, unsigned int num_jit_options, cudaLibraryOption* \
    library_options, void** library_option_values, unsigned int num_library_options), (library, \
    code, jit_options, jit_options_values, num_jit_options, library_options, \
    library_option_values, num_library_options), cuLibraryLoadData) \
  D(cudaLibraryLoadFromFile, kContext, (cudaLibrary_t* library, const char* file_name, \
    cudaJitOption* jit_options, void** jit_options_values, unsigned int num_jit_options, \
    cudaLibraryOption* library_options, void** library_option_values, unsigned int \
    num_library_options), (library, file_name, jit_options, jit_options_values, num_jit_options, \
    library_options, library_option_values, num_library_options), cuLibraryLoadFromFile) \
  D(cudaLibraryUnload, kContext, (cudaLibrary_t library), (library), cuLibraryUnload) \
  F(cudaOccupancyAvailableDynamicSMemPerBlock, kContext, (size_t* dynamic_smem_size, const void* \
    func, int num_blocks, int block_size), (dynamic_smem_size, func, num_blocks, block_size)) \
  F(cudaOccupancyMaxActiveBlocksPerMultiprocessor, kContext, (int* num_blocks, const void* func, \
    int block_size, size_t dynamic_smem_size), (num_blocks, func, block_size, \
    dynamic_smem_size)) \
  F(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, kContext, (int* num_blocks, const \
    void* func, int block_size, size_t dynamic_smem_size, unsigned int flags), (num_blocks, \
    func, block_size, dynamic_smem_size, flags)) \
  F(cudaOccupancyMaxActiveClusters, kContext, (int* num_clusters, const void* func, const \
    cudaLaunchConfig_t* launch_config), (num_clusters, func, launch_config)) \
  F(cudaOccupancyMaxPotentialClusterSize, kContext, (int* cluster_size, const void* func, const \
    cudaLaunchConfig_t* launch_config), (cluster_size, func, launch_config))
// clang-format on
