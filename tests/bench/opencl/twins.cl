// SPDX-License-Identifier: Apache-2.0
// OpenCL twins of kernels/suite/*.cu, statement by statement, for the side-by-side benchmark of
// the software GPU with OpenCL devices on the same processor. Fused operations are written out and
// nothing else is fused, so that the results agree bit for bit with the CUDA kernels'.
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable

__kernel void triad(__global double* a, __global const double* b, __global const double* c,
                    double s, ulong n) {
  const ulong i = get_global_id(0);
  if (i >= n) return;
  a[i] = fma(s, c[i], b[i]);
}

#define TILE 8
__kernel void matmul(__global float* restrict c, __global const float* restrict a,
                     __global const float* restrict b, float scale, uint rows, uint cols,
                     uint inner) {
  __local float tile_a[TILE][TILE];
  __local float tile_b[TILE][TILE];
  const uint tx = get_local_id(0), ty = get_local_id(1);
  const uint col = get_group_id(0) * TILE + tx, row = get_group_id(1) * TILE + ty;
  float sum = 0.0f;
  for (uint k0 = 0; k0 < inner; k0 += TILE) {
    tile_a[ty][tx] = row < rows && k0 + tx < inner ? a[(ulong)row * inner + k0 + tx] : 0.0f;
    tile_b[ty][tx] = col < cols && k0 + ty < inner ? b[(ulong)(k0 + ty) * cols + col] : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint k = 0; k < TILE; ++k) sum = fma(tile_a[ty][k], tile_b[k][tx], sum);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (row < rows && col < cols) c[(ulong)row * cols + col] = sum * scale;
}

__constant uint kSine[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
__constant uint kShift[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

__kernel void md5(__global uint4* out, __global const uint4* in, ulong salt, ulong n) {
  const ulong i = get_global_id(0);
  if (i >= n) return;
  const uint4 head = in[i];
  const uint message[16] = {head.x,      head.y,           head.z, head.w, (uint)i,
                            (uint)(i >> 32), (uint)salt, (uint)(salt >> 32), 0x80u, 0, 0, 0, 0, 0,
                            32 * 8,      0};
  uint a = 0x67452301u, b = 0xefcdab89u, c = 0x98badcfeu, d = 0x10325476u;
#pragma unroll
  for (uint step = 0; step < 64; ++step) {
    uint f, word;
    switch (step / 16) {
      case 0: f = d ^ (b & (c ^ d)); word = step; break;
      case 1: f = c ^ (d & (b ^ c)); word = (5 * step + 1) % 16; break;
      case 2: f = b ^ c ^ d; word = (3 * step + 5) % 16; break;
      default: f = c ^ (b | ~d); word = (7 * step) % 16; break;
    }
    const uint sum = a + f + kSine[step] + message[word];
    const uint shift = kShift[step / 16][step % 4];
    a = d;
    d = c;
    c = b;
    b += sum << shift | sum >> (32 - shift);
  }
  out[i] = (uint4)(a + 0x67452301u, b + 0xefcdab89u, c + 0x98badcfeu, d + 0x10325476u);
}

#define HISTOGRAM_THREADS 128
__kernel void histogram(__global uint* bins, __global const uint* restrict words, uint mask,
                        ulong n_words) {
  __local uint counts[256];
  const uint tid = get_local_id(0);
  for (uint bin = 0; bin < 256; bin += HISTOGRAM_THREADS) counts[bin + tid] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong stride = get_num_groups(0) * (ulong)HISTOGRAM_THREADS;
  for (ulong i = get_global_id(0); i < n_words; i += stride) {
    const uint word = words[i] ^ (mask * 0x01010101u);
    atomic_add(&counts[word & 0xff], 1u);
    atomic_add(&counts[(word >> 8) & 0xff], 1u);
    atomic_add(&counts[(word >> 16) & 0xff], 1u);
    atomic_add(&counts[word >> 24], 1u);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint bin = 0; bin < 256; bin += HISTOGRAM_THREADS) {
    const uint count = counts[bin + tid];
    if (count != 0) atomic_add(&bins[bin + tid], count);
  }
}

#define REDUCTION_THREADS 128
__kernel void reduction(__global ulong* total, __global const uint* restrict in, uint factor,
                        ulong n) {
  __local ulong partial[REDUCTION_THREADS];
  const uint tid = get_local_id(0);
  const ulong first = get_group_id(0) * (ulong)(REDUCTION_THREADS * 8) + tid;
  ulong sum = 0;
#pragma unroll
  for (uint j = 0; j < 8; ++j) {
    const ulong i = first + j * REDUCTION_THREADS;
    if (i < n) sum += (ulong)in[i] * factor;
  }
  partial[tid] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (uint width = REDUCTION_THREADS / 2; width > 0; width /= 2) {
    if (tid < width) partial[tid] += partial[tid + width];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (tid == 0) atom_add(total, partial[0]);
}

__kernel void stencil2d(__global float* restrict out, __global const float* restrict in,
                        float w_centre, float w_beside, float w_across, float scale, uint width,
                        uint height) {
  const uint x = get_global_id(0), y = get_global_id(1);
  if (x >= width || y >= height) return;
  const ulong pitch = width;
  const ulong at = y * pitch + x;
  float value = in[at];
  if (x > 0 && x + 1 < width && y > 0 && y + 1 < height) {
    const float beside = (in[at - pitch] + in[at + pitch]) + (in[at - 1] + in[at + 1]);
    const float across =
        (in[at - pitch - 1] + in[at - pitch + 1]) + (in[at + pitch - 1] + in[at + pitch + 1]);
    value = fma(w_across, across, fma(w_beside, beside, w_centre * value));
  }
  out[at] = scale * value;
}

// The kernels of twins.cu, which are no benchmarks of a paper.
__kernel void fma_chain(__global float* out, float a, float b, uint rounds) {
  const uint i = get_global_id(0);
  float x = (float)i;
  for (uint k = 0; k < rounds; ++k) {
#pragma unroll
    for (uint j = 0; j < 16; ++j) x = fma(x, a, b);
  }
  out[i] = x;
}

__kernel void vector_add(__global float* c, __global const float* a, __global const float* b,
                         uint n) {
  const uint i = get_global_id(0);
  if (i < n) c[i] = a[i] + b[i];
}

// Collatz steps: loops of different lengths in neighbouring threads.
__kernel void collatz(__global uint* out, uint first, uint n) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  ulong x = first + i;
  uint steps = 0;
  while (x != 1 && steps < 500) {
    x = (x & 1) != 0 ? 3 * x + 1 : x >> 1;
    ++steps;
  }
  out[i] = steps;
}

// Compressed sparse rows, one row a thread: gathers and loops of different lengths.
__kernel void spmv(__global float* y, __global const uint* starts, __global const uint* columns,
                   __global const float* values, __global const float* x, uint rows) {
  const uint row = get_global_id(0);
  if (row >= rows) return;
  float sum = 0.0f;
  for (uint k = starts[row]; k < starts[row + 1]; ++k) sum = fma(values[k], x[columns[k]], sum);
  y[row] = sum;
}

// All pairs: forces between bodies through tiles in local memory.
#define BODIES 128
__kernel void bodies(__global float4* force, __global const float4* position, uint n) {
  __local float4 tile[BODIES];
  const uint i = get_global_id(0), tid = get_local_id(0);
  const float4 own = position[i];
  float fx = 0, fy = 0, fz = 0;
  for (uint first = 0; first < n; first += BODIES) {
    tile[tid] = position[first + tid];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = 0; k < BODIES; ++k) {
      const float dx = tile[k].x - own.x, dy = tile[k].y - own.y, dz = tile[k].z - own.z;
      const float r2 = fma(dx, dx, fma(dy, dy, fma(dz, dz, 0.01f)));
      const float weight = tile[k].w / (r2 * r2);
      fx = fma(dx, weight, fx);
      fy = fma(dy, weight, fy);
      fz = fma(dz, weight, fz);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  force[i] = (float4)(fx, fy, fz, 0.0f);
}
