// SPDX-License-Identifier: Apache-2.0
// Shapes that nvcc makes of common CUDA code: dynamic shared memory, printf, a switch, struct
// parameters, launch bounds, constants, calls, loops with barriers.
#include <cstdio>
__constant__ float coefficients[4] = {1, 2, 3, 4};
extern __shared__ float dynamic_memory[];
struct Parameters {
  int values[10];
  double scale;
  char flag;
};
extern "C" {
__global__ __launch_bounds__(256, 2) void block_sum(float* out, const float4* in, int n) {
  __shared__ float partial[256];
  float sum = 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256)
    sum += in[i].x + in[i].w;
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) {
    if (threadIdx.x < k) partial[threadIdx.x] += partial[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, partial[0] + coefficients[n & 3]);
}
__global__ void reverse(float* data, int n) {
  const int t = threadIdx.x;
  dynamic_memory[t] = data[blockIdx.y * gridDim.x + blockIdx.x + t];
  __syncthreads();
  data[t] = dynamic_memory[n - t];
  printf("%d\n", t);
}
__global__ void choose(int* data, int n) {
  switch (data[threadIdx.x]) {
    case 0:
      data[0] = n;
      break;
    case 1:
      data[1] = 3 * n;
      break;
    case 2:
      data[4] = 5;
      break;
    case 3:
      data[7] = n * n;
      break;
    case 4:
      data[8] = 7;
      break;
    case 5:
      data[9] = 2;
      break;
    default:
      data[9] = n;
  }
}
__global__ void by_value(Parameters p, char c, int* out) {
  if (p.flag) return;
  out[blockIdx.z] = p.values[threadIdx.x] + c;
}
__global__ void warp_sum(float* out, const float* in, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? in[i] : 0;
  for (int k = 16; k > 0; k >>= 1) v += __shfl_down_sync(~0u, v, k);
  if ((threadIdx.x & 31) == 0) atomicAdd(out, v);
}
}
