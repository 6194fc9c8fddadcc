# SPDX-License-Identifier: Apache-2.0
"""NVRTC by itself (through CuPy's binding), with its options."""

from cupy_backends.cuda.libs import nvrtc

from common import attempt, save

SOURCE = r"""
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/std/complex>
__constant__ float table[64];
__device__ int counter;
struct Big { float v[512]; };
template <int N> __device__ float poly(float x) {
  float r = 0;
  for (int k = 0; k < N; ++k) r = r * x + table[k];
  return r;
}
extern "C" __global__ void __launch_bounds__(128, 4)
evaluate(const __grid_constant__ Big b, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = poly<8>(b.v[i % 512]) + table[threadIdx.x % 64];
}
extern "C" __global__ void last_block(const float* x, float* sums, float* out, int n) {
  __shared__ float tile[256];
  __shared__ bool last;
  int t = threadIdx.x;
  float s = 0;
  for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) s += x[i];
  tile[t] = s;
  __syncthreads();
  for (int d = blockDim.x / 2; d; d >>= 1) { if (t < d) tile[t] += tile[t + d]; __syncthreads(); }
  if (t == 0) {
    sums[blockIdx.x] = tile[0];
    __threadfence();
    last = atomicAdd(&counter, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && t == 0) {
    float r = 0;
    for (int k = 0; k < gridDim.x; ++k) r += sums[k];
    *out = r;
    counter = 0;
  }
}
extern "C" __global__ void switcher(const int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  switch (x[i]) {
    case 0: out[i] = 3; break;
    case 1: out[i] = x[i + 1]; break;
    case 2: out[i] *= 5; break;
    case 3: out[i] -= i; break;
    case 4: out[i] ^= 77; break;
    case 5: return;
    case 6: out[i] = __popc(i); break;
    default: out[i] = 0;
  }
}
extern "C" __global__ void waits_for_flag(volatile int* flag, int* out) {
  while (*flag == 0) {}
  out[threadIdx.x] = 1;
}
extern "C" __global__ void barriers(float* x) {
  __shared__ cuda::barrier<cuda::thread_scope_block> b;
  if (threadIdx.x == 0) init(&b, blockDim.x);
  __syncthreads();
  x[threadIdx.x] += 1;
  b.arrive_and_wait();
  x[threadIdx.x] += x[(threadIdx.x + 1) % blockDim.x];
}
"""

OPTIONS = (
    [], ["-G"], ["-lineinfo"], ["-use_fast_math"], ["-maxrregcount=24"], ["-rdc=true"],
    ["-dopt=on", "-G"], ["-ewp"], ["-std=c++20"],
    ["-extra-device-vectorization"], ["-ftz=true", "-prec-div=false"], ["-restrict"],
    ["-device-int128"], ["-default-device"],
)


def one(arch, options):
    program = nvrtc.createProgram(SOURCE, "corpus.cu", [], [])
    try:
        nvrtc.compileProgram(program,
                             [f"--gpu-architecture=compute_{arch}",
                              "-I/usr/local/cuda/include/cccl", "-I/usr/local/cuda/include",
                              *options])
    except Exception as error:
        raise RuntimeError(nvrtc.getProgramLog(program)[-800:]) from error
    save(f"{arch}" + "".join(options), nvrtc.getPTX(program))


for architecture in ("75", "80", "86", "90", "90a", "100", "120"):
    for chosen in OPTIONS:
        attempt(f"{architecture} {chosen}", one, architecture, chosen)
