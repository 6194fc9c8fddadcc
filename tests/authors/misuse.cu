// SPDX-License-Identifier: Apache-2.0
// What authors may get wrong; `sluice-ptx report` says so of each, and the kernel runs as if it had
// no places to leave at. misuse.ptx is made by scripts/regenerate-ptx.
#include <sluice/preempt.cuh>

struct State {
  unsigned i, x;
};

// Only some threads come to leave().
extern "C" __global__ void divergent(const unsigned* in, unsigned* out, unsigned n) {
  State s{0, 0};
  sluice::resume(s);
  for (; s.i < n; ++s.i) {
    if (threadIdx.x < 7 && sluice::should_leave()) sluice::leave(s);
    s.x = s.x * 31 + in[(s.i + threadIdx.x) % 1024];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = s.x;
}

// Some threads have returned when the others leave.
extern "C" __global__ void returned(const unsigned* in, unsigned* out, unsigned n) {
  State s{0, 0};
  sluice::resume(s);
  if (threadIdx.x >= 20) return;
  for (; s.i < n; ++s.i) {
    if (sluice::block_should_leave()) sluice::leave(s);
    s.x = s.x * 31 + in[(s.i + threadIdx.x) % 1024];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = s.x;
}

// The state is saved and never asked for.
extern "C" __global__ void never_resumed(const unsigned* in, unsigned* out, unsigned n) {
  State s{0, 0};
  for (; s.i < n; ++s.i) {
    if (sluice::block_should_leave()) sluice::leave(s);
    s.x = s.x * 31 + in[(s.i + threadIdx.x) % 1024];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = s.x;
}

// It is asked for on one way only.
extern "C" __global__ void resumed_sometimes(const unsigned* in, unsigned* out, unsigned n) {
  State s{0, 0};
  if (in[5] & 1) sluice::resume(s);
  for (; s.i < n; ++s.i) {
    if (sluice::block_should_leave()) sluice::leave(s);
    s.x = s.x * 31 + in[(s.i + threadIdx.x) % 1024];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = s.x;
}

// Another type than was saved.
extern "C" __global__ void other_type(const unsigned* in, unsigned* out, unsigned n) {
  State s{0, 0};
  sluice::resume(s.i);
  for (; s.i < n; ++s.i) {
    if (sluice::block_should_leave()) sluice::leave(s);
    s.x = s.x * 31 + in[(s.i + threadIdx.x) % 1024];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = s.x;
}

// The place to leave at is in a function that is called.
__device__ __noinline__ unsigned step(unsigned x, unsigned y) {
  if (sluice::block_should_leave()) sluice::leave();
  return x * 31 + y;
}
extern "C" __global__ void in_function(const unsigned* in, unsigned* out, unsigned n) {
  unsigned x = 0;
  for (unsigned i = 0; i < n; ++i) x = step(x, in[(i + threadIdx.x) % 1024]);
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

// It asks and does nothing about it.
extern "C" __global__ void never_leaves(const unsigned* in, unsigned* out, unsigned n) {
  unsigned x = 0;
  for (unsigned i = 0; i < n; ++i) {
    if (sluice::should_leave()) x += 1;
    x = x * 31 + in[(i + threadIdx.x) % 1024];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

// Every thread follows an answer of its own.
extern "C" __global__ void own_answer(const unsigned* in, unsigned* out, unsigned n) {
  State s{0, 0};
  sluice::resume(s);
  for (; s.i < n; ++s.i) {
    if (sluice::should_leave()) sluice::leave(s);
    s.x = s.x * 31 + in[(s.i + threadIdx.x) % 1024];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = s.x;
}
