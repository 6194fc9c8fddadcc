// SPDX-License-Identifier: Apache-2.0
// Inline assembly: bits, carries, video, votes, special registers, cache hints, matrices moved,
// bulk copies.
// ptx: compute_90
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#include "../check.h"
__global__ void misc(const unsigned* in, unsigned* out, unsigned long long* out2, float* outf) {
  unsigned t = threadIdx.x, x = in[t], y = in[t + 32], r;
  unsigned* o = out + t * 64;
  unsigned long long q;
  float f;
  asm volatile("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(r) : "r"(x), "r"(y), "r"(t));
  *o++ = r;
  asm volatile("bfe.u32 %0, %1, 5, 11;" : "=r"(r) : "r"(x));
  *o++ = r;
  asm volatile("bfe.s32 %0, %1, 7, 9;" : "=r"(r) : "r"(x));
  *o++ = r;
  asm volatile("bfi.b32 %0, %1, %2, 4, 13;" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("prmt.b32.f4e %0, %1, %2, 3;" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("prmt.b32.b4e %0, %1, %2, 1;" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("prmt.b32.rc8 %0, %1, %2, 2;" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("prmt.b32.ecl %0, %1, %2, 2;" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("prmt.b32.ecr %0, %1, %2, 2;" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("prmt.b32.rc16 %0, %1, %2, 1;" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("prmt.b32 %0, %1, %2, 0xba98;" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("{add.cc.u32 %0, %1, %2; addc.u32 %0, 0, 0;}" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("{.reg .u32 lo; sub.cc.u32 lo, %1, %2; subc.cc.u32 %0, %2, %1; subc.u32 %0, 0, %0;}"
               : "=r"(r)
               : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("{.reg .u32 l,h; mad.lo.cc.u32 l, %1, %2, %3; madc.hi.u32 %0, %1, %2, 0;}"
               : "=r"(r)
               : "r"(x), "r"(y), "r"(x));
  *o++ = r;
  asm volatile("bmsk.clamp.b32 %0, 5, 7;" : "=r"(r));
  *o++ = r;
  asm volatile("bmsk.wrap.b32 %0, %1, 9;" : "=r"(r) : "r"(x));
  *o++ = r;
  asm volatile("szext.clamp.s32 %0, %1, 9;" : "=r"(r) : "r"(x));
  *o++ = r;
  asm volatile("szext.wrap.u32 %0, %1, 41;" : "=r"(r) : "r"(x));
  *o++ = r;
  asm volatile("bfind.u32 %0, %1;" : "=r"(r) : "r"(x));
  *o++ = r;
  asm volatile("bfind.shiftamt.s32 %0, %1;" : "=r"(r) : "r"(x));
  *o++ = r;
  asm volatile("shf.l.wrap.b32 %0, %1, %2, 35;" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("slct.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(y));
  *o++ = r;
  asm volatile("slct.u32.f32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "f"(-0.0f));
  *o++ = r;
  asm volatile("{.reg .pred p, q; setp.lt.and.u32 p|q, %1, %2, 1; selp.u32 %0, 7, 9, q;}"
               : "=r"(r)
               : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("set.gt.u32.u32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("set.le.f32.s32 %0, %1, %2;" : "=f"(f) : "r"(x), "r"(y));
  *o++ = (unsigned)f;
  asm volatile("cnot.b32 %0, %1;" : "=r"(r) : "r"(t));
  *o++ = r;
  asm volatile("sad.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(t));
  *o++ = r;
  asm volatile("vadd.s32.u32.s32.sat.add %0, %1.b1, %2.h1, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(t));
  *o++ = 0;
  asm volatile("vset4.u32.u32.lt %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(0));
  *o++ = r;
  asm volatile("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(t));
  *o++ = r;
  asm volatile("vmad.u32.u32.u32 %0, %1.b0, %2.b3, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(t));
  *o++ = r;
  asm volatile("vshl.u32.u32.u32.wrap.add %0, %1, %2, 3;" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("cvt.pack.sat.s16.s32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
  *o++ = r;
  asm volatile("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(t));
  *o++ = r;
  asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(1.00048828125f + t));
  *o++ = r;
  asm volatile("{.reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.u32.u16 %0, h;}" : "=r"(r) : "f"(t * 0.1f));
  *o++ = r;
  asm volatile("{.reg .pred p; elect.sync %0|p, 0xffffffff; }" : "=r"(r));
  *o++ = r;
  asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(t));
  *o++ = r;
  asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(r) : "r"((int)t - 40));
  *o++ = r;
  asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(t % 4));
  *o++ = r;
  asm volatile("{.reg .pred p; match.all.sync.b32 %0|p, %1, 0xffffffff;}" : "=r"(r) : "r"(5));
  *o++ = r;
  asm volatile("{.reg .pred p; setp.eq.u32 p, %1, 3; vote.sync.ballot.b32 %0, p, 0xffffffff;}"
               : "=r"(r)
               : "r"(t));
  *o++ = r;
  asm volatile("activemask.b32 %0;" : "=r"(r));
  *o++ = r;
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(r));
  *o++ = r;
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(r));
  *o++ = r < 64;
  asm volatile("mov.u32 %0, %%total_smem_size;" : "=r"(r));
  *o++ = r >= 0;
  asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(r));
  *o++ = r;
  asm volatile("mov.u32 %0, %%nsmid;" : "=r"(r));
  *o++ = r > 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(q));
  *o++ = q > 0;
  asm volatile("mov.u32 %0, %%clock_hi;" : "=r"(r));
  *o++ = 1;
  asm volatile("{.reg .u64 a; mov.u64 a, %%gridid; cvt.u32.u64 %0, a;}" : "=r"(r));
  *o++ = 1;
  asm volatile("{.reg .pred p; isspacep.global p, %1; selp.u32 %0, 1, 0, p;}" : "=r"(r) : "l"(in));
  *o++ = r;
  asm volatile("{.reg .pred p; testp.infinite.f32 p, %1; selp.u32 %0, 1, 0, p;}"
               : "=r"(r)
               : "f"(1.0f / 0.0f));
  *o++ = r;
  asm volatile("copysign.f32 %0, %1, %2;" : "=f"(f) : "f"(-1.0f), "f"(3.0f));
  *o++ = __float_as_uint(f);
  asm volatile("tanh.approx.f32 %0, %1;" : "=f"(f) : "f"(0.5f));
  outf[t * 4] = f;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(0.5f));
  outf[t * 4 + 1] = f;
  asm volatile("fma.rn.relu.f16x2 %0, %1, %1, %2;" : "=r"(r) : "r"(0x3c003c00), "r"(0xc400c000));
  *o++ = r;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(r) : "l"(in + t));
  *o++ = r;
  asm volatile(
      "{.reg .b64 pol; createpolicy.fractional.L2::evict_last.b64 pol, 0.5; "
      "ld.global.L2::cache_hint.u32 %0, [%1], pol;}"
      : "=r"(r)
      : "l"(in + t));
  *o++ = r;
  asm volatile(
      "prefetch.global.L2::evict_last [%0]; prefetchu.L1 [%0]; "
      "applypriority.global.L2::evict_normal [%0], 128;" ::"l"(in));
  asm volatile("st.global.wt.u32 [%0], %1; st.global.cs.L2::cache_hint.u32 [%0], %1, %2;" ::"l"(o),
               "r"(x ^ 1), "l"(0x14f0000000000000ull));
  ++o;
  unsigned a, b, c, d;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "l"(in + (t & ~3)));
  *o++ = a ^ b ^ c ^ d;
  asm volatile(
      "ld.relaxed.gpu.global.u32 %0, [%1]; fence.acq_rel.gpu; fence.proxy.async; membar.sys;"
      : "=r"(r)
      : "l"(in + t));
  *o++ = r;
  asm volatile("nanosleep.u32 100; pmevent 3;");
  asm volatile("{.reg .f64 d; cvta.to.global.u64 %0, %1;}" : "=l"(q) : "l"(in));
  *o++ = q == (unsigned long long)in;
  asm volatile(
      "red.global.add.u32 [%0], 2; red.relaxed.gpu.global.max.u64 [%1], %2;" ::"l"(out + 32 * 64),
      "l"(out2), "l"((unsigned long long)t * 3));
}
__global__ void swaps(const unsigned short* in, unsigned* out) {
  __shared__ alignas(16) unsigned short s[4 * 64];
  unsigned t = threadIdx.x;
  for (int i = t; i < 256; i += 32) s[i] = in[i];
  __syncwarp();
  unsigned a[4], at = (unsigned)__cvta_generic_to_shared(s + t * 8), m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(at));
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(m) : "r"(a[1]));
  __syncwarp();
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(
                   (unsigned)__cvta_generic_to_shared(s + (t % 16) * 8)),
               "r"(a[0]), "r"(m));
  __syncwarp();
  out[t] = s[t] | s[64 + t] << 16;
  out[32 + t] = a[3];
}
__global__ void bulk(const int* in, int* out, int* sum) {
  __shared__ alignas(128) int s[256];
  __shared__ alignas(8) uint64_t bar;
  unsigned b = (unsigned)__cvta_generic_to_shared(&bar), d = (unsigned)__cvta_generic_to_shared(s);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(b));
    asm volatile("fence.proxy.async.shared::cta;");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" ::"r"(b));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, "
        "[%2];" ::"r"(d),
        "l"(in), "r"(b)
        : "memory");
  }
  asm volatile(
      "{.reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], 0, 1000; @!p bra W;}" ::"r"(b)
      : "memory");
  s[threadIdx.x] *= 2;
  asm volatile("fence.proxy.async.shared::cta;");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;" ::"l"(out), "r"(d)
                 : "memory");
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], 1024;" ::"l"(sum),
        "r"(d)
        : "memory");
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], 1024;" ::"l"(in));
    asm volatile(
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group "
        "0;" ::
            : "memory");
  }
}
int main() {
  std::vector<unsigned> in(64);
  unsigned s = 99;
  for (auto& v : in) s = s * 1664525u + 1013904223u, v = s;
  in[3] = 0;
  in[4] = ~0u;
  unsigned *d, *o;
  unsigned long long* o2;
  float* of;
  OK(cudaMalloc(&d, 1024));
  OK(cudaMalloc(&o, 33 * 256));
  OK(cudaMalloc(&o2, 64));
  OK(cudaMalloc(&of, 1024));
  OK(cudaMemset(o, 0, 33 * 256));
  OK(cudaMemset(o2, 0, 64));
  OK(cudaMemcpy(d, in.data(), 256, cudaMemcpyHostToDevice));
  misc<<<1, 32, 48>>>(d, o, o2, of);
  std::vector<unsigned> g(33 * 64);
  OK(cudaMemcpy(g.data(), o, 33 * 256, cudaMemcpyDeviceToHost));
  for (unsigned t = 0; t < 32; ++t) {
    unsigned x = in[t], y = in[t + 32], *p = &g[t * 64];
    int n = 0;
    auto is = [&](unsigned w) {
      if (p[n] != w) printf("asm %d of %u: %x not %x (%x, %x)\n", n, t, p[n], w, x, y), ++failures;
      ++n;
    };
    auto prmt = [&](std::initializer_list<int> sel) {
      unsigned char b[8];
      memcpy(b, &x, 4);
      memcpy(b + 4, &y, 4);
      unsigned r = 0;
      int k = 0;
      for (int s : sel) r |= (unsigned)b[s & 7] << 8 * k++;
      return r;
    };
    is(x ^ y ^ t);
    is(x >> 5 & 2047);
    is((unsigned)((int)(x << 16) >> 23));
    is((y & ~(0x1fffu << 4)) | (x & 0x1fff) << 4);
    is(prmt({3, 4, 5, 6}));
    is(prmt({1, 0, 7, 6}));
    is(prmt({2, 2, 2, 2}));
    is(prmt({2, 2, 2, 3}));
    is(prmt({0, 1, 2, 2}));
    is(prmt({2, 3, 2, 3}));
    {
      unsigned char b[8];
      memcpy(b, &x, 4);
      memcpy(b + 4, &y, 4);
      unsigned r = 0;
      int sel[4] = {0, 1, 2, 3};
      unsigned m = 0xba98;
      for (int k = 0; k < 4; ++k) {
        unsigned q = m >> 4 * k & 15;
        (void)sel;
        r |= ((b[q & 7] & 128) ? 255u : 0u) << 8 * k;
      }
      is(r);
    }
    is((unsigned)(((unsigned long long)x + y) >> 32));
    {
      unsigned bw = x < y;
      unsigned long long v = (unsigned long long)y - x - bw;
      is(0u - (unsigned)v - (unsigned)(v >> 63));
    }
    is((unsigned)(((unsigned long long)x * y + x) >> 32));
    is(0x7fu << 5);
    is(((1u << 9) - 1) << (x & 31));
    is((unsigned)((int)(x << 23) >> 23));
    is(x & 0x1ff);
    is(x ? 31 - __builtin_clz(x) : ~0u);
    {
      unsigned v = (int)x < 0 ? ~x : x;
      is(v ? __builtin_clz(v) : ~0u);
    }
    is((unsigned)((((unsigned long long)y << 32 | x) << 3) >> 32));
    is((int)y >= 0 ? x : y);
    is(x);
    is(x < y ? 9 : 7);
    is(x > y ? ~0u : 0);
    is((int)x <= (int)y ? 1 : 0);
    is(t == 0);
    long long dx = (int)x, dy = (int)y;
    is((unsigned)((dx > dy ? dx - dy : dy - dx) + t));
    is(0);
    unsigned r = 0, sm = t;
    for (int k = 0; k < 4; ++k) {
      unsigned a = x >> 8 * k & 255, b = y >> 8 * k & 255;
      r |= (a < b ? 1u : 0u) << 8 * k;
      sm += a > b ? a - b : b - a;
    }
    is(r);
    is(sm);
    is((x & 255) * (y >> 24) + t);
    is((x << (y & 31)) + 3);
    auto sat = [](long long v, long long lo, long long hi) {
      return v < lo ? lo : v > hi ? hi : v;
    };
    is(((unsigned)sat((int)x, -32768, 32767) << 16) |
       ((unsigned)sat((int)y, -32768, 32767) & 65535));
    is(t << 16 | (unsigned)sat((int)x, 0, 255) << 8 | (unsigned)sat((int)y, 0, 255));
    {
      float f = 1.00048828125f + t;
      unsigned u;
      memcpy(&u, &f, 4);
      is((u + 0x1000) & ~0x1fffu);
    }
    ++n;
    is(p[n]);
    is(31);
    is((unsigned)-9);
    is(0x11111111u << t % 4);
    is(~0u);
    is(8);
    is(~0u);
    is((1u << t) - 1);
    is(1);
    is(1);
    is(48);
    is(1);
    is(1);
    is(1);
    is(1);
    is(1);
    is(1);
    {
      float w = -3.0f;
      unsigned u;
      memcpy(&u, &w, 4);
      is(u);
    }
    is(0);
    is(x);
    is(x);
    is(x ^ 1);
    is(in[t & ~3] ^ in[(t & ~3) + 1] ^ in[(t & ~3) + 2] ^ in[(t & ~3) + 3]);
    is(x);
    is(1);
  }
  CHECK(g[32 * 64] == 64);
  unsigned long long mx;
  OK(cudaMemcpy(&mx, o2, 8, cudaMemcpyDeviceToHost));
  CHECK(mx == 93);
  std::vector<unsigned short> h(256);
  for (int i = 0; i < 256; ++i) h[i] = (unsigned short)i;
  OK(cudaMemcpy(d, h.data(), 512, cudaMemcpyHostToDevice));
  swaps<<<1, 32>>>((unsigned short*)d, o);
  OK(cudaMemcpy(g.data(), o, 256, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (unsigned t = 0; t < 32; ++t) {
    wrong += (g[t] & 65535) != (t % 8) * 8 + t / 8;
    wrong += g[t] >> 16 != 64 + t;
    wrong +=
        g[32 + t] != ((192 + (t % 4 * 2) * 8 + t / 4) | (192 + (t % 4 * 2 + 1) * 8 + t / 4) << 16);
  }
  CHECK(wrong == 0);
  std::vector<int> b(256);
  for (int i = 0; i < 256; ++i) b[i] = i;
  int *di, *oi, *si;
  OK(cudaMalloc(&di, 1024));
  OK(cudaMalloc(&oi, 1024));
  OK(cudaMalloc(&si, 1024));
  OK(cudaMemset(si, 1, 1024));
  OK(cudaMemcpy(di, b.data(), 1024, cudaMemcpyHostToDevice));
  bulk<<<1, 256>>>(di, oi, si);
  std::vector<int> r(256), q(256);
  OK(cudaMemcpy(r.data(), oi, 1024, cudaMemcpyDeviceToHost));
  OK(cudaMemcpy(q.data(), si, 1024, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 256; ++i) CHECK(r[i] == 2 * i && q[i] == 0x01010101 + 2 * i);
  return result();
}
