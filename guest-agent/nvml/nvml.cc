// SPDX-License-Identifier: Apache-2.0
// The guest's libnvidia-ml.so.1: so much of NVML that tools which look for a GPU find the vGPU.
//
// Everything is asked of the driver API of libcuda.so.1, loaded by name at nvmlInit. What that
// cannot say (utilisation, clocks, temperature, power, other processes) answers
// NVML_ERROR_NOT_SUPPORTED: a guest does not see the real GPU's state, and nothing here is made up.
//
// Any thread; the counter of nvmlInit is the process's. A query of free memory needs a context: it
// retains the primary one for the call, which opens a session with a worker of its own.
#include "guest-agent/nvml/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "abi/cuda_driver.h"

#define SLUICE_NVML extern "C" __attribute__((visibility("default"))) nvmlReturn_t

namespace {

// X(symbol): what is called of the driver.
// clang-format off
#define SLUICE_NVML_DRIVER_FUNCTIONS(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetUuid_v2) \
  X(cuDeviceTotalMem_v2) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) \
  X(cuDevicePrimaryCtxRelease_v2) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuMemGetInfo_v2)
// clang-format on

struct CudaDriver {
#define SLUICE_MEMBER(symbol) decltype(&::symbol) symbol = nullptr;
  SLUICE_NVML_DRIVER_FUNCTIONS(SLUICE_MEMBER)
#undef SLUICE_MEMBER
};

struct Library {
  std::mutex mutex;
  unsigned users = 0;  // nvmlInit less nvmlShutdown
  CudaDriver cuda;
  int devices = 0;
};
Library& library() {
  static auto* it = new Library;
  return *it;
}

nvmlReturn_t to_nvml(CUresult r) {
  switch (r) {
    case CUDA_SUCCESS:
      return NVML_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE:
      return NVML_ERROR_INVALID_ARGUMENT;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return NVML_ERROR_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_NOT_INITIALIZED:
      return NVML_ERROR_DRIVER_NOT_LOADED;
    case CUDA_ERROR_NOT_SUPPORTED:
      return NVML_ERROR_NOT_SUPPORTED;
    default:
      return NVML_ERROR_UNKNOWN;
  }
}

nvmlReturn_t load(CudaDriver* to) {
  void* found = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (found == nullptr) return NVML_ERROR_LIBRARY_NOT_FOUND;
  CudaDriver cuda;
  bool all = true;
#define SLUICE_LOAD(symbol)                                                     \
  cuda.symbol = reinterpret_cast<decltype(&::symbol)>(::dlsym(found, #symbol)); \
  all = all && cuda.symbol != nullptr;
  SLUICE_NVML_DRIVER_FUNCTIONS(SLUICE_LOAD)
#undef SLUICE_LOAD
  if (!all) return NVML_ERROR_FUNCTION_NOT_FOUND;
  *to = cuda;
  return NVML_SUCCESS;
}

nvmlReturn_t start() {
  Library& l = library();
  std::lock_guard lock(l.mutex);
  if (l.cuda.cuInit == nullptr)
    if (const nvmlReturn_t r = load(&l.cuda); r != NVML_SUCCESS) return r;
  if (l.users == 0) {
    CUresult r = l.cuda.cuInit(0);
    if (r == CUDA_SUCCESS) r = l.cuda.cuDeviceGetCount(&l.devices);
    if (r != CUDA_SUCCESS) return NVML_ERROR_DRIVER_NOT_LOADED;
  }
  ++l.users;
  return NVML_SUCCESS;
}

// Between nvmlInit and nvmlShutdown: the driver; else null.
const CudaDriver* started() {
  std::lock_guard lock(library().mutex);
  return library().users != 0 ? &library().cuda : nullptr;
}

// A handle is the device's number, from 1.
nvmlDevice_t handle_of(int device) {
  return reinterpret_cast<nvmlDevice_t>(static_cast<uintptr_t>(device) + 1);
}

// Calls use(driver, device) for a valid handle.
template <class Use>
nvmlReturn_t with_device(nvmlDevice_t handle, Use&& use) {
  const CudaDriver* cuda = started();
  if (cuda == nullptr) return NVML_ERROR_UNINITIALIZED;
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number == 0 || number > static_cast<uintptr_t>(library().devices))
    return NVML_ERROR_INVALID_ARGUMENT;
  return use(*cuda, static_cast<CUdevice>(number - 1));
}

nvmlReturn_t give_text(const std::string& text, char* to, unsigned bytes) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (text.size() >= bytes) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char byte[3];
    std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += byte;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

nvmlReturn_t read_uuid(const CudaDriver& cuda, CUdevice device, std::string* text) {
  CUuuid uuid{};
  const nvmlReturn_t r = to_nvml(cuda.cuDeviceGetUuid_v2(&uuid, device));
  if (r == NVML_SUCCESS) *text = uuid_text(uuid);
  return r;
}

nvmlReturn_t read_memory(const CudaDriver& cuda, CUdevice device, nvmlMemory_t* memory) {
  CUcontext context = nullptr, popped = nullptr;
  CUresult r = cuda.cuDevicePrimaryCtxRetain(&context, device);
  if (r != CUDA_SUCCESS) return to_nvml(r);
  size_t free = 0, total = 0;
  r = cuda.cuCtxPushCurrent_v2(context);
  if (r == CUDA_SUCCESS) {
    r = cuda.cuMemGetInfo_v2(&free, &total);
    cuda.cuCtxPopCurrent_v2(&popped);
  }
  cuda.cuDevicePrimaryCtxRelease_v2(device);
  if (r == CUDA_SUCCESS) *memory = {total, free, total - std::min(free, total)};
  return to_nvml(r);
}

nvmlReturn_t read_pci(const CudaDriver& cuda, CUdevice device, nvmlPciInfo_t* pci) {
  *pci = {};
  const std::pair<CUdevice_attribute, unsigned*> parts[] = {
      {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &pci->domain},
      {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &pci->bus},
      {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &pci->device}};
  for (const auto& [attribute, to] : parts) {
    int value = 0;
    const CUresult r = cuda.cuDeviceGetAttribute(&value, attribute, device);
    if (r != CUDA_SUCCESS) return to_nvml(r);
    *to = static_cast<unsigned>(value);
  }
  std::snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xff,
                pci->device & 0xff);
  std::snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff,
                pci->bus & 0xff, pci->device & 0xff);
  return NVML_SUCCESS;
}

const char* text_of(nvmlReturn_t r) {
  switch (r) {
    case NVML_SUCCESS:
      return "success";
    case NVML_ERROR_UNINITIALIZED:
      return "nvmlInit was not called";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "invalid argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "not supported for a vGPU of Sluice";
    case NVML_ERROR_NO_PERMISSION:
      return "no permission";
    case NVML_ERROR_NOT_FOUND:
      return "not found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "the buffer is too small";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "no vGPU: sluice-agent is not running, or this VM has none";
    case NVML_ERROR_TIMEOUT:
      return "timed out";
    case NVML_ERROR_LIBRARY_NOT_FOUND:
      return "libcuda.so.1 was not found";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
      return "libcuda.so.1 lacks a function";
    case NVML_ERROR_GPU_IS_LOST:
      return "the vGPU is gone";
    case NVML_ERROR_MEMORY:
      return "out of memory";
    case NVML_ERROR_NO_DATA:
      return "no data";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
      return "the structure's version is not known";
    case NVML_ERROR_UNKNOWN:
      break;
  }
  return "unknown error";
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn_t r) {
  return text_of(r);
}

// ---- the library and the system ----

SLUICE_NVML nvmlInit_v2() { return start(); }
SLUICE_NVML nvmlInit() { return start(); }
SLUICE_NVML nvmlInitWithFlags(unsigned) { return start(); }
SLUICE_NVML nvmlShutdown() {
  std::lock_guard lock(library().mutex);
  if (library().users == 0) return NVML_ERROR_UNINITIALIZED;
  --library().users;
  return NVML_SUCCESS;
}

// Sluice's version: the host's driver does not show through.
SLUICE_NVML nvmlSystemGetDriverVersion(char* version, unsigned bytes) {
  if (started() == nullptr) return NVML_ERROR_UNINITIALIZED;
  return give_text(SLUICE_VERSION, version, bytes);
}
SLUICE_NVML nvmlSystemGetNVMLVersion(char* version, unsigned bytes) {
  return give_text(SLUICE_VERSION, version, bytes);
}
SLUICE_NVML nvmlSystemGetCudaDriverVersion(int* version) {
  const CudaDriver* cuda = started();
  if (cuda == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return to_nvml(cuda->cuDriverGetVersion(version));
}
SLUICE_NVML nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}

// ---- devices ----

SLUICE_NVML nvmlDeviceGetCount_v2(unsigned* count) {
  if (started() == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<unsigned>(library().devices);
  return NVML_SUCCESS;
}
SLUICE_NVML nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

SLUICE_NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  if (started() == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (device == nullptr || index >= static_cast<unsigned>(library().devices))
    return NVML_ERROR_INVALID_ARGUMENT;
  *device = handle_of(static_cast<int>(index));
  return NVML_SUCCESS;
}
SLUICE_NVML nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}
SLUICE_NVML nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  const CudaDriver* cuda = started();
  if (cuda == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (int i = 0; i < library().devices; ++i) {
    std::string text;
    if (read_uuid(*cuda, i, &text) != NVML_SUCCESS || text != uuid) continue;
    *device = handle_of(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}
SLUICE_NVML nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
  const CudaDriver* cuda = started();
  if (cuda == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (id == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned domain = 0, bus = 0, slot = 0;
  if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) return NVML_ERROR_INVALID_ARGUMENT;
  for (int i = 0; i < library().devices; ++i) {
    nvmlPciInfo_t pci;
    if (read_pci(*cuda, i, &pci) != NVML_SUCCESS || pci.domain != domain || pci.bus != bus ||
        pci.device != slot)
      continue;
    *device = handle_of(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}
SLUICE_NVML nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

SLUICE_NVML nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned* index) {
  return with_device(handle, [&](const CudaDriver&, CUdevice device) {
    if (index == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *index = static_cast<unsigned>(device);
    return NVML_SUCCESS;
  });
}
SLUICE_NVML nvmlDeviceGetName(nvmlDevice_t handle, char* name, unsigned bytes) {
  return with_device(handle, [&](const CudaDriver& cuda, CUdevice device) {
    char text[256] = {};
    const CUresult r = cuda.cuDeviceGetName(text, sizeof text - 1, device);
    return r == CUDA_SUCCESS ? give_text(text, name, bytes) : to_nvml(r);
  });
}
SLUICE_NVML nvmlDeviceGetUUID(nvmlDevice_t handle, char* uuid, unsigned bytes) {
  return with_device(handle, [&](const CudaDriver& cuda, CUdevice device) {
    std::string text;
    const nvmlReturn_t r = read_uuid(cuda, device, &text);
    return r == NVML_SUCCESS ? give_text(text, uuid, bytes) : r;
  });
}
SLUICE_NVML nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) {
  return with_device(handle, [&](const CudaDriver& cuda, CUdevice device) {
    return memory == nullptr ? NVML_ERROR_INVALID_ARGUMENT : read_memory(cuda, device, memory);
  });
}
SLUICE_NVML nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
  return with_device(handle, [&](const CudaDriver& cuda, CUdevice device) {
    if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != (sizeof *memory | 2u << 24)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlMemory_t plain{};
    const nvmlReturn_t r = read_memory(cuda, device, &plain);
    if (r == NVML_SUCCESS) *memory = {memory->version, plain.total, 0, plain.free, plain.used};
    return r;
  });
}
SLUICE_NVML nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t* pci) {
  return with_device(handle, [&](const CudaDriver& cuda, CUdevice device) {
    return pci == nullptr ? NVML_ERROR_INVALID_ARGUMENT : read_pci(cuda, device, pci);
  });
}
SLUICE_NVML nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int* major, int* minor) {
  return with_device(handle, [&](const CudaDriver& cuda, CUdevice device) {
    if (major == nullptr || minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    CUresult r =
        cuda.cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    if (r == CUDA_SUCCESS)
      r = cuda.cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    return to_nvml(r);
  });
}
// NVML's numbers: 2 Kepler, 3 Maxwell, 4 Pascal, 5 Volta, 6 Turing, 7 Ampere, 8 Ada, 9 Hopper, 10
// Blackwell.
SLUICE_NVML nvmlDeviceGetArchitecture(nvmlDevice_t handle, unsigned* architecture) {
  int major = 0, minor = 0;
  const int r = nvmlDeviceGetCudaComputeCapability(handle, &major, &minor);
  if (r != NVML_SUCCESS) return static_cast<nvmlReturn_t>(r);
  if (architecture == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  struct Row {
    int major, minor;  // from this compute capability on
    unsigned architecture;
  };
  constexpr unsigned kUnknown = ~0u;
  constexpr Row kRows[] = {{10, 0, 10}, {9, 0, 9}, {8, 9, 8}, {8, 0, 7}, {7, 5, 6},
                           {7, 0, 5},   {6, 0, 4}, {5, 0, 3}, {3, 0, 2}};
  *architecture = kUnknown;
  for (const Row& row : kRows) {
    if (major < row.major || (major == row.major && minor < row.minor)) continue;
    *architecture = row.architecture;
    break;
  }
  return NVML_SUCCESS;
}
SLUICE_NVML nvmlDeviceGetComputeMode(nvmlDevice_t handle, int* mode) {
  return with_device(handle, [&](const CudaDriver& cuda, CUdevice device) {
    if (mode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return to_nvml(cuda.cuDeviceGetAttribute(mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device));
  });
}

// ---- what a guest does not see ----

#define SLUICE_NVML_NOT_SUPPORTED(name)                                               \
  SLUICE_NVML name(nvmlDevice_t handle) {                                             \
    return with_device(handle, [](auto&, auto) { return NVML_ERROR_NOT_SUPPORTED; }); \
  }
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetUtilizationRates)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetTemperature)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetPowerUsage)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetPowerManagementLimit)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetEnforcedPowerLimit)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetClockInfo)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetMaxClockInfo)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetFanSpeed)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetPerformanceState)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetPersistenceMode)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetEccMode)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetMinorNumber)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetSerial)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetBrand)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetNvLinkState)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetP2PStatus)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetMigMode)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetCpuAffinity)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetEncoderUtilization)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetDecoderUtilization)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetComputeRunningProcesses)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetComputeRunningProcesses_v3)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetComputeRunningProcesses_v2)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetMPSComputeRunningProcesses_v3)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetMultiGpuBoard)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetBoardPartNumber)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetVbiosVersion)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetAttributes_v2)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetDisplayActive)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetDisplayMode)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetCurrPcieLinkWidth)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetCurrPcieLinkGeneration)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetMaxPcieLinkWidth)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetMaxPcieLinkGeneration)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetPcieThroughput)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetTotalEnergyConsumption)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetTotalEccErrors)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetSamples)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetProcessUtilization)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetSupportedClocksThrottleReasons)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetCurrentClocksThrottleReasons)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetTopologyCommonAncestor)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetGraphicsRunningProcesses)
SLUICE_NVML_NOT_SUPPORTED(nvmlDeviceGetGraphicsRunningProcesses_v3)
