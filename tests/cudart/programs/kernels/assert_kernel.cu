// SPDX-License-Identifier: Apache-2.0
// An assertion that fails in a kernel is an error of its own.
#include <cassert>

#include "../check.h"

__global__ void must(int limit) { assert(static_cast<int>(threadIdx.x) < limit); }

int main() {
  must<<<1, 32>>>(32);
  OK(cudaDeviceSynchronize());
  must<<<1, 32>>>(31);
  ANSWERS(cudaErrorAssert, cudaDeviceSynchronize());
  ANSWERS(cudaErrorAssert, cudaGetLastError());
  return result();
}
