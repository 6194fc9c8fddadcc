// SPDX-License-Identifier: Apache-2.0
// Batched complex Fourier transform of 512 points, one transform per block: nine radix-2 steps of
// Stockham's scheme between two halves of shared memory, a barrier after each.
constexpr unsigned kPoints = 512;

extern "C" __global__ void __launch_bounds__(256)
    fft(float2* out, const float2* in, float sign, float scale) {
  __shared__ float2 memory[2][kPoints];
  const unsigned t = threadIdx.x;
  const float2* source = in + blockIdx.x * static_cast<size_t>(kPoints);
  memory[0][t] = source[t];
  memory[0][t + kPoints / 2] = source[t + kPoints / 2];
  __syncthreads();
  unsigned from = 0;
  for (unsigned length = kPoints / 2, stride = 1; length >= 1; length /= 2, stride *= 2) {
    const unsigned p = t / stride, q = t % stride;
    const float2 a = memory[from][q + stride * p];
    const float2 b = memory[from][q + stride * (p + length)];
    float s, c;
    sincospif(sign * static_cast<float>(p) / static_cast<float>(length), &s, &c);
    const float2 d = make_float2(a.x - b.x, a.y - b.y);
    memory[from ^ 1][q + stride * (2 * p)] = make_float2(a.x + b.x, a.y + b.y);
    memory[from ^ 1][q + stride * (2 * p + 1)] = make_float2(d.x * c - d.y * s, d.x * s + d.y * c);
    from ^= 1;
    __syncthreads();
  }
  for (unsigned i = t; i < kPoints; i += kPoints / 2) {
    const float2 value = memory[from][i];
    out[blockIdx.x * static_cast<size_t>(kPoints) + i] =
        make_float2(value.x * scale, value.y * scale);
  }
}
