// SPDX-License-Identifier: Apache-2.0
// The exports that do not go the common way: errors themselves, and what compiled programs call.
#include "guest-agent/cudart/binaries.h"
#include "guest-agent/cudart/calls.h"
#include "guest-agent/cudart/launch.h"

using namespace sluice::cudart;

#define SLUICE_EXPORT extern "C" __attribute__((visibility("default")))

SLUICE_EXPORT cudaError_t cudaGetLastError() { return take_last_error(); }
SLUICE_EXPORT cudaError_t cudaPeekAtLastError() { return thread().last_error; }

SLUICE_EXPORT const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define SLUICE_NAME(name, value, text) \
  case name:                           \
    return #name;
    SLUICE_CUDA_RUNTIME_ERRORS(SLUICE_NAME)
#undef SLUICE_NAME
  }
  return SLUICE_CUDA_RUNTIME_NO_ERROR;
}

SLUICE_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define SLUICE_TEXT(name, value, text) \
  case name:                           \
    return text;
    SLUICE_CUDA_RUNTIME_ERRORS(SLUICE_TEXT)
#undef SLUICE_TEXT
  }
  return SLUICE_CUDA_RUNTIME_NO_ERROR;
}

SLUICE_EXPORT cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                          cudaChannelFormatKind f) {
  return {x, y, z, w, f};
}

// Handles are binaries. What a program registers may come before main() and must not need the
// driver.
SLUICE_EXPORT void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(register_binary(wrapper));
}
SLUICE_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
SLUICE_EXPORT void __cudaUnregisterFatBinary(void** handle) {
  unregister_binary(reinterpret_cast<Binary*>(handle));
}
SLUICE_EXPORT void __cudaRegisterFunction(void** handle, const char* host_function, char*,
                                          const char* device_name, int, void*, void*, void*, void*,
                                          int*) {
  register_function(reinterpret_cast<Binary*>(handle), host_function, device_name);
}
SLUICE_EXPORT void __cudaRegisterVar(void** handle, char* host_variable, char*,
                                     const char* device_name, int, size_t size, int, int) {
  register_variable(reinterpret_cast<Binary*>(handle), host_variable, device_name, size, nullptr);
}
SLUICE_EXPORT void __cudaRegisterManagedVar(void** handle, void** host_variable, char*,
                                            const char* device_name, int, size_t size, int, int) {
  register_variable(reinterpret_cast<Binary*>(handle), host_variable, device_name, size,
                    host_variable);
}
// Of unified host and device tables, which no GPU on PCIe has.
SLUICE_EXPORT void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}
SLUICE_EXPORT void __cudaRegisterUnifiedTable(void**, void*) {}
SLUICE_EXPORT char __cudaInitModule(void** handle) {
  const cudaError_t error =
      call(Need::kContext, [&] { return bind_managed(reinterpret_cast<Binary*>(handle)); });
  return error == cudaSuccess ? 1 : 0;
}

SLUICE_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                   CUstream_st* stream) {
  Thread& t = thread();
  if (t.configuration_count == kMaxConfigurations) return record(cudaErrorInvalidConfiguration);
  t.configurations[t.configuration_count++] = {grid, block, shared_bytes, stream};
  return cudaSuccess;
}
SLUICE_EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                                     void* stream) {
  Thread& t = thread();
  if (t.configuration_count == 0) return record(cudaErrorMissingConfiguration);
  const LaunchConfiguration& c = t.configurations[--t.configuration_count];
  *grid = c.grid;
  *block = c.block;
  *shared_bytes = c.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}

// The handle stays in a static of the program's and comes back with each launch only: it is our own
// record, so that a device that was reset, or that could not be had the first time, costs nothing
// later.
SLUICE_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  if (kernel == nullptr) return record(cudaErrorInvalidValue);
  *kernel = reinterpret_cast<cudaKernel_t>(find_function(host_function));
  return *kernel != nullptr ? cudaSuccess : record(cudaErrorInvalidDeviceFunction);
}

namespace {
cudaError_t launch_registered(DefaultStream mode, cudaKernel_t handle, dim3 grid, dim3 block,
                              void** args, size_t shared_bytes, cudaStream_t stream) {
  return call(Need::kContext, [&] {
    if (handle == nullptr) return cudaErrorInvalidDeviceFunction;
    CUkernel kernel = nullptr;
    const cudaError_t error = kernel_of(*reinterpret_cast<Function*>(handle), &kernel);
    return error != cudaSuccess
               ? error
               : launch(kernel, grid, block, args, shared_bytes, stream_for(mode, stream));
  });
}
}  // namespace

SLUICE_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                             void** args, size_t shared_bytes,
                                             cudaStream_t stream) {
  return launch_registered(DefaultStream::kLegacy, kernel, grid, block, args, shared_bytes, stream);
}
SLUICE_EXPORT cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block,
                                                  void** args, size_t shared_bytes,
                                                  cudaStream_t stream) {
  return launch_registered(DefaultStream::kPerThread, kernel, grid, block, args, shared_bytes,
                           stream);
}

// How tools find functions of this library by version; programs use cudaGetDriverEntryPoint.
SLUICE_EXPORT cudaError_t __cudaGetProcAddress(const char*, void**, unsigned, unsigned long long,
                                               int*) {
  return record(cudaErrorNotSupported);
}
