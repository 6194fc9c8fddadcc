// SPDX-License-Identifier: Apache-2.0
// Radix sort, four bits a pass: digits counted per block, counts summed over the whole grid in
// digit order, keys placed stably with the help of warp-wide matching.
constexpr unsigned kThreads = 256;
constexpr unsigned kDigits = 16;
constexpr unsigned kWarps = kThreads / 32;

extern "C" __global__ void sort_count(const unsigned* keys, unsigned* counts, unsigned shift) {
  __shared__ unsigned local[kDigits];
  if (threadIdx.x < kDigits) local[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&local[keys[blockIdx.x * kThreads + threadIdx.x] >> shift & (kDigits - 1)], 1u);
  __syncthreads();
  if (threadIdx.x >= kDigits) return;
  counts[threadIdx.x * gridDim.x + blockIdx.x] = local[threadIdx.x];
}

// One block: exclusive sums in place.
extern "C" __global__ void sort_offsets(unsigned* counts, unsigned n) {
  __shared__ unsigned warps[kWarps];
  const unsigned t = threadIdx.x, lane = t % 32, warp = t / 32;
  unsigned before = 0;
  for (unsigned base = 0; base < n; base += kThreads) {
    const unsigned value = base + t < n ? counts[base + t] : 0;
    unsigned sum = value;
    for (unsigned d = 1; d < 32; d *= 2) {
      const unsigned below = __shfl_up_sync(0xffffffffu, sum, d);
      if (lane >= d) sum += below;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    unsigned all = 0;
    for (unsigned w = 0; w < kWarps; ++w) {
      if (w < warp) sum += warps[w];
      all += warps[w];
    }
    if (base + t < n) counts[base + t] = before + sum - value;
    before += all;
    __syncthreads();
  }
}

extern "C" __global__ void sort_place(unsigned* out, const unsigned* keys, const unsigned* offsets,
                                      unsigned shift) {
  __shared__ unsigned counts[kWarps][kDigits];
  const unsigned t = threadIdx.x, lane = t % 32, warp = t / 32;
  if (t < kWarps * kDigits) counts[t / kDigits][t % kDigits] = 0;
  __syncthreads();
  const unsigned key = keys[blockIdx.x * kThreads + t];
  const unsigned digit = key >> shift & (kDigits - 1);
  const unsigned same = __match_any_sync(0xffffffffu, digit);
  const unsigned rank = __popc(same & ((1u << lane) - 1));
  if (rank == 0) counts[warp][digit] = __popc(same);
  __syncthreads();
  unsigned place = offsets[digit * gridDim.x + blockIdx.x] + rank;
  for (unsigned w = 0; w < warp; ++w) place += counts[w][digit];
  out[place] = key;
}
