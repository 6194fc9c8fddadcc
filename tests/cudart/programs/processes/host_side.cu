// SPDX-License-Identifier: Apache-2.0
// What host code of suites asks for: devices by properties and bus, flags, priorities, callbacks,
// host functions, queries until done, memory of every kind with its attributes, advice, peers,
// occupancy with shared memory that depends on the block, versions, error names, the profiler.
#include <cuda_profiler_api.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "../check.h"
__global__ void work(float* p, int n, int rounds) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    for (int k = 0; k < rounds; ++k) p[i] = p[i] * 0.5f + 1.0f;
}
__global__ void shared_by_block(int* p) {
  extern __shared__ int s[];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  p[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
struct BlockBytes {
  __host__ __device__ size_t operator()(int threads) const { return threads * sizeof(int) * 4; }
};
static void CUDART_CB done(cudaStream_t, cudaError_t status, void* at) {
  static_cast<std::atomic<int>*>(at)->fetch_add(status == cudaSuccess ? 1 : 1000);
}
static void CUDART_CB step(void* at) { static_cast<std::atomic<int>*>(at)->fetch_add(10); }
int main() {
  int devices = 0, device = -1, runtime = 0, driver = 0;
  OK(cudaGetDeviceCount(&devices));
  CHECK(devices == 1);
  OK(cudaRuntimeGetVersion(&runtime));
  OK(cudaDriverGetVersion(&driver));
  CHECK(runtime / 1000 >= 12 && driver >= runtime / 1000 * 1000);
  OK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync | cudaDeviceMapHost));
  cudaDeviceProp prop, wanted = {};
  OK(cudaGetDeviceProperties(&prop, 0));
  CHECK(prop.warpSize == 32 && prop.maxThreadsPerBlock == 1024 && prop.totalGlobalMem > 0);
  CHECK(prop.multiProcessorCount > 0 && std::strlen(prop.name) > 0 && prop.unifiedAddressing);
  wanted.major = prop.major, wanted.minor = prop.minor;
  OK(cudaChooseDevice(&device, &wanted));
  CHECK(device == 0);
  char bus[32];
  OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
  device = -1;
  OK(cudaDeviceGetByPCIBusId(&device, bus));
  CHECK(device == 0);
  ANSWERS(cudaErrorInvalidDevice, cudaSetDevice(1));
  CHECK(std::strcmp(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice") == 0);
  CHECK(std::strlen(cudaGetErrorString(cudaErrorInvalidDevice)) > 0);
  cudaGetLastError();
  int peer = 1, least = 0, most = 0;
  OK(cudaDeviceCanAccessPeer(&peer, 0, 0));
  CHECK(peer == 0);
  CHECK(cudaDeviceEnablePeerAccess(0, 0) != cudaSuccess);
  cudaGetLastError();
  OK(cudaDeviceGetStreamPriorityRange(&least, &most));
  CHECK(least >= most);
  unsigned flags = 0;
  OK(cudaGetDeviceFlags(&flags));
  CHECK((flags & cudaDeviceScheduleMask) == cudaDeviceScheduleBlockingSync);

  constexpr int n = 1 << 14;
  float *pinned, *combined, *managed, *plain, *far;
  OK(cudaMallocHost(&pinned, n * 4));
  OK(cudaHostAlloc(&combined, n * 4, cudaHostAllocWriteCombined | cudaHostAllocPortable));
  OK(cudaMallocManaged(&managed, n * 4));
  OK(cudaMalloc(&plain, n * 4));
  OK(cudaMalloc(&far, n * 4));
  cudaPointerAttributes what;
  OK(cudaPointerGetAttributes(&what, pinned));
  CHECK(what.type == cudaMemoryTypeHost && what.hostPointer == pinned);
  OK(cudaPointerGetAttributes(&what, managed));
  CHECK(what.type == cudaMemoryTypeManaged);
  OK(cudaPointerGetAttributes(&what, plain + 5));
  CHECK(what.type == cudaMemoryTypeDevice && what.devicePointer == plain + 5);
  int local = 0;
  OK(cudaPointerGetAttributes(&what, &local));
  CHECK(what.type == cudaMemoryTypeUnregistered);
  for (int i = 0; i < n; ++i) pinned[i] = combined[i] = managed[i] = 2.0f;
  const cudaMemLocation here = {cudaMemLocationTypeDevice, 0};
  OK(cudaMemAdvise(managed, n * 4, cudaMemAdviseSetPreferredLocation, here));
  OK(cudaMemAdvise(managed, n * 4, cudaMemAdviseSetReadMostly, here));
  OK(cudaMemPrefetchAsync(managed, n * 4, here, 0));
  cudaStream_t high, low;
  OK(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, most));
  OK(cudaStreamCreateWithPriority(&low, cudaStreamNonBlocking, least));
  OK(cudaStreamAttachMemAsync(high, managed, 0, cudaMemAttachGlobal));
  std::atomic<int> told{0};
  cudaEvent_t event, begin;
  OK(cudaEventCreate(&event));
  OK(cudaEventCreate(&begin));
  OK(cudaEventRecord(begin, high));
  OK(cudaMemcpyAsync(plain, combined, n * 4, cudaMemcpyHostToDevice, high));
  work<<<32, 128, 0, high>>>(plain, n, 50);
  OK(cudaStreamAddCallback(high, done, &told, 0));
  OK(cudaMemcpyPeerAsync(far, 0, plain, 0, n * 4, high));
  OK(cudaLaunchHostFunc(high, step, &told));
  OK(cudaMemcpyAsync(pinned, far, n * 4, cudaMemcpyDeviceToHost, high));
  OK(cudaEventRecord(event, high));
  work<<<32, 128, 0, low>>>(managed, n, 50);
  cudaError_t state;
  while ((state = cudaEventQuery(event)) == cudaErrorNotReady) std::this_thread::yield();
  OK(state);
  while ((state = cudaStreamQuery(low)) == cudaErrorNotReady) std::this_thread::yield();
  OK(state);
  CHECK(told == 11);
  CHECK(pinned[0] == 2.0f && pinned[n - 1] == 2.0f && managed[77] == 2.0f);
  float ms = -1;
  OK(cudaEventElapsedTime(&ms, begin, event));
  CHECK(ms >= 0);
  int priority = 99;
  OK(cudaStreamGetPriority(high, &priority));
  CHECK(priority == most);
  unsigned long long id[2];
  OK(cudaStreamGetId(high, &id[0]));
  OK(cudaStreamGetId(low, &id[1]));
  CHECK(id[0] != id[1]);

  int grid = 0, block = 0, active = 0;
  OK(cudaOccupancyMaxPotentialBlockSizeVariableSMem(&grid, &block, shared_by_block, BlockBytes()));
  CHECK(block >= 32 && block <= 1024 && grid >= prop.multiProcessorCount);
  OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, work, 0, 256));
  CHECK(block > 0 && block <= 256);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&active, work, 256, 0,
                                                            cudaOccupancyDisableCachingOverride));
  CHECK(active >= 1);
  size_t room = 0, free_bytes = 0, total = 0;
  OK(cudaOccupancyAvailableDynamicSMemPerBlock(&room, shared_by_block, 1, 128));
  CHECK(room > 0);
  OK(cudaMemGetInfo(&free_bytes, &total));
  CHECK(free_bytes > 0 && free_bytes <= total);
  OK(cudaProfilerStart());
  OK(cudaProfilerStop());
  shared_by_block<<<1, 64, 256>>>(reinterpret_cast<int*>(plain));
  int reversed[64];
  OK(cudaMemcpy(reversed, plain, 256, cudaMemcpyDeviceToHost));
  CHECK(reversed[0] == 63 && reversed[63] == 0);
  // A launch that is wrong, then one that is right.
  work<<<1, 2048>>>(plain, n, 1);
  CHECK(cudaGetLastError() != cudaSuccess);
  work<<<0, 128>>>(plain, n, 1);
  CHECK(cudaGetLastError() != cudaSuccess);
  work<<<1, 128>>>(plain, n, 1);
  OK(cudaGetLastError());
  ANSWERS(cudaErrorInvalidMemcpyDirection,
          cudaMemcpy(plain, pinned, 4, static_cast<cudaMemcpyKind>(9)));
  cudaGetLastError();
  void* far_too_much;
  ANSWERS(cudaErrorMemoryAllocation, cudaMalloc(&far_too_much, 1ull << 46));
  cudaGetLastError();
  OK(cudaFreeHost(pinned));
  OK(cudaFreeHost(combined));
  OK(cudaFree(managed));
  ANSWERS(cudaErrorInvalidValue, cudaFree(reinterpret_cast<void*>(0x1234)));
  cudaGetLastError();
  OK(cudaDeviceSynchronize());
  return result();
}
