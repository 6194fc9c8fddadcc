// SPDX-License-Identifier: Apache-2.0
// The guest's libnvidia-ml, loaded by name as tools do it, on the libcuda.so.1 that it finds: the
// software GPU here, the channel in tests/system.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>

#include "guest-agent/nvml/nvml.h"

namespace {

template <class... A>
nvmlReturn_t call(const char* name, A... arguments) {
  static void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) ADD_FAILURE() << ::dlerror();
  auto* f = reinterpret_cast<nvmlReturn_t (*)(A...)>(::dlsym(library, name));
  if (f == nullptr) {
    ADD_FAILURE() << "no " << name;
    return NVML_ERROR_FUNCTION_NOT_FOUND;
  }
  return f(arguments...);
}

struct Started {
  Started() { EXPECT_EQ(call("nvmlInit_v2"), NVML_SUCCESS); }
  ~Started() { EXPECT_EQ(call("nvmlShutdown"), NVML_SUCCESS); }
  nvmlDevice_t device = nullptr;
};

TEST(Nvml, NothingBeforeInit) {
  unsigned count = 0;
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(call("nvmlShutdown"), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(call("nvmlInit"), NVML_SUCCESS);
  EXPECT_EQ(call("nvmlInitWithFlags", 0u), NVML_SUCCESS);
  EXPECT_EQ(call("nvmlShutdown"), NVML_SUCCESS);
  EXPECT_EQ(call("nvmlDeviceGetCount", &count), NVML_SUCCESS);
  EXPECT_EQ(call("nvmlShutdown"), NVML_SUCCESS);
  EXPECT_EQ(call("nvmlDeviceGetCount", &count), NVML_ERROR_UNINITIALIZED);
}

TEST(Nvml, ADeviceAndWhatItIs) {
  const Started started;
  unsigned count = 0, index = 7;
  ASSERT_EQ(call("nvmlDeviceGetCount_v2", &count), NVML_SUCCESS);
  ASSERT_EQ(count, 1u);
  nvmlDevice_t device = nullptr, same = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 0u, &device), NVML_SUCCESS);
  EXPECT_EQ(call("nvmlDeviceGetHandleByIndex", 1u, &same), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(call("nvmlDeviceGetIndex", device, &index), NVML_SUCCESS);
  EXPECT_EQ(index, 0u);
  char name[96] = {}, uuid[96] = {}, small[4];
  EXPECT_EQ(call("nvmlDeviceGetName", device, name, 96u), NVML_SUCCESS);
  EXPECT_NE(name[0], '\0');
  EXPECT_EQ(call("nvmlDeviceGetName", device, small, 4u), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(call("nvmlDeviceGetUUID", device, uuid, 96u), NVML_SUCCESS);
  EXPECT_EQ(std::strlen(uuid), 40u);
  EXPECT_EQ(std::strncmp(uuid, "GPU-", 4), 0);
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", static_cast<const char*>(uuid), &same), NVML_SUCCESS);
  EXPECT_EQ(same, device);
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", "GPU-nobody", &same), NVML_ERROR_NOT_FOUND);
  nvmlPciInfo_t pci;
  EXPECT_EQ(call("nvmlDeviceGetPciInfo_v3", device, &pci), NVML_SUCCESS);
  same = nullptr;
  EXPECT_EQ(call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(pci.busId), &same),
            NVML_SUCCESS);
  EXPECT_EQ(same, device);
  EXPECT_EQ(call("nvmlDeviceGetHandleByPciBusId", "no bus", &same), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(call("nvmlDeviceGetHandleByPciBusId", "00000000:FE:1F.0", &same), NVML_ERROR_NOT_FOUND);
  int major = 0, minor = -1, mode = -1, version = 0;
  EXPECT_EQ(call("nvmlDeviceGetCudaComputeCapability", device, &major, &minor), NVML_SUCCESS);
  EXPECT_GE(major, 1);
  unsigned architecture = 0;
  EXPECT_EQ(call("nvmlDeviceGetArchitecture", device, &architecture), NVML_SUCCESS);
  EXPECT_GE(architecture, 2u);
  EXPECT_EQ(call("nvmlDeviceGetArchitecture", device, nullptr), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v2", device, &architecture, nullptr),
            NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(call("nvmlDeviceGetComputeMode", device, &mode), NVML_SUCCESS);
  EXPECT_EQ(mode, 0);
  EXPECT_EQ(call("nvmlSystemGetCudaDriverVersion_v2", &version), NVML_SUCCESS);
  EXPECT_GE(version, 12000);
  EXPECT_EQ(call("nvmlSystemGetDriverVersion", name, 96u), NVML_SUCCESS);
  EXPECT_EQ(call("nvmlSystemGetNVMLVersion", small, 1u), NVML_ERROR_INSUFFICIENT_SIZE);
}

TEST(Nvml, MemoryAddsUp) {
  const Started started;
  nvmlDevice_t device = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 0u, &device), NVML_SUCCESS);
  nvmlMemory_t memory{};
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo", device, &memory), NVML_SUCCESS);
  EXPECT_GT(memory.total, 0u);
  EXPECT_EQ(memory.free + memory.used, memory.total);
  nvmlMemory_v2_t second{};
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo_v2", device, &second),
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  second.version = sizeof second | 2u << 24;
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo_v2", device, &second), NVML_SUCCESS);
  EXPECT_EQ(second.total, memory.total);
}

TEST(Nvml, WhatAGuestDoesNotSeeSaysSo) {
  const Started started;
  nvmlDevice_t device = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 0u, &device), NVML_SUCCESS);
  nvmlUtilization_t use{77, 77};
  EXPECT_EQ(call("nvmlDeviceGetUtilizationRates", device, &use), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(use.gpu, 77u);
  unsigned value = 7;
  EXPECT_EQ(call("nvmlDeviceGetTemperature", device, 0, &value), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(call("nvmlDeviceGetPowerUsage", device, &value), NVML_ERROR_NOT_SUPPORTED);
  const auto nobody = reinterpret_cast<nvmlDevice_t>(uintptr_t{77});
  EXPECT_EQ(call("nvmlDeviceGetPowerUsage", nobody, &value), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(call("nvmlDeviceGetIndex", nvmlDevice_t{}, &value), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo", device, static_cast<nvmlMemory_t*>(nullptr)),
            NVML_ERROR_INVALID_ARGUMENT);
}

}  // namespace
