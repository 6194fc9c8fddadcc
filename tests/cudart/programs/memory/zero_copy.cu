// SPDX-License-Identifier: Apache-2.0
// Memory of the program's own, registered so that kernels read and write it where it lies.
#include <cstdlib>
#include <cstring>

#include "../check.h"

__global__ void add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

int main() {
  constexpr int n = 1 << 18;
  constexpr size_t bytes = n * sizeof(float), page = 4096;
  cudaDeviceProp properties;
  OK(cudaGetDeviceProperties(&properties, 0));
  CHECK(properties.canMapHostMemory);
  float *host[3], *device[3];
  for (int k = 0; k < 3; ++k) {
    host[k] = static_cast<float*>(std::aligned_alloc(page, bytes));
    for (int i = 0; i < n; ++i) host[k][i] = static_cast<float>(k == 2 ? -1 : i * (k + 1));
    OK(cudaHostRegister(host[k], bytes, cudaHostRegisterMapped));
    OK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device[k]), host[k], 0));
  }
  add<<<n / 256, 256>>>(device[0], device[1], device[2], n);
  OK(cudaDeviceSynchronize());
  int wrong = 0;
  for (int i = 0; i < n; ++i) wrong += host[2][i] != static_cast<float>(3 * i);
  CHECK(wrong == 0);
  // The host's change of an input, and a kernel on part of a range.
  std::memset(host[0], 0, bytes / 2);
  add<<<n / 512, 256>>>(device[0], device[1] + n / 2, device[2], n / 2);
  OK(cudaDeviceSynchronize());
  for (int i = 0; i < n / 2; ++i) wrong += host[2][i] != static_cast<float>(2 * (i + n / 2));
  CHECK(wrong == 0);
  for (int k = 0; k < 3; ++k) {
    OK(cudaHostUnregister(host[k]));
    wrong += k == 1 && host[k][n - 1] != static_cast<float>(2 * (n - 1));
    std::free(host[k]);
  }
  CHECK(wrong == 0);
  return result();
}
