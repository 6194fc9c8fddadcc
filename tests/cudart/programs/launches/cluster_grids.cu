// SPDX-License-Identifier: Apache-2.0
// Grids that count clusters (__block_size__ with a cluster's size), in every way to launch them;
// clusters that need more of the GPU than it has: the launch says what the occupancy said.
// ptx: compute_90
#include <cooperative_groups.h>

#include <vector>

#include "../check.h"
namespace cg = cooperative_groups;

constexpr int kMost = 64;

// Each block says how many there are, its own number and its rank.
__global__ void __block_size__((64, 1, 1), (2, 1, 1)) line(unsigned* out) {
  const cg::cluster_group c = cg::this_cluster();
  if (threadIdx.x == 63)
    out[blockIdx.x] = gridDim.x * 10000 + c.num_blocks() * 1000 + blockIdx.x * 10 + c.block_rank();
  c.sync();
}
__global__ void __block_size__((16, 2, 1), (2, 2, 1)) plane(unsigned* out) {
  const dim3 clusters = cg::this_cluster().dim_blocks();
  if (threadIdx.x + threadIdx.y == 0)
    out[blockIdx.x + gridDim.x * blockIdx.y] =
        gridDim.x * 1000 + gridDim.y * 100 + clusters.x * 10 + clusters.y;
}
__global__ void large(int* out) {
  extern __shared__ int block[];
  const cg::cluster_group c = cg::this_cluster();
  block[threadIdx.x] = static_cast<int>(c.block_rank());
  c.sync();
  out[blockIdx.x] = c.map_shared_rank(block, (c.block_rank() + 1) % c.num_blocks())[0];
  c.sync();
}

unsigned* out;

void expect_line(unsigned clusters) {
  std::vector<unsigned> got(kMost);
  OK(cudaMemcpy(got.data(), out, 4 * kMost, cudaMemcpyDeviceToHost));
  for (unsigned i = 0; i < kMost; ++i)
    CHECK(got[i] == (i < 2 * clusters ? 2 * clusters * 10000 + 2000 + i * 10 + i % 2 : 0));
  OK(cudaMemset(out, 0, 4 * kMost));
}

void grids_of_clusters() {
  line<<<3, 64>>>(out);
  OK(cudaGetLastError());
  expect_line(3);
  line<<<4, 1>>>(out);  // the kernel knows its blocks
  OK(cudaGetLastError());
  expect_line(4);
  void* arguments[] = {&out};
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(5);
  config.blockDim = dim3(64);
  config.attrs = &attribute;
  for (unsigned named : {0u, 1u}) {
    config.numAttrs = named;
    OK(cudaLaunchKernelExC(&config, reinterpret_cast<void*>(line), arguments));
    expect_line(5);
  }
  attribute.val.clusterDim = {5, 1, 1};
  ANSWERS(cudaErrorInvalidClusterSize,
          cudaLaunchKernelExC(&config, reinterpret_cast<void*>(line), arguments));
  (void)cudaGetLastError();

  plane<<<dim3(3, 2), dim3(16, 2)>>>(out);
  std::vector<unsigned> got(kMost);
  OK(cudaMemcpy(got.data(), out, 4 * kMost, cudaMemcpyDeviceToHost));
  for (unsigned i = 0; i < kMost; ++i) CHECK(got[i] == (i < 24 ? 6422 : 0));
  OK(cudaMemset(out, 0, 4 * kMost));
}

void what_does_not_fit(int shared) {
  OK(cudaFuncSetAttribute(large, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  int* ranks;
  OK(cudaMalloc(&ranks, 32));
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(8);
  config.blockDim = dim3(32);
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.attrs = &attribute;
  config.numAttrs = 1;
  for (unsigned blocks : {2u, 4u, 8u, 2u}) {
    attribute.val.clusterDim = {blocks, 1, 1};
    int clusters = -1;
    OK(cudaOccupancyMaxActiveClusters(&clusters, large, &config));
    ANSWERS(clusters > 0 ? cudaSuccess : cudaErrorInvalidClusterSize,
            cudaLaunchKernelEx(&config, large, ranks));
    (void)cudaGetLastError();
    OK(cudaDeviceSynchronize());
    int got[8] = {};
    OK(cudaMemcpy(got, ranks, sizeof got, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 8 && clusters > 0; ++i)
      CHECK(got[i] == static_cast<int>((i + 1) % blocks));
  }
}

int main() {
  OK(cudaMalloc(&out, 4 * kMost));
  OK(cudaMemset(out, 0, 4 * kMost));
  grids_of_clusters();
  what_does_not_fit(200 * 1000);
  return result();
}
