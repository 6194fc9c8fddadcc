// SPDX-License-Identifier: Apache-2.0
// Prefix sums in one pass (lookback.cuh). A warp looks back at 32 tiles at a time, and blocks are
// tiles in the order of their numbers.
#include "lookback.cuh"

constexpr unsigned kThreads = 128, kItems = 4, kTile = kThreads * kItems;

// For a whole warp: the sum of all tiles before `tile`.
__device__ unsigned warp_look_back(volatile unsigned long long* states, unsigned tile,
                                   unsigned sum) {
  const unsigned lane = threadIdx.x % 32;
  if (lane == 0) states[tile] = (tile == 0 ? kPrefix : kSum) | sum;
  unsigned before = 0;
  for (unsigned end = tile; end != 0; end = end > 32 ? end - 32 : 0) {
    // Lane 0 has the tile next before. A lane without one counts as a prefix of nothing.
    unsigned long long state = kPrefix;
    do {
      if (lane < end) state = states[end - 1 - lane];
    } while (__any_sync(0xffffffffu, state < kSum));
    const unsigned prefixes = __ballot_sync(0xffffffffu, state >= kPrefix);
    const unsigned last = prefixes == 0 ? 31 : __ffs(prefixes) - 1;
    const unsigned mine = lane <= last ? static_cast<unsigned>(state) : 0;
    before += __shfl_sync(0xffffffffu, warp_scan(mine), 31);
    if (prefixes != 0) break;
  }
  if (lane == 0 && tile != 0) states[tile] = kPrefix | (before + sum);
  return before;
}

extern "C" __global__ void lookback_scan(unsigned* out, unsigned long long* states,
                                         const unsigned* in, unsigned n) {
  __shared__ unsigned warps[kThreads / 32], before_tile;
  const unsigned first = blockIdx.x * kTile + threadIdx.x * kItems;
  unsigned value[kItems], sum = 0, all;
  for (unsigned k = 0; k < kItems; ++k) {
    value[k] = first + k < n ? in[first + k] : 0;
    sum += value[k];
  }
  unsigned before = block_scan<kThreads>(sum, warps, &all);
  if (threadIdx.x < 32) {
    const unsigned found = warp_look_back(states, blockIdx.x, all);
    if (threadIdx.x == 0) before_tile = found;
  }
  __syncthreads();
  before += before_tile;
  for (unsigned k = 0; k < kItems; ++k) {
    if (first + k < n) out[first + k] = before;
    before += value[k];
  }
}
