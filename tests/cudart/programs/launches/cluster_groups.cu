// SPDX-License-Identifier: Apache-2.0
// More of thread block clusters: the group's own numbers, a barrier in two halves, halos of a
// stencil from the neighbours' shared memory, a dot product reduced over a cluster, arrivals at
// another block's barrier object, clusters in two dimensions, sizes that cannot be.
// ptx: compute_90
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/ptx>
#include <cuda/std/cstdint>

#include <vector>

#include "../check.h"
namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2, 2, 1) numbers(unsigned* out) {
  const cg::cluster_group c = cg::this_cluster();
  const dim3 at = c.block_index(), size = c.dim_blocks();
  const unsigned block = blockIdx.x + gridDim.x * blockIdx.y;
  if (threadIdx.x == 3) {
    unsigned* o = out + block * 8;
    o[0] = at.x, o[1] = at.y, o[2] = size.x * 10 + size.y;
    o[3] = c.block_rank(), o[4] = c.num_blocks(), o[5] = c.thread_rank(), o[6] = c.num_threads();
    __shared__ int here;
    o[7] = c.query_shared_rank(c.map_shared_rank(&here, (c.block_rank() + 1) % 4));
  }
  c.sync();
}

// Each block keeps its piece in shared memory and reads the borders of its neighbours.
__global__ void stencil(const float* in, float* out, int steps) {
  __shared__ float piece[2][128];
  const cg::cluster_group c = cg::this_cluster();
  const unsigned rank = c.block_rank(), n = c.num_blocks(), t = threadIdx.x;
  const unsigned left = (rank + n - 1) % n, right = (rank + 1) % n;
  piece[0][t] = in[blockIdx.x * 128 + t];
  int now = 0;
  for (int s = 0; s < steps; ++s, now ^= 1) {
    c.sync();
    const float before = t == 0 ? c.map_shared_rank(piece[now], left)[127] : piece[now][t - 1];
    const float behind = t == 127 ? c.map_shared_rank(piece[now], right)[0] : piece[now][t + 1];
    piece[now ^ 1][t] = 0.25f * before + 0.5f * piece[now][t] + 0.25f * behind;
  }
  c.sync();
  out[blockIdx.x * 128 + t] = piece[now][t];
}

__global__ void dot(const int* a, const int* b, int n, int* out) {
  __shared__ int sum;
  const cg::cluster_group c = cg::this_cluster();
  if (threadIdx.x == 0) sum = 0;
  const auto token = c.barrier_arrive();
  int mine = 0;
  for (unsigned i = c.thread_rank() + c.num_threads() * (blockIdx.x / c.num_blocks()); i < n;
       i += gridDim.x * blockDim.x)
    mine += a[i] * b[i];
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  mine = cg::reduce(warp, mine, cg::plus<int>());
  c.barrier_wait(cg::cluster_group::arrival_token(token));
  if (warp.thread_rank() == 0) atomicAdd(c.map_shared_rank(&sum, 0), mine);
  c.sync();
  if (c.thread_rank() == 0) atomicAdd(out, sum);
}

// The last block hands each of the others a word and waits for all of theirs.
__global__ void __cluster_dims__(4, 1, 1) arrivals(unsigned* out) {
  __shared__ cuda::std::uint64_t bar;
  __shared__ unsigned words[4];
  const cg::cluster_group c = cg::this_cluster();
  const unsigned rank = c.block_rank();
  if (threadIdx.x == 0) cuda::ptx::mbarrier_init(&bar, 4);
  c.sync();
  if (threadIdx.x < 4) {
    c.map_shared_rank(words, threadIdx.x)[rank] = rank * 10 + threadIdx.x;
    cuda::ptx::mbarrier_arrive(cuda::ptx::sem_release, cuda::ptx::scope_cluster,
                               cuda::ptx::space_cluster, c.map_shared_rank(&bar, threadIdx.x));
  }
  while (!cuda::ptx::mbarrier_try_wait_parity(cuda::ptx::sem_acquire, cuda::ptx::scope_cluster,
                                              &bar, 0)) {
  }
  if (threadIdx.x < 4) out[blockIdx.x * 4 + threadIdx.x] = words[threadIdx.x];
  c.sync();
}

int main() {
  int clusters_there = 0;
  OK(cudaDeviceGetAttribute(&clusters_there, cudaDevAttrClusterLaunch, 0));
  if (!clusters_there) return result();  // before compute capability 9.0
  unsigned* out;
  OK(cudaMalloc(&out, 4096));
  numbers<<<dim3(4, 2), 32>>>(out);
  std::vector<unsigned> got(64);
  OK(cudaMemcpy(got.data(), out, 256, cudaMemcpyDeviceToHost));
  for (unsigned y = 0; y < 2; ++y)
    for (unsigned x = 0; x < 4; ++x) {
      const unsigned rank = x % 2 + 2 * y, *o = got.data() + 8 * (x + 4 * y);
      const unsigned expected[8] = {x % 2, y, 22, rank, 4, rank * 32 + 3, 128, (rank + 1) % 4};
      for (int k = 0; k < 8; ++k) CHECK(o[k] == expected[k]);
    }

  constexpr int n = 512, steps = 9;
  std::vector<float> in(2 * n), now, next(2 * n);
  for (int i = 0; i < 2 * n; ++i) in[i] = static_cast<float>(i * 37 % 256);
  now = in;
  for (int s = 0; s < steps; ++s, now.swap(next))
    for (int i = 0; i < 2 * n; ++i) {
      const int base = i / n * n, at = i % n;
      next[i] =
          0.25f * now[base + (at + n - 1) % n] + 0.5f * now[i] + 0.25f * now[base + (at + 1) % n];
    }
  float *from, *to;
  OK(cudaMalloc(&from, 8 * n));
  OK(cudaMalloc(&to, 8 * n));
  OK(cudaMemcpy(from, in.data(), 8 * n, cudaMemcpyHostToDevice));
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {4, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(8);
  config.blockDim = dim3(128);
  config.attrs = &attribute;
  config.numAttrs = 1;
  OK(cudaLaunchKernelEx(&config, stencil, static_cast<const float*>(from), to, steps));
  std::vector<float> back(2 * n);
  OK(cudaMemcpy(back.data(), to, 8 * n, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < 2 * n; ++i) wrong += back[i] != now[i];
  CHECK(wrong == 0);

  constexpr int m = 10000;
  std::vector<int> a(m), b(m);
  int expected = 0, total = 0;
  for (int i = 0; i < m; ++i) expected += (a[i] = i % 101 - 50) * (b[i] = i % 77 - 30);
  int *da, *db, *sum;
  OK(cudaMalloc(&da, 4 * m));
  OK(cudaMalloc(&db, 4 * m));
  OK(cudaMalloc(&sum, 4));
  OK(cudaMemcpy(da, a.data(), 4 * m, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(db, b.data(), 4 * m, cudaMemcpyHostToDevice));
  for (unsigned size : {1u, 2u, 4u, 8u}) {
    OK(cudaMemset(sum, 0, 4));
    attribute.val.clusterDim = {size, 1, 1};
    config.gridDim = dim3(16);
    OK(cudaLaunchKernelEx(&config, dot, static_cast<const int*>(da), static_cast<const int*>(db), m,
                          sum));
    OK(cudaMemcpy(&total, sum, 4, cudaMemcpyDeviceToHost));
    CHECK(total == expected);
  }

  arrivals<<<8, 32>>>(out);
  OK(cudaMemcpy(got.data(), out, 128, cudaMemcpyDeviceToHost));
  for (unsigned i = 0; i < 32; ++i) CHECK(got[i] == i % 4 * 10 + i / 4 % 4);

  attribute.val.clusterDim = {3, 1, 1};  // no part of the grid
  CHECK(cudaLaunchKernelEx(&config, dot, static_cast<const int*>(da), static_cast<const int*>(db),
                           m, sum) == cudaErrorInvalidClusterSize);
  CHECK(cudaGetLastError() == cudaErrorInvalidClusterSize);
  attribute.val.clusterDim = {16, 1, 1};
  CHECK(cudaLaunchKernelEx(&config, dot, static_cast<const int*>(da), static_cast<const int*>(db),
                           m, sum) == cudaErrorInvalidClusterSize);
  (void)cudaGetLastError();
  cudaFuncAttributes f;
  OK(cudaFuncGetAttributes(&f, arrivals));
  CHECK(f.requiredClusterWidth == 4 && f.requiredClusterHeight == 1 && f.clusterDimMustBeSet == 1);
  OK(cudaDeviceSynchronize());
  return result();
}
