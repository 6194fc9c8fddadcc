// SPDX-License-Identifier: Apache-2.0
// Sparse matrix times vector, rows compressed: a thread per row, and a warp per row.
extern "C" __global__ void spmv_scalar(float* out, const float* values, const unsigned* columns,
                                       const unsigned* begin, const float* __restrict__ vector,
                                       unsigned rows) {
  const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0;
  for (unsigned i = begin[row]; i < begin[row + 1]; ++i) sum += values[i] * vector[columns[i]];
  out[row] = sum;
}

extern "C" __global__ void spmv_vector(float* out, const float* values, const unsigned* columns,
                                       const unsigned* begin, const float* __restrict__ vector,
                                       unsigned rows) {
  __shared__ volatile float partial[128];
  const unsigned t = threadIdx.x, lane = t % 32;
  const unsigned row = blockIdx.x * (blockDim.x / 32) + t / 32;
  if (row >= rows) return;
  float sum = 0;
  for (unsigned i = begin[row] + lane; i < begin[row + 1]; i += 32)
    sum += values[i] * vector[columns[i]];
  partial[t] = sum;
  __syncwarp();
  for (unsigned half = 16; half > 0; half /= 2) {
    if (lane < half) partial[t] = partial[t] + partial[t + half];
    __syncwarp();
  }
  if (lane == 0) out[row] = partial[t];
}
