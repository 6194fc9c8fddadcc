// SPDX-License-Identifier: Apache-2.0
// A driver library for forwarder_test.cc: the software GPU, but the second cuStreamCreate fails, as
// where memory has run out, and whoever makes a context current that has been destroyed is ended.
// So is who would have the driver do what concerns the whole GPU: dump it at a fault, set a part of
// its cache aside, or reset what is; and who makes a call that crashes NVIDIA's driver. Memory may
// be mapped without end, of which only the first mapping is there.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "abi/cuda_driver.h"

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
std::atomic<int> created{0};
std::atomic<CUcontext> failed{nullptr}, destroyed{nullptr};

}  // namespace

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  static auto* const real = next<decltype(cuStreamCreate)>("cuStreamCreate");
  if (++created != 2) return real(stream, flags);
  CUcontext current = nullptr;
  (void)cuCtxGetCurrent(&current);
  failed = current;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

namespace {
void refuse(bool asked, const char* what) {
  if (!asked) return;
  std::fprintf(stderr, "it asks the driver for %s\n", what);
  std::abort();
}
constexpr unsigned kDumps = CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE;
}  // namespace

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  static auto* const real = next<decltype(cuCtxCreate_v2)>("cuCtxCreate_v2");
  refuse(flags & kDumps, "a dump");
  return real(context, flags, device);
}

CUresult cuCtxSetFlags(unsigned flags) {
  static auto* const real = next<decltype(cuCtxSetFlags)>("cuCtxSetFlags");
  refuse(flags & kDumps, "a dump");
  return real(flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  static auto* const real =
      next<decltype(cuDevicePrimaryCtxSetFlags_v2)>("cuDevicePrimaryCtxSetFlags_v2");
  refuse(flags & kDumps, "a dump");
  return real(device, flags);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  static auto* const real = next<decltype(cuCtxSetLimit)>("cuCtxSetLimit");
  refuse(limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE && value != 0, "a part of the cache");
  return real(limit, value);
}

CUresult cuCtxResetPersistingL2Cache() {
  refuse(true, "the cache");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  static auto* const real = next<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  if (attribute != CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE)
    return real(value, attribute, device);
  *value = 1 << 20;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  static auto* const real = next<decltype(cuFuncSetAttribute)>("cuFuncSetAttribute");
  refuse(attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX, "an attribute beyond its table");
  return real(function, attribute, value);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction function, int blocks,
                                                 int threads) {
  static auto* const real = next<decltype(cuOccupancyAvailableDynamicSMemPerBlock)>(
      "cuOccupancyAvailableDynamicSMemPerBlock");
  refuse(bytes == nullptr, "a result at a null pointer");
  return real(bytes, function, blocks, threads);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  static auto* const real = next<decltype(cuMemMap)>("cuMemMap");
  static std::atomic<bool> mapped{false};
  return mapped.exchange(true) ? CUDA_SUCCESS : real(ptr, size, offset, handle, flags);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  static auto* const real = next<decltype(cuCtxDestroy_v2)>("cuCtxDestroy_v2");
  if (context == failed) destroyed = context;
  return real(context);
}

CUresult cuCtxSetCurrent(CUcontext context) {
  static auto* const real = next<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent");
  if (context != nullptr && context == destroyed) {
    std::fprintf(stderr, "a context that has been destroyed is made current\n");
    std::abort();
  }
  return real(context);
}
