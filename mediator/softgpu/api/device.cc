// SPDX-License-Identifier: Apache-2.0
// The driver API's start, errors and devices. One device: what it claims to be stands here.
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "mediator/base/cuda_errors.h"
#include "mediator/softgpu/memory/texture_limits.h"
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

// What the device claims. A program may size something by a number here; what has no row is not
// offered, and 0.
template <class Value>
struct Attribute {
  CUdevice_attribute which;
  Value value;
};

// The same on every model.
constexpr Attribute<int> kFixed[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fff'ffff},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 * 1024},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0x7fff'ffff},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, kMax1d},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, kMax2dWidth},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, kMax2dHeight},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, kMax3d},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, kMax3d},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, kMax3d},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, kMaxLinearTexels},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, kMaxPitchWidth},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, kMaxPitchHeight},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 1},
};

// What is offered answers 1.
constexpr CUdevice_attribute kOffered[] = {
    CU_DEVICE_ATTRIBUTE_GPU_OVERLAP,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
    CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
    CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR,
    CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES,
    CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
};

// Of one SM, and of one block on it.
constexpr Attribute<uint32_t SmLimits::*> kOfAnSm[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &SmLimits::shared_per_block},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &SmLimits::shared_per_block_optin},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &SmLimits::shared_bytes},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, &SmLimits::shared_reserved},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &SmLimits::registers_per_block},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, &SmLimits::registers},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &SmLimits::threads},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, &SmLimits::blocks},
};

// Clocks in kHz; clock64 counts nanoseconds whatever they say.
constexpr Attribute<uint32_t GpuModel::*> kOfTheModel[] = {
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &GpuModel::clock_khz},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &GpuModel::memory_clock_khz},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &GpuModel::bus_bits},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &GpuModel::l2_bytes},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, &GpuModel::copy_engines},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &GpuModel::major},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &GpuModel::minor},
};

}  // namespace

// 0 for an attribute without a row.
std::optional<int> sluice::softgpu::device_attribute(const State& s, CUdevice_attribute which) {
  for (const auto& row : kFixed)
    if (row.which == which) return row.value;
  for (const CUdevice_attribute offered : kOffered)
    if (offered == which) return 1;
  for (const auto& row : kOfAnSm)
    if (row.which == which) return static_cast<int>(s.runner.limits().*row.value);
  for (const auto& row : kOfTheModel)
    if (row.which == which) return static_cast<int>(s.gpu->model().*row.value);
  if (which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) return static_cast<int>(s.runner.sms());
  if (which == CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) return s.gpu->model().major >= 9 ? 1 : 0;
  if (which >= 1 && which < CU_DEVICE_ATTRIBUTE_MAX) return 0;
  return std::nullopt;
}

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
    const std::optional<int> known = device_attribute(s, which);
    if (value == nullptr || !known) return CUDA_ERROR_INVALID_VALUE;
    *value = *known;
    return CUDA_SUCCESS;
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
    if (std::string_view(bus_id).find(':') == std::string_view::npos)
      return CUDA_ERROR_INVALID_VALUE;  // no bus id at all
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
