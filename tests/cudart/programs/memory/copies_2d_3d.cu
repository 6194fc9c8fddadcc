// SPDX-License-Identifier: Apache-2.0
// Rows and boxes: pitched memory, copies and fills of two and three dimensions.
#include <cstring>
#include <vector>

#include "../check.h"

__global__ void add_row(char* p, size_t pitch, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x < width && y < height) *reinterpret_cast<unsigned char*>(p + y * pitch + x) += y;
}

void rows() {
  constexpr int w = 100, h = 40, host_pitch = 128;
  std::vector<unsigned char> from(host_pitch * h), to(host_pitch * h, 0xEE);
  for (size_t i = 0; i < from.size(); ++i) from[i] = i % 200;
  char* p;
  size_t pitch = 0;
  OK(cudaMallocPitch(&p, &pitch, w, h));
  CHECK(pitch >= w);
  OK(cudaMemcpy2D(p, pitch, from.data(), host_pitch, w, h, cudaMemcpyHostToDevice));
  add_row<<<dim3((w + 31) / 32, h), 32>>>(p, pitch, w, h);
  OK(cudaMemcpy2DAsync(to.data(), host_pitch, p, pitch, w, h, cudaMemcpyDeviceToHost, 0));
  OK(cudaDeviceSynchronize());
  for (int y = 0; y < h; ++y) {
    for (int x = 0; x < host_pitch; ++x) {
      const int i = y * host_pitch + x;
      CHECK(to[i] == (x < w ? static_cast<unsigned char>(from[i] + y) : 0xEE));
    }
  }
  OK(cudaMemset2D(p, pitch, 0x5A, 10, 3));
  OK(cudaMemcpy2D(to.data(), host_pitch, p, pitch, w, h, cudaMemcpyDefault));
  CHECK(to[9] == 0x5A && to[10] != 0x5A && to[2 * host_pitch] == 0x5A &&
        to[3 * host_pitch] != 0x5A);
  ANSWERS(cudaErrorInvalidPitchValue,
          cudaMemcpy2D(p, pitch, from.data(), w - 1, w, h, cudaMemcpyHostToDevice));
  (void)cudaGetLastError();
  OK(cudaFree(p));
}

void boxes() {
  constexpr size_t w = 24, h = 6, d = 5;
  std::vector<int> from(w * h * d), to(w * h * d, -1);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int>(i * 3);
  cudaPitchedPtr p;
  const cudaExtent extent = make_cudaExtent(w * sizeof(int), h, d);
  OK(cudaMalloc3D(&p, extent));
  OK(cudaMemset3D(p, 0, extent));
  cudaMemcpy3DParms in = {};
  in.srcPtr = make_cudaPitchedPtr(from.data(), w * sizeof(int), w, h);
  in.dstPtr = p;
  in.extent = extent;
  in.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&in));
  // A box within comes back to its place.
  cudaMemcpy3DParms out = {};
  out.srcPtr = p;
  out.srcPos = make_cudaPos(4 * sizeof(int), 1, 2);
  out.dstPtr = make_cudaPitchedPtr(to.data(), w * sizeof(int), w, h);
  out.dstPos = make_cudaPos(4 * sizeof(int), 1, 2);
  out.extent = make_cudaExtent(8 * sizeof(int), 4, 2);
  out.kind = cudaMemcpyDeviceToHost;
  OK(cudaMemcpy3DAsync(&out, 0));
  OK(cudaDeviceSynchronize());
  for (size_t z = 0; z < d; ++z) {
    for (size_t y = 0; y < h; ++y) {
      for (size_t x = 0; x < w; ++x) {
        const size_t i = (z * h + y) * w + x;
        const bool within = x >= 4 && x < 12 && y >= 1 && y < 5 && z >= 2 && z < 4;
        CHECK(to[i] == (within ? from[i] : -1));
      }
    }
  }
  OK(cudaFree(p.ptr));
}

int main() {
  rows();
  boxes();
  return result();
}
