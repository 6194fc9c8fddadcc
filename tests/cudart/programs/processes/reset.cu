// SPDX-License-Identifier: Apache-2.0
// After a reset variables have their first values again, and all goes on.
#include "../check.h"

__device__ int counter = 7;
__global__ void count(int* p) { *p = ++counter; }

int next() {
  int *p, here = 0;
  OK(cudaMalloc(&p, sizeof(int)));
  count<<<1, 1>>>(p);
  OK(cudaMemcpy(&here, p, sizeof here, cudaMemcpyDeviceToHost));
  OK(cudaFree(p));
  return here;
}

int main() {
  CHECK(next() == 8);
  CHECK(next() == 9);
  OK(cudaDeviceReset());
  CHECK(next() == 8);
  OK(cudaDeviceReset());
  OK(cudaDeviceReset());
  CHECK(next() == 8);
  return result();
}
