// SPDX-License-Identifier: Apache-2.0
// A particle filter that tracks a spot in an image (PL): how likely each particle is, weights
// normalised, their running sum, and new particles drawn by searching in it.
constexpr unsigned kThreads = 128;

extern "C" __global__ void particle_likelihood(const int2* particles, const int2* disk,
                                               unsigned points, const unsigned char* image,
                                               int width, int height, float* weights,
                                               float* partial, unsigned n) {
  __shared__ float sums[kThreads];
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  float weight = 0;
  if (i < n) {
    const int2 at = particles[i];
    float likelihood = 0;
    for (unsigned p = 0; p < points; ++p) {
      const int x = min(max(at.x + disk[p].x, 0), width - 1);
      const int y = min(max(at.y + disk[p].y, 0), height - 1);
      const float value = image[y * width + x];
      likelihood += ((value - 100) * (value - 100) - (value - 228) * (value - 228)) / 50.0f;
    }
    weight = weights[i] * expf(likelihood / static_cast<float>(points) * 0.01f);
    weights[i] = weight;
  }
  sums[threadIdx.x] = weight;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half >>= 1) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) partial[blockIdx.x] = sums[0];
}

extern "C" __global__ void particle_sum(float* partial, unsigned parts) {
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  float sum = 0;
  for (unsigned i = 0; i < parts; ++i) {
    const float each = partial[i];
    partial[i] = sum;
    sum += each;
  }
  partial[parts] = sum;
}

// Running sums of the weights, normalised: each block begins at what the blocks before it add up
// to.
extern "C" __global__ void particle_cdf(const float* weights, float* cdf, const float* partial,
                                        unsigned parts, unsigned n) {
  __shared__ float sums[kThreads];
  const unsigned t = threadIdx.x, i = blockIdx.x * kThreads + t;
  sums[t] = i < n ? weights[i] : 0;
  __syncthreads();
  for (unsigned distance = 1; distance < kThreads; distance *= 2) {
    const float below = t >= distance ? sums[t - distance] : 0;
    __syncthreads();
    sums[t] += below;
    __syncthreads();
  }
  if (i < n) cdf[i] = (partial[blockIdx.x] + sums[t]) / partial[parts];
}

extern "C" __global__ void particle_draw(const float* cdf, const int2* particles, int2* drawn,
                                         int* chosen, float first, unsigned n) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const float u = (first + static_cast<float>(i)) / static_cast<float>(n);
  int index = -1;
  for (unsigned k = 0; k < n; ++k)
    if (cdf[k] >= u) {
      index = static_cast<int>(k);
      break;
    }
  if (index < 0) index = static_cast<int>(n) - 1;
  drawn[i] = particles[index];
  chosen[i] = index;
}
