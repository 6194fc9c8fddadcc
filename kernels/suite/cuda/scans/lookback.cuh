// SPDX-License-Identifier: Apache-2.0
// Decoupled look-back: a tile's sum is published at once, and the sum of all tiles before it is
// found by going back over what the tiles before have published. So a scan over a whole grid takes
// one pass.
//
// A tile's state is one word, written whole: 0 not there yet; kSum + the tile's own sum; or
// kPrefix + the sum up to and with the tile. A tile waits for lower-numbered tiles only.
#pragma once

constexpr unsigned long long kSum = 1ull << 32, kPrefix = 2ull << 32;

// The inclusive sum over the warp.
__device__ inline unsigned warp_scan(unsigned value) {
  for (unsigned d = 1; d < 32; d *= 2) {
    const unsigned below = __shfl_up_sync(0xffffffffu, value, d);
    if (threadIdx.x % 32 >= d) value += below;
  }
  return value;
}

// The exclusive sum over the block's threads, and `all` of it. `warps` has a word for each warp.
template <unsigned Threads>
__device__ inline unsigned block_scan(unsigned value, unsigned* warps, unsigned* all) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned sum = warp_scan(value);
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  unsigned before = 0, total = 0;
  for (unsigned w = 0; w < Threads / 32; ++w) {
    if (w < warp) before += warps[w];
    total += warps[w];
  }
  __syncthreads();
  *all = total;
  return before + sum - value;
}

// For one thread: the sum of all tiles before `tile`, whose own is `sum`.
__device__ inline unsigned look_back(volatile unsigned long long* states, unsigned tile,
                                     unsigned sum) {
  if (tile != 0) states[tile] = kSum | sum;
  unsigned before = 0;
  for (unsigned k = tile; k-- > 0;) {
    unsigned long long state;
    do state = states[k];
    while (state < kSum);
    before += static_cast<unsigned>(state);
    if (state >= kPrefix) break;
  }
  states[tile] = kPrefix | (before + sum);
  return before;
}
