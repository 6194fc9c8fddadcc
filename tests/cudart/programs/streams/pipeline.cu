// SPDX-License-Identifier: Apache-2.0
// Pieces go through copy, kernel and copy in four streams, from and to pinned memory.
#include "../check.h"

__global__ void square(float* p, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] *= p[i];
}

int main() {
  constexpr int kStreams = 4, kPiece = 2048, kPieces = 12;
  float *host, *device;
  OK(cudaMallocHost(&host, kPieces * kPiece * sizeof(float)));
  OK(cudaMalloc(&device, kStreams * kPiece * sizeof(float)));
  for (int i = 0; i < kPieces * kPiece; ++i) host[i] = static_cast<float>(i % 100);
  cudaStream_t streams[kStreams];
  for (cudaStream_t& s : streams) OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  for (int piece = 0; piece < kPieces; ++piece) {
    cudaStream_t s = streams[piece % kStreams];
    float* h = host + piece * kPiece;
    float* d = device + piece % kStreams * kPiece;
    OK(cudaMemcpyAsync(d, h, kPiece * sizeof(float), cudaMemcpyHostToDevice, s));
    square<<<kPiece / 256, 256, 0, s>>>(d, kPiece);
    OK(cudaMemcpyAsync(h, d, kPiece * sizeof(float), cudaMemcpyDeviceToHost, s));
  }
  OK(cudaDeviceSynchronize());
  for (int i = 0; i < kPieces * kPiece; ++i) {
    CHECK(host[i] == static_cast<float>((i % 100) * (i % 100)));
  }
  for (cudaStream_t s : streams) OK(cudaStreamDestroy(s));
  OK(cudaFree(device));
  OK(cudaFreeHost(host));
  return result();
}
