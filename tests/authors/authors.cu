// SPDX-License-Identifier: Apache-2.0
// Kernels written with <sluice/preempt.cuh>; authors.ptx beside it is made by
// scripts/regenerate-ptx. All of them compute what does not depend on how often they leave.
#include <sluice/preempt.cuh>

// Persistent: a few blocks draw items from a counter until there are none. One thread asks, and
// tells the others together with the item.
extern "C" __global__ void work_queue(unsigned* counter, const unsigned* in, unsigned* out,
                                      unsigned items) {
  __shared__ unsigned item;
  for (;;) {
    if (threadIdx.x == 0) {
      // Asked first: an item that was drawn must be done.
      item = sluice::should_leave() ? 0xffffffffu : atomicAdd(counter, 1u);
    }
    __syncthreads();
    const unsigned mine = item;
    __syncthreads();
    if (mine == 0xffffffffu) sluice::leave();
    if (mine >= items) return;
    unsigned x = in[mine * blockDim.x + threadIdx.x];
    for (unsigned i = 0; i < (mine & 15) + 3; ++i) x = x * 1664525u + 1013904223u;
    atomicAdd(&out[mine * blockDim.x + threadIdx.x], x);
  }
}

// One wave that runs long, with state in registers and in shared memory.
struct Long {
  unsigned step;
  unsigned tile;
  unsigned long long sum;
};
extern "C" __global__ void one_wave(const unsigned* in, unsigned long long* out, unsigned steps) {
  __shared__ unsigned tile[128];
  Long s{0, 0, blockIdx.x * 1000ull + threadIdx.x};
  if (!sluice::resume(s)) s.tile = in[(blockIdx.x * blockDim.x + threadIdx.x) % 1024];
  tile[threadIdx.x] = s.tile;
  __syncthreads();
  for (; s.step < steps; ++s.step) {
    if (sluice::block_should_leave()) {
      s.tile = tile[threadIdx.x];
      sluice::leave(s);
    }
    const unsigned neighbour = tile[(threadIdx.x + s.step) % blockDim.x];
    __syncthreads();
    tile[threadIdx.x] = neighbour * 69069u + s.step;
    s.sum = s.sum * 31 + neighbour;
    __syncthreads();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = s.sum;
}

// Which SMs a block's steps ran on, a bit for each, and how many steps it made.
struct Where {
  unsigned step;
  unsigned long long sms;
};
extern "C" __global__ void where(unsigned long long* out, unsigned steps) {
  Where s{0, 0};
  sluice::resume(s);
  for (; s.step < steps; ++s.step) {
    if (sluice::block_should_leave()) sluice::leave(s);
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    s.sms |= 1ull << (sm & 63);
  }
  if (threadIdx.x == 0) {
    out[2 * blockIdx.x] |= s.sms;
    out[2 * blockIdx.x + 1] += s.step;
  }
}

// More blocks than fit, each with a loop, a three-dimensional grid and block, two places to leave
// at and dynamic shared memory.
struct Place {
  float4 a;
  int phase, i;
};
extern "C" __global__ void two_places(const unsigned* in, float4* out, unsigned rounds) {
  extern __shared__ float scratch[];
  const unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  Place s{make_float4(0, 0, 0, 0), 0, 0};
  sluice::resume(s);
  if (s.phase == 0) {
    for (; s.i < int(rounds); ++s.i) {
      if (sluice::block_should_leave()) sluice::leave(s);
      scratch[t] = float(in[(b + s.i * 7 + t) % 1024] & 255);
      __syncthreads();
      s.a.x += scratch[(t + 1) % threads];
      s.a.y -= scratch[(t + 3) % threads] * 0.5f;
    }
    s.phase = 1;
    s.i = 0;
  }
  for (; s.i < int(rounds) / 2; ++s.i) {
    if (sluice::block_should_leave()) sluice::leave(s);
    s.a.z += s.a.x * 0.25f + float(s.i);
    s.a.w = s.a.w * 0.5f + s.a.y;
  }
  out[b * threads + t] = s.a;
}
