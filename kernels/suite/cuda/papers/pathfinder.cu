// SPDX-License-Identifier: Apache-2.0
// The cheapest way down a grid, row by row (dynamic programming): a block does several rows of its
// columns in shared memory, with a halo that shrinks by one column on each side per row.
constexpr int kThreads = 128;

extern "C" __global__ void pathfinder(const int* wall, const int* from, int* to, int cols,
                                      int first_row, int rows) {
  __shared__ int prev[kThreads];
  __shared__ int result[kThreads];
  const int t = threadIdx.x;
  const int useful = kThreads - 2 * rows;
  const int column = useful * static_cast<int>(blockIdx.x) - rows + t;
  const bool inside = column >= 0 && column < cols;
  if (inside) prev[t] = from[column];
  __syncthreads();
  bool computed = false;
  for (int i = 0; i < rows; ++i) {
    computed = false;
    if (inside && t >= i + 1 && t <= kThreads - 2 - i) {
      computed = true;
      int best = prev[t];
      if (column > 0) best = min(best, prev[t - 1]);
      if (column < cols - 1) best = min(best, prev[t + 1]);
      result[t] = best + wall[static_cast<size_t>(first_row + i) * cols + column];
    }
    __syncthreads();
    if (i == rows - 1) break;
    if (computed) prev[t] = result[t];
    __syncthreads();
  }
  if (computed && t >= rows && t < kThreads - rows) to[column] = result[t];
}
