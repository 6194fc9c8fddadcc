// SPDX-License-Identifier: Apache-2.0
// Managed memory is read and written by both sides.
#include "check.h"

__global__ void work(int* p, int n, int by) {
  const int i = threadIdx.x;
  if (i < n) p[i] += by;
}

int main() {
  int* p;
  OK(cudaMallocManaged(&p, 100 * sizeof(int)));
  for (int i = 0; i < 100; ++i) p[i] = i;
  work<<<1, 128>>>(p, 100, 8);
  OK(cudaDeviceSynchronize());
  for (int i = 0; i < 100; ++i) CHECK(p[i] == i + 8);
  cudaPointerAttributes a;
  OK(cudaPointerGetAttributes(&a, p));
  CHECK(a.type == cudaMemoryTypeManaged && a.devicePointer == p && a.hostPointer == p);
  OK(cudaFree(p));
  OK(cudaMallocManaged(&p, 0));
  CHECK(p == nullptr);
  return result();
}
