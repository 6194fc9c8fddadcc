// SPDX-License-Identifier: Apache-2.0
// Copies from global to shared memory that a block waits for (memcpy_async of cooperative groups).
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

#include <vector>

#include "../check.h"

namespace cg = cooperative_groups;

__global__ void sum_tiles(const int* p, int tiles, int* out) {
  __shared__ int room[128];
  cg::thread_block block = cg::this_thread_block();
  int sum = 0;
  for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
    cg::memcpy_async(block, room, p + t * 128, sizeof room);
    cg::wait(block);
    sum += room[127 - block.thread_rank()];
    block.sync();
  }
  atomicAdd(out, sum);
}

int main() {
  constexpr int tiles = 10;
  std::vector<int> host(tiles * 128);
  int expected = 0;
  for (size_t i = 0; i < host.size(); ++i) expected += host[i] = static_cast<int>(i % 97);
  int *p, *out, value = 0;
  OK(cudaMalloc(&p, host.size() * sizeof(int)));
  OK(cudaMalloc(&out, sizeof(int)));
  OK(cudaMemset(out, 0, sizeof(int)));
  OK(cudaMemcpy(p, host.data(), host.size() * sizeof(int), cudaMemcpyHostToDevice));
  sum_tiles<<<3, 128>>>(p, tiles, out);
  OK(cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost));
  CHECK(value == expected);
  return result();
}
