// SPDX-License-Identifier: Apache-2.0
// Work in two streams is ordered by events; queries, priorities and times answer as they should.
#include "../check.h"

__global__ void scale(int* p, int n, int factor) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] *= factor;
}
__global__ void shift(int* p, int n, int by) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] += by;
}

int main() {
  constexpr int n = 4096;
  int *host, *p;
  OK(cudaMallocHost(&host, n * sizeof(int)));
  OK(cudaMalloc(&p, n * sizeof(int)));
  for (int i = 0; i < n; ++i) host[i] = i;
  cudaStream_t a, b;
  OK(cudaStreamCreate(&a));
  OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  cudaEvent_t begin, copied, end;
  OK(cudaEventCreate(&begin));
  OK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
  OK(cudaEventCreate(&end));
  OK(cudaEventRecord(begin, a));
  OK(cudaMemcpyAsync(p, host, n * sizeof(int), cudaMemcpyHostToDevice, a));
  scale<<<1, 256, 0, a>>>(p, n, 3);
  OK(cudaEventRecord(copied, a));
  OK(cudaStreamWaitEvent(b, copied, 0));
  shift<<<1, 256, 0, b>>>(p, n, 7);
  OK(cudaMemcpyAsync(host, p, n * sizeof(int), cudaMemcpyDeviceToHost, b));
  OK(cudaEventRecord(end, b));
  OK(cudaEventSynchronize(end));
  for (int i = 0; i < n; ++i) CHECK(host[i] == 3 * i + 7);
  OK(cudaEventQuery(end));
  OK(cudaStreamQuery(a));
  OK(cudaStreamQuery(b));
  float ms = -1;
  OK(cudaEventElapsedTime(&ms, begin, end));
  CHECK(ms >= 0);
  ANSWERS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, copied, end));
  ANSWERS(cudaErrorInvalidResourceHandle, cudaGetLastError());
  unsigned flags = 99;
  OK(cudaStreamGetFlags(b, &flags));
  CHECK(flags == cudaStreamNonBlocking);
  int least, greatest, priority = 99;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(least >= greatest);
  cudaStream_t urgent;
  OK(cudaStreamCreateWithPriority(&urgent, cudaStreamDefault, greatest));
  OK(cudaStreamGetPriority(urgent, &priority));
  CHECK(priority == greatest);
  OK(cudaStreamDestroy(urgent));
  cudaEvent_t never;
  OK(cudaEventCreate(&never));
  ANSWERS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, never, end));
  (void)cudaGetLastError();
  OK(cudaEventDestroy(never));
  OK(cudaStreamSynchronize(a));
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
  OK(cudaEventDestroy(begin));
  OK(cudaEventDestroy(copied));
  OK(cudaEventDestroy(end));
  OK(cudaFree(p));
  OK(cudaFreeHost(host));
  return result();
}
