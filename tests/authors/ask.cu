// SPDX-License-Identifier: Apache-2.0
// What asking costs, for tests/bench/ask_cost: the same steps without a question, with the block's,
// and with one thread's that goes out with a barrier that the kernel has anyway.
// scripts/regenerate-ptx makes ask.ptx.
#include <sluice/preempt.cuh>

namespace {
struct Walk {
  unsigned step;
  float x;
};
__device__ __forceinline__ Walk begin() {
  return {0, static_cast<float>(blockIdx.x * blockDim.x + threadIdx.x) * 0.001f};
}
// A chain, so that a step takes as long as its number says.
__device__ __forceinline__ float advance(float x, unsigned work) {
#pragma unroll 8
  for (unsigned i = 0; i < work; ++i) x = x * 0.9995f + 0.25f;
  return x;
}
__device__ __forceinline__ void end(float* out, const Walk& w) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = w.x;
}
}  // namespace

extern "C" __global__ void never_asks(float* out, unsigned steps, unsigned work) {
  Walk w = begin();
  for (; w.step < steps; ++w.step) w.x = advance(w.x, work);
  end(out, w);
}

extern "C" __global__ void block_asks(float* out, unsigned steps, unsigned work) {
  Walk w = begin();
  sluice::resume(w);
  for (; w.step < steps; ++w.step) {
    if (sluice::block_should_leave()) sluice::leave(w);
    w.x = advance(w.x, work);
  }
  end(out, w);
}

// As a work queue does: thread 0 tells the others what comes next.
extern "C" __global__ void never_asks_in_queue(float* out, unsigned steps, unsigned work) {
  __shared__ unsigned answer;
  Walk w = begin();
  for (; w.step < steps; ++w.step) {
    if (threadIdx.x == 0) answer = w.step;
    __syncthreads();
    const unsigned next = answer;
    __syncthreads();
    w.x = advance(w.x, work) + static_cast<float>(next & 1);
  }
  end(out, w);
}

extern "C" __global__ void one_asks_in_queue(float* out, unsigned steps, unsigned work) {
  __shared__ unsigned answer;
  Walk w = begin();
  sluice::resume(w);
  for (; w.step < steps; ++w.step) {
    if (threadIdx.x == 0) answer = sluice::should_leave() ? 0xffffffffu : w.step;
    __syncthreads();
    const unsigned next = answer;
    __syncthreads();
    if (next == 0xffffffffu) sluice::leave(w);
    w.x = advance(w.x, work) + static_cast<float>(next & 1);
  }
  end(out, w);
}
