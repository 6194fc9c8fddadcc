// SPDX-License-Identifier: Apache-2.0
// Merge sort of pairs by 64-bit keys, stable: tiles are sorted in shared memory, then runs of twice
// the length are merged, each block an equal piece of what comes out ("merge path").
constexpr unsigned kThreads = 128, kItems = 2, kTile = kThreads * kItems;

struct Pair {
  unsigned long long key;
  unsigned value;
};

// Of two sorted runs: how many of `a` are among the first `diagonal` of both. Equal ones: `a`
// first.
__device__ unsigned split(const Pair* a, unsigned a_count, const Pair* b, unsigned b_count,
                          unsigned diagonal) {
  unsigned low = diagonal > b_count ? diagonal - b_count : 0;
  unsigned high = diagonal < a_count ? diagonal : a_count;
  while (low < high) {
    const unsigned middle = (low + high) / 2;
    if (b[diagonal - 1 - middle].key < a[middle].key)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// kItems of the merged runs from `diagonal` on.
__device__ void merge_items(Pair* out, const Pair* a, unsigned a_count, const Pair* b,
                            unsigned b_count, unsigned diagonal) {
  unsigned i = split(a, a_count, b, b_count, diagonal), j = diagonal - i;
  for (unsigned k = 0; k < kItems; ++k) {
    const bool from_a = j >= b_count || (i < a_count && !(b[j].key < a[i].key));
    if (from_a)
      out[k] = a[i++];
    else if (j < b_count)
      out[k] = b[j++];
  }
}

extern "C" __global__ void mergesort_tiles(Pair* out, const Pair* in) {
  __shared__ Pair tile[kTile];
  const unsigned t = threadIdx.x, base = blockIdx.x * kTile;
  for (unsigned k = t; k < kTile; k += kThreads) tile[k] = in[base + k];
  __syncthreads();
  Pair two[kItems];
  for (unsigned length = 1; length < kTile; length *= 2) {
    const unsigned at = t * kItems, run = at / (2 * length) * (2 * length);
    merge_items(two, tile + run, length, tile + run + length, length, at - run);
    __syncthreads();
    for (unsigned k = 0; k < kItems; ++k) tile[at + k] = two[k];
    __syncthreads();
  }
  for (unsigned k = t; k < kTile; k += kThreads) out[base + k] = tile[k];
}

// Where each block of mergesort_merge begins in the first of its two runs.
extern "C" __global__ void mergesort_partition(unsigned* splits, const Pair* in, unsigned length,
                                               unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, at = i * kTile;
  if (at > n) return;
  const unsigned run = at / (2 * length) * (2 * length);
  const unsigned a_count = min(length, n - min(n, run));
  const unsigned b_count = min(length, n - min(n, run + length));
  splits[i] = split(in + run, a_count, in + run + length, b_count, at - run);
}

extern "C" __global__ void mergesort_merge(Pair* out, const Pair* in, const unsigned* splits,
                                           unsigned length, unsigned n) {
  __shared__ Pair tile[kTile];
  const unsigned t = threadIdx.x, at = blockIdx.x * kTile;
  const unsigned run = at / (2 * length) * (2 * length), second = min(n, run + length);
  const unsigned a_begin = run + splits[blockIdx.x];
  const unsigned b_begin = second + (at - run - splits[blockIdx.x]);
  // The last block of two runs takes what is left of the first.
  const bool last = (at + kTile) % (2 * length) == 0 || at + kTile >= n;
  const unsigned a_count = (last ? second : run + splits[blockIdx.x + 1]) - a_begin;
  const unsigned b_count = kTile - a_count;
  for (unsigned k = t; k < kTile; k += kThreads)
    tile[k] = k < a_count ? in[a_begin + k] : in[b_begin + k - a_count];
  __syncthreads();
  Pair two[kItems];
  merge_items(two, tile, a_count, tile + a_count, b_count, t * kItems);
  for (unsigned k = 0; k < kItems; ++k) out[at + t * kItems + k] = two[k];
}
