// SPDX-License-Identifier: Apache-2.0
// Tiles of several warps of a block: barriers, reductions and scans. The toolkit's code for them
// keeps its words in shared memory that is reserved for it, from compute capability 8.0 on.
// ptx: compute_80
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "../check.h"

namespace cg = cooperative_groups;

constexpr int kThreads = 512;

// What each thread is told, and whether a tile's threads wait for each other.
template <int N>
__global__ void tiles(int* sums, int* before, int* steps) {
  __shared__ cg::block_tile_memory<kThreads> memory;
  __shared__ int step[kThreads / N];
  const auto block = cg::this_thread_block(memory);
  const auto tile = cg::tiled_partition<N>(block);
  const int me = static_cast<int>(block.thread_rank());
  if (tile.thread_rank() == 0) step[tile.meta_group_rank()] = 0;
  for (int k = 0; k < 3; ++k) {
    tile.sync();
    atomicAdd(&step[tile.meta_group_rank()], 1);
    tile.sync();
    steps[me * 3 + k] = step[tile.meta_group_rank()];
  }
  sums[me] = cg::reduce(tile, me, cg::plus<int>());
  before[me] = cg::exclusive_scan(tile, 1, cg::plus<int>()) + tile.shfl(me, N - 1);
}

template <int N>
void check(int* p) {
  tiles<N><<<1, kThreads>>>(p, p + kThreads, p + 2 * kThreads);
  OK(cudaDeviceSynchronize());
  int wrong = 0;
  for (int i = 0; i < kThreads; ++i) {
    const int first = i / N * N;
    wrong += p[i] != N * first + N * (N - 1) / 2;
    wrong += p[kThreads + i] != i % N + first + N - 1;
    for (int k = 0; k < 3; ++k) wrong += p[2 * kThreads + 3 * i + k] != (k + 1) * N;
  }
  CHECK(wrong == 0);
}

int main() {
  int* p;
  OK(cudaMallocManaged(&p, 5 * kThreads * sizeof(int)));
  check<64>(p);
  check<128>(p);
  check<256>(p);
  check<512>(p);
  OK(cudaFree(p));
  return result();
}
