// SPDX-License-Identifier: Apache-2.0
// A stencil as benchmark suites write it: pitched memory, copies of rows and boxes, tiles in shared
// memory beyond 48 KiB, constants set in a stream, two buffers that change places, timed by events.
#include <cmath>
#include <vector>

#include "../check.h"

constexpr int kSide = 200, kSteps = 6, kTile = 96, kHalo = kTile + 2;
__constant__ float weights[3];

__global__ void step(const float* from, size_t from_pitch, float* to, size_t to_pitch) {
  extern __shared__ float tile[];
  const int left = blockIdx.x * kTile - 1, top = blockIdx.y * kTile - 1;
  for (int k = threadIdx.x; k < kHalo * kHalo; k += blockDim.x) {
    const int x = min(max(left + k % kHalo, 0), kSide - 1);
    const int y = min(max(top + k / kHalo, 0), kSide - 1);
    tile[k] =
        reinterpret_cast<const float*>(reinterpret_cast<const char*>(from) + y * from_pitch)[x];
  }
  __syncthreads();
  for (int k = threadIdx.x; k < kTile * kTile; k += blockDim.x) {
    const int x = k % kTile, y = k / kTile;
    if (left + 1 + x >= kSide || top + 1 + y >= kSide) continue;
    const float* at = tile + (y + 1) * kHalo + x + 1;
    const float sum =
        weights[0] * at[0] + weights[1] * (at[-1] + at[1]) + weights[2] * (at[-kHalo] + at[kHalo]);
    reinterpret_cast<float*>(reinterpret_cast<char*>(to) + (top + 1 + y) * to_pitch)[left + 1 + x] =
        sum;
  }
}

int main() {
  std::vector<float> grid(kSide * kSide), expected, next(grid.size());
  for (size_t i = 0; i < grid.size(); ++i) grid[i] = static_cast<float>(i * 37 % 101);
  expected = grid;
  const float host_weights[3] = {0.5f, 0.125f, 0.125f};
  for (int n = 0; n < kSteps; ++n) {
    for (int y = 0; y < kSide; ++y)
      for (int x = 0; x < kSide; ++x) {
        const auto at = [&](int i, int j) {
          i = i < 0 ? 0 : i >= kSide ? kSide - 1 : i;
          j = j < 0 ? 0 : j >= kSide ? kSide - 1 : j;
          return expected[j * kSide + i];
        };
        next[y * kSide + x] = 0.5f * at(x, y) + 0.125f * (at(x - 1, y) + at(x + 1, y)) +
                              0.125f * (at(x, y - 1) + at(x, y + 1));
      }
    expected.swap(next);
  }

  OK(cudaSetDevice(0));
  OK(cudaFuncSetCacheConfig(step, cudaFuncCachePreferShared));
  OK(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
  cudaFuncCache config;
  OK(cudaDeviceGetCacheConfig(&config));
  constexpr int kShared = kHalo * kHalo * sizeof(float);
  OK(cudaFuncSetAttribute(step, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  OK(cudaFuncSetAttribute(step, cudaFuncAttributePreferredSharedMemoryCarveout,
                          cudaSharedmemCarveoutMaxShared));
  cudaStream_t stream;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaMemcpyToSymbolAsync(weights, host_weights, sizeof host_weights, 0, cudaMemcpyHostToDevice,
                             stream));
  float* buffer[2];
  size_t pitch[2];
  for (int k = 0; k < 2; ++k) {
    OK(cudaMallocPitch(&buffer[k], &pitch[k], kSide * sizeof(float), kSide));
    CHECK(pitch[k] >= kSide * sizeof(float) && pitch[k] % 32 == 0);
    OK(cudaMemset2DAsync(buffer[k], pitch[k], 0xff, kSide * sizeof(float), kSide, stream));
  }
  OK(cudaMemcpy2DAsync(buffer[0], pitch[0], grid.data(), kSide * 4, kSide * 4, kSide,
                       cudaMemcpyHostToDevice, stream));
  cudaEvent_t begin, end;
  OK(cudaEventCreate(&begin));
  OK(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
  OK(cudaEventRecord(begin, stream));
  const dim3 blocks((kSide + kTile - 1) / kTile, (kSide + kTile - 1) / kTile);
  for (int n = 0; n < kSteps; ++n)
    step<<<blocks, 256, kShared, stream>>>(buffer[n % 2], pitch[n % 2], buffer[(n + 1) % 2],
                                           pitch[(n + 1) % 2]);
  OK(cudaEventRecord(end, stream));
  OK(cudaEventSynchronize(end));
  float ms = -1;
  OK(cudaEventElapsedTime(&ms, begin, end));
  CHECK(ms >= 0);
  std::vector<float> got(kSide * kSide);
  OK(cudaMemcpy2D(got.data(), kSide * 4, buffer[kSteps % 2], pitch[kSteps % 2], kSide * 4, kSide,
                  cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) wrong += std::fabs(got[i] - expected[i]) > 1e-3f;
  CHECK(wrong == 0);
  // One block too much shared memory: an error of the launch, which cudaGetLastError takes.
  step<<<1, 256, 300 * 1024, stream>>>(buffer[0], pitch[0], buffer[1], pitch[1]);
  ANSWERS(cudaErrorInvalidValue, cudaPeekAtLastError());
  ANSWERS(cudaErrorInvalidValue, cudaGetLastError());
  OK(cudaGetLastError());
  for (float* p : buffer) OK(cudaFree(p));
  OK(cudaEventDestroy(begin));
  OK(cudaEventDestroy(end));
  OK(cudaStreamDestroy(stream));
  OK(cudaDeviceReset());
  return result();
}
