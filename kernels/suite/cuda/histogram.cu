// SPDX-License-Identifier: Apache-2.0
// Histogram of bytes in 256 bins: each block counts into its own bins in shared memory by shared
// atomics and then adds them to the global bins (HST256 of FRS). The words are dealt out in strides
// of the whole grid, so the kernel reads %nctaid and its loop ends at different times for the
// threads of a warp, but always before the barrier. Each byte is exclusive-or'ed with `mask` first,
// which tells launches apart. `bins` is added to and never cleared here: a block-task that ran
// twice, or not at all, shows in the counts. Counts wrap modulo 2^32.
constexpr unsigned kThreads = 128;
constexpr unsigned kBins = 256;

extern "C" __global__ void histogram(unsigned* bins, const unsigned* __restrict__ words,
                                     unsigned mask, unsigned long long n_words) {
  __shared__ unsigned local[kBins];
  const unsigned tid = threadIdx.x;
#pragma unroll
  for (unsigned bin = 0; bin < kBins; bin += kThreads) local[bin + tid] = 0;
  __syncthreads();

  const unsigned long long stride = gridDim.x * static_cast<unsigned long long>(kThreads);
  for (unsigned long long i = blockIdx.x * static_cast<unsigned long long>(kThreads) + tid;
       i < n_words; i += stride) {
    const unsigned word = words[i] ^ (mask * 0x01010101u);
    atomicAdd(&local[word & 0xff], 1u);
    atomicAdd(&local[(word >> 8) & 0xff], 1u);
    atomicAdd(&local[(word >> 16) & 0xff], 1u);
    atomicAdd(&local[word >> 24], 1u);
  }
  __syncthreads();

#pragma unroll
  for (unsigned bin = 0; bin < kBins; bin += kThreads) {
    const unsigned count = local[bin + tid];
    if (count != 0) atomicAdd(&bins[bin + tid], count);
  }
}
