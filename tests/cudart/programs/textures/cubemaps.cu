// SPDX-License-Identifier: Apache-2.0
// Cube maps: kernels write the faces, other kernels look in thousands of directions.
#include <cmath>
#include <vector>

#include "../check.h"

constexpr int kSide = 16, kLayers = 2;

__global__ void paint(cudaSurfaceObject_t s) {
  const int layer = blockIdx.x / 6, face = blockIdx.x % 6;
  const int value =
      layer * 10000 + face * 1000 + static_cast<int>(threadIdx.y * kSide + threadIdx.x);
  surfCubemapLayeredwrite(static_cast<float>(value), s, threadIdx.x * 4, threadIdx.y,
                          layer * 6 + face);
}
__global__ void look(cudaTextureObject_t t, const float3* directions, int layer, float* out,
                     int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float3 d = directions[i];
  out[i] = texCubemapLayered<float>(t, d.x, d.y, d.z, layer);
}

// What lies there, by the programming guide's table; -1: too near to an edge of texels to say.
float expected(float3 d, int layer) {
  const double ax = std::fabs(d.x), ay = std::fabs(d.y), az = std::fabs(d.z);
  int face;
  double m, s, t;
  if (ax > ay && ax > az) {
    face = d.x > 0 ? 0 : 1, m = ax, s = d.x > 0 ? -d.z : d.z, t = -d.y;
  } else if (ay > az) {
    face = d.y > 0 ? 2 : 3, m = ay, s = d.x, t = d.y > 0 ? d.z : -d.z;
  } else {
    face = d.z > 0 ? 4 : 5, m = az, s = d.z > 0 ? d.x : -d.x, t = -d.y;
  }
  const double x = (s / m + 1) / 2 * kSide, y = (t / m + 1) / 2 * kSide;
  const auto near_edge = [](double v) { return std::fabs(v - std::round(v)) < 0.01; };
  if (near_edge(x) || near_edge(y)) return -1;
  return static_cast<float>(layer * 10000 + face * 1000 + static_cast<int>(y) * kSide +
                            static_cast<int>(x));
}

int main() {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array = nullptr;
  OK(cudaMalloc3DArray(&array, &format, make_cudaExtent(kSide, kSide, 6 * kLayers),
                       cudaArrayCubemap | cudaArrayLayered | cudaArraySurfaceLoadStore));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaSurfaceObject_t surface = 0;
  OK(cudaCreateSurfaceObject(&surface, &resource));
  paint<<<6 * kLayers, dim3(kSide, kSide)>>>(surface);
  OK(cudaDeviceSynchronize());
  OK(cudaDestroySurfaceObject(surface));

  cudaTextureDesc how = {};
  how.normalizedCoords = 1;
  how.readMode = cudaReadModeElementType;
  for (auto& mode : how.addressMode) mode = cudaAddressModeClamp;
  cudaTextureObject_t texture = 0;
  OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  constexpr int n = 4096;
  std::vector<float3> directions;
  unsigned random = 12345;
  const auto next = [&random] {
    random = random * 1664525u + 1013904223u;
    return static_cast<float>(random >> 8) / (1 << 23) - 1;
  };
  while (directions.size() < n) {
    const float3 d = {next(), next(), next()};
    if (expected(d, 0) >= 0) directions.push_back(d);
  }
  float3* there = nullptr;
  float* out = nullptr;
  OK(cudaMalloc(&there, n * sizeof(float3)));
  OK(cudaMalloc(&out, n * sizeof(float)));
  OK(cudaMemcpy(there, directions.data(), n * sizeof(float3), cudaMemcpyHostToDevice));
  for (int layer = 0; layer < kLayers; ++layer) {
    std::vector<float> seen(n);
    look<<<n / 256, 256>>>(texture, there, layer, out, n);
    OK(cudaMemcpy(seen.data(), out, n * sizeof(float), cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < n; ++i) wrong += seen[i] != expected(directions[i], layer);
    CHECK(wrong == 0);
  }
  OK(cudaDestroyTextureObject(texture));
  OK(cudaFree(there));
  OK(cudaFree(out));
  OK(cudaFreeArray(array));
  return result();
}
