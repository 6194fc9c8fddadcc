// SPDX-License-Identifier: Apache-2.0
// Radix sort of pairs, eight bits a pass and one sweep over the data each: where a tile's keys of a
// digit go is found by looking back, each thread for a digit. Blocks draw their tiles from a
// counter.
constexpr unsigned kThreads = 256, kDigits = 256, kPasses = 4, kWarps = kThreads / 32;
// A state: two bits that say what it is, thirty of the sum.
constexpr unsigned kSum = 1u << 30, kPrefix = 2u << 30, kValue = kSum - 1;

// How often each digit of each pass occurs.
extern "C" __global__ void onesweep_count(unsigned* counts, const unsigned* keys, unsigned n) {
  __shared__ unsigned local[kPasses][kDigits];
  for (unsigned p = 0; p < kPasses; ++p) local[p][threadIdx.x] = 0;
  __syncthreads();
  const unsigned stride = gridDim.x * kThreads;
  for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < n; i += stride)
    for (unsigned p = 0; p < kPasses; ++p) atomicAdd(&local[p][keys[i] >> 8 * p & 255], 1u);
  __syncthreads();
  for (unsigned p = 0; p < kPasses; ++p)
    if (local[p][threadIdx.x] != 0)
      atomicAdd(counts + p * kDigits + threadIdx.x, local[p][threadIdx.x]);
}

// A block for each pass: exclusive sums in place.
extern "C" __global__ void onesweep_starts(unsigned* counts) {
  __shared__ unsigned shared[kDigits];
  const unsigned t = threadIdx.x, own = counts[blockIdx.x * kDigits + t];
  unsigned sum = own;
  for (unsigned d = 1; d < kDigits; d *= 2) {
    shared[t] = sum;
    __syncthreads();
    if (t >= d) sum += shared[t - d];
    __syncthreads();
  }
  counts[blockIdx.x * kDigits + t] = sum - own;
}

extern "C" __global__ void onesweep_pass(unsigned* keys_out, unsigned* values_out,
                                         const unsigned* keys, const unsigned* values,
                                         const unsigned* starts, volatile unsigned* states,
                                         unsigned* next_tile, unsigned shift) {
  __shared__ unsigned counts[kWarps][kDigits], place[kDigits], tile;
  const unsigned t = threadIdx.x, lane = t % 32, warp = t / 32;
  if (t == 0) tile = atomicAdd(next_tile, 1u);
  for (unsigned w = 0; w < kWarps; ++w) counts[w][t] = 0;
  __syncthreads();
  const unsigned key = keys[tile * kThreads + t], value = values[tile * kThreads + t];
  const unsigned digit = key >> shift & (kDigits - 1);
  const unsigned same = __match_any_sync(0xffffffffu, digit);
  const unsigned rank = __popc(same & ((1u << lane) - 1));
  if (rank == 0) counts[warp][digit] = __popc(same);
  __syncthreads();
  // From here to the next barrier thread t has digit t.
  unsigned sum = 0;
  for (unsigned w = 0; w < kWarps; ++w) {
    const unsigned count = counts[w][t];
    counts[w][t] = sum;
    sum += count;
  }
  volatile unsigned* const mine = states + tile * kDigits + t;
  if (tile != 0) *mine = kSum | sum;
  unsigned before = 0;
  for (unsigned k = tile; k-- > 0;) {
    unsigned state;
    do state = states[k * kDigits + t];
    while (state < kSum);
    before += state & kValue;
    if (state >= kPrefix) break;
  }
  *mine = kPrefix | (before + sum);
  place[t] = starts[t] + before;
  __syncthreads();
  const unsigned to = place[digit] + counts[warp][digit] + rank;
  keys_out[to] = key;
  values_out[to] = value;
}
