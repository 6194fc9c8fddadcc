// SPDX-License-Identifier: Apache-2.0
// A grid that waits for itself: cooperative launch and cooperative groups.
#include <cooperative_groups.h>

#include <vector>

#include "../check.h"

namespace cg = cooperative_groups;

__global__ void prefix(int* p, int* sums, int n) {
  cg::grid_group grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<32>(block);
  for (int step = 1; step < n; step *= 2) {
    const int i = static_cast<int>(grid.thread_rank());
    const int v = i < n && i >= step ? p[i - step] : 0;
    grid.sync();
    if (i < n) p[i] += v;
    grid.sync();
  }
  if (tile.thread_rank() == 0) atomicAdd(sums, tile.size());
}

int main() {
  constexpr int n = 200;
  std::vector<int> host(n, 1);
  int *p, *sums;
  OK(cudaMalloc(&p, n * sizeof(int)));
  OK(cudaMalloc(&sums, sizeof(int)));
  OK(cudaMemset(sums, 0, sizeof(int)));
  OK(cudaMemcpy(p, host.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  int count = n, *dp = p, *ds = sums;
  void* args[] = {&dp, &ds, &count};
  OK(cudaLaunchCooperativeKernel(prefix, dim3(4), dim3(64), args, 0, nullptr));
  OK(cudaMemcpy(host.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) CHECK(host[i] == i + 1);
  int total = 0;
  OK(cudaMemcpy(&total, sums, sizeof total, cudaMemcpyDeviceToHost));
  CHECK(total == 4 * 64);
  ANSWERS(cudaErrorCooperativeLaunchTooLarge,
          cudaLaunchCooperativeKernel(prefix, dim3(1 << 20), dim3(64), args, 0, nullptr));
  (void)cudaGetLastError();
  return result();
}
