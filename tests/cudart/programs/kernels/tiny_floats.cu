// SPDX-License-Identifier: Apache-2.0
// fp8, fp6, fp4 and half by their headers, device against host.
// ptx: compute_90
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#include <cmath>
#include <cstring>
#include <vector>
#include "../check.h"
struct Out {
  unsigned char e4, e5, e8, a6, b6, f4;
  unsigned short pe4, pe5, p4;
  float back4, back5;
  half h4, h5;
  unsigned q4;
  float f6;
};
__host__ __device__ void convert(float x, float y, Out* o) {
  __nv_fp8_e4m3 a(x);
  __nv_fp8_e5m2 b(x);
  o->e4 = a.__x;
  o->e5 = b.__x;
  o->back4 = (float)a;
  o->back5 = (float)b;
  o->h4 = (half)a;
  o->h5 = (half)b;
  __nv_fp8_e8m0 e(fabsf(x));
  o->e8 = e.__x;
  __nv_fp6_e2m3 c(x);
  __nv_fp6_e3m2 d(x);
  o->a6 = c.__x;
  o->b6 = d.__x;
  __nv_fp4_e2m1 f(x);
  o->f4 = f.__x;
  o->f6 = (float)c + (float)d * 100 + (float)f * 10000;
  __nv_fp8x2_e4m3 p(make_float2(x, y));
  __nv_fp8x2_e5m2 q(make_float2(x, y));
  o->pe4 = p.__x;
  o->pe5 = q.__x;
  o->p4 = __nv_cvt_halfraw2_to_fp8x2(__half2(__float2half(x), __float2half(y)), __NV_SATFINITE,
                                     __NV_E4M3);
  __nv_fp8x4_e4m3 r(make_float4(x, y, -x, -y));
  o->q4 = r.__x;
}
__global__ void k(const float* x, Out* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) convert(x[i], x[(i + 1) % n], o + i);
}
__global__ void halves(const half2* a, const half2* b, half2* o, int n) {
  int i = threadIdx.x;
  half2* p = o + i * 40;
  half2 x = a[i], y = b[i];
  *p++ = __hadd2_sat(x, y);
  *p++ = __hmul2_sat(x, y);
  *p++ = __hfma2_sat(x, y, x);
  *p++ = __hfma2_relu(x, y, x);
  *p++ = __h2div(x, y);
  *p++ = __hmin2(x, y);
  *p++ = __hmax2_nan(x, y);
  *p++ = __habs2(x);
  *p++ = __hneg2(x);
  *p++ = h2floor(x);
  *p++ = h2ceil(x);
  *p++ = h2trunc(x);
  *p++ = h2rint(x);
  *p++ = h2sqrt(__habs2(x));
  *p++ = h2exp2(y);
  *p++ = h2log2(__habs2(x));
  *p++ = h2sin(x);
  *p++ = h2cos(x);
  *p++ = h2rcp(y);
  *p++ = h2rsqrt(__habs2(y));
  *p++ = __heq2(x, y);
  *p++ = __hltu2(x, y);
  *p++ = __hgeu2(x, y);
  *p++ = __hne2(x, y);
  *p++ = __lowhigh2highlow(x);
  *p++ = __highs2half2(x, y);
  *p++ = __lows2half2(x, y);
  *p++ = __hcmadd(x, y, x);
  *p++ = htanh(x.x) > __float2half(0.f) ? x : y;
  unsigned m = __hgt2_mask(x, y);
  memcpy(p++, &m, 4);
  *p++ = __half2half2(__ushort_as_half(__half_as_ushort(x.x)));
  *p++ = __halves2half2(__int2half_rn(__half2int_rz(x.x)), __short2half_rn(__half2short_rn(y.x)));
  *p++ = __floats2half2_rn((float)__hbeq2(x, y), (float)__hisnan(x.x));
  *p++ = __shfl_xor_sync(~0u, x, 1);
  *p++ = __ldg(a + i);
}
int main() {
  const int n = 4096;
  std::vector<float> x(n);
  unsigned s = 3;
  for (int i = 0; i < n; ++i) {
    s = s * 1664525u + 1013904223u;
    x[i] = ((int)s / 2147483648.0f) * std::pow(2.0f, i % 24 - 14);
  }
  float odd[] = {0,     -0.f,  INFINITY, -INFINITY,    NAN,           448,      449, 464, 465,
                 57344, 61440, 65536,    0.001953125f, 0.0009765625f, 0.00097f, 6,   5,   7.5f,
                 28,    0.25f, 0.75f,    1.25f,        1.75f,         2.5f,     3.5f};
  for (size_t i = 0; i < sizeof odd / 4; ++i) x[i] = odd[i];
  float* d;
  Out* o;
  OK(cudaMalloc(&d, n * 4));
  OK(cudaMalloc(&o, n * sizeof(Out)));
  OK(cudaMemcpy(d, x.data(), n * 4, cudaMemcpyHostToDevice));
  OK(cudaMemset(o, 0, n * sizeof(Out)));
  k<<<16, 256>>>(d, o, n);
  std::vector<Out> g(n);
  OK(cudaMemcpy(g.data(), o, n * sizeof(Out), cudaMemcpyDeviceToHost));
  int wrong[14] = {};
  for (int i = 0; i < n; ++i) {
    Out h;
    memset(&h, 0, sizeof h);
    convert(x[i], x[(i + 1) % n], &h);
    auto nf = [](float a, float b) { return !(a == b || (a != a && b != b)); };
    bool nan = x[i] != x[i] || x[(i + 1) % n] != x[(i + 1) % n];
    wrong[0] += g[i].e4 != h.e4;
    wrong[1] += g[i].e5 != h.e5;
    wrong[2] += g[i].e8 != h.e8;
    wrong[3] += g[i].a6 != h.a6;
    wrong[4] += g[i].b6 != h.b6;
    wrong[5] += g[i].f4 != h.f4;
    wrong[6] += !nan && g[i].pe4 != h.pe4;
    wrong[7] += !nan && g[i].pe5 != h.pe5;
    wrong[8] += !nan && g[i].p4 != h.p4;
    wrong[9] += nf(g[i].back4, h.back4);
    wrong[10] += nf(g[i].back5, h.back5);
    wrong[11] += nf((float)g[i].h4, (float)h.h4) || nf((float)g[i].h5, (float)h.h5);
    wrong[12] += !nan && g[i].q4 != h.q4;
    wrong[13] += nf(g[i].f6, h.f6);
    if (i < 4096 && (g[i].e4 != h.e4 || g[i].e5 != h.e5 || g[i].e8 != h.e8))
      printf("x %a: e4 %x %x e5 %x %x e8 %x %x\n", x[i], g[i].e4, h.e4, g[i].e5, h.e5, g[i].e8,
             h.e8);
  }
  for (int i = 0; i < 14; ++i)
    if (wrong[i]) printf("conversion %d: %d wrong\n", i, wrong[i]), ++failures;
  std::vector<half2> a(32), b(32);
  for (int i = 0; i < 32; ++i)
    a[i] = __floats2half2_rn(i * 0.37f - 5, 3.1f - i * 0.21f),
    b[i] = __floats2half2_rn(2.2f - i * 0.15f, i % 5 == 0 ? 3.1f - i * 0.21f : i * 0.3f - 4.4f);
  half2 *da, *db, *dn;
  OK(cudaMalloc(&da, 128));
  OK(cudaMalloc(&db, 128));
  OK(cudaMalloc(&dn, 128 * 40));
  OK(cudaMemcpy(da, a.data(), 128, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(db, b.data(), 128, cudaMemcpyHostToDevice));
  halves<<<1, 32>>>(da, db, dn, 32);
  std::vector<half2> q(32 * 40);
  OK(cudaMemcpy(q.data(), dn, 128 * 40, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 32; ++i)
    for (int lane = 0; lane < 2; ++lane) {
      float x = __half2float(lane ? a[i].y : a[i].x), y = __half2float(lane ? b[i].y : b[i].x);
      int c = 0;
      auto at = [&](int c) { return __half2float(lane ? q[i * 40 + c].y : q[i * 40 + c].x); };
      auto rnd = [](float v) { return __half2float(__float2half(v)); };
      auto sat = [](float v) { return v < 0 ? 0 : v > 1 ? 1 : v; };
      auto is = [&](double w, double tol = 0) {
        if (!(std::fabs(at(c) - w) <= tol * std::fabs(w) + tol * 0.02))
          printf("half %d of %d.%d: %g not %g (%g, %g)\n", c, i, lane, at(c), w, x, y), ++failures;
        ++c;
      };
      is(sat(rnd(x + y)));
      is(sat(rnd(x * y)));
      is(sat(rnd(x * y + x)));
      is(std::max(0.f, rnd(std::fma(x, y, x))));
      is(rnd(x / y), 0.002);
      is(std::min(x, y));
      is(std::max(x, y));
      is(std::fabs(x));
      is(-x);
      is(std::floor(x));
      is(std::ceil(x));
      is(std::trunc(x));
      is(std::rint(x));
      is(std::sqrt(std::fabs(x)), 0.002);
      is(std::exp2(y), 0.002);
      is(std::log2(std::fabs(x)), 0.01);
      is(std::sin(x), 0.01);
      is(std::cos(x), 0.01);
      is(1 / y, 0.002);
      is(1 / std::sqrt(std::fabs(y)), 0.002);
      is(x == y);
      is(x < y);
      is(x >= y);
      is(x != y);
    }
  return result();
}
