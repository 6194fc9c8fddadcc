// SPDX-License-Identifier: Apache-2.0
// A heat equation in one cooperative launch: the whole grid waits for itself between steps, and a
// sum over the grid decides when it ends. The grid is as large as occupancy allows.
#include <cooperative_groups.h>

#include <cmath>
#include <vector>

#include "../check.h"

namespace cg = cooperative_groups;

constexpr int kCells = 5000, kSteps = 200;

__global__ void heat(float* now, float* next, unsigned long long* moved, int* steps) {
  cg::grid_group grid = cg::this_grid();
  for (int step = 0; step < kSteps; ++step) {
    unsigned long long changes = 0;
    for (unsigned long long i = grid.thread_rank(); i < kCells; i += grid.size()) {
      const float left = i == 0 ? 100 : now[i - 1], right = i + 1 == kCells ? 0 : now[i + 1];
      next[i] = now[i] + 0.25f * (left - 2 * now[i] + right);
      changes += next[i] != now[i];
    }
    atomicAdd(moved + step, changes);
    grid.sync();
    float* const old = now;
    now = next;
    next = old;
    if (grid.thread_rank() == 0) *steps = step + 1;
    if (moved[step] == 0) break;  // of all threads, or of none
  }
}

int main() {
  std::vector<float> now(kCells, 0), next(kCells, 0);
  float *a, *b;
  unsigned long long* moved;
  int* steps;
  OK(cudaMalloc(&a, kCells * 4));
  OK(cudaMalloc(&b, kCells * 4));
  OK(cudaMalloc(&moved, kSteps * sizeof *moved));
  OK(cudaMalloc(&steps, 4));
  OK(cudaMemset(a, 0, kCells * 4));
  OK(cudaMemset(moved, 0, kSteps * sizeof *moved));
  int blocks = 0, sms = 0;
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, heat, 128, 0));
  OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  CHECK(blocks > 0);
  const int grid = blocks * sms < 16 ? blocks * sms : 16;
  void* arguments[] = {&a, &b, &moved, &steps};
  OK(cudaLaunchCooperativeKernel(heat, dim3(grid), dim3(128), arguments, 0, nullptr));
  OK(cudaDeviceSynchronize());
  int done = 0;
  OK(cudaMemcpy(&done, steps, 4, cudaMemcpyDeviceToHost));
  CHECK(done == kSteps);
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kCells; ++i) {
      const float left = i == 0 ? 100 : now[i - 1], right = i + 1 == kCells ? 0 : now[i + 1];
      next[i] = std::fmaf(0.25f, left - 2 * now[i] + right, now[i]);
    }
    now.swap(next);
  }
  std::vector<float> back(kCells);
  OK(cudaMemcpy(back.data(), kSteps % 2 == 0 ? a : b, kCells * 4, cudaMemcpyDeviceToHost));
  float worst = 0;
  for (int i = 0; i < kCells; ++i) worst = std::fmax(worst, std::fabs(back[i] - now[i]));
  CHECK(worst < 1e-3f);
  CHECK(back[0] > 50 && back[kCells - 1] == 0);
  return result();
}
