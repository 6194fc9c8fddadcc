// SPDX-License-Identifier: Apache-2.0
// Libraries that driver_api_test.cc loads. As an old driver: what a worker needs, no device, and
// nothing that is optional. As a guest's shim (FAKE_SHIM): its mark.
#include <cstring>

#define FAKE(name, body) \
  extern "C" __attribute__((visibility("default"))) int name(void* first) { body }
#define NOTHING(name) FAKE(name, (void)first; return 0;)

FAKE(cuDeviceGetCount, std::memset(first, 0, sizeof(int)); return 0;)
NOTHING(cuInit)
NOTHING(cuDriverGetVersion)
NOTHING(cuDeviceGet)
NOTHING(cuDeviceGetAttribute)
NOTHING(cuDevicePrimaryCtxRetain)
NOTHING(cuDevicePrimaryCtxRelease_v2)
NOTHING(cuCtxSetCurrent)
NOTHING(cuCtxSynchronize)
NOTHING(cuModuleLoadDataEx)
NOTHING(cuModuleGetFunction)
NOTHING(cuModuleUnload)
NOTHING(cuFuncGetParamInfo)
NOTHING(cuLaunchKernel)
NOTHING(cuMemAlloc_v2)
NOTHING(cuMemFree_v2)
NOTHING(cuMemHostRegister_v2)
NOTHING(cuMemHostGetDevicePointer_v2)
NOTHING(cuMemcpyHtoDAsync_v2)
NOTHING(cuMemcpyDtoHAsync_v2)
NOTHING(cuMemcpyDtoDAsync_v2)
NOTHING(cuMemsetD8Async)
NOTHING(cuStreamCreate)
NOTHING(cuStreamDestroy_v2)
NOTHING(cuStreamQuery)
NOTHING(cuStreamSynchronize)
NOTHING(cuStreamWaitEvent)
NOTHING(cuEventCreate)
NOTHING(cuEventRecord)
NOTHING(cuEventQuery)
NOTHING(cuEventDestroy_v2)
#ifdef FAKE_SHIM
NOTHING(sluice_guest_shim)
#endif
