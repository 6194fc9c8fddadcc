// SPDX-License-Identifier: Apache-2.0
// Attributes of kernels, and how many of their blocks fit.
#include "../check.h"

__global__ void __launch_bounds__(128) bounded(int* p) {
  __shared__ int room[256];
  room[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = room[127 - threadIdx.x];
}
__global__ void __launch_bounds__(48) few(int* p) { atomicAdd(p, 1); }
extern __shared__ int dynamic_room[];
__global__ void dynamic(int* p, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) dynamic_room[i] = p[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] = dynamic_room[n - 1 - i];
}

int main() {
  cudaFuncAttributes a;
  OK(cudaFuncGetAttributes(&a, bounded));
  CHECK(a.sharedSizeBytes == 1024 && a.maxThreadsPerBlock == 128 && a.numRegs > 0);
  CHECK(a.binaryVersion > 0 && a.ptxVersion > 0);
  int blocks = 0;
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 128, 0));
  CHECK(blocks > 0);
  int grid = 0, block = 0;
  OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, dynamic, 0, 0));
  CHECK(grid > 0 && block >= 32 && block <= 1024);
  OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, few, 0, 0));
  CHECK(block == 48);
  size_t bytes = 0;
  OK(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, dynamic, 1, 128));
  CHECK(bytes >= 16384);

  // More dynamic shared memory than every kernel may have has to be asked for.
  int optin = 0;
  OK(cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  constexpr int n = 13000;
  int *p, *host = new int[n];
  OK(cudaMalloc(&p, n * sizeof(int)));
  for (int i = 0; i < n; ++i) host[i] = i;
  OK(cudaMemcpy(p, host, n * sizeof(int), cudaMemcpyHostToDevice));
  if (optin >= n * 4) {
    dynamic<<<1, 256, n * sizeof(int)>>>(p, n);
    ANSWERS(cudaErrorInvalidValue, cudaGetLastError());
    OK(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, n * sizeof(int)));
    dynamic<<<1, 256, n * sizeof(int)>>>(p, n);
    OK(cudaGetLastError());
    OK(cudaMemcpy(host, p, n * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; ++i) CHECK(host[i] == n - 1 - i);
  }
  OK(cudaFuncSetCacheConfig(dynamic, cudaFuncCachePreferL1));
  ANSWERS(cudaErrorInvalidResourceHandle,
          cudaFuncGetAttributes(&a, reinterpret_cast<void*>(&optin)));
  (void)cudaGetLastError();
  OK(cudaFree(p));
  delete[] host;
  return result();
}
