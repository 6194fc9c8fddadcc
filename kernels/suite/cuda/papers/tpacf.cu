// SPDX-License-Identifier: Apache-2.0
// Angular correlation of points on the sky: dot products of all pairs of two sets, counted in bins
// that a binary search in constant memory finds; each warp counts in shared memory of its own.
constexpr unsigned kThreads = 128;
constexpr unsigned kBins = 20;
constexpr unsigned kWarps = kThreads / 32;

__constant__ float tpacf_bounds[kBins - 1];  // descending

extern "C" __global__ void tpacf(unsigned long long* counts, const float* x, const float* y,
                                 const float* z, unsigned per_set) {
  __shared__ unsigned local[kBins][kWarps];
  __shared__ float sx[kThreads], sy[kThreads], sz[kThreads];
  const unsigned t = threadIdx.x, warp = t / 32;
  // Blocks along y: set 0 against set blockIdx.y (itself too), a row of points per block along x.
  const unsigned base = blockIdx.y * per_set;
  for (unsigned i = t; i < kBins * kWarps; i += kThreads) local[i / kWarps][i % kWarps] = 0;
  const unsigned mine = blockIdx.x * kThreads + t;
  const bool active = mine < per_set;
  const float mx = active ? x[mine] : 0, my = active ? y[mine] : 0, mz = active ? z[mine] : 0;
  for (unsigned first = 0; first < per_set; first += kThreads) {
    __syncthreads();
    if (first + t < per_set) {
      sx[t] = x[base + first + t];
      sy[t] = y[base + first + t];
      sz[t] = z[base + first + t];
    }
    __syncthreads();
    if (!active) continue;
    const unsigned end = min(kThreads, per_set - first);
    for (unsigned k = 0; k < end; ++k) {
      if (blockIdx.y == 0 && first + k <= mine) continue;  // each pair of one set once
      const float dot = __fmaf_rn(mz, sz[k], __fmaf_rn(my, sy[k], __fmul_rn(mx, sx[k])));
      unsigned low = 0, high = kBins - 1;
      while (low < high) {
        const unsigned middle = (low + high) / 2;
        if (dot >= tpacf_bounds[middle])
          high = middle;
        else
          low = middle + 1;
      }
      atomicAdd(&local[low][warp], 1u);
    }
  }
  __syncthreads();
  if (t >= kBins) return;
  unsigned long long sum = 0;
  for (unsigned w = 0; w < kWarps; ++w) sum += local[t][w];
  if (sum != 0) atomicAdd(&counts[blockIdx.y * kBins + t], sum);
}
