// SPDX-License-Identifier: Apache-2.0
// Tensor cores by mma.h and by PTX: 16 bits, tf32, double, 8, 4 and 1 bits, fp8, sparse.
// ptx: compute_90
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>
#include <cstring>
#include <vector>
#include "../check.h"
using namespace nvcuda;
template <class T, class A, int M, int N, int K, class F>
__global__ void product(const F* a, const F* b, A* c) {
  wmma::fragment<wmma::matrix_a, M, N, K, T, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, M, N, K, T, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, M, N, K, A> fc;
  wmma::fill_fragment(fc, A(1));
  wmma::load_matrix_sync(fa, a, K);
  wmma::load_matrix_sync(fb, b, K);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(c, fc, N, wmma::mem_row_major);
}
template <class T, class A, int M, int N, int K, class F = T>
void test(const char* name) {
  std::vector<F> a(M * K), b(N * K);
  std::vector<A> c(M * N);
  for (int i = 0; i < M * K; ++i) a[i] = F((float)(i * 5 % 7 - 3));
  for (int i = 0; i < N * K; ++i) b[i] = F((float)(i * 3 % 5 - 2));
  F *da, *db;
  A* dc;
  OK(cudaMalloc(&da, a.size() * sizeof(F)));
  OK(cudaMalloc(&db, b.size() * sizeof(F)));
  OK(cudaMalloc(&dc, c.size() * sizeof(A)));
  OK(cudaMemcpy(da, a.data(), a.size() * sizeof(F), cudaMemcpyHostToDevice));
  OK(cudaMemcpy(db, b.data(), b.size() * sizeof(F), cudaMemcpyHostToDevice));
  product<T, A, M, N, K, F><<<1, 32>>>(da, db, dc);
  OK(cudaMemcpy(c.data(), dc, c.size() * sizeof(A), cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) {
      float s = 1;
      for (int k = 0; k < K; ++k)
        s += (m * K + k) * 5 % 7 - 3.f == 0 ? 0
                                            : ((m * K + k) * 5 % 7 - 3) * ((n * K + k) * 3 % 5 - 2);
      wrong += (float)c[m * N + n] != s;
    }
  if (wrong) printf("%s: %d wrong\n", name, wrong), ++failures;
}
#define T(...) test<__VA_ARGS__>(#__VA_ARGS__)
__global__ void small4(const int* a, const int* b, int* c) {
  using namespace wmma::experimental;
  wmma::fragment<wmma::matrix_a, 8, 8, 32, precision::s4, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 8, 8, 32, precision::s4, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 8, 8, 32, int> fc;
  wmma::fill_fragment(fc, 0);
  wmma::load_matrix_sync(fa, a, 32);
  wmma::load_matrix_sync(fb, b, 32);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(c, fc, 8, wmma::mem_row_major);
  wmma::fragment<wmma::matrix_a, 8, 8, 128, precision::b1, wmma::row_major> ba;
  wmma::fragment<wmma::matrix_b, 8, 8, 128, precision::b1, wmma::col_major> bb;
  wmma::fragment<wmma::accumulator, 8, 8, 128, int> bc;
  wmma::fill_fragment(bc, 0);
  wmma::load_matrix_sync(ba, a, 128);
  wmma::load_matrix_sync(bb, b, 128);
  wmma::bmma_sync(bc, ba, bb, bc, bmmaBitOpXOR);
  wmma::store_matrix_sync(c + 64, bc, 8, wmma::mem_row_major);
  wmma::fill_fragment(bc, 0);
  wmma::bmma_sync(bc, ba, bb, bc, bmmaBitOpAND);
  wmma::store_matrix_sync(c + 128, bc, 8, wmma::mem_row_major);
}
// mma.m16n8k32 fp8, m16n8k64 s4, sparse of half, bytes and fp8: A = rows of the lane's number
// pattern of ones
__global__ void raw(int* o, float* f) {
  unsigned t = threadIdx.x;
  float d[4] = {};
  unsigned e = 0x38383838;
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(e));
  f[t] = d[0] + d[1] + d[2] + d[3];
  float h[4] = {};
  unsigned one = 0x3c003c00, meta = 0x44444444;
  asm volatile(
      "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
      "{%4,%4,%4,%4}, {%4,%4,%4,%4}, {%0,%1,%2,%3}, %5, 0x0;"
      : "+f"(h[0]), "+f"(h[1]), "+f"(h[2]), "+f"(h[3])
      : "r"(one), "r"(meta));
  f[32 + t] = h[0] + h[1] + h[2] + h[3];
  int i4[4] = {};
  asm volatile(
      "mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, "
      "{%0,%1,%2,%3};"
      : "+r"(i4[0]), "+r"(i4[1]), "+r"(i4[2]), "+r"(i4[3])
      : "r"(0xffffffff), "r"(0x22222222));
  o[t] = i4[0] + i4[1] + i4[2] + i4[3];
}
__global__ void sparse8(int* o, float* f) {
  unsigned t = threadIdx.x;
  int i[4] = {};
  unsigned b1 = 0x01010101, meta = 0x44444444;
  asm volatile(
      "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, "
      "{%4,%4,%4,%4}, {%4,%4,%4,%4}, {%0,%1,%2,%3}, %5, 0x0;"
      : "+r"(i[0]), "+r"(i[1]), "+r"(i[2]), "+r"(i[3])
      : "r"(b1), "r"(meta));
  o[t] = i[0] + i[1] + i[2] + i[3];
  float d[4] = {};
  unsigned e = 0x38383838;
  asm volatile(
      "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32 {%0,%1,%2,%3}, "
      "{%4,%4,%4,%4}, {%6,%6,%6,%6}, {%0,%1,%2,%3}, %5, 0x0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(e), "r"(meta), "r"(0x3c3c3c3c));
  f[t] = d[0] + d[1] + d[2] + d[3];
}
int main() {
  T(half, float, 16, 16, 16);
  T(half, half, 32, 8, 16);
  T(half, float, 8, 32, 16);
  T(__nv_bfloat16, float, 16, 16, 16);
  T(wmma::precision::tf32, float, 16, 16, 8, float);
  T(double, double, 8, 8, 4);
  T(signed char, int, 16, 16, 16);
  T(signed char, int, 32, 8, 16);
  std::vector<int> a(32), b(32), c(192);
  for (int i = 0; i < 32; ++i) a[i] = i * 0x12345671 + 3, b[i] = i * 0x0f1e2d3c ^ 0x55;
  int *da, *db, *dc;
  float* f;
  OK(cudaMalloc(&da, 128));
  OK(cudaMalloc(&db, 128));
  OK(cudaMalloc(&dc, 768));
  OK(cudaMalloc(&f, 768));
  OK(cudaMemcpy(da, a.data(), 128, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(db, b.data(), 128, cudaMemcpyHostToDevice));
  small4<<<1, 32>>>(da, db, dc);
  OK(cudaMemcpy(c.data(), dc, 768, cudaMemcpyDeviceToHost));
  int wrong = 0;
  auto n4 = [](const std::vector<int>& v, int i) {
    return (int)((unsigned)v[i / 8] << (28 - i % 8 * 4)) >> 28;
  };
  for (int m = 0; m < 8; ++m)
    for (int n = 0; n < 8; ++n) {
      int s = 0, x = 0, y = 0;
      for (int k = 0; k < 32; ++k) s += n4(a, m * 32 + k) * n4(b, n * 32 + k);
      for (int w = 0; w < 4; ++w)
        x += __builtin_popcount(a[m * 4 + w] ^ b[n * 4 + w]),
            y += __builtin_popcount(a[m * 4 + w] & b[n * 4 + w]);
      wrong += c[m * 8 + n] != s;
      wrong += c[64 + m * 8 + n] != x;
      wrong += c[128 + m * 8 + n] != y;
    }
  CHECK(wrong == 0);
  raw<<<1, 32>>>(dc, f);
  float g[64];
  OK(cudaMemcpy(g, f, 256, cudaMemcpyDeviceToHost));
  OK(cudaMemcpy(c.data(), dc, 128, cudaMemcpyDeviceToHost));
  CHECK(g[5] == 128 && g[37] == 64 && c[7] == -512);
  OK(cudaGetLastError());
  sparse8<<<1, 32>>>(dc, f);
  OK(cudaGetLastError());
  OK(cudaMemcpy(g, f, 128, cudaMemcpyDeviceToHost));
  OK(cudaMemcpy(c.data(), dc, 128, cudaMemcpyDeviceToHost));
  CHECK(c[3] == 128 && g[3] == 128);
  return result();
}
