// SPDX-License-Identifier: Apache-2.0
// Vector addition, one element per thread (VA).
extern "C" __global__ void vecadd(float* c, const float* a, const float* b, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  c[i] = a[i] + b[i];
}
