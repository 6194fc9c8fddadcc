// SPDX-License-Identifier: Apache-2.0
// A chain of mipmaps, each level made by a kernel from the one before, and fetches from it: one
// level, between two levels, by gradients, and through a view of some levels.
#include <vector>

#include "../check.h"

// The mean of four texels of the level above.
__global__ void shrink(cudaTextureObject_t from, cudaSurfaceObject_t to, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float sum = 0;
  for (int j = 0; j < 2; ++j)
    for (int i = 0; i < 2; ++i) sum += tex2D<float>(from, 2 * x + i + 0.5f, 2 * y + j + 0.5f);
  surf2Dwrite(sum / 4, to, x * 4, y);
}
__global__ void fetch(cudaTextureObject_t t, const float* levels, float* out, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = tex2DLod<float>(t, 0.5f, 0.5f, levels[threadIdx.x]);
}
__global__ void fetch_gradient(cudaTextureObject_t t, float step, float* out) {
  *out = tex2DGrad<float>(t, 0.5f, 0.5f, make_float2(step, 0), make_float2(0, step));
}

constexpr int kSide = 64, kLevels = 7;

cudaArray_t level(cudaMipmappedArray_t mipmap, unsigned k) {
  cudaArray_t array = nullptr;
  OK(cudaGetMipmappedArrayLevel(&array, mipmap, k));
  return array;
}
cudaResourceDesc resource_of(cudaArray_t array) {
  cudaResourceDesc r = {};
  r.resType = cudaResourceTypeArray;
  r.res.array.array = array;
  return r;
}

int main() {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t mipmap = nullptr;
  OK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(kSide, kSide, 0), kLevels,
                              cudaArraySurfaceLoadStore));
  // Small whole numbers, so that each mean is exact.
  std::vector<std::vector<float>> levels(kLevels);
  levels[0].resize(kSide * kSide);
  for (int i = 0; i < kSide * kSide; ++i) levels[0][i] = static_cast<float>(i * 37 % 256);
  OK(cudaMemcpy2DToArray(level(mipmap, 0), 0, 0, levels[0].data(), kSide * 4, kSide * 4, kSide,
                         cudaMemcpyHostToDevice));
  for (int k = 1; k < kLevels; ++k) {
    const int side = kSide >> k;
    cudaTextureDesc plain = {};
    plain.readMode = cudaReadModeElementType;
    cudaTextureObject_t from = 0;
    cudaSurfaceObject_t to = 0;
    const cudaResourceDesc above = resource_of(level(mipmap, k - 1));
    const cudaResourceDesc here = resource_of(level(mipmap, k));
    OK(cudaCreateTextureObject(&from, &above, &plain, nullptr));
    OK(cudaCreateSurfaceObject(&to, &here));
    shrink<<<dim3((side + 7) / 8, (side + 7) / 8), dim3(8, 8)>>>(from, to, side, side);
    OK(cudaDeviceSynchronize());
    OK(cudaDestroyTextureObject(from));
    OK(cudaDestroySurfaceObject(to));
    levels[k].resize(side * side);
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x) {
        const auto at = [&](int i, int j) {
          return levels[k - 1][(2 * y + j) * 2 * side + 2 * x + i];
        };
        levels[k][y * side + x] = (at(0, 0) + at(1, 0) + at(0, 1) + at(1, 1)) / 4;
      }
    std::vector<float> back(side * side);
    OK(cudaMemcpy2DFromArray(back.data(), side * 4, level(mipmap, k), 0, 0, side * 4, side,
                             cudaMemcpyDeviceToHost));
    CHECK(back == levels[k]);
  }

  cudaResourceDesc all = {};
  all.resType = cudaResourceTypeMipmappedArray;
  all.res.mipmap.mipmap = mipmap;
  cudaTextureDesc how = {};
  how.normalizedCoords = 1;
  how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
  how.readMode = cudaReadModeElementType;
  how.mipmapFilterMode = cudaFilterModeLinear;
  how.maxMipmapLevelClamp = kLevels - 1;
  cudaTextureObject_t texture = 0;
  OK(cudaCreateTextureObject(&texture, &all, &how, nullptr));
  const float wanted[] = {0, 1, 2, 3, 4, 5, 6, 0.5f, 5.5f, 9};
  constexpr int n = sizeof wanted / sizeof *wanted;
  float *at, *out, got[n];
  OK(cudaMalloc(&at, sizeof wanted));
  OK(cudaMalloc(&out, sizeof wanted));
  OK(cudaMemcpy(at, wanted, sizeof wanted, cudaMemcpyHostToDevice));
  fetch<<<1, 32>>>(texture, at, out, n);
  OK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  const auto middle = [&](int k) {  // of a level
    const int side = kSide >> k;
    return levels[k][side / 2 * side + side / 2];
  };
  for (int k = 0; k < kLevels; ++k) CHECK(got[k] == middle(k));
  CHECK(got[7] == (middle(0) + middle(1)) / 2);
  CHECK(got[8] == (middle(5) + middle(6)) / 2);
  CHECK(got[9] == middle(6));
  fetch_gradient<<<1, 1>>>(texture, 8.0f / kSide, out);
  OK(cudaMemcpy(got, out, 4, cudaMemcpyDeviceToHost));
  CHECK(got[0] == middle(3));

  cudaResourceViewDesc view = {};
  view.format = cudaResViewFormatFloat1;
  view.width = view.height = kSide;  // the array's, whatever the first level
  view.firstMipmapLevel = 2;
  view.lastMipmapLevel = 4;
  cudaTextureObject_t some = 0;
  OK(cudaCreateTextureObject(&some, &all, &how, &view));
  fetch<<<1, 32>>>(some, at, out, n);
  OK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  CHECK(got[0] == middle(2));
  CHECK(got[2] == middle(4));
  CHECK(got[6] == middle(4));
  OK(cudaDestroyTextureObject(some));
  OK(cudaDestroyTextureObject(texture));
  OK(cudaFree(at));
  OK(cudaFree(out));
  OK(cudaFreeMipmappedArray(mipmap));
  return result();
}
