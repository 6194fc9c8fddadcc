// SPDX-License-Identifier: Apache-2.0
// Atomics of 2 to 16 bytes, integers and floats, in every scope.
// ptx: compute_90
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstring>
#include <vector>
#include "../check.h"
struct alignas(16) W {
  unsigned long long a, b;
};
struct All {
  int add, mn, mx, an, orr, xr;
  unsigned inc, dec, umn, umx;
  unsigned long long uadd, cas;
  long long lmn, lmx;
  double d;
  float f;
  float2 f2;
  alignas(16) float4 f4;
  half h;
  __nv_bfloat16 b;
  half2 h2;
  __nv_bfloat162 b2;
  unsigned short s16;
  W w;
  W x;
  unsigned long long land, lor, lxor;
  int sys, blk;
};
__global__ void go(All* p, unsigned long long* tickets) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&p->add, i);
  atomicMin(&p->mn, 500 - i);
  atomicMax(&p->mx, i * 3);
  atomicAnd(&p->an, ~(1 << (i % 20)));
  atomicOr(&p->orr, 1 << (i % 30));
  atomicXor(&p->xr, i);
  tickets[atomicInc(&p->inc, 99)] = 1;
  atomicDec(&p->dec, 1000);
  atomicMin(&p->umn, (unsigned)i - 1);
  atomicMax(&p->umx, (unsigned)-i);
  atomicAdd(&p->uadd, 1ull << 33);
  atomicMin(&p->lmn, -(long long)i * 10000000000ll);
  atomicMax(&p->lmx, (long long)i * 10000000000ll);
  atomicAdd(&p->d, 0.125);
  atomicAdd(&p->f, 0.5f);
  atomicAdd(&p->f2, make_float2(1, 2));
  atomicAdd(&p->f4, make_float4(1, 2, 3, 4));
  atomicAdd(&p->h, __float2half(0.25f));
  atomicAdd(&p->b, __float2bfloat16(1.0f));
  atomicAdd(&p->h2, __floats2half2_rn(1, 0.5f));
  atomicAdd(&p->b2, __floats2bfloat162_rn(1, 0.5f));
  unsigned short was = p->s16, seen;
  do {
    seen = was;
    was = atomicCAS(&p->s16, seen, (unsigned short)(seen + 3));
  } while (was != seen);
  unsigned long long w = p->cas, o;
  do {
    o = w;
    w = atomicCAS(&p->cas, o, o + 7);
  } while (o != w);
  W cur{0, 0}, next, old;
  do {
    old = cur;
    next = {old.a + 1, old.b + 2};
    cur = atomicCAS(&p->w, old, next);
  } while (cur.a != old.a || cur.b != old.b);
  W e = atomicExch(&p->x, W{(unsigned long long)i, (unsigned long long)i * 2});
  if (e.a * 2 != e.b) atomicAdd(&p->add, 1 << 30);
  atomicAnd(&p->land, ~(1ull << (i % 64)));
  atomicOr(&p->lor, 1ull << (i % 40));
  atomicXor(&p->lxor, (unsigned long long)i << 32);
  atomicAdd_system(&p->sys, 2);
  atomicAdd_block(&p->blk, 0);
  atomicSub(&p->sys, 1);
  atomicExch((float*)&tickets[200], 1.5f);
}
int main() {
  All h;
  memset(&h, 0, sizeof h);
  h.mn = 1 << 30;
  h.an = -1;
  h.dec = 5000;
  h.umn = ~0u;
  h.land = ~0ull;
  All* d;
  unsigned long long* t;
  OK(cudaMalloc(&d, sizeof h));
  OK(cudaMalloc(&t, 2000));
  OK(cudaMemset(t, 0, 2000));
  OK(cudaMemcpy(d, &h, sizeof h, cudaMemcpyHostToDevice));
  const int n = 512;
  go<<<8, 64>>>(d, t);
  OK(cudaMemcpy(&h, d, sizeof h, cudaMemcpyDeviceToHost));
  int x = 0;
  long long s = 0;
  unsigned long long lx = 0;
  for (int i = 0; i < n; ++i) x ^= i, s += i, lx ^= (unsigned long long)i << 32;
  CHECK(h.add == s);
  CHECK(h.mn == 500 - 511);
  CHECK(h.mx == 511 * 3);
  CHECK(h.an == (int)~0xfffffu);
  CHECK(h.orr == 0x3fffffff);
  CHECK(h.xr == x);
  CHECK(h.inc == n % 100);
  CHECK(h.dec == 1000 - 511);
  CHECK(h.umn == 0);
  CHECK(h.umx == ~0u);
  CHECK(h.uadd == (unsigned long long)n << 33);
  CHECK(h.lmn == -5110000000000ll);
  CHECK(h.lmx == 5110000000000ll);
  CHECK(h.d == 64);
  CHECK(h.f == 256);
  CHECK(h.f2.x == n && h.f2.y == 2 * n);
  CHECK(h.f4.w == 4 * n && h.f4.z == 3 * n);
  CHECK(__half2float(h.h) == 128);
  CHECK(__bfloat162float(h.b) == 256);
  CHECK(__half2float(h.h2.x) == 512 && __half2float(h.h2.y) == 256);
  CHECK(h.s16 == 3 * n);
  CHECK(h.cas == 7 * n);
  CHECK(h.w.a == n && h.w.b == 2 * n);
  CHECK(h.x.a * 2 == h.x.b);
  CHECK(h.land == 0);
  CHECK(h.lor == (1ull << 40) - 1);
  CHECK(h.lxor == lx);
  CHECK(h.sys == n);
  return result();
}
