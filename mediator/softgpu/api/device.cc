// SPDX-License-Identifier: Apache-2.0
// The driver API's start, errors and devices. One device: what it claims to be stands here.
#include <cstdio>
#include <cstring>
#include <string_view>

#include "mediator/base/cuda_errors.h"
#include "mediator/softgpu/state/state.h"

using namespace sluice::softgpu;

namespace {

constexpr char kPciBusId[] = "0000:00:00.0";
// The same in every process, so that programs can tell that they share it; spells its name.
constexpr char kUuid[16] = {'s', 'l', 'u', 'i', 'c', 'e', '-', 's',
                            'o', 'f', 't', '-', 'g', 'p', 'u', '0'};

template <class F>
CUresult with_device(CUdevice device, F f) {
  return with_state([&](State& s) { return device == 0 ? f(s) : CUDA_ERROR_INVALID_DEVICE; });
}

// The model's numbers where a program may size something by them; 0 for what is not offered. False:
// no such attribute.
bool attribute(const State& s, CUdevice_attribute which, int& value) {
  const SmLimits& limits = s.runner.limits();
  const GpuModel& model = s.gpu->model();
  switch (static_cast<int>(which)) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      value = 1024;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
      value = 1024;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      value = 1024;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      value = 64;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      value = 0x7fff'ffff;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
      value = 65535;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      value = 65535;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      value = static_cast<int>(limits.shared_per_block);
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      value = static_cast<int>(limits.shared_per_block_optin);
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      value = static_cast<int>(limits.shared_bytes);
      return true;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      value = static_cast<int>(limits.shared_reserved);
      return true;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      value = 64 * 1024;
      return true;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      value = 32;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      value = 0x7fff'ffff;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      value = static_cast<int>(limits.registers_per_block);
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      value = static_cast<int>(limits.registers);
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      value = static_cast<int>(limits.threads);
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      value = static_cast<int>(limits.blocks);
      return true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      value = static_cast<int>(s.runner.sms());
      return true;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      value = static_cast<int>(model.clock_khz);
      return true;  // kHz; clock64 counts nanoseconds
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      value = static_cast<int>(model.memory_clock_khz);
      return true;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      value = static_cast<int>(model.bus_bits);
      return true;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      value = static_cast<int>(model.l2_bytes);
      return true;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      value = static_cast<int>(model.copy_engines);
      return true;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      value = 512;
      return true;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      value = 32;
      return true;
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
      value = 512;
      return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      value = static_cast<int>(model.major);
      return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      value = static_cast<int>(model.minor);
      return true;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      value = 2;
      return true;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
      value = -1;
      return true;
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT:
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      value = 1;
      return true;
    default:
      break;
  }
  value = 0;
  return which >= 1 && which < CU_DEVICE_ATTRIBUTE_MAX;
}

}  // namespace

CUresult cuInit(unsigned int flags) { return flags == 0 ? initialise() : CUDA_ERROR_INVALID_VALUE; }

CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = SLUICE_CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = sluice::cuda_error_name(error);
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** string) {
  if (string == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *string = sluice::cuda_error_text(error);
  return *string == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_device(ordinal, [&](State&) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetCount(int* count) {
  return with_state([&](State&) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = 1;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return with_device(device, [&](State& s) {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    const std::string_view device_name = s.gpu->model().device;
    std::snprintf(name, static_cast<size_t>(length), "%.*s", static_cast<int>(device_name.size()),
                  device_name.data());
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return with_device(device, [&](State&) {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(uuid->bytes, kUuid, sizeof kUuid);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetLuid(char*, unsigned int*, CUdevice) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return with_device(device, [&](State& s) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *bytes = s.gpu->memory_bytes();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  return with_device(device, [&](State& s) {
    return value != nullptr && attribute(s, which, *value) ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice device) {
  return with_device(device, [&](State& s) {
    if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const SmLimits& limits = s.runner.limits();
    *prop = {1024,
             {1024, 1024, 64},
             {0x7fff'ffff, 65535, 65535},
             static_cast<int>(limits.shared_per_block),
             64 * 1024,
             32,
             0x7fff'ffff,
             static_cast<int>(limits.registers_per_block),
             static_cast<int>(s.gpu->model().clock_khz),
             512};
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  return with_device(device, [&](State& s) {
    if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *major = static_cast<int>(s.gpu->model().major);
    *minor = static_cast<int>(s.gpu->model().minor);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType, CUdevice device) {
  return with_device(device, [&](State&) {
    if (supported == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *supported = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* bus_id) {
  return with_state([&](State&) {
    if (device == nullptr || bus_id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (std::string_view(bus_id) != kPciBusId) return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetPCIBusId(char* bus_id, int length, CUdevice device) {
  return with_device(device, [&](State&) {
    if (bus_id == nullptr || length < static_cast<int>(sizeof kPciBusId))
      return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(bus_id, kPciBusId, sizeof kPciBusId);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return with_device(device, [&](State&) {
    if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (peer != 0) return CUDA_ERROR_INVALID_DEVICE;
    *can = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuProfilerStart() {
  return with_context([](State&, Context&) { return CUDA_SUCCESS; });
}

CUresult cuProfilerStop() {
  return with_context([](State&, Context&) { return CUDA_SUCCESS; });
}
