// SPDX-License-Identifier: Apache-2.0
// A matrix product as libraries for sm_90 write it: tensor maps bring swizzled tiles of A and B
// into a ring of barriers, one warp asks for them, a warpgroup multiplies them by wgmma, and the
// sums go out by a tensor map. The edges of the matrices are not those of tiles. And a copy by
// libcu++'s barrier and tensor functions.
// ptx: compute_90a
// sass: sm_90a
#include <cuda.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cuda/barrier>
#include <vector>

#include "../check.h"
namespace cde = cuda::device::experimental;

constexpr int kTile = 64, kStages = 3;  // 64 halves are a row of the widest swizzle

__device__ uint32_t shared(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ void make(uint64_t& barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(&barrier)), "r"(count)
               : "memory");
}
__device__ void wait(uint64_t& barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(shared(&barrier)),
      "r"(parity)
      : "memory");
}
__device__ void load(void* to, const CUtensorMap& map, int x, int y, uint64_t& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" ::"r"(shared(to)),
      "l"(&map), "r"(x), "r"(y), "r"(shared(&barrier))
      : "memory");
}
// Rows of 128 bytes, swizzled; eight of them are 1024 bytes.
__device__ uint64_t descriptor(const void* p) {
  return (shared(p) & 0x3ffff) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

struct Ring {
  __half a[kStages][kTile * kTile], b[kStages][kTile * kTile];
  float out[kTile * kTile];
  uint64_t full[kStages], empty[kStages];
};

// C (rows x columns) = A (rows x depth) times B (columns x depth), transposed.
__global__ void __launch_bounds__(256)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
            const __grid_constant__ CUtensorMap c, int depth) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  Ring& ring = *reinterpret_cast<Ring*>(bytes);
  const int column = static_cast<int>(blockIdx.x) * kTile;
  const int row = static_cast<int>(blockIdx.y) * kTile;
  if (threadIdx.x == 0) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a) : "memory");
    for (int s = 0; s < kStages; ++s) {
      make(ring.full[s], 1);
      make(ring.empty[s], 128);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int steps = (depth + kTile - 1) / kTile;
  if (threadIdx.x >= 128) {  // asks for the tiles
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x != 128) return;
    for (int t = 0; t < steps; ++t) {
      const int s = t % kStages;
      wait(ring.empty[s], (t / kStages & 1) ^ 1);
      asm volatile(
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(&ring.full[s])),
          "r"(static_cast<uint32_t>(sizeof ring.a[0] + sizeof ring.b[0]))
          : "memory");
      load(ring.a[s], a, t * kTile, row, ring.full[s]);
      load(ring.b[s], b, t * kTile, column, ring.full[s]);
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  float d[32] = {};
  for (int t = 0; t < steps; ++t) {
    const int s = t % kStages;
    wait(ring.full[s], t / kStages & 1);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < kTile; k += 16)
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, "
          "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
          "%25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
            "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
            "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
            "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),
            "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
          : "l"(descriptor(ring.a[s] + k)), "l"(descriptor(ring.b[s] + k))
          : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(&ring.empty[s]))
                 : "memory");
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int k = 0; k < 32; ++k)
    ring.out[(warp * 16 + lane / 4 + 8 * (k / 2 % 2)) * kTile + k / 4 * 8 + lane % 4 * 2 + k % 2] =
        d[k];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync 1, 128;" ::: "memory");
  if (threadIdx.x == 0)
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];\n"
        "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::"l"(&c),
        "r"(column), "r"(row), "r"(shared(ring.out))
        : "memory");
}

using Barrier = cuda::barrier<cuda::thread_scope_block>;
__global__ void doubled(const __grid_constant__ CUtensorMap in,
                        const __grid_constant__ CUtensorMap out) {
  __shared__ alignas(128) float tile[8][32];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barrier barrier;
  const int x = static_cast<int>(blockIdx.x) * 32, y = static_cast<int>(blockIdx.y) * 8;
  if (threadIdx.x == 0) {
    init(&barrier, blockDim.x);
    cde::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  Barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cde::cp_async_bulk_tensor_2d_global_to_shared(tile, &in, x, y, barrier);
    token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof tile);
  } else {
    token = barrier.arrive();
  }
  barrier.wait(std::move(token));
  for (int row = 0; row < 8; ++row) tile[row][threadIdx.x] *= 2;
  cde::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x == 0) {
    cde::cp_async_bulk_tensor_2d_shared_to_global(&out, x, y, tile);
    cde::cp_async_bulk_commit_group();
    cde::cp_async_bulk_wait_group_read<0>();
  }
}

decltype(&cuTensorMapEncodeTiled) encode;

CUtensorMap map_of(void* memory, CUtensorMapDataType type, unsigned columns, unsigned rows,
                   unsigned pitch, unsigned width, unsigned height, CUtensorMapSwizzle swizzle) {
  CUtensorMap map;
  const cuuint64_t sizes[] = {columns, rows}, strides[] = {pitch};
  const cuuint32_t box[] = {width, height}, ones[] = {1, 1};
  CHECK(encode(&map, type, 2, memory, sizes, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
               swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  return map;
}

void check_product() {
  constexpr int kRows = 150, kColumns = 100, kDepth = 216;
  std::vector<__half> a(kRows * kDepth), b(kColumns * kDepth);
  for (size_t i = 0; i < a.size(); ++i) a[i] = __float2half(static_cast<float>(i * 7 % 11) - 5);
  for (size_t i = 0; i < b.size(); ++i) b[i] = __float2half(static_cast<float>(i * 5 % 13) - 6);
  __half *device_a, *device_b;
  float* device_c;
  OK(cudaMalloc(&device_a, a.size() * 2));
  OK(cudaMalloc(&device_b, b.size() * 2));
  OK(cudaMalloc(&device_c, kRows * kColumns * 4));
  OK(cudaMemcpy(device_a, a.data(), a.size() * 2, cudaMemcpyDefault));
  OK(cudaMemcpy(device_b, b.data(), b.size() * 2, cudaMemcpyDefault));
  OK(cudaMemset(device_c, 0xff, kRows * kColumns * 4));
  const auto operand = [](void* memory, unsigned rows) {
    return map_of(memory, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, kDepth, rows, kDepth * 2, kTile, kTile,
                  CU_TENSOR_MAP_SWIZZLE_128B);
  };
  const CUtensorMap c = map_of(device_c, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, kColumns, kRows,
                               kColumns * 4, kTile, kTile, CU_TENSOR_MAP_SWIZZLE_NONE);
  OK(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring)));
  product<<<dim3(2, 3), 256, sizeof(Ring)>>>(operand(device_a, kRows), operand(device_b, kColumns),
                                             c, kDepth);
  std::vector<float> got(kRows * kColumns);
  OK(cudaMemcpy(got.data(), device_c, got.size() * 4, cudaMemcpyDefault));
  int wrong = 0;
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      float sum = 0;
      for (int k = 0; k < kDepth; ++k)
        sum += __half2float(a[row * kDepth + k]) * __half2float(b[column * kDepth + k]);
      wrong += got[row * kColumns + column] != sum;
    }
  }
  CHECK(wrong == 0);
}

void check_doubled() {
  constexpr int kColumns = 100, kRows = 21;
  std::vector<float> in(kColumns * kRows), got(in.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) + 0.25f;
  float *from, *to;
  OK(cudaMalloc(&from, in.size() * 4));
  OK(cudaMalloc(&to, in.size() * 4));
  OK(cudaMemcpy(from, in.data(), in.size() * 4, cudaMemcpyDefault));
  const auto map = [](void* memory) {
    return map_of(memory, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, kColumns, kRows, kColumns * 4, 32, 8,
                  CU_TENSOR_MAP_SWIZZLE_NONE);
  };
  doubled<<<dim3(4, 3), 32>>>(map(from), map(to));
  OK(cudaMemcpy(got.data(), to, got.size() * 4, cudaMemcpyDefault));
  int wrong = 0;
  for (size_t i = 0; i < in.size(); ++i) wrong += got[i] != in[i] * 2;
  CHECK(wrong == 0);
}

// What a map cannot be.
void check_refusals() {
  float* memory;
  OK(cudaMalloc(&memory, 4096));
  CUtensorMap map;
  const auto answer = [&](void* at, unsigned stride, unsigned width, unsigned step,
                          CUtensorMapSwizzle swizzle, unsigned rank = 2) {
    const cuuint64_t sizes[] = {32, 8}, strides[] = {stride};
    const cuuint32_t box[] = {width, 8}, steps[] = {1, step};
    return encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, rank, at, sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  const auto plain = CU_TENSOR_MAP_SWIZZLE_NONE;
  CHECK(answer(memory, 128, 32, 1, plain) == CUDA_SUCCESS);
  CHECK(answer(memory + 1, 128, 32, 1, plain) == CUDA_ERROR_INVALID_VALUE);
  CHECK(answer(memory, 132, 32, 1, plain) == CUDA_ERROR_INVALID_VALUE);
  CHECK(answer(memory, 128, 31, 1, plain) == CUDA_ERROR_INVALID_VALUE);
  CHECK(answer(memory, 128, 260, 1, plain) == CUDA_ERROR_INVALID_VALUE);
  CHECK(answer(memory, 128, 32, 9, plain) == CUDA_ERROR_INVALID_VALUE);
  CHECK(answer(memory, 128, 32, 1, CU_TENSOR_MAP_SWIZZLE_64B) == CUDA_ERROR_INVALID_VALUE);
  CHECK(answer(memory, 128, 32, 1, plain, 6) == CUDA_ERROR_INVALID_VALUE);
}

int main() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault,
                                      &found));
  encode = reinterpret_cast<decltype(encode)>(entry);
  check_product();
  check_doubled();
  check_refusals();
  return result();
}
