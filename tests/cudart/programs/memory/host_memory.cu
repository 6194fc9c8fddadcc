// SPDX-License-Identifier: Apache-2.0
// Pinned, mapped and registered host memory: what kernels read and write of it, and what it says of
// itself.
#include <vector>

#include "../check.h"

__global__ void twice(const int* from, int* to, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = 2 * from[i];
}

int main() {
  constexpr int n = 5000;
  int *mapped, *on_device, *result_host;
  OK(cudaHostAlloc(&mapped, n * sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable));
  OK(cudaHostAlloc(&result_host, n * sizeof(int), cudaHostAllocDefault));
  for (int i = 0; i < n; ++i) mapped[i] = i - 17;
  OK(cudaHostGetDevicePointer(&on_device, mapped, 0));
  int* p;
  OK(cudaMalloc(&p, n * sizeof(int)));
  twice<<<(n + 127) / 128, 128>>>(on_device, p, n);
  OK(cudaMemcpy(result_host, p, n * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) CHECK(result_host[i] == 2 * (i - 17));
  twice<<<(n + 127) / 128, 128>>>(p, on_device, n);
  OK(cudaDeviceSynchronize());
  for (int i = 0; i < n; ++i) CHECK(mapped[i] == 4 * (i - 17));

  unsigned flags = 0;
  OK(cudaHostGetFlags(&flags, mapped));
  CHECK((flags & cudaHostAllocMapped) != 0);
  cudaPointerAttributes a;
  OK(cudaPointerGetAttributes(&a, mapped));
  CHECK(a.type == cudaMemoryTypeHost && a.hostPointer == mapped && a.devicePointer == on_device);
  OK(cudaPointerGetAttributes(&a, p));
  CHECK(a.type == cudaMemoryTypeDevice && a.devicePointer == p && a.device == 0);
  int here = 0;
  OK(cudaPointerGetAttributes(&a, &here));
  CHECK(a.type == cudaMemoryTypeUnregistered && a.devicePointer == nullptr);
  OK(cudaMemset(mapped, 0, n * sizeof(int)));  // without "Async": it has ended
  for (int i = 0; i < n; ++i) CHECK(mapped[i] == 0);

  std::vector<int> plain(n, 5);
  OK(cudaHostRegister(plain.data(), n * sizeof(int), cudaHostRegisterDefault));
  ANSWERS(cudaErrorHostMemoryAlreadyRegistered,
          cudaHostRegister(plain.data(), n * sizeof(int), cudaHostRegisterDefault));
  OK(cudaMemcpyAsync(p, plain.data(), n * sizeof(int), cudaMemcpyHostToDevice, 0));
  OK(cudaMemcpyAsync(result_host, p, n * sizeof(int), cudaMemcpyDeviceToHost, 0));
  OK(cudaStreamSynchronize(0));
  for (int i = 0; i < n; ++i) CHECK(result_host[i] == 5);
  OK(cudaHostUnregister(plain.data()));
  ANSWERS(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(plain.data()));
  (void)cudaGetLastError();
  OK(cudaFreeHost(nullptr));
  OK(cudaFree(nullptr));
  OK(cudaFreeHost(mapped));
  OK(cudaFreeHost(result_host));
  OK(cudaFree(p));
  return result();
}
