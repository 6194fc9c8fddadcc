// SPDX-License-Identifier: Apache-2.0
// What compiled programs call by themselves: registration of their binaries and <<<>>>. One row
// each; functions.h says what the columns mean.
#pragma once

// clang-format off
#define SLUICE_CUDART_REGISTRATION(F, S, D, T, A, P, H) \
  H(__cudaRegisterFatBinary, void**, (void* wrapper)) \
  H(__cudaRegisterFatBinaryEnd, void, (void** handle)) \
  H(__cudaUnregisterFatBinary, void, (void** handle)) \
  H(__cudaRegisterFunction, void, (void** handle, const char* host_function, char* \
    device_function, const char* device_name, int thread_limit, void* thread, void* block, void* \
    block_size, void* grid_size, int* warp_size)) \
  H(__cudaRegisterVar, void, (void** handle, char* host_variable, char* device_address, const \
    char* device_name, int external, size_t size, int constant, int global)) \
  H(__cudaRegisterManagedVar, void, (void** handle, void** host_variable, char* device_address, \
    const char* device_name, int external, size_t size, int constant, int global)) \
  H(__cudaRegisterHostVar, void, (void** handle, const char* device_name, char* host_variable, \
    size_t size)) \
  H(__cudaRegisterUnifiedTable, void, (void** handle, void* table)) \
  H(__cudaInitModule, char, (void** handle)) \
  H(__cudaPushCallConfiguration, unsigned, (dim3 grid, dim3 block, size_t shared_bytes, \
    CUstream_st* stream)) \
  H(__cudaPopCallConfiguration, cudaError_t, (dim3* grid, dim3* block, size_t* shared_bytes, \
    void* stream)) \
  H(__cudaGetKernel, cudaError_t, (cudaKernel_t* kernel, const void* host_function)) \
  H(__cudaLaunchKernel, cudaError_t, (cudaKernel_t kernel, dim3 grid, dim3 block, void** args, \
    size_t shared_bytes, cudaStream_t stream)) \
  H(__cudaLaunchKernel_ptsz, cudaError_t, (cudaKernel_t kernel, dim3 grid, dim3 block, void** \
    args, size_t shared_bytes, cudaStream_t stream)) \
  H(__cudaGetProcAddress, cudaError_t, (const char* symbol, void** function, unsigned version, \
    unsigned long long flags, int* status))
// clang-format on
