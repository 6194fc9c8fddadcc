// SPDX-License-Identifier: Apache-2.0
// Atomics, warp shuffles and votes: a histogram and a reduction.
#include <numeric>
#include <vector>

#include "../check.h"

__global__ void histogram(const unsigned* values, int n, unsigned* bins) {
  __shared__ unsigned local[16];
  if (threadIdx.x < 16) local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(&local[values[i] % 16], 1u);
  }
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

__global__ void reduce(const unsigned* values, int n, unsigned long long* sum, unsigned* largest) {
  unsigned long long s = 0;
  unsigned m = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    s += values[i];
    m = max(m, values[i]);
  }
  for (int step = 16; step > 0; step /= 2) {
    s += __shfl_down_sync(0xFFFFFFFFu, s, step);
    m = max(m, __shfl_xor_sync(0xFFFFFFFFu, m, step));
  }
  const unsigned odd = __ballot_sync(0xFFFFFFFFu, threadIdx.x & 1);
  if (threadIdx.x % 32 == 0 && odd == 0xAAAAAAAAu) {
    atomicAdd(sum, s);
    atomicMax(largest, m);
  }
}

int main() {
  constexpr int n = 20000;
  std::vector<unsigned> values(n), bins(16), expected(16);
  unsigned x = 1;
  for (unsigned& v : values) {
    x = x * 1664525u + 1013904223u;
    v = x >> 8;
    ++expected[v % 16];
  }
  unsigned *dv, *db, *dm;
  unsigned long long* ds;
  OK(cudaMalloc(&dv, n * sizeof(unsigned)));
  OK(cudaMalloc(&db, 16 * sizeof(unsigned)));
  OK(cudaMalloc(&dm, sizeof(unsigned)));
  OK(cudaMalloc(&ds, sizeof(unsigned long long)));
  OK(cudaMemcpy(dv, values.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
  OK(cudaMemset(db, 0, 16 * sizeof(unsigned)));
  OK(cudaMemset(dm, 0, sizeof(unsigned)));
  OK(cudaMemsetAsync(ds, 0, sizeof(unsigned long long)));
  histogram<<<4, 128>>>(dv, n, db);
  reduce<<<4, 128>>>(dv, n, ds, dm);
  OK(cudaMemcpy(bins.data(), db, 16 * sizeof(unsigned), cudaMemcpyDeviceToHost));
  unsigned long long sum = 0;
  unsigned largest = 0;
  OK(cudaMemcpy(&sum, ds, sizeof sum, cudaMemcpyDeviceToHost));
  OK(cudaMemcpy(&largest, dm, sizeof largest, cudaMemcpyDeviceToHost));
  CHECK(bins == expected);
  CHECK(sum == std::accumulate(values.begin(), values.end(), 0ull));
  unsigned m = 0;
  for (unsigned v : values) m = v > m ? v : m;
  CHECK(largest == m);
  return result();  // what was allocated ends with the process
}
