// SPDX-License-Identifier: Apache-2.0
// cudaLaunchKernelEx: programmatic launches and events, clusters, priorities; parameters of all
// kinds; launches that cannot be.
// ptx: compute_90
#include <cooperative_groups.h>
#include <vector>
#include "../check.h"
namespace cg = cooperative_groups;
__global__ void first(int* p) {
  p[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x + 1;
  cudaTriggerProgrammaticLaunchCompletion();
}
__global__ void second(const int* p, int* q) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  cudaGridDependencySynchronize();
  q[i] = p[i] * 2;
}
__global__ void clustered(int* out) {
  auto c = cg::this_cluster();
  __shared__ int mine;
  if (threadIdx.x == 0) mine = c.block_rank() * 10 + 1;
  c.sync();
  int* other = c.map_shared_rank(&mine, (c.block_rank() + 1) % c.num_blocks());
  int v = *other;
  c.sync();
  if (threadIdx.x == 0)
    out[blockIdx.x] = v + 1000 * c.dim_blocks().x + 100000 * c.query_shared_rank(other);
}
__global__ void __cluster_dims__(2, 2, 1) fixed(int* out) {
  auto c = cg::this_cluster();
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;
  c.sync();
  atomicAdd(c.map_shared_rank(&sum, 0), 1);
  auto t = c.barrier_arrive();
  c.barrier_wait(std::move(t));
  if (c.block_rank() == 0 && threadIdx.x == 0)
    out[blockIdx.y / 2 * gridDim.x / 2 + blockIdx.x / 2] = sum + (int)c.block_index().x;
  c.sync();
}
__global__ void coop(int* p) {
  auto g = cg::this_grid();
  if (g.thread_rank() == 0) *p = 0;
  g.sync();
  atomicAdd(p, 1);
  g.sync();
  if (g.thread_rank() == 5) p[1] = p[0];
}
struct Big {
  int v[900];
};
__global__ void konst(const __grid_constant__ Big b, int* out) {
  const int* p = b.v;
  out[threadIdx.x] = p[threadIdx.x * 7];
}
template <class... T>
__global__ void variadic(int* out, T... t) {
  int k = 0;
  ((out[k++] = (int)t), ...);
}
__global__ void __launch_bounds__(128, 4, 2) bounded(int* o) { o[threadIdx.x] = 3; }
__global__ void __maxnreg__(40) few(int* o) { o[threadIdx.x] = 4; }
int main() {
  cudaStream_t s;
  int lo, hi;
  OK(cudaDeviceGetStreamPriorityRange(&lo, &hi));
  OK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, hi));
  int *p, *q;
  OK(cudaMalloc(&p, 4096));
  OK(cudaMalloc(&q, 4096));
  std::vector<int> g(1024);
  cudaLaunchConfig_t c{};
  c.gridDim = dim3(4);
  c.blockDim = dim3(128);
  c.stream = s;
  cudaLaunchAttribute a[4]{};
  c.attrs = a;
  cudaEvent_t ev;
  OK(cudaEventCreateWithFlags(&ev, cudaEventDisableTiming));
  a[0].id = cudaLaunchAttributePriority;
  a[0].val.priority = hi;
  a[1].id = cudaLaunchAttributeProgrammaticEvent;
  a[1].val.programmaticEvent.event = ev;
  a[1].val.programmaticEvent.triggerAtBlockStart = 0;
  c.numAttrs = 2;
  OK(cudaLaunchKernelEx(&c, first, p));
  a[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  a[0].val.programmaticStreamSerializationAllowed = 1;
  c.numAttrs = 1;
  OK(cudaLaunchKernelEx(&c, second, (const int*)p, q));
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpy(g.data(), q, 2048, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < 512; ++i) wrong += g[i] != (i % 128 + 1) * 2;
  CHECK(wrong == 0);
  a[0].id = cudaLaunchAttributeClusterDimension;
  a[0].val.clusterDim.x = 4;
  a[0].val.clusterDim.y = a[0].val.clusterDim.z = 1;
  a[1].id = cudaLaunchAttributeClusterSchedulingPolicyPreference;
  a[1].val.clusterSchedulingPolicyPreference = cudaClusterSchedulingPolicySpread;
  c.gridDim = dim3(8);
  c.numAttrs = 2;
  int nc = 0;
  OK(cudaOccupancyMaxActiveClusters(&nc, (void*)clustered, &c));
  CHECK(nc > 0);
  int mc = 0;
  OK(cudaOccupancyMaxPotentialClusterSize(&mc, (void*)clustered, &c));
  CHECK(mc >= 8);
  OK(cudaLaunchKernelEx(&c, clustered, q));
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpy(g.data(), q, 32, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 8; ++i)
    CHECK(g[i] == (i % 4 + 1) % 4 * 10 + 1 + 4000 + 100000 * ((i % 4 + 1) % 4));
  fixed<<<dim3(4, 4), 32, 0, s>>>(q);
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpy(g.data(), q, 16, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 4; ++i) CHECK(g[i] == 128);
  ANSWERS(cudaErrorInvalidClusterSize, (fixed<<<dim3(3, 4), 32, 0, s>>>(q), cudaGetLastError()));
  c.gridDim = dim3(4);
  c.blockDim = dim3(64);
  a[0].id = cudaLaunchAttributeCooperative;
  a[0].val.cooperative = 1;
  a[1].id = cudaLaunchAttributeMemSyncDomain;
  a[1].val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
  OK(cudaLaunchKernelEx(&c, coop, q));
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpy(g.data(), q, 8, cudaMemcpyDeviceToHost));
  CHECK(g[0] == 256 && g[1] == 256);
  c.gridDim = dim3(100000);
  ANSWERS(cudaErrorCooperativeLaunchTooLarge, cudaLaunchKernelEx(&c, coop, q));
  cudaGetLastError();
  a[0].id = cudaLaunchAttributeLaunchCompletionEvent;
  a[0].val.launchCompletionEvent.event = ev;
  a[0].val.launchCompletionEvent.flags = 0;
  c.gridDim = dim3(1);
  c.blockDim = dim3(128);
  c.numAttrs = 1;
  Big b;
  for (int i = 0; i < 900; ++i) b.v[i] = i;
  OK(cudaLaunchKernelEx(&c, konst, b, q));
  OK(cudaEventSynchronize(ev));
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpy(g.data(), q, 512, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 128; ++i) CHECK(g[i] == i * 7);
  a[0].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  a[0].val.sharedMemCarveout = 50;
  OK(cudaLaunchKernelEx(&c, bounded, q));
  few<<<1, 64, 0, s>>>(q + 128);
  variadic<<<1, 1, 0, s>>>(q + 256, (char)1, (short)2, 3, 4ll, 5.0f, 6.0, (unsigned char)7, true,
                           9u, 10l);
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpy(g.data(), q, 2048, cudaMemcpyDeviceToHost));
  CHECK(g[0] == 3 && g[128] == 4 && g[256] == 1 && g[261] == 6 && g[263] == 1 && g[265] == 10);
  ANSWERS(cudaErrorInvalidValue, (bounded<<<0, 32, 0, s>>>(q), cudaGetLastError()));
  ANSWERS(cudaErrorInvalidValue, (bounded<<<dim3(1, 65536), 32, 0, s>>>(q), cudaGetLastError()));
  ANSWERS(cudaErrorInvalidValue, (few<<<1, dim3(1, 1, 65), 0, s>>>(q), cudaGetLastError()));
  ANSWERS(cudaErrorInvalidValue, (few<<<1, 32, 1 << 20, s>>>(q), cudaGetLastError()));
  first<<<1, 32>>>(p);
  OK(cudaPeekAtLastError());
  OK(cudaDeviceSynchronize());
  return result();
}
