// SPDX-License-Identifier: Apache-2.0
// A kernel that writes where it may not ends the context: every later call that needs it says so.
// The last error itself is forgotten when it was asked for.
#include "../check.h"

__global__ void wild(int* p) { *p = 1; }

int main() {
  int* p;
  OK(cudaMalloc(&p, 64));
  wild<<<1, 1>>>(reinterpret_cast<int*>(0x10));
  ANSWERS(cudaErrorIllegalAddress, cudaDeviceSynchronize());
  ANSWERS(cudaErrorIllegalAddress, cudaGetLastError());
  OK(cudaGetLastError());
  int value = 0;
  ANSWERS(cudaErrorIllegalAddress, cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost));
  ANSWERS(cudaErrorIllegalAddress, cudaMalloc(&p, 64));
  wild<<<1, 1>>>(p);
  ANSWERS(cudaErrorIllegalAddress, cudaPeekAtLastError());
  return result();
}
