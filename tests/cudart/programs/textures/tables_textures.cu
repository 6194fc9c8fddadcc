// SPDX-License-Identifier: Apache-2.0
// Lookups as in codes of particles and images: a table in constant memory by value of a struct, a
// linear texture for gathers, a pitched texture, a layered array written by surfaces, a volume with
// filtering, copies between arrays and memory in all directions.
#include <cmath>
#include <vector>

#include "../check.h"

struct Params {
  float scale[8];
  int count;
  double bias;
};
__constant__ Params params;
__constant__ double tables[4][32];
__device__ int histogram[16];

__global__ void gather(cudaTextureObject_t table, const int* index, float4* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = tex1Dfetch<float4>(table, index[i]);
  v.x *= params.scale[i % params.count];
  v.w += static_cast<float>(params.bias + tables[i % 4][i % 32]);
  out[i] = v;
  atomicAdd(&histogram[index[i] % 16], 1);
}
__global__ void layers(cudaSurfaceObject_t to, int width, int height) {
  const int x = threadIdx.x, y = threadIdx.y, layer = blockIdx.x;
  if (x < width && y < height)
    surf2DLayeredwrite(static_cast<float>(layer * 100 + y * 10 + x), to, x * 4, y, layer,
                       cudaBoundaryModeTrap);
}
__global__ void look(cudaTextureObject_t of, float* out, int layer) {
  out[threadIdx.x] = tex2DLayered<float>(of, threadIdx.x + 0.5f, 1.5f, layer);
}
__global__ void volume(cudaTextureObject_t of, float* out) {
  out[threadIdx.x] = tex3D<float>(of, threadIdx.x + 1.0f, 1.5f, 0.5f);
}
__global__ void pixels(cudaTextureObject_t of, float4* out) {
  out[threadIdx.x] = tex2D<float4>(of, (threadIdx.x + 0.5f) / 8, 0.25f);
}
__global__ void between(cudaTextureObject_t of, float4* out) {
  out[threadIdx.x] = tex2D<float4>(of, (threadIdx.x + 1.0f) / 8, 0.25f);
}

int main() {
  constexpr int n = 5000, kRows = 1000;
  std::vector<float4> table(kRows);
  std::vector<int> index(n);
  for (int i = 0; i < kRows; ++i) table[i] = {i * 1.0f, i * 2.0f, i * 3.0f, i * 4.0f};
  for (int i = 0; i < n; ++i) index[i] = i * 7919 % kRows;
  Params host = {{1, 2, 3, 4, 5, 6, 7, 8}, 7, 0.5};
  double host_tables[4][32];
  for (int i = 0; i < 128; ++i) host_tables[i / 32][i % 32] = i;
  OK(cudaMemcpyToSymbol(params, &host, sizeof host));
  OK(cudaMemcpyToSymbol(tables, host_tables, sizeof host_tables / 2));
  OK(cudaMemcpyToSymbol(tables, host_tables[2], sizeof host_tables / 2, sizeof host_tables / 2));
  size_t size = 0;
  OK(cudaGetSymbolSize(&size, tables));
  CHECK(size == sizeof host_tables);
  void* at = nullptr;
  OK(cudaGetSymbolAddress(&at, histogram));
  OK(cudaMemset(at, 0, sizeof(int) * 16));

  float4 *device_table, *out;
  int* device_index;
  OK(cudaMalloc(&device_table, kRows * sizeof(float4)));
  OK(cudaMalloc(&out, n * sizeof(float4)));
  OK(cudaMalloc(&device_index, n * sizeof(int)));
  OK(cudaMemcpy(device_table, table.data(), kRows * sizeof(float4), cudaMemcpyDefault));
  OK(cudaMemcpy(device_index, index.data(), n * sizeof(int), cudaMemcpyDefault));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = device_table;
  resource.res.linear.desc = cudaCreateChannelDesc<float4>();
  resource.res.linear.sizeInBytes = kRows * sizeof(float4);
  cudaTextureDesc how = {};
  how.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture;
  OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  gather<<<(n + 255) / 256, 256>>>(texture, device_index, out, n);
  std::vector<float4> got(n);
  OK(cudaMemcpy(got.data(), out, n * sizeof(float4), cudaMemcpyDeviceToHost));
  int wrong = 0, counts[16], expected[16] = {};
  for (int i = 0; i < n; ++i) {
    const float4& t = table[index[i]];
    ++expected[index[i] % 16];
    wrong += got[i].x != t.x * host.scale[i % 7] || got[i].y != t.y || got[i].z != t.z ||
             got[i].w != t.w + static_cast<float>(0.5 + host_tables[i % 4][i % 32]);
  }
  CHECK(wrong == 0);
  OK(cudaMemcpyFromSymbol(counts, histogram, sizeof counts));
  for (int k = 0; k < 16; ++k) wrong += counts[k] != expected[k];
  CHECK(wrong == 0);
  OK(cudaMemcpyFromSymbolAsync(counts, histogram, 8, 8, cudaMemcpyDeviceToHost, nullptr));
  OK(cudaStreamSynchronize(nullptr));
  CHECK(counts[0] == expected[2] && counts[1] == expected[3]);
  OK(cudaDestroyTextureObject(texture));

  // Layers, written by a surface, read by a texture and by a copy.
  constexpr int kWidth = 8, kHeight = 4, kLayers = 5;
  const cudaChannelFormatDesc one = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  OK(cudaMalloc3DArray(&array, &one, make_cudaExtent(kWidth, kHeight, kLayers),
                       cudaArrayLayered | cudaArraySurfaceLoadStore));
  resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaSurfaceObject_t surface;
  OK(cudaCreateSurfaceObject(&surface, &resource));
  layers<<<kLayers, dim3(kWidth, kHeight)>>>(surface, kWidth, kHeight);
  OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  float* row = reinterpret_cast<float*>(out);
  float line[32];
  for (int layer = 0; layer < kLayers; ++layer) {
    look<<<1, kWidth>>>(texture, row, layer);
    OK(cudaMemcpy(line, row, kWidth * 4, cudaMemcpyDeviceToHost));
    for (int x = 0; x < kWidth; ++x) wrong += line[x] != layer * 100 + 10 + x;
  }
  CHECK(wrong == 0);
  std::vector<float> all(kWidth * kHeight * kLayers, -1.0f);
  cudaMemcpy3DParms copy = {};
  copy.srcArray = array;
  copy.dstPtr = make_cudaPitchedPtr(all.data(), kWidth * 4, kWidth, kHeight);
  copy.extent = make_cudaExtent(kWidth, kHeight, kLayers);
  copy.kind = cudaMemcpyDeviceToHost;
  OK(cudaMemcpy3D(&copy));
  for (int i = 0; i < static_cast<int>(all.size()); ++i)
    wrong += all[i] != i / 32 * 100 + i / 8 % 4 * 10 + i % 8;
  CHECK(wrong == 0);
  OK(cudaDestroySurfaceObject(surface));
  OK(cudaDestroyTextureObject(texture));
  OK(cudaFreeArray(array));

  // A volume with filtering between texels.
  cudaExtent extent = make_cudaExtent(8, 3, 2);
  OK(cudaMalloc3DArray(&array, &one, extent));
  std::vector<float> texels(8 * 3 * 2);
  for (size_t i = 0; i < texels.size(); ++i) texels[i] = static_cast<float>(i % 8 * 16);
  copy = {};
  copy.srcPtr = make_cudaPitchedPtr(texels.data(), 32, 8, 3);
  copy.dstArray = array;
  copy.extent = extent;
  copy.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3DAsync(&copy, nullptr));
  resource.res.array.array = array;
  how.filterMode = cudaFilterModeLinear;
  how.addressMode[0] = how.addressMode[1] = how.addressMode[2] = cudaAddressModeClamp;
  OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  volume<<<1, 6>>>(texture, row);
  OK(cudaMemcpy(line, row, 24, cudaMemcpyDeviceToHost));
  for (int x = 0; x < 6; ++x) wrong += std::fabs(line[x] - (x * 16 + 8)) > 0.1f;
  CHECK(wrong == 0);
  OK(cudaDestroyTextureObject(texture));
  OK(cudaFreeArray(array));

  // Bytes as numbers from 0 to 1, out of pitched memory; then runs and boxes between arrays.
  uchar4* image;
  size_t pitch;
  OK(cudaMallocPitch(&image, &pitch, 8 * sizeof(uchar4), 4));
  std::vector<uchar4> picture(32);
  for (unsigned char i = 0; i < 32; ++i) picture[i] = {i, 51, 102, 255};
  OK(cudaMemcpy2D(image, pitch, picture.data(), 32, 32, 4, cudaMemcpyHostToDevice));
  resource = {};
  resource.resType = cudaResourceTypePitch2D;
  resource.res.pitch2D.devPtr = image;
  resource.res.pitch2D.desc = cudaCreateChannelDesc<uchar4>();
  resource.res.pitch2D.width = 8;
  resource.res.pitch2D.height = 4;
  resource.res.pitch2D.pitchInBytes = pitch;
  how = {};
  how.readMode = cudaReadModeNormalizedFloat;
  how.normalizedCoords = 1;
  OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  pixels<<<1, 8>>>(texture, out);
  OK(cudaMemcpy(got.data(), out, 8 * sizeof(float4), cudaMemcpyDeviceToHost));
  for (int x = 0; x < 8; ++x)
    wrong += std::fabs(got[x].x - (8 + x) / 255.0f) > 1e-6f || std::fabs(got[x].y - 0.2f) > 1e-6f ||
             got[x].w != 1.0f;
  CHECK(wrong == 0);
  OK(cudaDestroyTextureObject(texture));
  // Such numbers are filtered, bytes are not.
  how.filterMode = cudaFilterModeLinear;
  OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  between<<<1, 7>>>(texture, out);
  OK(cudaMemcpy(got.data(), out, 7 * sizeof(float4), cudaMemcpyDeviceToHost));
  for (int x = 0; x < 7; ++x)
    wrong += std::fabs(got[x].x - (4.5f + x) / 255) > 1e-3f || std::fabs(got[x].y - 0.2f) > 1e-3f;
  CHECK(wrong == 0);
  OK(cudaDestroyTextureObject(texture));
  how.readMode = cudaReadModeElementType;
  CHECK(cudaCreateTextureObject(&texture, &resource, &how, nullptr) != cudaSuccess);
  (void)cudaGetLastError();
  // Nor where they lie in a row, although nothing is filtered there.
  resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = image;
  resource.res.linear.desc = cudaCreateChannelDesc<uchar4>();
  resource.res.linear.sizeInBytes = 8 * sizeof(uchar4);
  ANSWERS(cudaErrorInvalidFilterSetting,
          cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  how.filterMode = cudaFilterModePoint;
  OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  OK(cudaDestroyTextureObject(texture));
  const cudaChannelFormatDesc four = cudaCreateChannelDesc<uchar4>();
  cudaArray_t from, to;
  OK(cudaMallocArray(&from, &four, 8, 4));
  OK(cudaMallocArray(&to, &four, 8, 4, cudaArraySurfaceLoadStore));
  OK(cudaMemcpy2DToArray(from, 0, 0, picture.data(), 32, 32, 4, cudaMemcpyHostToDevice));
  OK(cudaMemcpy2DToArrayAsync(to, 0, 0, image, pitch, 32, 4, cudaMemcpyDeviceToDevice, nullptr));
  OK(cudaMemcpy2DArrayToArray(to, 8, 1, from, 0, 0, 16, 2, cudaMemcpyDeviceToDevice));
  std::vector<uchar4> back(32);
  OK(cudaMemcpy2DFromArray(back.data(), 32, to, 0, 0, 32, 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 32; ++i) {
    const int x = i % 8, y = i / 8;
    const bool inside = x >= 2 && x < 6 && y >= 1 && y < 3;
    wrong += back[i].x != (inside ? (y - 1) * 8 + x - 2 : i);
  }
  CHECK(wrong == 0);
  OK(cudaFreeArray(from));
  OK(cudaFreeArray(to));
  OK(cudaFree(image));
  return result();
}
