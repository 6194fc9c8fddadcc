// SPDX-License-Identifier: Apache-2.0
// Kernels chosen by host pointer from a table, and device functions by pointer from a variable.
#include "../check.h"

using Operation = int (*)(int, int);
__device__ int plus(int a, int b) { return a + b; }
__device__ int times(int a, int b) { return a * b; }
__device__ Operation operations[2] = {plus, times};

__global__ void apply(int which, int a, int b, int* out) { *out = operations[which](a, b); }
template <int kFactor>
__global__ void scale(int* p) {
  *p *= kFactor;
}

int main() {
  int *p, host = 0;
  OK(cudaMalloc(&p, sizeof(int)));
  for (int which : {0, 1}) {
    apply<<<1, 1>>>(which, 6, 7, p);
    OK(cudaMemcpy(&host, p, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(host == (which == 0 ? 13 : 42));
  }
  void (*kernels[])(int*) = {scale<2>, scale<3>, scale<5>};
  void* args[] = {&p};
  for (auto kernel : kernels) {
    OK(cudaLaunchKernel(reinterpret_cast<void*>(kernel), dim3(1), dim3(1), args, 0, nullptr));
  }
  for (auto kernel : kernels) kernel<<<1, 1>>>(p);
  OK(cudaMemcpy(&host, p, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host == 42 * 900);
  OK(cudaFree(p));
  return result();
}
