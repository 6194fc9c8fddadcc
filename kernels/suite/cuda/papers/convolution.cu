// SPDX-License-Identifier: Apache-2.0
// Separable convolution with 17 taps from constant memory: rows, then columns; tiles with halos in
// shared memory, several results per thread.
constexpr int kRadius = 8;
constexpr int kRowsX = 16, kRowsY = 4, kRowsSteps = 4;
constexpr int kColsX = 16, kColsY = 8, kColsSteps = 4;

__constant__ float convolution_taps[2 * kRadius + 1];

extern "C" __global__ void convolution_rows(float* out, const float* in, int width, int height) {
  __shared__ float tile[kRowsY][kRowsX * (kRowsSteps + 2)];
  const int x0 = blockIdx.x * kRowsX * kRowsSteps - kRowsX;
  const int y = blockIdx.y * kRowsY + threadIdx.y;
  for (int s = 0; s < kRowsSteps + 2; ++s) {
    const int x = x0 + s * kRowsX + static_cast<int>(threadIdx.x);
    tile[threadIdx.y][s * kRowsX + threadIdx.x] =
        x >= 0 && x < width && y < height ? in[y * width + x] : 0;
  }
  __syncthreads();
#pragma unroll
  for (int s = 1; s <= kRowsSteps; ++s) {
    const int x = x0 + s * kRowsX + static_cast<int>(threadIdx.x);
    float sum = 0;
#pragma unroll
    for (int k = -kRadius; k <= kRadius; ++k)
      sum += convolution_taps[kRadius - k] * tile[threadIdx.y][s * kRowsX + threadIdx.x + k];
    if (x < width && y < height) out[y * width + x] = sum;
  }
}

extern "C" __global__ void convolution_columns(float* out, const float* in, int width, int height) {
  __shared__ float tile[kColsX][kColsY * (kColsSteps + 2) + 1];
  const int x = blockIdx.x * kColsX + threadIdx.x;
  const int y0 = blockIdx.y * kColsY * kColsSteps - kColsY;
  for (int s = 0; s < kColsSteps + 2; ++s) {
    const int y = y0 + s * kColsY + static_cast<int>(threadIdx.y);
    tile[threadIdx.x][s * kColsY + threadIdx.y] =
        y >= 0 && y < height && x < width ? in[y * width + x] : 0;
  }
  __syncthreads();
#pragma unroll
  for (int s = 1; s <= kColsSteps; ++s) {
    const int y = y0 + s * kColsY + static_cast<int>(threadIdx.y);
    float sum = 0;
#pragma unroll
    for (int k = -kRadius; k <= kRadius; ++k)
      sum += convolution_taps[kRadius - k] * tile[threadIdx.x][s * kColsY + threadIdx.y + k];
    if (x < width && y < height) out[y * width + x] = sum;
  }
}
