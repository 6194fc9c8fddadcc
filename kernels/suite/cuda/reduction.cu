// SPDX-License-Identifier: Apache-2.0
// Sum of 32-bit integers, each times `factor`, in 64 bits: kPerThread elements per thread, a tree
// in shared memory, one atomic per block (Reduction of EffiSha's benchmarks; RED of FRS).
// `total` is added to and never cleared here: a block-task that ran twice, or not at all, shows in
// the sum. Integer addition wraps and commutes, so the order of blocks does not matter.
constexpr unsigned kThreads = 128;
constexpr unsigned kPerThread = 8;

extern "C" __global__ void reduction(unsigned long long* total, const unsigned* __restrict__ in,
                                     unsigned factor, unsigned long long n) {
  __shared__ unsigned long long partial[kThreads];
  const unsigned tid = threadIdx.x;
  const unsigned long long first =
      blockIdx.x * static_cast<unsigned long long>(kThreads * kPerThread) + tid;

  unsigned long long sum = 0;
#pragma unroll
  for (unsigned j = 0; j < kPerThread; ++j) {
    const unsigned long long i = first + j * kThreads;
    if (i < n) sum += static_cast<unsigned long long>(in[i]) * factor;
  }
  partial[tid] = sum;
  __syncthreads();
#pragma unroll
  for (unsigned width = kThreads / 2; width > 0; width /= 2) {
    if (tid < width) partial[tid] += partial[tid + width];
    __syncthreads();
  }
  if (tid == 0) atomicAdd(total, partial[0]);
}
