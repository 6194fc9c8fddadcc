// SPDX-License-Identifier: Apache-2.0
// Tiled matrix product C = scale * (A * B): A is rows x inner, B is inner x cols, row-major floats.
// A block of kTile x kTile threads makes one tile of C through two tiles in shared memory, with two
// barriers per step that all threads pass the same number of times (MM of FLEP, ASPLOS'17, and of
// FRS). The sum over `inner` runs in index order in fused multiply-adds, and zeros fill the tiles
// beyond the edges, which leave a sum as it is; so a CPU gets the same bits. `scale` is a power of
// two: it tells launches apart and rounds nothing.
constexpr unsigned kTile = 8;

extern "C" __global__ void matmul(float* __restrict__ c, const float* __restrict__ a,
                                  const float* __restrict__ b, float scale, unsigned rows,
                                  unsigned cols, unsigned inner) {
  __shared__ float tile_a[kTile][kTile];
  __shared__ float tile_b[kTile][kTile];
  const unsigned tx = threadIdx.x;
  const unsigned ty = threadIdx.y;
  const unsigned col = blockIdx.x * kTile + tx;
  const unsigned row = blockIdx.y * kTile + ty;

  float sum = 0.0f;
  for (unsigned k0 = 0; k0 < inner; k0 += kTile) {
    tile_a[ty][tx] = row < rows && k0 + tx < inner
                         ? a[static_cast<unsigned long long>(row) * inner + k0 + tx]
                         : 0.0f;
    tile_b[ty][tx] = col < cols && k0 + ty < inner
                         ? b[static_cast<unsigned long long>(k0 + ty) * cols + col]
                         : 0.0f;
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < kTile; ++k) sum = __fmaf_rn(tile_a[ty][k], tile_b[k][tx], sum);
    __syncthreads();
  }
  if (row < rows && col < cols) {
    c[static_cast<unsigned long long>(row) * cols + col] = __fmul_rn(sum, scale);
  }
}
