// SPDX-License-Identifier: Apache-2.0
// Select and partition in one pass: multiples of three to the front, in their order; the others to
// the back, in the opposite order. Blocks draw their tiles from a counter.
#include "lookback.cuh"

constexpr unsigned kThreads = 128;

extern "C" __global__ void select_multiples(unsigned* out, unsigned* selected,
                                            unsigned long long* states, unsigned* next_tile,
                                            const unsigned* in, unsigned n) {
  __shared__ unsigned warps[kThreads / 32], tile, before_tile;
  if (threadIdx.x == 0) tile = atomicAdd(next_tile, 1u);
  __syncthreads();
  const unsigned i = tile * kThreads + threadIdx.x;
  const unsigned value = i < n ? in[i] : 1;
  const bool take = value % 3 == 0;
  unsigned all;
  const unsigned before = block_scan<kThreads>(take, warps, &all);
  if (threadIdx.x == 0) {
    before_tile = look_back(states, tile, all);
    if (tile == gridDim.x - 1) *selected = before_tile + all;
  }
  __syncthreads();
  const unsigned place = before_tile + before;  // as many were selected before it
  if (i < n) out[take ? place : n - 1 - (i - place)] = value;
}
