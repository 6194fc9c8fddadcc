// SPDX-License-Identifier: Apache-2.0
// The other file of several_files.cu.
#include "../check.h"

static __device__ int value = 2;
namespace {
__global__ void kernel(int* p) { *p = value; }
}  // namespace

int other_value() {
  int *p, here = 0;
  OK(cudaMalloc(&p, sizeof(int)));
  kernel<<<1, 1>>>(p);
  OK(cudaMemcpy(&here, p, sizeof here, cudaMemcpyDeviceToHost));
  OK(cudaFree(p));
  return here;
}
