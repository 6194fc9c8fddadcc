// SPDX-License-Identifier: Apache-2.0
// A prefix sum over many blocks: partial sums, their scan, and their addition, in three kernels.
#include <vector>

#include "../check.h"

constexpr int kBlock = 256;

__global__ void scan(int* p, int* sums, int n) {
  __shared__ int room[kBlock];
  const int i = blockIdx.x * kBlock + threadIdx.x;
  room[threadIdx.x] = i < n ? p[i] : 0;
  __syncthreads();
  for (int step = 1; step < kBlock; step *= 2) {
    const int v = threadIdx.x >= step ? room[threadIdx.x - step] : 0;
    __syncthreads();
    room[threadIdx.x] += v;
    __syncthreads();
  }
  if (i < n) p[i] = room[threadIdx.x];
  if (sums != nullptr && threadIdx.x == kBlock - 1) sums[blockIdx.x] = room[threadIdx.x];
}
__global__ void add_sums(int* p, const int* sums, int n) {
  const int i = blockIdx.x * kBlock + threadIdx.x;
  if (blockIdx.x > 0 && i < n) p[i] += sums[blockIdx.x - 1];
}

int main() {
  constexpr int n = 20000, blocks = (n + kBlock - 1) / kBlock;
  static_assert(blocks <= kBlock);
  std::vector<int> host(n);
  for (int i = 0; i < n; ++i) host[i] = i % 11 - 3;
  int *p, *sums;
  OK(cudaMalloc(&p, n * sizeof(int)));
  OK(cudaMalloc(&sums, blocks * sizeof(int)));
  OK(cudaMemcpy(p, host.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  scan<<<blocks, kBlock>>>(p, sums, n);
  scan<<<1, kBlock>>>(sums, nullptr, blocks);
  add_sums<<<blocks, kBlock>>>(p, sums, n);
  std::vector<int> got(n);
  OK(cudaMemcpy(got.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost));
  int sum = 0;
  for (int i = 0; i < n; ++i) CHECK(got[i] == (sum += host[i]));
  return result();
}
