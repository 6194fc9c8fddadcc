// SPDX-License-Identifier: Apache-2.0
// What a device says of itself: properties and attributes agree, limits and flags are kept.
#include <cstring>

#include "../check.h"

int main() {
  int count = 0, device = -1, runtime = 0, driver = 0;
  OK(cudaGetDeviceCount(&count));
  CHECK(count >= 1);
  OK(cudaGetDevice(&device));
  CHECK(device == 0);
  OK(cudaRuntimeGetVersion(&runtime));
  OK(cudaDriverGetVersion(&driver));
  CHECK(runtime == CUDART_VERSION && driver >= 12000);
  cudaDeviceProp p;
  OK(cudaGetDeviceProperties(&p, 0));
  CHECK(std::strlen(p.name) > 0 && p.totalGlobalMem > 0 && p.warpSize == 32);
  const auto same = [&](cudaDeviceAttr attribute, long long field) {
    int value = -1;
    OK(cudaDeviceGetAttribute(&value, attribute, 0));
    if (value != field) std::printf("attribute %d: %d, property %lld\n", attribute, value, field);
    CHECK(value == field);
  };
  same(cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock);
  same(cudaDevAttrMaxBlockDimZ, p.maxThreadsDim[2]);
  same(cudaDevAttrMaxGridDimX, p.maxGridSize[0]);
  same(cudaDevAttrMaxSharedMemoryPerBlock, p.sharedMemPerBlock);
  same(cudaDevAttrMaxSharedMemoryPerBlockOptin, p.sharedMemPerBlockOptin);
  same(cudaDevAttrMaxSharedMemoryPerMultiprocessor, p.sharedMemPerMultiprocessor);
  same(cudaDevAttrMultiProcessorCount, p.multiProcessorCount);
  same(cudaDevAttrComputeCapabilityMajor, p.major);
  same(cudaDevAttrComputeCapabilityMinor, p.minor);
  same(cudaDevAttrL2CacheSize, p.l2CacheSize);
  same(cudaDevAttrPciBusId, p.pciBusID);
  same(cudaDevAttrCooperativeLaunch, p.cooperativeLaunch);
  same(cudaDevAttrConcurrentManagedAccess, p.concurrentManagedAccess);
  same(cudaDevAttrMaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor);
  same(cudaDevAttrMemoryPoolsSupported, p.memoryPoolsSupported);

  char id[32] = {};
  int by_id = -1;
  OK(cudaDeviceGetPCIBusId(id, sizeof id, 0));
  OK(cudaDeviceGetByPCIBusId(&by_id, id));
  CHECK(by_id == 0);
  size_t free = 0, total = 0, stack = 0;
  OK(cudaMemGetInfo(&free, &total));
  CHECK(free > 0 && free <= total);
  OK(cudaDeviceSetLimit(cudaLimitStackSize, 2048));
  OK(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
  CHECK(stack >= 2048);
  int other = 1;
  OK(cudaDeviceCanAccessPeer(&other, 0, 0));
  CHECK(other == 0);
  ANSWERS(cudaErrorPeerAccessUnsupported, cudaDeviceEnablePeerAccess(0, 0));
  int best = -1;
  OK(cudaChooseDevice(&best, &p));
  CHECK(best == 0);
  OK(cudaSetDevice(0));
  OK(cudaInitDevice(0, 0, 0));
  unsigned flags = 0;
  OK(cudaGetDeviceFlags(&flags));
  return result();
}
