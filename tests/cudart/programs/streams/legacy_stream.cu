// SPDX-License-Identifier: Apache-2.0
// The legacy default stream waits for blocking streams and they for it; a stream that does not
// block stands aside. Also streams named by cudaStreamLegacy and cudaStreamPerThread.
#include <vector>

#include "../check.h"

__global__ void slow_set(int* p, int value, int rounds) {
  unsigned x = value;
  for (int i = 0; i < rounds; ++i) x = x * 1664525u + 1013904223u;
  *p = x == 1 ? -1 : value;
}
__global__ void copy(const int* from, int* to) { *to = *from; }

int main() {
  int *p, host = 0;
  OK(cudaMalloc(&p, 2 * sizeof(int)));
  OK(cudaMemset(p, 0, 2 * sizeof(int)));
  cudaStream_t a, b;
  OK(cudaStreamCreate(&a));
  OK(cudaStreamCreate(&b));
  for (int i = 1; i < 6; ++i) {
    slow_set<<<1, 1, 0, a>>>(p, i, 20000);
    copy<<<1, 1>>>(p, p + 1);        // after the work of `a`
    copy<<<1, 1, 0, b>>>(p + 1, p);  // after the default stream's
    OK(cudaMemcpyAsync(&host, p, sizeof(int), cudaMemcpyDeviceToHost, cudaStreamLegacy));
    OK(cudaStreamSynchronize(cudaStreamLegacy));
    CHECK(host == i);
  }
  slow_set<<<1, 1, 0, cudaStreamPerThread>>>(p, 77, 10);
  OK(cudaStreamSynchronize(cudaStreamPerThread));
  OK(cudaMemcpy(&host, p, sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(host == 77);
  return result();
}
