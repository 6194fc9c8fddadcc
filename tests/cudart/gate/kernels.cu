// SPDX-License-Identifier: Apache-2.0
// The kernels and variables of runtime_test.cc, which registers them as a compiled program would;
// scripts/regenerate-ptx --cudart makes kernels.ptx.
extern "C" {

__constant__ int weights[4] = {1, 2, 3, 4};
__device__ int total = 10;

__global__ void add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
__global__ void sum_up(int* out) {
  total += weights[0] + weights[1] + weights[2] + weights[3];
  *out = total;
}
__global__ void store(char tag, double value, int* out) {
  *out = tag * 1000 + static_cast<int>(value);
}
__global__ void wild(int* p) { *p = 1; }
extern __shared__ int room[];
__global__ void reverse(int* p, int n) {
  room[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = room[n - 1 - threadIdx.x];
}
__global__ void fetch_level(cudaTextureObject_t t, float x, float y, float level, float* out) {
  *out = tex2DLod<float>(t, x, y, level);
}
__global__ void fetch_gradient(cudaTextureObject_t t, float x, float y, float dx, float dy,
                               float* out) {
  *out = tex2DGrad<float>(t, x, y, make_float2(dx, 0), make_float2(0, dy));
}
__global__ void fetch_cube(cudaTextureObject_t t, float x, float y, float z, float* out) {
  *out = texCubemap<float>(t, x, y, z);
}
__global__ void fetch_cube_layer(cudaTextureObject_t t, float x, float y, float z, int layer,
                                 float* out) {
  *out = texCubemapLayered<float>(t, x, y, z, layer);
}
__global__ void fetch_bits(cudaTextureObject_t t, float x, float y, unsigned* out) {
  *out = tex2D<unsigned>(t, x, y);
}
__global__ void store_faces(cudaSurfaceObject_t s, float value) {
  surfCubemapwrite(value + blockIdx.x, s, threadIdx.x * 4, threadIdx.y, blockIdx.x);
}
}
