// SPDX-License-Identifier: Apache-2.0
// Half precision and vector types.
#include <cuda_fp16.h>

#include <vector>

#include "../check.h"

__global__ void axpy(const __half* x, __half* y, __half a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hfma(a, x[i], y[i]);
}
__global__ void swizzle(const float4* in, float4* out, int n) {
  const int i = threadIdx.x;
  if (i < n) out[i] = make_float4(in[i].w, in[i].z, in[i].y, in[i].x);
}

int main() {
  constexpr int n = 512;
  std::vector<__half> x(n), y(n);
  for (int i = 0; i < n; ++i) {
    x[i] = __float2half(static_cast<float>(i % 16));
    y[i] = __float2half(0.5f);
  }
  __half *dx, *dy;
  OK(cudaMalloc(&dx, n * sizeof(__half)));
  OK(cudaMalloc(&dy, n * sizeof(__half)));
  OK(cudaMemcpy(dx, x.data(), n * sizeof(__half), cudaMemcpyHostToDevice));
  OK(cudaMemcpy(dy, y.data(), n * sizeof(__half), cudaMemcpyHostToDevice));
  axpy<<<4, 128>>>(dx, dy, __float2half(2.0f), n);
  OK(cudaMemcpy(y.data(), dy, n * sizeof(__half), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) CHECK(__half2float(y[i]) == 2.0f * (i % 16) + 0.5f);

  float4 four[8], *in, *out;
  for (int i = 0; i < 8; ++i) four[i] = make_float4(i, i + 1, i + 2, i + 3);
  OK(cudaMalloc(&in, sizeof four));
  OK(cudaMalloc(&out, sizeof four));
  OK(cudaMemcpy(in, four, sizeof four, cudaMemcpyHostToDevice));
  swizzle<<<1, 32>>>(in, out, 8);
  OK(cudaMemcpy(four, out, sizeof four, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 8; ++i) CHECK(four[i].x == i + 3 && four[i].w == i);
  return result();
}
