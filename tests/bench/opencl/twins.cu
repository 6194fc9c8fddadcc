// SPDX-License-Identifier: Apache-2.0
// Kernels of the side-by-side benchmark that are not in kernels/suite: their OpenCL twins are in
// twins.cl. PTX made with
//   nvcc -O3 -std=c++17 -ptx -arch=compute_75 -o twins.ptx twins.cu
extern "C" __global__ void fma_chain(float* out, float a, float b, unsigned rounds) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = static_cast<float>(i);
  for (unsigned k = 0; k < rounds; ++k) {
#pragma unroll
    for (unsigned j = 0; j < 16; ++j) x = __fmaf_rn(x, a, b);
  }
  out[i] = x;
}

extern "C" __global__ void vector_add(float* c, const float* a, const float* b, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void collatz(unsigned* out, unsigned first, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long x = first + i;
  unsigned steps = 0;
  while (x != 1 && steps < 500) {
    x = (x & 1) != 0 ? 3 * x + 1 : x >> 1;
    ++steps;
  }
  out[i] = steps;
}

extern "C" __global__ void spmv(float* y, const unsigned* starts, const unsigned* columns,
                                const float* values, const float* x, unsigned rows) {
  const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (unsigned k = starts[row]; k < starts[row + 1]; ++k) {
    sum = __fmaf_rn(values[k], x[columns[k]], sum);
  }
  y[row] = sum;
}

constexpr unsigned kBodies = 128;
extern "C" __global__ void bodies(float4* force, const float4* position, unsigned n) {
  __shared__ float4 tile[kBodies];
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, tid = threadIdx.x;
  const float4 own = position[i];
  float fx = 0, fy = 0, fz = 0;
  for (unsigned first = 0; first < n; first += kBodies) {
    tile[tid] = position[first + tid];
    __syncthreads();
    for (unsigned k = 0; k < kBodies; ++k) {
      const float dx = tile[k].x - own.x, dy = tile[k].y - own.y, dz = tile[k].z - own.z;
      const float r2 = __fmaf_rn(dx, dx, __fmaf_rn(dy, dy, __fmaf_rn(dz, dz, 0.01f)));
      const float weight = __fdiv_rn(tile[k].w, __fmul_rn(r2, r2));
      fx = __fmaf_rn(dx, weight, fx);
      fy = __fmaf_rn(dy, weight, fy);
      fz = __fmaf_rn(dz, weight, fz);
    }
    __syncthreads();
  }
  force[i] = make_float4(fx, fy, fz, 0.0f);
}
