// SPDX-License-Identifier: Apache-2.0
// Exclusive prefix sums in three kernels: within blocks, over the blocks' sums, and added up.
constexpr unsigned kThreads = 256;

// The inclusive sum of `value` over the block's threads.
__device__ unsigned block_scan(unsigned value, unsigned* shared) {
  const unsigned t = threadIdx.x;
  shared[t] = value;
  __syncthreads();
  for (unsigned distance = 1; distance < kThreads; distance *= 2) {
    unsigned sum = shared[t];
    if (t >= distance) sum += shared[t - distance];
    __syncthreads();
    shared[t] = sum;
    __syncthreads();
  }
  return shared[t];
}

extern "C" __global__ void scan_blocks(unsigned* out, unsigned* sums, const unsigned* in,
                                       unsigned n) {
  __shared__ unsigned shared[kThreads];
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  const unsigned value = i < n ? in[i] : 0;
  const unsigned sum = block_scan(value, shared);
  if (i < n) out[i] = sum - value;
  if (threadIdx.x == kThreads - 1) sums[blockIdx.x] = sum;
}

extern "C" __global__ void scan_sums(unsigned* sums, unsigned blocks) {
  __shared__ unsigned shared[kThreads];
  unsigned before = 0;
  for (unsigned base = 0; base < blocks; base += kThreads) {
    const unsigned i = base + threadIdx.x;
    const unsigned value = i < blocks ? sums[i] : 0;
    const unsigned sum = block_scan(value, shared);
    if (i < blocks) sums[i] = before + sum - value;
    before += shared[kThreads - 1];
    __syncthreads();
  }
}

extern "C" __global__ void scan_add(unsigned* out, const unsigned* sums, unsigned n) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (blockIdx.x == 0 || i >= n) return;
  out[i] += sums[blockIdx.x];
}
