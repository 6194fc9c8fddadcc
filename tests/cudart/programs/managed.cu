// Managed memory and managed variables are read and written by both sides.
#include "check.h"

__managed__ int counter = 5;
__managed__ float table[64];

__global__ void work(int* p, int n) {
  const int i = threadIdx.x;
  if (i < n) p[i] += counter;
  if (i < 64) table[i] = 0.25f * i;
}

int main() {
  CHECK(counter == 5);
  counter = 8;
  int* p;
  OK(cudaMallocManaged(&p, 100 * sizeof(int)));
  for (int i = 0; i < 100; ++i) p[i] = i;
  work<<<1, 128>>>(p, 100);
  OK(cudaDeviceSynchronize());
  for (int i = 0; i < 100; ++i) CHECK(p[i] == i + 8);
  for (int i = 0; i < 64; ++i) CHECK(table[i] == 0.25f * i);
  cudaPointerAttributes a;
  OK(cudaPointerGetAttributes(&a, p));
  CHECK(a.type == cudaMemoryTypeManaged && a.devicePointer == p && a.hostPointer == p);
  OK(cudaFree(p));
  OK(cudaMallocManaged(&p, 0));
  CHECK(p == nullptr);
  return result();
}
