// SPDX-License-Identifier: Apache-2.0
// Several host threads, each with its own stream and memory, launch at once.
#include <thread>
#include <vector>

#include "../check.h"

template <class T>
__global__ void fill(T* p, int n, T value) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    p[i] = value + static_cast<T>(i);
  }
}

template <class T>
void work(int which) {
  constexpr int n = 3000;
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  T* p;
  OK(cudaMalloc(&p, n * sizeof(T)));
  std::vector<T> host(n);
  for (int round = 0; round < 5; ++round) {
    const T value = static_cast<T>(which * 10 + round);
    fill<T><<<4, 64, 0, stream>>>(p, n, value);
    OK(cudaMemcpyAsync(host.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; ++i) CHECK(host[i] == value + static_cast<T>(i));
  }
  OK(cudaFree(p));
  OK(cudaStreamDestroy(stream));
  OK(cudaGetLastError());
}

int main() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back(work<int>, i);
    threads.emplace_back(work<double>, i);
  }
  for (std::thread& t : threads) t.join();
  return result();
}
