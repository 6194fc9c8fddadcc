// SPDX-License-Identifier: Apache-2.0
// Thread block clusters: shared memory of another block, barriers of the cluster, launches with
// attributes, a histogram over a cluster, a launch that begins before the one ahead has ended.
// ptx: compute_90
#include <cooperative_groups.h>

#include <vector>

#include "../check.h"
namespace cg = cooperative_groups;
__global__ void __cluster_dims__(2, 1, 1) exchange(int* out) {
  __shared__ int mine[32];
  const cg::cluster_group cluster = cg::this_cluster();
  mine[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
  cluster.sync();
  const int* other = cluster.map_shared_rank(mine, cluster.block_rank() ^ 1);
  out[blockIdx.x * 32 + threadIdx.x] = other[threadIdx.x];
  cluster.sync();
}
__global__ void histogram(const unsigned char* in, int n, int* out) {
  extern __shared__ int bins[];
  const cg::cluster_group cluster = cg::this_cluster();
  const int share = 256 / cluster.num_blocks();
  for (int k = threadIdx.x; k < share; k += blockDim.x) bins[k] = 0;
  cluster.sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(cluster.map_shared_rank(bins, in[i] / share) + in[i] % share, 1);
  cluster.sync();
  for (int k = threadIdx.x; k < share; k += blockDim.x)
    atomicAdd(&out[cluster.block_rank() * share + k], bins[k]);
}
__global__ void after(int* p) {
  cudaGridDependencySynchronize();
  p[threadIdx.x] += 1;
}
__global__ void before(int* p) {
  p[threadIdx.x] = threadIdx.x;
  cudaTriggerProgrammaticLaunchCompletion();
}
int main() {
  int clusters_there = 0;
  OK(cudaDeviceGetAttribute(&clusters_there, cudaDevAttrClusterLaunch, 0));
  if (!clusters_there) return result();  // before compute capability 9.0
  int* out;
  OK(cudaMalloc(&out, 4096));
  exchange<<<8, 32>>>(out);
  std::vector<int> got(256);
  OK(cudaMemcpy(got.data(), out, 1024, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < 256; ++i) wrong += got[i] != (i / 32 ^ 1) * 100 + i % 32;
  CHECK(wrong == 0);
  constexpr int n = 20000;
  std::vector<unsigned char> in(n);
  std::vector<int> expected(256);
  for (int i = 0; i < n; ++i) ++expected[in[i] = static_cast<unsigned char>(i * i % 251)];
  unsigned char* bytes;
  OK(cudaMalloc(&bytes, n));
  OK(cudaMemcpy(bytes, in.data(), n, cudaMemcpyHostToDevice));
  OK(cudaMemset(out, 0, 1024));
  cudaLaunchAttribute attribute[2] = {};
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim = {4, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(8);
  config.blockDim = dim3(128);
  config.dynamicSmemBytes = 64 * sizeof(int);
  config.attrs = attribute;
  config.numAttrs = 1;
  int clusters = 0, largest = 0;
  OK(cudaOccupancyMaxActiveClusters(&clusters, histogram, &config));
  OK(cudaOccupancyMaxPotentialClusterSize(&largest, histogram, &config));
  CHECK(clusters > 0 && largest >= 8);
  OK(cudaLaunchKernelEx(&config, histogram, static_cast<const unsigned char*>(bytes), n, out));
  OK(cudaMemcpy(got.data(), out, 1024, cudaMemcpyDeviceToHost));
  CHECK(got == expected);
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  before<<<1, 64, 0, s>>>(out);
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  config.gridDim = dim3(1);
  config.blockDim = dim3(64);
  config.dynamicSmemBytes = 0;
  config.stream = s;
  OK(cudaLaunchKernelEx(&config, after, out));
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpy(got.data(), out, 256, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) wrong += got[i] != i + 1;
  CHECK(wrong == 0);
  return result();
}
