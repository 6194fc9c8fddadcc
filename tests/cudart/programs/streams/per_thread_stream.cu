// SPDX-License-Identifier: Apache-2.0
// Compiled so that each thread's default stream is its own: ordinary calls of several threads.
// nvcc: --default-stream per-thread
#include <thread>
#include <vector>

#include "../check.h"

__global__ void fill(int* p, int n, int value) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] = value * i;
}

void work(int which) {
  constexpr int n = 2000;
  int* p;
  OK(cudaMalloc(&p, n * sizeof(int)));
  std::vector<int> host(n);
  for (int round = 1; round < 5; ++round) {
    OK(cudaMemset(p, 0, n * sizeof(int)));
    fill<<<1, 128>>>(p, n, which + round);
    OK(cudaMemcpyAsync(host.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost, 0));
    OK(cudaStreamSynchronize(0));
    for (int i = 0; i < n; ++i) CHECK(host[i] == (which + round) * i);
    OK(cudaMemcpy(host.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(host[n - 1] == (which + round) * (n - 1));
  }
  OK(cudaFree(p));
}

int main() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, i * 100);
  for (std::thread& t : threads) t.join();
  return result();
}
