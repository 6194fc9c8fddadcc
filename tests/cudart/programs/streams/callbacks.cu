// SPDX-License-Identifier: Apache-2.0
// Host functions and callbacks run in their stream's order.
#include <vector>

#include "../check.h"

__global__ void set(int* p, int value) { *p = value; }

struct Seen {
  std::vector<int> values;
  int* host;
};
void CUDART_CB host_function(void* user) {
  Seen* seen = static_cast<Seen*>(user);
  seen->values.push_back(*seen->host);
}
void CUDART_CB callback(cudaStream_t, cudaError_t status, void* user) {
  if (status == cudaSuccess) host_function(user);
}

int main() {
  Seen seen;
  int* p;
  OK(cudaMallocHost(&seen.host, sizeof(int)));
  OK(cudaMalloc(&p, sizeof(int)));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  for (int i = 0; i < 6; ++i) {
    set<<<1, 1, 0, stream>>>(p, i * i);
    OK(cudaMemcpyAsync(seen.host, p, sizeof(int), cudaMemcpyDeviceToHost, stream));
    if (i % 2 == 0) {
      OK(cudaLaunchHostFunc(stream, host_function, &seen));
    } else {
      OK(cudaStreamAddCallback(stream, callback, &seen, 0));
    }
  }
  OK(cudaStreamSynchronize(stream));
  CHECK(seen.values == (std::vector<int>{0, 1, 4, 9, 16, 25}));
  OK(cudaStreamDestroy(stream));
  return result();
}
