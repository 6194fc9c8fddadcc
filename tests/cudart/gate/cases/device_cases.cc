// SPDX-License-Identifier: Apache-2.0
// Devices: attributes, limits, caches, flags, choice, identity, peers, versions, profiler, entry
// points of the driver.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/cudart/gate/cases/cases.h"

using namespace sluice::cudart;

namespace {

constexpr int kNoDevice = 1000;
class DeviceCases : public Cases {};

TEST_F(DeviceCases, Attributes) {
  constexpr int kMaxThreadsPerBlock = 1, kWarpSize = 10, kMajor = 75;
  int value = 0;
  OK(cudaDeviceGetAttribute(&value, kMaxThreadsPerBlock, 0));
  EXPECT_EQ(value, 1024);
  OK(cudaDeviceGetAttribute(&value, kWarpSize, 0));
  EXPECT_EQ(value, 32);
  OK(cudaDeviceGetAttribute(&value, kMajor, 0));
  EXPECT_GE(value, 7);
  value = 4711;
  ANSWERS(cudaErrorInvalidValue, cudaDeviceGetAttribute(nullptr, kWarpSize, 0));
  ANSWERS(cudaErrorInvalidValue, cudaDeviceGetAttribute(&value, 9999, 0));
  ANSWERS(cudaErrorInvalidDevice, cudaDeviceGetAttribute(&value, kWarpSize, kNoDevice));
  EXPECT_EQ(value, 4711);
}

TEST_F(DeviceCases, Limits) {
  constexpr int kStackSize = 0, kPrintfFifoSize = 1, kMallocHeapSize = 2;
  size_t before = 0, value = 0;
  OK(cudaDeviceGetLimit(&before, kStackSize));
  EXPECT_GT(before, 0u);
  OK(cudaDeviceSetLimit(kStackSize, 4096));
  OK(cudaDeviceGetLimit(&value, kStackSize));
  EXPECT_GE(value, 4096u);
  OK(cudaDeviceSetLimit(kStackSize, before));
  for (const int limit : {kPrintfFifoSize, kMallocHeapSize}) {
    OK(cudaDeviceGetLimit(&value, limit));
    EXPECT_GT(value, 0u);
  }
  REFUSED(cudaDeviceSetLimit(99, 1));
  REFUSED(cudaDeviceGetLimit(&value, 99));
  ANSWERS(cudaErrorInvalidValue, cudaDeviceGetLimit(nullptr, kStackSize));
}

TEST_F(DeviceCases, Caches) {
  constexpr int kPreferNone = 0, kPreferShared = 1, kFourByteBanks = 1;
  int config = -1;
  OK(cudaDeviceSetCacheConfig(kPreferShared));
  OK(cudaDeviceGetCacheConfig(&config));
  EXPECT_TRUE(config >= 0 && config <= 3) << config;
  OK(cudaDeviceSetCacheConfig(kPreferNone));
  OK(cudaDeviceSetSharedMemConfig(kFourByteBanks));
  OK(cudaDeviceGetSharedMemConfig(&config));
  EXPECT_TRUE(config >= 0 && config <= 2) << config;
  ANSWERS(cudaErrorInvalidValue, cudaDeviceGetCacheConfig(nullptr));
  ANSWERS(cudaErrorInvalidValue, cudaDeviceGetSharedMemConfig(nullptr));
  OK(cudaCtxResetPersistingL2Cache());
}

TEST_F(DeviceCases, StreamPriorities) {
  int least = 4711, greatest = 4711;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_GE(least, greatest);
  EXPECT_EQ(least, 0);
  int alone = 4711;
  OK(cudaDeviceGetStreamPriorityRange(&alone, nullptr));
  EXPECT_EQ(alone, least);
}

TEST_F(DeviceCases, Identity) {
  char id[32] = {};
  int device = -1;
  OK(cudaDeviceGetPCIBusId(id, sizeof id, 0));
  OK(cudaDeviceGetByPCIBusId(&device, id));
  EXPECT_EQ(device, 0);
  ANSWERS(cudaErrorInvalidValue, cudaDeviceGetPCIBusId(nullptr, 8, 0));
  ANSWERS(cudaErrorInvalidValue, cudaDeviceGetPCIBusId(id, 0, 0));
  ANSWERS(cudaErrorInvalidDevice, cudaDeviceGetPCIBusId(id, 32, kNoDevice));
  device = 4711;
  REFUSED(cudaDeviceGetByPCIBusId(&device, "nonsense"));
  EXPECT_EQ(device, 4711);
  ANSWERS(cudaErrorInvalidValue, cudaDeviceGetByPCIBusId(&device, nullptr));
}

TEST_F(DeviceCases, Choice) {
  int count = 0, device = -1;
  OK(cudaGetDeviceCount(&count));
  EXPECT_GE(count, 1);
  OK(cudaSetDevice(0));
  OK(cudaGetDevice(&device));
  EXPECT_EQ(device, 0);
  ANSWERS(cudaErrorInvalidValue, cudaGetDevice(nullptr));
  ANSWERS(cudaErrorInvalidValue, cudaGetDeviceCount(nullptr));
  ANSWERS(cudaErrorInvalidDevice, cudaSetDevice(-1));
  ANSWERS(cudaErrorInvalidDevice, cudaSetDevice(kNoDevice));
  OK(cudaGetDevice(&device));
  EXPECT_EQ(device, 0);
  cudaDeviceProp wanted;
  OK(cudaGetDeviceProperties(&wanted, 0));
  device = -1;
  OK(cudaChooseDevice(&device, &wanted));
  EXPECT_TRUE(device >= 0 && device < count);
  ANSWERS(cudaErrorInvalidValue, cudaChooseDevice(nullptr, &wanted));
  int valid[] = {0};
  OK(cudaSetValidDevices(valid, 1));
  int invalid[] = {kNoDevice};
  REFUSED(cudaSetValidDevices(invalid, 1));
  OK(cudaInitDevice(0, 0, 0));
  ANSWERS(cudaErrorInvalidDevice, cudaInitDevice(kNoDevice, 0, 0));
}

TEST_F(DeviceCases, Flags) {
  constexpr unsigned kSpin = 1, kYield = 2, kScheduleMask = 7;
  unsigned before = 0, flags = 0;
  OK(cudaGetDeviceFlags(&before));
  OK(cudaSetDeviceFlags(kYield));
  OK(cudaGetDeviceFlags(&flags));
  EXPECT_EQ(flags & kScheduleMask, kYield);
  ANSWERS(cudaErrorInvalidValue, cudaSetDeviceFlags(0xF000));
  ANSWERS(cudaErrorInvalidValue, cudaSetDeviceFlags(kSpin | kYield));
  ANSWERS(cudaErrorInvalidValue, cudaGetDeviceFlags(nullptr));
  OK(cudaGetDeviceFlags(&flags));
  EXPECT_EQ(flags & kScheduleMask, kYield);
  OK(cudaSetDeviceFlags(before & kScheduleMask));
}

TEST_F(DeviceCases, Peers) {
  constexpr int kAccessSupported = 2;
  int value = 4711;
  OK(cudaDeviceCanAccessPeer(&value, 0, 0));
  EXPECT_EQ(value, 0);
  value = 4711;
  ANSWERS(cudaErrorInvalidDevice, cudaDeviceCanAccessPeer(&value, 0, kNoDevice));
  ANSWERS(cudaErrorPeerAccessUnsupported, cudaDeviceEnablePeerAccess(0, 0));
  ANSWERS(cudaErrorInvalidDevice, cudaDeviceEnablePeerAccess(kNoDevice, 0));
  REFUSED(cudaDeviceDisablePeerAccess(0));
  ANSWERS(cudaErrorInvalidDevice, cudaDeviceDisablePeerAccess(kNoDevice));
  ANSWERS(cudaErrorInvalidDevice, cudaDeviceGetP2PAttribute(&value, kAccessSupported, 0, 0));
  EXPECT_EQ(value, 4711);
}

TEST_F(DeviceCases, CapabilitiesThatDriversMayLack) {
  unsigned capability = 0;
  const int add_operation = 0;
  OFFERED(cudaDeviceGetHostAtomicCapabilities(&capability, &add_operation, 1, 0));
  REFUSED(cudaDeviceGetHostAtomicCapabilities(nullptr, &add_operation, 1, 0));
  REFUSED(cudaDeviceGetP2PAtomicCapabilities(&capability, &add_operation, 1, 0, kNoDevice));
  constexpr int kCurrentDevice = 0, kToOwner = 100;
  OFFERED(cudaDeviceFlushGPUDirectRDMAWrites(kCurrentDevice, kToOwner));
  REFUSED(cudaDeviceFlushGPUDirectRDMAWrites(77, kToOwner));
  REFUSED(cudaDeviceGetNvSciSyncAttributes(nullptr, 0, 0));
  cudaAsyncCallbackHandle_t callback = nullptr;
  const auto nothing = [](cudaAsyncNotificationInfo*, void*, cudaAsyncCallbackHandle_t) {};
  if (OFFERED(cudaDeviceRegisterAsyncNotification(0, nothing, nullptr, &callback)))
    OK(cudaDeviceUnregisterAsyncNotification(0, callback));
  REFUSED(cudaDeviceRegisterAsyncNotification(kNoDevice, nothing, nullptr, &callback));
  REFUSED(cudaDeviceUnregisterAsyncNotification(kNoDevice, nullptr));
  size_t width = 0;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc(32, 0, 0, 0, 2);
  OK(cudaDeviceGetTexture1DLinearMaxWidth(&width, &format, 0));
  EXPECT_GT(width, 0u);
  REFUSED(cudaDeviceGetTexture1DLinearMaxWidth(nullptr, &format, 0));
}

TEST_F(DeviceCases, Versions) {
  int runtime = 0, driver = 0;
  OK(cudaRuntimeGetVersion(&runtime));
  OK(cudaDriverGetVersion(&driver));
  EXPECT_EQ(runtime / 1000, 13);
  EXPECT_GE(driver, 12000);
  ANSWERS(cudaErrorInvalidValue, cudaRuntimeGetVersion(nullptr));
  ANSWERS(cudaErrorInvalidValue, cudaDriverGetVersion(nullptr));
}

TEST_F(DeviceCases, EntryPointsOfTheDriver) {
  constexpr unsigned long long kDefault = 0;
  constexpr int kFound = 0, kNotFound = 1;
  int status = -1;
  void* function = nullptr;
  OK(cudaGetDriverEntryPoint("cuDriverGetVersion", &function, kDefault, &status));
  ASSERT_NE(function, nullptr);
  EXPECT_EQ(status, kFound);
  int version = 0, same = 0;
  EXPECT_EQ(reinterpret_cast<int (*)(int*)>(function)(&version), 0);
  OK(cudaDriverGetVersion(&same));
  EXPECT_EQ(version, same);
  OK(cudaGetDriverEntryPoint_ptsz("cuStreamQuery", &function, kDefault, &status));
  EXPECT_EQ(status, kFound);
  OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 3020, kDefault, &status));
  EXPECT_EQ(status, kFound);
  status = -1;
  OK(cudaGetDriverEntryPointByVersion("cuNothing", &function, 13000, kDefault, &status));
  EXPECT_EQ(status, kNotFound);
  ANSWERS(cudaErrorInvalidValue, cudaGetDriverEntryPoint(nullptr, &function, kDefault, &status));
  ANSWERS(cudaErrorInvalidValue,
          cudaGetDriverEntryPointByVersion(nullptr, &function, 13000, kDefault, &status));
}

// Calls that take no argument which is documented to be wrong: after a fork no CUDA call is
// possible.
TEST_F(DeviceCases, ChildrenGetInitializationError) {
  OK(cudaDeviceSynchronize());
  OK(cudaProfilerStart());
  OK(cudaProfilerStop());
  const pid_t child = fork();
  if (child == 0) {
    int least = 0, greatest = 0;
    size_t free = 0, total = 0;
    const bool refused =
        cudaProfilerStart() == cudaErrorInitializationError &&
        cudaProfilerStop() == cudaErrorInitializationError &&
        cudaDeviceSynchronize() == cudaErrorInitializationError &&
        cudaDeviceSetCacheConfig(0) == cudaErrorInitializationError &&
        cudaDeviceSetSharedMemConfig(0) == cudaErrorInitializationError &&
        cudaCtxResetPersistingL2Cache() == cudaErrorInitializationError &&
        cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaErrorInitializationError &&
        cudaMemGetInfo(&free, &total) == cudaErrorInitializationError;
    _exit(refused ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  EXPECT_TRUE(free > 0 && free <= total);
}

// The error is the thread's own; a success does not take it away.
TEST_F(DeviceCases, TheLastErrorStaysUntilItIsTaken) {
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  OK(cudaSetDevice(0));
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaMalloc(nullptr, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
