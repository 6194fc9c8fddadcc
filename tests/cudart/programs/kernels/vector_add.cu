// SPDX-License-Identifier: Apache-2.0
// Vectors are added: plain memory, plain copies, one launch.
#include <vector>

#include "../check.h"

__global__ void add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

int main() {
  constexpr int n = 10007;
  std::vector<float> a(n), b(n), c(n);
  for (int i = 0; i < n; ++i) {
    a[i] = 0.5f * i;
    b[i] = 3.0f - i;
  }
  float *da, *db, *dc;
  OK(cudaMalloc(&da, n * sizeof(float)));
  OK(cudaMalloc(&db, n * sizeof(float)));
  OK(cudaMalloc(&dc, n * sizeof(float)));
  OK(cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  OK(cudaMemcpy(db, b.data(), n * sizeof(float), cudaMemcpyDefault));
  add<<<(n + 255) / 256, 256>>>(da, db, dc, n);
  OK(cudaGetLastError());
  OK(cudaMemcpy(c.data(), dc, n * sizeof(float), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) CHECK(c[i] == a[i] + b[i]);
  OK(cudaFree(da));
  OK(cudaFree(db));
  OK(cudaFree(dc));
  return result();
}
