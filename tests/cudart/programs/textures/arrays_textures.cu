// SPDX-License-Identifier: Apache-2.0
// Arrays and textures.
#include <vector>

#include "../check.h"

__global__ void read_texture(cudaTextureObject_t t, float* out, int w, int h) {
  const int x = threadIdx.x, y = blockIdx.x;
  if (x < w && y < h) out[y * w + x] = tex2D<float>(t, x + 0.5f, y + 0.5f);
}
__global__ void read_linear(cudaTextureObject_t t, int* out, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = tex1Dfetch<int>(t, threadIdx.x) + 1;
}

int main() {
  constexpr int w = 32, h = 8;
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  OK(cudaMallocArray(&array, &format, w, h));
  std::vector<float> from(w * h), to(w * h), back(w * h);
  for (int i = 0; i < w * h; ++i) from[i] = 0.5f * i;
  OK(cudaMemcpy2DToArray(array, 0, 0, from.data(), w * sizeof(float), w * sizeof(float), h,
                         cudaMemcpyHostToDevice));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureDesc description = {};
  description.filterMode = cudaFilterModePoint;
  description.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture = 0;
  OK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  float* out;
  OK(cudaMalloc(&out, w * h * sizeof(float)));
  read_texture<<<h, w>>>(texture, out, w, h);
  OK(cudaMemcpy(to.data(), out, w * h * sizeof(float), cudaMemcpyDeviceToHost));
  CHECK(to == from);
  OK(cudaMemcpy2DFromArray(back.data(), w * sizeof(float), array, 0, 0, w * sizeof(float), h,
                           cudaMemcpyDeviceToHost));
  CHECK(back == from);
  cudaChannelFormatDesc got;
  cudaExtent extent;
  unsigned flags = 1;
  OK(cudaArrayGetInfo(&got, &extent, &flags, array));
  CHECK(got.x == 32 && got.f == cudaChannelFormatKindFloat && extent.width == w &&
        extent.height == h);
  OK(cudaDestroyTextureObject(texture));
  OK(cudaFreeArray(array));

  int *numbers, host[64];
  OK(cudaMalloc(&numbers, sizeof host));
  for (int i = 0; i < 64; ++i) host[i] = i * i;
  OK(cudaMemcpy(numbers, host, sizeof host, cudaMemcpyHostToDevice));
  cudaResourceDesc linear = {};
  linear.resType = cudaResourceTypeLinear;
  linear.res.linear.devPtr = numbers;
  linear.res.linear.desc = cudaCreateChannelDesc<int>();
  linear.res.linear.sizeInBytes = sizeof host;
  OK(cudaCreateTextureObject(&texture, &linear, &description, nullptr));
  int* sums;
  OK(cudaMalloc(&sums, sizeof host));
  read_linear<<<1, 64>>>(texture, sums, 64);
  OK(cudaMemcpy(host, sums, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) CHECK(host[i] == i * i + 1);
  return result();
}
