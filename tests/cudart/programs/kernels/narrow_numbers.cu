// SPDX-License-Identifier: Apache-2.0
// Half, bfloat16 and bytes: packed arithmetic, conversions, dp4a and SIMD in a word, matrix tiles
// of half and bytes, atomics of half; a product of matrices tiled three ways against one on the
// host.
// ptx: compute_80
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <cmath>
#include <vector>

#include "../check.h"

using namespace nvcuda;
constexpr int kSide = 64;

__global__ void halves(const float* in, float* out, int n) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 2;
  if (i + 1 >= n) return;
  const half2 a = __floats2half2_rn(in[i], in[i + 1]), b = __float2half2_rn(0.5f);
  half2 c = __hfma2(a, b, __hadd2(a, b));
  c = __hmax2(c, __float2half2_rn(0.0f));
  const __nv_bfloat162 d = __floats2bfloat162_rn(__low2float(c), __high2float(c));
  const float2 e = __bfloat1622float2(__hmul2(d, __float2bfloat162_rn(2.0f)));
  out[i] = e.x, out[i + 1] = e.y;
}
__global__ void half_sum(half* sum, half2* pair) {
  atomicAdd(sum, __float2half(0.5f));
  atomicAdd(pair, __floats2half2_rn(1.0f, 2.0f));
}
__global__ void bytes(const int* a, const int* b, int* out) {
  const int i = threadIdx.x;
  out[i * 4] = __dp4a(a[i], b[i], i);
  out[i * 4 + 1] = __vadd4(a[i], b[i]);
  out[i * 4 + 2] = __vabsdiffu4(a[i], b[i]);
  out[i * 4 + 3] = __byte_perm(a[i], b[i], 0x6240);
}
__global__ void half_tiles(const half* a, const half* b, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 0.0f);
  const int row = blockIdx.y * 16, column = blockIdx.x * 16;
  for (int k = 0; k < kSide; k += 16) {
    wmma::load_matrix_sync(fa, a + row * kSide + k, kSide);
    wmma::load_matrix_sync(fb, b + column * kSide + k, kSide);
    wmma::mma_sync(fc, fa, fb, fc);
  }
  for (int k = 0; k < fc.num_elements; ++k) fc.x[k] *= 2.0f;
  wmma::store_matrix_sync(c + row * kSide + column, fc, kSide, wmma::mem_row_major);
}
__global__ void byte_tiles(const signed char* a, const signed char* b, int* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> fc;
  wmma::fill_fragment(fc, 0);
  const int row = blockIdx.y * 16, column = blockIdx.x * 16;
  for (int k = 0; k < kSide; k += 16) {
    wmma::load_matrix_sync(fa, a + row * kSide + k, kSide);
    wmma::load_matrix_sync(fb, b + column * kSide + k, kSide);
    wmma::mma_sync(fc, fa, fb, fc);
  }
  wmma::store_matrix_sync(c + row * kSide + column, fc, kSide, wmma::mem_row_major);
}
template <typename T, int kTile>
__global__ void tiled(const T* a, const T* b, T* c) {
  __shared__ T sa[kTile][kTile + 1], sb[kTile][kTile + 1];
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  T sum = 0;
  for (int k = 0; k < kSide; k += kTile) {
    sa[threadIdx.y][threadIdx.x] = a[y * kSide + k + threadIdx.x];
    sb[threadIdx.y][threadIdx.x] = b[(blockIdx.x * kTile + threadIdx.y) * kSide + k + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kTile; ++j) sum += sa[threadIdx.y][j] * sb[threadIdx.x][j];
    __syncthreads();
  }
  c[y * kSide + x] = sum;
}

template <typename T>
T* device(const std::vector<T>& from) {
  T* p;
  OK(cudaMalloc(&p, from.size() * sizeof(T)));
  OK(cudaMemcpy(p, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}
template <typename T>
std::vector<T> host(const T* from, size_t n) {
  std::vector<T> to(n);
  OK(cudaMemcpy(to.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost));
  return to;
}

int main() {
  constexpr int n = 1024;
  std::vector<float> in(n);
  for (int i = 0; i < n; ++i) in[i] = static_cast<float>(i % 33 - 16);
  float* out = device(in);
  halves<<<4, 128>>>(device(in), out, n);
  int wrong = 0;
  const std::vector<float> got = host(out, n);
  for (int i = 0; i < n; ++i) {
    const float v = in[i] * 0.5f + in[i] + 0.5f;
    wrong += got[i] != (v > 0 ? v * 2 : 0);
  }
  CHECK(wrong == 0);
  half* sums = device(std::vector<half>(4));
  OK(cudaMemset(sums, 0, 8));
  half_sum<<<2, 100>>>(sums, reinterpret_cast<half2*>(sums + 2));
  const std::vector<half> sum = host(sums, 4);
  CHECK(__half2float(sum[0]) == 100 && __half2float(sum[2]) == 200 && __half2float(sum[3]) == 400);

  std::vector<int> a(32), b(32);
  for (int i = 0; i < 32; ++i) a[i] = i * 0x01020304 - 5, b[i] = i * 0x11223344 + 7;
  int* words = device(std::vector<int>(128));
  bytes<<<1, 32>>>(device(a), device(b), words);
  const std::vector<int> w = host(words, 128);
  for (int i = 0; i < 32; ++i) {
    int dot = i;
    unsigned added = 0, apart = 0;
    for (int k = 0; k < 4; ++k) {
      const int x = a[i] >> k * 8 & 255, y = b[i] >> k * 8 & 255;
      dot += static_cast<signed char>(x) * static_cast<signed char>(y);
      added |= (x + y & 255u) << k * 8;
      apart |= static_cast<unsigned>(std::abs(x - y)) << k * 8;
    }
    const unsigned both[2] = {static_cast<unsigned>(a[i]), static_cast<unsigned>(b[i])};
    const unsigned mixed = (both[0] & 255) | (both[1] & 255) << 8 | (both[0] >> 16 & 255) << 16 |
                           (both[1] >> 16 & 255) << 24;
    wrong += w[i * 4] != dot || w[i * 4 + 1] != static_cast<int>(added) ||
             w[i * 4 + 2] != static_cast<int>(apart) || w[i * 4 + 3] != static_cast<int>(mixed);
  }
  CHECK(wrong == 0);

  std::vector<float> fa(kSide * kSide), fb(fa.size()), fc(fa.size());
  std::vector<half> ha(fa.size()), hb(fa.size());
  std::vector<signed char> ca(fa.size()), cb(fa.size());
  std::vector<double> da(fa.size()), db(fa.size());
  for (int i = 0; i < kSide * kSide; ++i) {
    da[i] = fa[i] = ca[i] = i * 7 % 15 - 7, db[i] = fb[i] = cb[i] = i * 5 % 13 - 6;
    ha[i] = __float2half(fa[i]), hb[i] = __float2half(fb[i]);
  }
  for (int y = 0; y < kSide; ++y)
    for (int x = 0; x < kSide; ++x)
      for (int k = 0; k < kSide; ++k) fc[y * kSide + x] += fa[y * kSide + k] * fb[x * kSide + k];
  float* c = device(fc);
  half_tiles<<<dim3(4, 4), 32>>>(device(ha), device(hb), c);
  const auto c1 = host(c, fc.size());
  tiled<float, 16><<<dim3(4, 4), dim3(16, 16)>>>(device(fa), device(fb), c);
  const auto c2 = host(c, fc.size());
  int* ci = device(std::vector<int>(fc.size()));
  byte_tiles<<<dim3(4, 4), 32>>>(device(ca), device(cb), ci);
  const auto c3 = host(ci, fc.size());
  double* cd = device(da);
  tiled<double, 32><<<dim3(2, 2), dim3(32, 32)>>>(device(da), device(db), cd);
  const auto c4 = host(cd, fc.size());
  for (size_t i = 0; i < fc.size(); ++i)
    wrong += c1[i] != 2 * fc[i] || c2[i] != fc[i] || c3[i] != fc[i] || c4[i] != fc[i];
  CHECK(wrong == 0);
  return result();
}
