// SPDX-License-Identifier: Apache-2.0
// Kernels of the preemption benchmark, beside the suite's: shapes that a rewritten form could be
// bad at. The PTX is checked in:
//   nvcc -ptx -arch=sm_90 -O3 kernels.cu -o kernels.ptx
#include <cstdint>

// A task of a given length and nothing else: latencies and losses are measured with it.
extern "C" __global__ void spin(uint64_t* out, uint64_t clocks) {
  const long long begin = clock64();
  while (clock64() - begin < (long long)clocks) {
  }
  if (threadIdx.x == 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(out + blockIdx.x % 64), 1ull);
}

// 2-D grid, shared memory, a barrier.
extern "C" __global__ void transpose(float* out, const float* in, int n) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(size_t)(y + j) * n + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) out[(size_t)(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];
}

// Large blocks: few of them on an SM, so that nothing hides what happens between two tasks.
extern "C" __global__ void __launch_bounds__(1024)
    gemm1024(float* c, const float* a, const float* b, int n) {
  __shared__ float as[32][32], bs[32][33];
  const int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  const int row = blockIdx.y * 32 + ty, column = blockIdx.x * 32 + tx;
  float sum = 0;
  for (int k = 0; k < n; k += 32) {
    as[ty][tx] = a[(size_t)row * n + k + tx];
    bs[ty][tx] = b[(size_t)(k + ty) * n + column];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; ++i) sum += as[ty][i] * bs[i][tx];
    __syncthreads();
  }
  c[(size_t)row * n + column] = sum;
}

// Many registers: a 64 x 64 tile by 64 threads, 8 x 8 each.
extern "C" __global__ void __launch_bounds__(64)
    gemm_registers(float* c, const float* a, const float* b, int n) {
  __shared__ float as[8][64], bs[8][64];
  const int t = threadIdx.x, tx = t % 8, ty = t / 8;
  const size_t row0 = (size_t)blockIdx.y * 64, column0 = (size_t)blockIdx.x * 64;
  float sum[8][8] = {};
  for (int k = 0; k < n; k += 8) {
    for (int i = 0; i < 8; ++i) {
      as[i][t] = a[(row0 + t) * n + k + i];
      bs[i][t] = b[(size_t)(k + i) * n + column0 + t];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int y = 0; y < 8; ++y)
#pragma unroll
        for (int x = 0; x < 8; ++x) sum[y][x] += as[i][ty * 8 + y] * bs[i][tx * 8 + x];
    __syncthreads();
  }
  for (int y = 0; y < 8; ++y)
    for (int x = 0; x < 8; ++x) c[(row0 + ty * 8 + y) * n + column0 + tx * 8 + x] = sum[y][x];
}

// A guard with an early return, no shared memory.
extern "C" __global__ void black_scholes(float* call, float* put, const float* s, const float* k,
                                         const float* t, float r, float v, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float root = sqrtf(t[i]),
              d1 = (__logf(s[i] / k[i]) + (r + 0.5f * v * v) * t[i]) / (v * root);
  const float d2 = d1 - v * root, n1 = normcdff(d1), n2 = normcdff(d2), e = __expf(-r * t[i]);
  call[i] = s[i] * n1 - k[i] * e * n2;
  put[i] = k[i] * e * (1 - n2) - s[i] * (1 - n1);
}

// Dynamic shared memory, barriers in a loop, compute-bound.
extern "C" __global__ void nbody(float4* out, const float4* bodies, int n) {
  extern __shared__ float4 tile[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 me = bodies[i];
  float ax = 0, ay = 0, az = 0;
  for (int j = 0; j < n; j += blockDim.x) {
    tile[threadIdx.x] = bodies[j + threadIdx.x];
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < (int)blockDim.x; ++k) {
      const float4 o = tile[k];
      const float dx = o.x - me.x, dy = o.y - me.y, dz = o.z - me.z;
      const float inv = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
      const float f = o.w * inv * inv * inv;
      ax += f * dx;
      ay += f * dy;
      az += f * dz;
    }
    __syncthreads();
  }
  out[i] = make_float4(ax, ay, az, 0);
}

// Warp collectives, one warp a row, tiny blocks.
extern "C" __global__ void softmax_rows(float* out, const float* in, int columns) {
  const size_t row = (size_t)blockIdx.x * columns;
  float top = -1e30f, sum = 0;
  for (int i = threadIdx.x; i < columns; i += 32) top = fmaxf(top, in[row + i]);
  for (int d = 16; d; d /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
  for (int i = threadIdx.x; i < columns; i += 32) sum += __expf(in[row + i] - top);
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  for (int i = threadIdx.x; i < columns; i += 32) out[row + i] = __expf(in[row + i] - top) / sum;
}

// 3-D grid; every dimension of the index.
extern "C" __global__ void stencil3d(float* out, const float* in, int nx, int ny, int nz) {
  const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, z = blockIdx.z;
  if (x < 1 || y < 1 || z < 1 || x >= nx - 1 || y >= ny - 1 || z >= nz - 1) return;
  const size_t i = ((size_t)z * ny + y) * nx + x, p = (size_t)nx * ny;
  out[i] = 0.5f * in[i] +
           0.08f * (in[i - 1] + in[i + 1] + in[i - nx] + in[i + nx] + in[i - p] + in[i + p]);
}

// Tasks of very different lengths, scattered reads.
extern "C" __global__ void spmv(float* y, const int* begin, const int* column, const float* value,
                                const float* x, int rows) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0;
  for (int i = begin[row] + lane; i < begin[row + 1]; i += 32) sum += value[i] * x[column[i]];
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (lane == 0) y[row] = sum;
}

// Decoupled look-back: a block waits for what lower-numbered blocks publish. In order.
extern "C" __global__ void __launch_bounds__(256)
    scan_lookback(unsigned* out, const unsigned* in, volatile unsigned long long* status) {
  __shared__ unsigned warp_sums[8], prefix;
  const unsigned t = threadIdx.x, lane = t % 32, warp = t / 32, block = blockIdx.x;
  const size_t base = (size_t)block * 4096 + t * 16;
  unsigned v[16], sum = 0;
  const uint4* source = reinterpret_cast<const uint4*>(in + base);
  for (int i = 0; i < 4; ++i) {
    const uint4 q = source[i];
    v[4 * i] = q.x;
    v[4 * i + 1] = q.y;
    v[4 * i + 2] = q.z;
    v[4 * i + 3] = q.w;
  }
  for (int i = 0; i < 16; ++i) {
    sum += v[i];
    v[i] = sum;
  }
  unsigned inclusive = sum;
  for (int d = 1; d < 32; d *= 2) {
    const unsigned other = __shfl_up_sync(~0u, inclusive, d);
    if (lane >= d) inclusive += other;
  }
  if (lane == 31) warp_sums[warp] = inclusive;
  __syncthreads();
  if (t == 0) {
    unsigned total = 0;
    for (int i = 0; i < 8; ++i) {
      const unsigned w = warp_sums[i];
      warp_sums[i] = total;
      total += w;
    }
    unsigned before = 0;
    if (block == 0) {
      status[0] = (2ull << 32) | total;
    } else {
      status[block] = (1ull << 32) | total;
      for (unsigned i = block; i-- > 0;) {
        unsigned long long s;
        do {
          s = status[i];
        } while (s >> 32 == 0);
        before += (unsigned)s;
        if (s >> 32 == 2) break;
      }
      __threadfence();
      status[block] = (2ull << 32) | (before + total);
    }
    prefix = before;
  }
  __syncthreads();
  const unsigned offset = prefix + warp_sums[warp] + inclusive - sum;
  uint4* target = reinterpret_cast<uint4*>(out + base);
  for (int i = 0; i < 4; ++i)
    target[i] = make_uint4(v[4 * i] + offset, v[4 * i + 1] + offset, v[4 * i + 2] + offset,
                           v[4 * i + 3] + offset);
}
