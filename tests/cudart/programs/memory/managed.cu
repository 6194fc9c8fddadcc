// SPDX-License-Identifier: Apache-2.0
// Managed memory is read and written by both sides.
#include "../check.h"

__global__ void work(int* p, int n, int by) {
  const int i = threadIdx.x;
  if (i < n) p[i] += by;
}
__global__ void slow(int* p, int rounds) {
  for (int k = 0; k < rounds; ++k) atomicAdd(p, 1);
}

int main() {
  int* p;
  OK(cudaMallocManaged(&p, 100 * sizeof(int)));
  for (int i = 0; i < 100; ++i) p[i] = i;
  work<<<1, 128>>>(p, 100, 8);
  OK(cudaDeviceSynchronize());
  for (int i = 0; i < 100; ++i) CHECK(p[i] == i + 8);
  // A fill and a copy of memory that both sides see have ended when they return.
  int* other;
  OK(cudaMalloc(&other, 100 * sizeof(int)));
  slow<<<1, 32>>>(other, 2000);
  OK(cudaMemset(p, 0, 100 * sizeof(int)));
  for (int i = 0; i < 100; ++i) CHECK(p[i] == 0);
  OK(cudaMemset(other, 1, 100 * sizeof(int)));
  slow<<<1, 32>>>(other, 2000);
  OK(cudaMemcpy(p, other, 100 * sizeof(int), cudaMemcpyDefault));
  CHECK(p[0] == 0x01010101 + 64000 && p[99] == 0x01010101);
  OK(cudaFree(other));
  cudaPointerAttributes a;
  OK(cudaPointerGetAttributes(&a, p));
  CHECK(a.type == cudaMemoryTypeManaged && a.devicePointer == p && a.hostPointer == p);
  OK(cudaFree(p));
  OK(cudaMallocManaged(&p, 0));
  CHECK(p == nullptr);
  return result();
}
