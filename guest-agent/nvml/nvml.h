// SPDX-License-Identifier: Apache-2.0
// What libnvidia-ml.so.1 of the guest offers of NVIDIA's management library (NVML), in our own
// declarations: names, values and layouts as NVIDIA's NVML API reference has them, for 64-bit
// Linux. Types only; the functions are in nvml.cc. C++.
#pragma once

#include <cstdint>

using nvmlDevice_t = struct nvmlDevice_st*;

enum nvmlReturn_t : int {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_LIBRARY_NOT_FOUND = 12,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_GPU_IS_LOST = 15,
  NVML_ERROR_MEMORY = 20,
  NVML_ERROR_NO_DATA = 21,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_UNKNOWN = 999
};

struct nvmlMemory_t {
  unsigned long long total, free, used;  // bytes
};
struct nvmlMemory_v2_t {
  unsigned version;  // sizeof(nvmlMemory_v2_t) | 2 << 24
  unsigned long long total, reserved, free, used;
};
struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
};
struct nvmlUtilization_t {
  unsigned gpu, memory;  // percent
};

static_assert(sizeof(nvmlMemory_v2_t) == 40 && sizeof(nvmlPciInfo_t) == 68);
