// SPDX-License-Identifier: Apache-2.0
// Memory in the order of a stream, from the default pool and one of the program's.
#include <vector>

#include "../check.h"

__global__ void fill(int* p, int n, int value) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] = value + i;
}

int main() {
  constexpr int n = 3000;
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  std::vector<int> host(n);
  for (int round = 0; round < 3; ++round) {
    int* p = nullptr;
    OK(cudaMallocAsync(&p, n * sizeof(int), stream));
    fill<<<1, 128, 0, stream>>>(p, n, round);
    OK(cudaMemcpyAsync(host.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    OK(cudaFreeAsync(p, stream));
    OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; ++i) CHECK(host[i] == round + i);
  }
  cudaMemPool_t pool, made;
  const cudaError_t offered = cudaDeviceGetDefaultMemPool(&pool, 0);
  if (offered == cudaErrorNotSupported) {
    (void)cudaGetLastError();
    return result();
  }
  OK(offered);
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  OK(cudaMemPoolCreate(&made, &properties));
  unsigned long long threshold = 1 << 20, back = 0;
  OK(cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &threshold));
  OK(cudaMemPoolGetAttribute(made, cudaMemPoolAttrReleaseThreshold, &back));
  CHECK(back == threshold);
  int* p = nullptr;
  OK(cudaMallocFromPoolAsync(&p, n * sizeof(int), made, stream));
  fill<<<1, 128, 0, stream>>>(p, n, 9);
  OK(cudaMemcpyAsync(host.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
  OK(cudaFreeAsync(p, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(host[n - 1] == 9 + n - 1);
  OK(cudaMemPoolTrimTo(made, 0));
  OK(cudaMemPoolDestroy(made));
  return result();
}
