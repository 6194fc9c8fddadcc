// SPDX-License-Identifier: Apache-2.0
// Twenty kernels as public programs have them, written anew, on which no form of a kernel and no
// setting of Sluice is tuned: gpu-bench times them alone (programs.toml lists them, frozen before
// they had run).
//
// All have the same parameters: results, two inputs, `n` blocks, and `m`, how much each does. A
// block's results are its own elements of `out`, so that a block that runs twice or never shows.
// Images have kWidth columns and as many rows as there are blocks for. The PTX is checked in:
//   nvcc -O3 -std=c++17 -ptx -arch=compute_75 -o held_out.ptx held_out.cu
#include <cstdint>

using u32 = uint32_t;

constexpr u32 kWidth = 4096;
constexpr u32 kTileX = 32, kTileY = 8;

#define SLUICE_KERNEL(name, threads)                                                          \
  extern "C" __global__ void __launch_bounds__(threads)                                       \
      name(float* __restrict__ out, const float* __restrict__ a, const float* __restrict__ b, \
           u32 n, u32 m)

__device__ u32 mixed(u32 x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// A pixel of the image that block `block` has a tile of, in 256 threads.
struct Pixel {
  int x, y, rows;
  __device__ Pixel(u32 block, u32 blocks) {
    const u32 across = kWidth / kTileX;
    x = static_cast<int>(block % across * kTileX + threadIdx.x % kTileX);
    y = static_cast<int>(block / across * kTileY + threadIdx.x / kTileX);
    rows = static_cast<int>((blocks + across - 1) / across * kTileY);
  }
  __device__ u32 at(int dx, int dy) const {
    const int column = min(max(x + dx, 0), static_cast<int>(kWidth) - 1);
    const int row = min(max(y + dy, 0), rows - 1);
    return static_cast<u32>(row) * kWidth + static_cast<u32>(column);
  }
};

// Inputs: values between 0.25 and 1.25.
extern "C" __global__ void fill(float* out, u32 count, u32 seed) {
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    out[i] = 0.25f + static_cast<float>(mixed(i * 2654435761u + seed) >> 8) * (1.0f / 16777216.0f);
}

SLUICE_KERNEL(hotspot, 256) {
  const Pixel p(blockIdx.x, n);
  const float c = a[p.at(0, 0)];
  const float dx = a[p.at(-1, 0)] + a[p.at(1, 0)] - 2 * c;
  const float dy = a[p.at(0, -1)] + a[p.at(0, 1)] - 2 * c;
  out[p.at(0, 0)] = c + 0.05f * (b[p.at(0, 0)] + 0.1f * dx + 0.2f * dy + (0.8f - c) * 0.01f);
}

SLUICE_KERNEL(diffusion, 256) {
  const Pixel p(blockIdx.x, n);
  const float c = a[p.at(0, 0)];
  const float north = a[p.at(0, -1)] - c, south = a[p.at(0, 1)] - c;
  const float west = a[p.at(-1, 0)] - c, east = a[p.at(1, 0)] - c;
  const float g2 = (north * north + south * south + west * west + east * east) / (c * c);
  const float l = (north + south + west + east) / c;
  const float q = (0.5f * g2 - 0.0625f * l * l) / ((1 + 0.25f * l) * (1 + 0.25f * l));
  const float k = 1 / (1 + (q - 0.05f) / (0.05f * 1.05f));
  out[p.at(0, 0)] = c + 0.125f * fminf(fmaxf(k, 0.0f), 1.0f) * (north + south + west + east);
}

// Nearest of m centres in four dimensions.
SLUICE_KERNEL(kmeans, 256) {
  const u32 i = blockIdx.x * 256 + threadIdx.x;
  const float4 p = reinterpret_cast<const float4*>(a)[i];
  float least = 1e30f;
  u32 nearest = 0;
  for (u32 k = 0; k < m; ++k) {
    const float4 c = reinterpret_cast<const float4*>(b)[k];
    const float x = p.x - c.x, y = p.y - c.y, z = p.z - c.z, w = p.w - c.w;
    const float d = x * x + y * y + z * z + w * w;
    if (d < least) {
      least = d;
      nearest = k;
    }
  }
  out[i] = static_cast<float>(nearest);
}

// Sequence alignment: tiles of 32 x 32 along their diagonals, one warp each.
SLUICE_KERNEL(alignment, 32) {
  __shared__ float score[33][33];
  const u32 t = threadIdx.x;
  float sum = 0;
  for (u32 round = 0; round < m; ++round) {
    score[0][t + 1] = score[t + 1][0] = -0.5f * static_cast<float>(t);
    if (t == 0) score[0][0] = 0;
    __syncwarp();
    for (u32 d = 0; d < 63; ++d) {
      if (d >= t && d - t < 32) {
        const u32 x = t + 1, y = d - t + 1;
        const u32 match = mixed(blockIdx.x * 1024 + x * 32 + y + round * 77) & 3;
        score[y][x] = fmaxf(score[y - 1][x - 1] + (match == 0 ? 1.0f : -0.3f),
                            fmaxf(score[y - 1][x], score[y][x - 1]) - 0.5f);
      }
      __syncwarp();
    }
    sum += score[32][t + 1];
    __syncwarp();
  }
  out[blockIdx.x * 32 + t] = sum + a[blockIdx.x * 32 + t];
}

__device__ float block_sum(float v, float* scratch) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0;
  for (u32 i = 0; i < blockDim.x / 32; ++i) sum += scratch[i];
  return sum;
}

// A row of 1024 for each block.
SLUICE_KERNEL(layernorm, 256) {
  __shared__ float scratch[8];
  const u32 i = blockIdx.x * 256 + threadIdx.x;
  float4 v = reinterpret_cast<const float4*>(a)[i];
  const float mean = block_sum(v.x + v.y + v.z + v.w, scratch) / 1024;
  v.x -= mean, v.y -= mean, v.z -= mean, v.w -= mean;
  const float squares = block_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w, scratch);
  const float scale = rsqrtf(squares / 1024 + 1e-5f) * b[threadIdx.x];
  reinterpret_cast<float4*>(out)[i] =
      make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
}

// Rotary positions: pairs turned by an angle of their place.
SLUICE_KERNEL(rotary, 256) {
  const u32 i = blockIdx.x * 256 + threadIdx.x;
  const float2 v = reinterpret_cast<const float2*>(a)[i];
  const float angle = static_cast<float>(i / 64 % 4096) * exp2f(-0.2f * static_cast<float>(i % 64));
  float s, c;
  sincospif(angle * 0.318309886f, &s, &c);  // sincosf would bring a table of NVIDIA's
  reinterpret_cast<float2*>(out)[i] = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
}

SLUICE_KERNEL(gelu, 256) {
  const u32 i = blockIdx.x * 256 + threadIdx.x;
  const float x = a[i] - b[i];
  out[i] = 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

// A warp for each query, a lane for each of 32 dimensions, softmax as the keys come.
SLUICE_KERNEL(attention, 128) {
  const u32 lane = threadIdx.x % 32, query = blockIdx.x * 4 + threadIdx.x / 32;
  const float q = a[query * 32 + lane];
  float most = -1e30f, weight = 0, sum = 0;
  for (u32 k = 0; k < m; ++k) {
    float dot = q * b[k * 32 + lane];
    for (int o = 16; o > 0; o >>= 1) dot += __shfl_xor_sync(~0u, dot, o);
    const float next = fmaxf(most, dot), old = __expf(most - next), now = __expf(dot - next);
    weight = weight * old + now;
    sum = sum * old + now * b[(m + k) * 32 + lane];
    most = next;
  }
  out[query * 32 + lane] = sum / weight;
}

// Mean of m rows of 32 at random places.
SLUICE_KERNEL(embedding, 256) {
  const u32 row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0;
  for (u32 k = 0; k < m; ++k) sum += a[mixed(row * m + k) % (n * 8) * 32 + lane];
  out[row * 32 + lane] = sum / static_cast<float>(m);
}

// A warp for each row of 1024.
SLUICE_KERNEL(gemv, 256) {
  const u32 row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0;
  for (u32 k = lane; k < 256; k += 32) {
    const float4 x = reinterpret_cast<const float4*>(a)[row * 256 + k];
    const float4 y = reinterpret_cast<const float4*>(b)[k];
    sum += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
  }
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
  if (lane == 0) out[row] = sum;
}

// 3 x 3 over m channels, which are rows further down.
SLUICE_KERNEL(convolution3, 256) {
  const Pixel p(blockIdx.x, n);
  float sum = 0;
  for (u32 c = 0; c < m; ++c)
    for (int dy = -1; dy <= 1; ++dy)
      for (int dx = -1; dx <= 1; ++dx)
        sum += a[p.at(dx, dy + static_cast<int>(c))] *
               b[c * 9 + static_cast<u32>((dy + 1) * 3 + dx + 1)];
  out[p.at(0, 0)] = fmaxf(sum, 0.0f);
}

SLUICE_KERNEL(maxpool, 256) {
  const u32 i = blockIdx.x * 256 + threadIdx.x;
  const float4 v = reinterpret_cast<const float4*>(a)[i];
  out[i] = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
}

SLUICE_KERNEL(adam, 256) {
  const u32 i = blockIdx.x * 256 + threadIdx.x;
  const float g = a[i] - 0.75f;
  const float first = 0.9f * b[i] + 0.1f * g, second = 0.999f * b[i] * b[i] + 0.001f * g * g;
  out[i] = a[i] - 0.001f * (first / 0.1f) / (sqrtf(second / 0.001f) + 1e-8f);
}

// Forces between all of m tiles of 128 bodies and the block's.
SLUICE_KERNEL(nbody, 128) {
  __shared__ float4 tile[128];
  const u32 i = blockIdx.x * 128 + threadIdx.x;
  const float4 p = reinterpret_cast<const float4*>(a)[i];
  float x = 0, y = 0, z = 0;
  for (u32 t = 0; t < m; ++t) {
    __syncthreads();
    tile[threadIdx.x] = reinterpret_cast<const float4*>(b)[t * 128 + threadIdx.x];
    __syncthreads();
#pragma unroll 8
    for (u32 k = 0; k < 128; ++k) {
      const float dx = tile[k].x - p.x, dy = tile[k].y - p.y, dz = tile[k].z - p.z;
      const float r = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
      const float f = tile[k].w * r * r * r;
      x += f * dx, y += f * dy, z += f * dz;
    }
  }
  reinterpret_cast<float4*>(out)[i] = make_float4(x, y, z, p.w);
}

SLUICE_KERNEL(mandelbrot, 256) {
  const Pixel p(blockIdx.x, n);
  const float cx = -2.2f + 3.0f * static_cast<float>(p.x) / kWidth;
  const float cy = -1.2f + 2.4f * static_cast<float>(p.y % 2048) / 2048.0f;
  float x = 0, y = 0;
  u32 k = 0;
  while (k < m && x * x + y * y < 4) {
    const float next = x * x - y * y + cx;
    y = 2 * x * y + cy;
    x = next;
    ++k;
  }
  out[p.at(0, 0)] = static_cast<float>(k);
}

__device__ void quarter(u32& a, u32& b, u32& c, u32& d) {
  a += b, d ^= a, d = __funnelshift_l(d, d, 16);
  c += d, b ^= c, b = __funnelshift_l(b, b, 12);
  a += b, d ^= a, d = __funnelshift_l(d, d, 8);
  c += d, b ^= c, b = __funnelshift_l(b, b, 7);
}

// m blocks of the ChaCha20 key stream for each thread.
SLUICE_KERNEL(chacha, 128) {
  const u32 i = blockIdx.x * 128 + threadIdx.x;
  u32 sum = 0;
  for (u32 k = 0; k < m; ++k) {
    u32 s[16];
#pragma unroll
    for (u32 j = 0; j < 16; ++j) s[j] = 0x61707865u * (j + 1) + (j == 12 ? k : 0) + i;
#pragma unroll 1
    for (u32 round = 0; round < 10; ++round) {
      quarter(s[0], s[4], s[8], s[12]), quarter(s[1], s[5], s[9], s[13]);
      quarter(s[2], s[6], s[10], s[14]), quarter(s[3], s[7], s[11], s[15]);
      quarter(s[0], s[5], s[10], s[15]), quarter(s[1], s[6], s[11], s[12]);
      quarter(s[2], s[7], s[8], s[13]), quarter(s[3], s[4], s[9], s[14]);
    }
#pragma unroll
    for (u32 j = 0; j < 16; ++j) sum += s[j] * (j + 1);
  }
  out[i] = static_cast<float>(sum >> 8);
}

// 512 keys for each block, in shared memory.
SLUICE_KERNEL(bitonic, 256) {
  __shared__ float keys[512];
  const u32 t = threadIdx.x, base = blockIdx.x * 512;
  keys[t] = a[base + t], keys[t + 256] = a[base + t + 256];
  for (u32 size = 2; size <= 512; size *= 2)
    for (u32 stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const u32 low = 2 * t - (t & (stride - 1)), high = low + stride;
      const bool up = (low & size) == 0;
      const float x = keys[low], y = keys[high];
      if ((x > y) == up) keys[low] = y, keys[high] = x;
    }
  __syncthreads();
  out[base + t] = keys[t], out[base + t + 256] = keys[t + 256];
}

// A path of m steps for each thread; what an Asian option pays.
SLUICE_KERNEL(asian_option, 256) {
  const u32 i = blockIdx.x * 256 + threadIdx.x;
  u32 state = mixed(i + 1) | 1;
  float price = a[i], sum = 0;
  for (u32 k = 0; k < m; ++k) {
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    price *= __expf(0.001f + 0.02f * (static_cast<float>(state >> 8) * 0.00000011920929f - 1.0f));
    sum += price;
  }
  out[i] = fmaxf(sum / static_cast<float>(m) - 0.5f, 0.0f);
}

// Shortest ways within tiles of 16 x 16, m times over.
SLUICE_KERNEL(floyd, 256) {
  __shared__ float d[16][17];
  const u32 x = threadIdx.x % 16, y = threadIdx.x / 16, i = blockIdx.x * 256 + threadIdx.x;
  d[y][x] = a[i];
  __syncthreads();
  for (u32 round = 0; round < m; ++round) {
    for (u32 k = 0; k < 16; ++k) {
      const float way = d[y][k] + d[k][x];
      __syncthreads();
      d[y][x] = fminf(d[y][x], way);
      __syncthreads();
    }
  }
  out[i] = d[y][x];
}

SLUICE_KERNEL(bilateral, 256) {
  const Pixel p(blockIdx.x, n);
  const float c = a[p.at(0, 0)];
  float sum = 0, weights = 0;
  for (int dy = -2; dy <= 2; ++dy)
    for (int dx = -2; dx <= 2; ++dx) {
      const float v = a[p.at(dx, dy)];
      const float w = __expf(-0.2f * static_cast<float>(dx * dx + dy * dy) - 8 * (v - c) * (v - c));
      sum += v * w;
      weights += w;
    }
  out[p.at(0, 0)] = sum / weights;
}
