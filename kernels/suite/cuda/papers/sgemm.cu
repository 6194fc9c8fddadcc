// SPDX-License-Identifier: Apache-2.0
// C = alpha A B + beta C with tiles in registers: 64 threads make a 64x16 tile of C, each a column
// piece of 16, from a tile of B in shared memory. A and C by columns, B by rows; m in 64s, n in
// 16s, k in 4s.
constexpr int kTileM = 64, kTileN = 16, kTileK = 4;

extern "C" __global__ void sgemm(const float* a, int lda, const float* b, int ldb, float* c,
                                 int ldc, int k, float alpha, float beta) {
  __shared__ float tile[kTileK][kTileN];
  const int t = threadIdx.y * kTileN + threadIdx.x;
  const int row = blockIdx.x * kTileM + t;
  const int col = blockIdx.y * kTileN;
  float sums[kTileN] = {};
  for (int i = 0; i < k; i += kTileK) {
    tile[threadIdx.y][threadIdx.x] =
        b[(i + static_cast<int>(threadIdx.y)) * ldb + col + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kTileK; ++j) {
      const float value = a[row + (i + j) * lda];
#pragma unroll
      for (int n = 0; n < kTileN; ++n) sums[n] += value * tile[j][n];
    }
    __syncthreads();
  }
#pragma unroll
  for (int n = 0; n < kTileN; ++n) {
    float* const at = &c[row + (col + n) * ldc];
    *at = alpha * sums[n] + (beta == 0 ? 0 : beta * *at);
  }
}
