// SPDX-License-Identifier: Apache-2.0
// Functions of double and float against the host's, within units of the last place; roundings.
#include <cfenv>
#include <cmath>
#include <cstring>
#include <vector>
#include "../check.h"
// clang-format off
#define D1(X) \
  X(sin, 2) X(cos, 2) X(tan, 2) X(asin, 2) X(acos, 2) X(atan, 2) X(sinh, 2) X(cosh, 2) \
  X(tanh, 2) X(asinh, 3) X(acosh, 3) X(atanh, 3) X(exp, 2) X(exp2, 2) X(expm1, 2) X(log, 2) \
  X(log2, 2) X(log10, 2) X(log1p, 2) X(sqrt, 0) X(cbrt, 2) X(erf, 3) X(erfc, 6) \
  X(tgamma, 12) X(floor, 0) X(ceil, 0) X(trunc, 0) X(round, 0) X(rint, 0) X(nearbyint, 0) \
  X(fabs, 0) X(logb, 0) X(exp10, 2)
#define D2(X) \
  X(atan2, 2) X(pow, 3) X(fmod, 0) X(remainder, 0) X(hypot, 2) X(copysign, 0) X(fdim, 0) \
  X(fmax, 0) X(fmin, 0) X(nextafter, 0)
// clang-format on
#define COUNT(f, u) +1
constexpr int n1 = 0 D1(COUNT), n2 = 0 D2(COUNT);
__global__ void run(const double* x, const double* y, double* o, float* of, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int k = 0;
#define X(fn, u)           \
  o[k * n + i] = fn(x[i]); \
  of[k++ * n + i] = fn##f((float)x[i]);
  D1(X)
#undef X
#define X(fn, u)                 \
  o[k * n + i] = fn(x[i], y[i]); \
  of[k++ * n + i] = fn##f((float)x[i], (float)y[i]);
  D2(X)
#undef X
}
__global__ void more(const double* x, const double* y, double* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double a = x[i], b = y[i];
  double* p = o + i * 48;
  double t, s;
  int e;
  *p++ = __dadd_rn(a, b);
  *p++ = __dadd_ru(a, b);
  *p++ = __dadd_rd(a, b);
  *p++ = __dadd_rz(a, b);
  *p++ = __dmul_ru(a, b);
  *p++ = __dmul_rz(a, b);
  *p++ = __ddiv_ru(a, b);
  *p++ = __ddiv_rd(a, b);
  *p++ = __dsqrt_ru(fabs(a));
  *p++ = __dsqrt_rd(fabs(a));
  *p++ = __drcp_rn(b);
  *p++ = __drcp_rz(b);
  *p++ = __fma_ru(a, b, 1.0);
  *p++ = __fma_rd(a, b, 1.0);
  *p++ = frexp(a, &e);
  *p++ = e;
  *p++ = modf(a, &t);
  *p++ = t;
  *p++ = ldexp(a, 5);
  *p++ = scalbn(a, -3);
  *p++ = ilogb(a);
  int q;
  *p++ = remquo(a, b, &q);
  *p++ = q & 7;
  *p++ = (double)llrint(a);
  *p++ = (double)lround(a);
  sincos(a, &s, &t);
  *p++ = s;
  *p++ = t;
  *p++ = fma(a, b, a);
  *p++ = isnan(a) + 2 * isinf(b) + 4 * (signbit(a) != 0) + 8 * (isfinite(a) != 0);
  float f = (float)a, g = (float)b;
  *p++ = __fadd_ru(f, g);
  *p++ = __fmul_rd(f, g);
  *p++ = __fdiv_rz(f, g);
  *p++ = __fsqrt_ru(fabsf(f));
  *p++ = __fmaf_rz(f, g, 1);
  *p++ = __frcp_ru(g);
  *p++ = __double2float_ru(a);
  *p++ = __double2int_ru(b);
  *p++ = (double)__float2ll_rd(f);
  *p++ = __int_as_float(__float_as_int(f));
  *p++ = __hiloint2double(__double2hiint(a), __double2loint(a));
  *p++ = __saturatef((float)(b));
}
__global__ void special(double* o) {
  double* p = o;
  *p++ = sinpi(0.25);
  *p++ = cospi(1.0 / 3);
  *p++ = rsqrt(16.0);
  *p++ = rcbrt(27.0);
  *p++ = rhypot(3.0, 4.0);
  *p++ = norm3d(2.0, 3.0, 6.0);
  *p++ = rnorm3d(2.0, 3.0, 6.0);
  *p++ = norm4d(1.0, 1.0, 1.0, 1.0);
  *p++ = lgamma(5.5);
  *p++ = j0(1.5);
  *p++ = j1(1.5);
  *p++ = jn(3, 1.5);
  *p++ = y0(1.5);
  *p++ = y1(1.5);
  *p++ = yn(3, 1.5);
  *p++ = normcdf(0.7);
  *p++ = normcdfinv(0.7);
  *p++ = erfinv(0.3);
  *p++ = erfcinv(0.3);
  *p++ = erfcx(2.0);
  *p++ = cyl_bessel_i0(1.2);
  *p++ = cyl_bessel_i1(1.2);
  double v[5] = {1, 2, 3, 4, 5};
  *p++ = norm(5, v);
  *p++ = __cosf(1.0f);
  *p++ = __expf(1.5f);
  *p++ = __logf(2.5f);
  *p++ = __powf(2.0f, 3.5f);
  *p++ = __tanf(0.5f);
  *p++ = __sinf(0.5f);
  *p++ = __fdividef(3.0f, 7.0f);
  *p++ = __exp10f(0.5f);
  *p++ = __log2f(9.0f);
  *p++ = __log10f(9.0f);
  *p++ = __saturatef(1.7f);
  *p++ = __frsqrt_rn(5.0f);
}
template <class T, class I>
double ulps(T a, T b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (a == b) return 0;
  if (std::isnan(a) || std::isnan(b)) return 1e18;
  I x, y;
  memcpy(&x, &a, sizeof x);
  memcpy(&y, &b, sizeof y);
  if (x < 0) x = (I)((I)1 << (sizeof(I) * 8 - 1)) - x;
  if (y < 0) y = (I)((I)1 << (sizeof(I) * 8 - 1)) - y;
  return std::fabs((double)(x - y));
}
int main() {
  const int n = 1024;
  std::vector<double> x(n), y(n);
  unsigned s = 7;
  auto r = [&] {
    s = s * 1664525u + 1013904223u;
    return (s >> 8) / 16777216.0;
  };
  for (int i = 0; i < n; ++i) {
    x[i] = (r() - 0.5) * std::pow(10.0, i % 7 - 3);
    y[i] = (r() - 0.5) * 20;
  }
  double odd[] = {0.0,   -0.0, INFINITY, -INFINITY,          NAN,  1, -1, 0.5, 1e-310,
                  1e300, 2.5,  -2.5,     4503599627370497.5, 1e-40};
  for (int i = 0; i < 14; ++i) x[i] = odd[i], y[i + 20] = odd[i], y[i] = odd[13 - i];
  double *dx, *dy, *o;
  float* of;
  OK(cudaMalloc(&dx, n * 8));
  OK(cudaMalloc(&dy, n * 8));
  OK(cudaMalloc(&o, n * 8 * 48));
  OK(cudaMalloc(&of, n * 4 * 48));
  OK(cudaMemcpy(dx, x.data(), n * 8, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(dy, y.data(), n * 8, cudaMemcpyHostToDevice));
  run<<<4, 256>>>(dx, dy, o, of, n);
  std::vector<double> g(n * 48);
  std::vector<float> gf(n * 48);
  OK(cudaMemcpy(g.data(), o, n * 8 * (n1 + n2), cudaMemcpyDeviceToHost));
  OK(cudaMemcpy(gf.data(), of, n * 4 * (n1 + n2), cudaMemcpyDeviceToHost));
  int k = 0;
  auto exp10 = [](double v) { return (double)powl(10.0L, v); };
  auto exp10f = [](float v) { return (float)pow(10.0, v); };
#define X(fn, u)                                                                        \
  {                                                                                     \
    double worst = 0, worstf = 0;                                                       \
    int at = 0, atf = 0;                                                                \
    for (int i = 0; i < n; ++i) {                                                       \
      double e = ulps<double, long long>(g[k * n + i], fn(x[i]));                       \
      if (e > worst) worst = e, at = i;                                                 \
      double ef = ulps<float, int>(gf[k * n + i], fn##f((float)x[i]));                  \
      if (ef > worstf) worstf = ef, atf = i;                                            \
    }                                                                                   \
    if (worst > u + (u ? 1 : 0))                                                        \
      printf(#fn " %g ulp at %a: %a not %a\n", worst, x[at], g[k * n + at], fn(x[at])), \
          ++failures;                                                                   \
    if (worstf > u + (u ? 6 : 0))                                                       \
      printf(#fn "f %g ulp at %a: %a not %a\n", worstf, (float)x[atf], gf[k * n + atf], \
             fn##f((float)x[atf])),                                                     \
          ++failures;                                                                   \
    ++k;                                                                                \
  }
  D1(X)
#undef X
#define X(fn, u)                                                                         \
  {                                                                                      \
    double worst = 0, worstf = 0;                                                        \
    int at = 0, atf = 0;                                                                 \
    for (int i = 0; i < n; ++i) {                                                        \
      double e = ulps<double, long long>(g[k * n + i], fn(x[i], y[i]));                  \
      if (e > worst) worst = e, at = i;                                                  \
      double ef = ulps<float, int>(gf[k * n + i], fn##f((float)x[i], (float)y[i]));      \
      if (ef > worstf) worstf = ef, atf = i;                                             \
    }                                                                                    \
    if (worst > u)                                                                       \
      printf(#fn " %g ulp at %a,%a: %a not %a\n", worst, x[at], y[at], g[k * n + at],    \
             fn(x[at], y[at])),                                                          \
          ++failures;                                                                    \
    if (worstf > u + (u ? 8 : 0))                                                        \
      printf(#fn "f %g ulp at %a,%a: %a not %a\n", worstf, (float)x[atf], (float)y[atf], \
             gf[k * n + atf], fn##f((float)x[atf], (float)y[atf])),                      \
          ++failures;                                                                    \
    ++k;                                                                                 \
  }
  D2(X)
#undef X
  more<<<4, 256>>>(dx, dy, o, n);
  OK(cudaMemcpy(g.data(), o, n * 8 * 48, cudaMemcpyDeviceToHost));
  int bad[48] = {};
  int where[48];
  double want[48];
  for (int i = 0; i < n; ++i) {
    volatile double a = x[i], b = y[i];
    double* p = &g[i * 48];
    int c = 0;
    double t, sn;
    int e = 0;
    auto is = [&](double w, double lim = 0) {
      if (ulps<double, long long>(p[c], w) > lim) {
        if (!bad[c]++) where[c] = i, want[c] = w;
      }
      ++c;
    };
    auto with = [&](int mode, auto f) {
      fesetround(mode);
      volatile double v = f();
      fesetround(FE_TONEAREST);
      return (double)v;
    };
    is(a + b);
    is(with(FE_UPWARD, [&] { return a + b; }));
    is(with(FE_DOWNWARD, [&] { return a + b; }));
    is(with(FE_TOWARDZERO, [&] { return a + b; }));
    is(with(FE_UPWARD, [&] { return a * b; }));
    is(with(FE_TOWARDZERO, [&] { return a * b; }));
    is(with(FE_UPWARD, [&] { return a / b; }));
    is(with(FE_DOWNWARD, [&] { return a / b; }));
    volatile double fa = fabs(a);
    is(with(FE_UPWARD, [&] { return sqrt(fa); }));
    is(with(FE_DOWNWARD, [&] { return sqrt(fa); }));
    volatile double one = 1;
    is(one / b);
    is(with(FE_TOWARDZERO, [&] { return one / b; }));
    is(with(FE_UPWARD, [&] { return fma(a, b, one); }));
    is(with(FE_DOWNWARD, [&] { return fma(a, b, one); }));
    double m = frexp(a, &e);
    is(m);
    if (std::isfinite(a))
      is(e);
    else
      ++c;
    double ip, fr = modf(a, &ip);
    is(fr);
    is(ip);
    is(ldexp(a, 5));
    is(scalbn(a, -3));
    if (std::isfinite(a) && a != 0)
      is(ilogb(a));
    else
      ++c;
    int q = 0;
    double rq = remquo(a, b, &q);
    is(rq);
    if (std::isfinite(a) && std::isfinite(b) && b != 0 && !std::isnan(rq))
      is(q & 7);
    else
      ++c;
    bool fits = std::fabs(a) < 1e9;
    if (fits)
      is((double)llrint(a));
    else
      ++c;
    if (fits)
      is((double)lround(a));
    else
      ++c;
    sincos(a, &sn, &t);
    is(sn, 2);
    is(t, 2);
    is(fma(a, b, a));
    is((std::isnan(a) ? 1 : 0) + 2 * (std::isinf(b) ? 1 : 0) + 4 * (std::signbit(a) ? 1 : 0) +
       8 * (std::isfinite(a) ? 1 : 0));
    volatile float f = (float)a, h = (float)b, ff = fabsf(f), onef = 1;
    auto withf = [&](int mode, auto fn) {
      fesetround(mode);
      volatile float v = fn();
      fesetround(FE_TONEAREST);
      return (double)(float)v;
    };
    is(withf(FE_UPWARD, [&] { return f + h; }));
    is(withf(FE_DOWNWARD, [&] { return f * h; }));
    is(withf(FE_TOWARDZERO, [&] { return f / h; }));
    is(withf(FE_UPWARD, [&] { return sqrtf(ff); }));
    is(withf(FE_TOWARDZERO, [&] { return fmaf(f, h, onef); }));
    is(withf(FE_UPWARD, [&] { return onef / h; }));
    is(withf(FE_UPWARD, [&] { return (float)a; }));
    if (std::fabs(b) < 1e9)
      is(ceil(b));
    else
      ++c;
    if (std::fabs(f) < 1e9)
      is(floor(f));
    else
      ++c;
    if (!std::isnan(f))
      is(f);
    else
      ++c;
    is(a);
    double sat = (float)b;
    is(std::isnan(sat) ? 0 : sat < 0 ? 0 : sat > 1 ? 1 : sat);
  }
  for (int c = 0; c < 48; ++c)
    if (bad[c])
      printf("more %d: %d wrong, at %a %a: %a not %a\n", c, bad[c], x[where[c]], y[where[c]],
             g[where[c] * 48 + c], want[c]),
          ++failures;
  special<<<1, 1>>>(o);
  OK(cudaMemcpy(g.data(), o, 48 * 8, cudaMemcpyDeviceToHost));
  double expect[] = {M_SQRT1_2,
                     0.5,
                     0.25,
                     1.0 / 3,
                     0.2,
                     7,
                     1.0 / 7,
                     2,
                     lgamma(5.5),
                     j0(1.5),
                     j1(1.5),
                     jn(3, 1.5),
                     y0(1.5),
                     y1(1.5),
                     yn(3, 1.5),
                     0.5 * erfc(-0.7 * M_SQRT1_2),
                     0.52440051270804078,
                     0.27246271472675432,
                     0.73286907795921685,
                     0.25539567631050574,
                     1.39373,
                     0.714678};
  for (int i = 0; i < 22; ++i)
    if (std::fabs(g[i] - expect[i]) > (i < 20 ? 1e-14 : 2e-5) * std::fabs(expect[i]))
      printf("special %d: %.17g not %.17g\n", i, g[i], expect[i]), ++failures;
  double quick[] = {sqrt(55.0), cos(1.0), exp(1.5),     log(2.5),     pow(2, 3.5),
                    tan(0.5),   sin(0.5), 3.0 / 7,      pow(10, 0.5), log2(9.0),
                    log10(9.0), 1,        1 / sqrt(5.0)};
  for (int i = 0; i < 13; ++i)
    if (std::fabs(g[22 + i] - quick[i]) > 1e-5 * std::fabs(quick[i]))
      printf("quick %d: %g not %g\n", i, g[22 + i], quick[i]), ++failures;
  return result();
}
