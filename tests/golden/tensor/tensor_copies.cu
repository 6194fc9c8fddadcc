// SPDX-License-Identifier: Apache-2.0
// Kernels as libraries for sm_90 write them, for clone_gpu on a real GPU: copies by tensor
// maps that arrive at barriers in memory, warps that hand registers over, and maps that the kernel
// changes. Each task leaves behind what the next one trips over
// unless it is cleaned up: valid barriers, register counts, copies that still read shared memory.
//
// scripts/regenerate-ptx --tensor makes the PTX.
#include <cstdint>

struct alignas(64) Map {
  unsigned long long words[16];
};

namespace {

constexpr int kWidth = 64, kHeight = 16, kTile = kWidth * kHeight;  // floats

__device__ __forceinline__ uint32_t shared(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void make(uint64_t& barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(&barrier)), "r"(count)
               : "memory");
}
__device__ __forceinline__ void made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect(uint64_t& barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(&barrier)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void arrive(uint64_t& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(&barrier)) : "memory");
}
__device__ __forceinline__ void wait(uint64_t& barrier, uint32_t parity) {
  uint32_t done = 0;
  do {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, "
        "p; }"
        : "=r"(done)
        : "r"(shared(&barrier)), "r"(parity)
        : "memory");
  } while (done == 0);
}
__device__ __forceinline__ void load(void* to, const void* map, int x, int y, uint64_t& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, "
      "%3}], [%4];" ::"r"(shared(to)),
      "l"(map), "r"(x), "r"(y), "r"(shared(&barrier))
      : "memory");
}
__device__ __forceinline__ void store(const void* map, int x, int y, const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
      "r"(x), "r"(y), "r"(shared(from))
      : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

}  // namespace

// A tile comes, is changed, and goes. Nobody waits for the store: only that it has read.
extern "C" __global__ void __launch_bounds__(128)
    scale_tiles(const __grid_constant__ Map from, const __grid_constant__ Map to, float factor) {
  __shared__ alignas(128) float tile[kTile];
  __shared__ alignas(8) uint64_t full;
  const int x = static_cast<int>(blockIdx.x) * kWidth, y = static_cast<int>(blockIdx.y) * kHeight;
  if (threadIdx.x == 0) {
    make(full, 1);
    made();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    expect(full, sizeof tile);
    load(tile, &from, x, y, full);
  }
  wait(full, 0);
  for (int i = static_cast<int>(threadIdx.x); i < kTile; i += 128)
    tile[i] = tile[i] * factor + static_cast<float>(blockIdx.x + 3 * blockIdx.y);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    store(&to, x, y, tile);
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}

// One warpgroup fetches a row of tiles through a ring, two add them up in many registers.
constexpr int kStages = 4, kSums = 96;
extern "C" __global__ void __launch_bounds__(384, 1)
    sum_rows(const __grid_constant__ Map from, float* out, int tiles) {
  __shared__ alignas(128) float ring[kStages][kTile];
  __shared__ alignas(8) uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
#pragma unroll
    for (int s = 0; s < kStages; ++s) {
      make(full[s], 1);
      make(empty[s], 256);
    }
    made();
  }
  __syncthreads();
  const int y = static_cast<int>(blockIdx.x) * kHeight;
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      for (int t = 0; t < tiles; ++t) {
        const int s = t % kStages;
        wait(empty[s], ((t / kStages) & 1) ^ 1);
        expect(full[s], sizeof ring[s]);
        load(ring[s], &from, t * kWidth, y, full[s]);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int me = static_cast<int>(threadIdx.x) - 128;
    float sums[kSums];
#pragma unroll
    for (int k = 0; k < kSums; ++k) sums[k] = 0;
    for (int t = 0; t < tiles; ++t) {
      const int s = t % kStages;
      wait(full[s], (t / kStages) & 1);
#pragma unroll
      for (int k = 0; k < kSums; ++k)
        sums[k] = sums[k] * 0.75f + ring[s][(me * 4 + k * 37) & (kTile - 1)];
      arrive(empty[s]);
    }
    float total = 0;
#pragma unroll
    for (int k = 0; k < kSums; ++k) total += sums[k] * static_cast<float>(k + 1);
    out[static_cast<int>(blockIdx.x) * 256 + me] = total;
  }
}

// Each block makes a map of its own from a common one, which leads to another row of what is read.
extern "C" __global__ void __launch_bounds__(64)
    changed_maps(const __grid_constant__ Map common, Map* maps, const float* in, float* out,
                 int rows) {
  __shared__ alignas(128) float tile[kTile];
  __shared__ alignas(128) Map mine;
  __shared__ alignas(8) uint64_t full;
  const int row = static_cast<int>((blockIdx.x * 7u) % static_cast<unsigned>(rows));
  Map* const place = maps + blockIdx.x;
  if (threadIdx.x == 0) {
    make(full, 1);
    made();
    mine = common;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const unsigned long long there =
        reinterpret_cast<unsigned long long>(in) + 4ull * kTile * static_cast<unsigned>(row);
    if (threadIdx.x == 0)
      asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(
                       shared(&mine)),
                   "l"(there)
                   : "memory");
    __syncwarp();
    asm volatile(
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
        "[%0], [%1], "
        "128;" ::"l"(place),
        "r"(shared(&mine))
        : "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(place) : "memory");
    if (threadIdx.x == 0) {
      expect(full, sizeof tile);
      load(tile, place, 0, 0, full);
    }
  }
  wait(full, 0);
  for (int i = static_cast<int>(threadIdx.x); i < kTile; i += 64)
    out[static_cast<int>(blockIdx.x) * kTile + i] = tile[i] + static_cast<float>(row);
}
