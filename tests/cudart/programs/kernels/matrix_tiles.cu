// SPDX-License-Identifier: Apache-2.0
// A matrix product by tiles in shared memory, templated on the tile and on the type.
#include <vector>

#include "../check.h"

template <class T, int kTile>
__global__ void product(const T* a, const T* b, T* c, int n) {
  __shared__ T left[kTile][kTile], right[kTile][kTile + 1];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  T sum = 0;
  for (int t = 0; t < n; t += kTile) {
    left[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

template <class T, int kTile>
void run() {
  constexpr int n = 32;
  std::vector<T> a(n * n), b(n * n), c(n * n);
  for (int i = 0; i < n * n; ++i) {
    a[i] = static_cast<T>(i % 7);
    b[i] = static_cast<T>(i % 5 - 2);
  }
  T *da, *db, *dc;
  const size_t bytes = n * n * sizeof(T);
  OK(cudaMalloc(&da, bytes));
  OK(cudaMalloc(&db, bytes));
  OK(cudaMalloc(&dc, bytes));
  OK(cudaMemcpy(da, a.data(), bytes, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(db, b.data(), bytes, cudaMemcpyHostToDevice));
  product<T, kTile><<<dim3(n / kTile, n / kTile), dim3(kTile, kTile)>>>(da, db, dc, n);
  OK(cudaMemcpy(c.data(), dc, bytes, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      T sum = 0;
      for (int k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      CHECK(c[i * n + j] == sum);
    }
  }
  OK(cudaFree(da));
  OK(cudaFree(db));
  OK(cudaFree(dc));
}

int main() {
  run<float, 16>();
  run<double, 8>();
  run<int, 8>();
  return result();
}
