// SPDX-License-Identifier: Apache-2.0
// Three files, each with kernels and static variables of the same names, without -rdc.
// nvcc: several_files.part.cu
#include "../check.h"

static __device__ int value = 1;
namespace {
__global__ void kernel(int* p) { *p = value; }
}  // namespace
int other_value();

int main() {
  int *p, here = 0;
  OK(cudaMalloc(&p, sizeof(int)));
  kernel<<<1, 1>>>(p);
  OK(cudaMemcpy(&here, p, sizeof here, cudaMemcpyDeviceToHost));
  CHECK(here == 1);
  CHECK(other_value() == 2);
  OK(cudaFree(p));
  return result();
}
