// SPDX-License-Identifier: Apache-2.0
// Integer intrinsics against the host: SIMD in a word, bit searches, funnel shifts, high products,
// dot products of bytes, 128-bit integers.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>
#include "../check.h"
// clang-format off
#define LIST(X) \
  X(__vadd2) X(__vadd4) X(__vaddss2) X(__vaddss4) X(__vaddus2) X(__vaddus4) X(__vavgs2) \
  X(__vavgs4) X(__vavgu2) X(__vavgu4) X(__vcmpeq2) X(__vcmpeq4) X(__vcmpges2) X(__vcmpges4) \
  X(__vcmpgeu2) X(__vcmpgeu4) X(__vcmpgts2) X(__vcmpgts4) X(__vcmpgtu2) X(__vcmpgtu4) \
  X(__vcmples2) X(__vcmpleu4) X(__vcmplts4) X(__vcmpltu2) X(__vcmpne2) X(__vcmpne4) \
  X(__vhaddu2) X(__vhaddu4) X(__vmaxs2) X(__vmaxs4) X(__vmaxu2) X(__vmaxu4) X(__vmins2) \
  X(__vmins4) X(__vminu2) X(__vminu4) X(__vsads2) X(__vsads4) X(__vsadu2) X(__vsadu4) \
  X(__vseteq2) X(__vseteq4) X(__vsetges2) X(__vsetgtu4) X(__vsetles4) X(__vsetne2) \
  X(__vsub2) X(__vsub4) X(__vsubss2) X(__vsubss4) X(__vsubus2) X(__vsubus4) X(__vabsdiffs2) \
  X(__vabsdiffs4) X(__vabsdiffu2) X(__vabsdiffu4)
#define LIST1(X) \
  X(__vabs2) X(__vabs4) X(__vabsss2) X(__vabsss4) X(__vneg2) X(__vneg4) X(__vnegss2) \
  X(__vnegss4)
// clang-format on
__global__ void simd(const unsigned* a, const unsigned* b, unsigned* out) {
  int i = threadIdx.x, k = 0;
#define X(f) out[(k++) * 256 + i] = f(a[i], b[i]);
  LIST(X)
#undef X
#define X(f) out[(k++) * 256 + i] = f(a[i]);
  LIST1(X)
#undef X
}
// a reference of our own
typedef long long ll;
template <class F>
unsigned lanes(int w, unsigned a, unsigned b, bool sgn, F f) {
  unsigned r = 0;
  int bits = 32 / w;
  ll mask = (1ll << bits) - 1;
  for (int i = 0; i < w; ++i) {
    ll x = a >> i * bits & mask, y = b >> i * bits & mask;
    if (sgn) {
      if (x >> (bits - 1)) x -= mask + 1;
      if (y >> (bits - 1)) y -= mask + 1;
    }
    r |= (unsigned)((f(x, y, bits) & mask) << i * bits);
  }
  return r;
}
unsigned ref(const char* name, unsigned a, unsigned b) {
  std::string n = name + 3;
  int w = n.back() - '0';
  n.pop_back();
  auto starts = [&](const char* s) { return n.rfind(s, 0) == 0; };
  bool cmp = starts("cmp"), set = starts("set");
  if (cmp || set) {
    std::string op = n.substr(3, 2);
    bool s = n.size() == 5 && n[5 - 0 - 0 - 0 - 0 - 0 - 0] != 'u' ? false : false;
    s = n.size() > 5 && n[5] == 's';
    return lanes(w, a, b, s, [&](ll x, ll y, int) -> ll {
      bool v = op == "eq"   ? x == y
               : op == "ne" ? x != y
               : op == "ge" ? x >= y
               : op == "gt" ? x > y
               : op == "le" ? x <= y
                            : x < y;
      return v ? (cmp ? -1 : 1) : 0;
    });
  }
  auto sat = [](ll v, int bits, bool s) {
    ll lo = s ? -(1ll << (bits - 1)) : 0, hi = s ? (1ll << (bits - 1)) - 1 : (1ll << bits) - 1;
    return v < lo ? lo : v > hi ? hi : v;
  };
  if (n == "add") return lanes(w, a, b, false, [&](ll x, ll y, int) { return x + y; });
  if (n == "sub") return lanes(w, a, b, false, [&](ll x, ll y, int) { return x - y; });
  if (n == "addss")
    return lanes(w, a, b, true, [&](ll x, ll y, int t) { return sat(x + y, t, true); });
  if (n == "addus")
    return lanes(w, a, b, false, [&](ll x, ll y, int t) { return sat(x + y, t, false); });
  if (n == "subss")
    return lanes(w, a, b, true, [&](ll x, ll y, int t) { return sat(x - y, t, true); });
  if (n == "subus")
    return lanes(w, a, b, false, [&](ll x, ll y, int t) { return sat(x - y, t, false); });
  if (n == "avgs")
    return lanes(w, a, b, true, [&](ll x, ll y, int) { return (x + y + ((x + y) >= 0)) >> 1; });
  if (n == "avgu") return lanes(w, a, b, false, [&](ll x, ll y, int) { return (x + y + 1) >> 1; });
  if (n == "haddu") return lanes(w, a, b, false, [&](ll x, ll y, int) { return (x + y) >> 1; });
  if (n == "maxs" || n == "maxu")
    return lanes(w, a, b, n == "maxs", [&](ll x, ll y, int) { return x > y ? x : y; });
  if (n == "mins" || n == "minu")
    return lanes(w, a, b, n == "mins", [&](ll x, ll y, int) { return x < y ? x : y; });
  if (n == "absdiffs" || n == "absdiffu")
    return lanes(w, a, b, n == "absdiffs", [&](ll x, ll y, int) { return x > y ? x - y : y - x; });
  if (n == "sads" || n == "sadu") {
    unsigned s = 0;
    lanes(w, a, b, n == "sads", [&](ll x, ll y, int) {
      s += (unsigned)(x > y ? x - y : y - x);
      return 0ll;
    });
    return s;
  }
  if (n == "abs") return lanes(w, a, b, true, [&](ll x, ll, int) { return x < 0 ? -x : x; });
  if (n == "absss")
    return lanes(w, a, b, true, [&](ll x, ll, int t) { return sat(x < 0 ? -x : x, t, true); });
  if (n == "neg") return lanes(w, a, b, true, [&](ll x, ll, int) { return -x; });
  if (n == "negss") return lanes(w, a, b, true, [&](ll x, ll, int t) { return sat(-x, t, true); });
  printf("no reference of %s\n", name);
  return 0;
}
__global__ void bits(const unsigned* a, const unsigned* b, unsigned long long* o) {
  int i = threadIdx.x;
  unsigned x = a[i], y = b[i];
  unsigned long long xy = (unsigned long long)x << 32 | y;
  unsigned long long* p = o + i * 40;
  *p++ = __brev(x);
  *p++ = __brevll(xy);
  *p++ = __clz(x);
  *p++ = __clzll(xy);
  *p++ = __ffs(x);
  *p++ = __ffsll(xy);
  *p++ = __popc(x);
  *p++ = __popcll(xy);
  *p++ = __funnelshift_l(x, y, i);
  *p++ = __funnelshift_r(x, y, i);
  *p++ = __funnelshift_lc(x, y, i);
  *p++ = __funnelshift_rc(x, y, i);
  *p++ = __fns(x, i % 32, 1);
  *p++ = __fns(x, i % 32, -1);
  *p++ = __fns(x, 0, 3);
  *p++ = (unsigned)__mul24(x, y);
  *p++ = __umul24(x, y);
  *p++ = (unsigned)__mulhi((int)x, (int)y);
  *p++ = __umulhi(x, y);
  *p++ = __mul64hi(xy, ~xy);
  *p++ = __umul64hi(xy, ~xy);
  *p++ = __sad(x, y, i);
  *p++ = __usad(x, y, i);
  *p++ = (unsigned)__hadd(x, y);
  *p++ = (unsigned)__rhadd(x, y);
  *p++ = __uhadd(x, y);
  *p++ = __urhadd(x, y);
  *p++ = (unsigned)__dp4a((int)x, (int)y, 5);
  *p++ = __dp4a(x, y, 5u);
  *p++ = (unsigned)__dp2a_lo((int)x, (int)y, 3);
  *p++ = __dp2a_hi(x, y, 3u);
  *p++ = __byte_perm(x, y, 0x7531);
  __int128 q = (__int128)(long long)xy * (long long)(x | 1);
  unsigned __int128 u = (unsigned __int128)xy * xy + y;
  *p++ = (unsigned long long)(q >> 64);
  *p++ = (unsigned long long)(u / (x | 1));
  *p++ = (unsigned long long)(u % ((unsigned __int128)xy | 1));
  *p++ = (unsigned long long)((u / ((unsigned __int128)(y | 1) << 40)) >> 3);
  *p++ = (unsigned long long)(q / (-(__int128)(y | 1)));
}
int main() {
  std::vector<unsigned> a(256), b(256);
  unsigned s = 12345;
  auto rnd = [&] {
    s = s * 1664525u + 1013904223u;
    return s ^ s >> 15;
  };
  for (int i = 0; i < 256; ++i) {
    a[i] = rnd();
    b[i] = rnd();
    if (i % 7 == 0) a[i] = 0x80808080u;
    if (i % 11 == 0) b[i] = a[i];
    if (i % 13 == 0) b[i] = 0x80007fffu;
    if (i == 5) a[i] = 0;
  }
  unsigned *da, *db, *o;
  OK(cudaMalloc(&da, 1024));
  OK(cudaMalloc(&db, 1024));
  OK(cudaMalloc(&o, 1024 * 80));
  OK(cudaMemcpy(da, a.data(), 1024, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(db, b.data(), 1024, cudaMemcpyHostToDevice));
  simd<<<1, 256>>>(da, db, o);
  std::vector<unsigned> got(256 * 80);
  OK(cudaMemcpy(got.data(), o, 1024 * 64, cudaMemcpyDeviceToHost));
  int k = 0;
#define X(f)                                                                           \
  {                                                                                    \
    int wrong = 0, at = 0;                                                             \
    for (int i = 0; i < 256; ++i)                                                      \
      if (got[k * 256 + i] != ref(#f, a[i], b[i])) ++wrong, at = i;                    \
    if (wrong)                                                                         \
      printf("%s: %d wrong: %08x %08x gives %08x not %08x\n", #f, wrong, a[at], b[at], \
             got[k * 256 + at], ref(#f, a[at], b[at])),                                \
          ++failures;                                                                  \
    ++k;                                                                               \
  }
  LIST(X) LIST1(X) unsigned long long* o2;
  OK(cudaMalloc(&o2, 256 * 40 * 8));
  bits<<<1, 256>>>(da, db, o2);
  std::vector<unsigned long long> g(256 * 40);
  OK(cudaMemcpy(g.data(), o2, g.size() * 8, cudaMemcpyDeviceToHost));
  auto fns = [](unsigned m, int base, int off) -> unsigned {
    int pos = base;
    if (off == 0) return m >> base & 1 ? base : ~0u;
    int n = off > 0 ? off : -off, d = off > 0 ? 1 : -1;
    for (; pos >= 0 && pos < 32; pos += d)
      if (m >> pos & 1 && --n == 0) return pos;
    return ~0u;
  };
  for (int i = 0; i < 256; ++i) {
    unsigned x = a[i], y = b[i];
    unsigned long long xy = (unsigned long long)x << 32 | y, *p = &g[i * 40];
    int n = 0;
    auto is = [&](unsigned long long want) {
      if (p[n] != want) {
        printf("bits %d of %d: %llx not %llx\n", n, i, p[n], want);
        ++failures;
      }
      ++n;
    };
    unsigned r = 0;
    for (int k = 0; k < 32; ++k) r |= (x >> k & 1) << (31 - k);
    is(r);
    unsigned long long rl = 0;
    for (int k = 0; k < 64; ++k) rl |= (xy >> k & 1) << (63 - k);
    is(rl);
    is(x ? __builtin_clz(x) : 32);
    is(xy ? __builtin_clzll(xy) : 64);
    is(__builtin_ffs(x));
    is(__builtin_ffsll(xy));
    is(__builtin_popcount(x));
    is(__builtin_popcountll(xy));
    unsigned long long yx = (unsigned long long)y << 32 | x;
    int sh = i & 31, c = i < 32 ? i : 32;
    is((yx << sh) >> 32);
    is((unsigned)(yx >> sh));
    is(c == 32 ? x : (unsigned)((yx << c) >> 32));
    is(c == 32 ? y : (unsigned)(yx >> c));
    is(fns(x, i % 32, 1));
    is(fns(x, i % 32, -1));
    is(fns(x, 0, 3));
    int sx = (int)(x << 8) >> 8, sy = (int)(y << 8) >> 8;
    is((unsigned)((long long)sx * sy));
    is((unsigned)((unsigned long long)(x & 0xffffff) * (y & 0xffffff)));
    is((unsigned)((long long)(int)x * (int)y >> 32));
    is((unsigned)((unsigned long long)x * y >> 32));
    is((unsigned long long)((__int128)(long long)xy * (long long)~xy >> 64));
    is((unsigned long long)((unsigned __int128)xy * ~xy >> 64));
    long long dx = (int)x, dy = (int)y;
    is((unsigned)((dx > dy ? dx - dy : dy - dx) + i));
    is((x > y ? x - y : y - x) + i);
    is((unsigned)((dx + dy) >> 1));
    is((unsigned)((dx + dy + 1) >> 1));
    is((unsigned)(((unsigned long long)x + y) >> 1));
    is((unsigned)(((unsigned long long)x + y + 1) >> 1));
    int d4 = 5;
    unsigned u4 = 5;
    for (int k = 0; k < 4; ++k) {
      d4 += (signed char)(x >> 8 * k) * (signed char)(y >> 8 * k);
      u4 += (x >> 8 * k & 255) * (y >> 8 * k & 255);
    }
    is((unsigned)d4);
    is(u4);
    is((unsigned)(3 + (short)x * (signed char)y + (short)(x >> 16) * (signed char)(y >> 8)));
    is(3 + (x & 65535) * (y >> 16 & 255) + (x >> 16) * (y >> 24));
    unsigned char by[8];
    memcpy(by, &x, 4);
    memcpy(by + 4, &y, 4);
    is(by[1] | by[3] << 8 | by[5] << 16 | (unsigned)by[7] << 24);
    __int128 q = (__int128)(long long)xy * (long long)(x | 1);
    unsigned __int128 u = (unsigned __int128)xy * xy + y;
    is((unsigned long long)(q >> 64));
    is((unsigned long long)(u / (x | 1)));
    is((unsigned long long)(u % ((unsigned __int128)xy | 1)));
    is((unsigned long long)((u / ((unsigned __int128)(y | 1) << 40)) >> 3));
    is((unsigned long long)(q / (-(__int128)(y | 1))));
  }
  return result();
}
