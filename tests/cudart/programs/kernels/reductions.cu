// SPDX-License-Identifier: Apache-2.0
// Sums in the ways that samples show: trees in shared memory, shuffles, the last block by a fence
// and a counter, atomics of float and double, cooperative groups with tiles and a whole grid;
// votes, matches and reductions of warps.
// ptx: compute_80
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "../check.h"

namespace cg = cooperative_groups;

template <unsigned kThreads>
__global__ void tree(const int* in, int* out, int n) {
  __shared__ int part[kThreads];
  int sum = 0;
  for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads)
    sum += in[i];
  part[threadIdx.x] = sum;
  __syncthreads();
#pragma unroll
  for (unsigned s = kThreads / 2; s >= 32; s /= 2) {
    if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x < 32) {
    sum = part[threadIdx.x];
    for (int k = 16; k > 0; k /= 2) sum += __shfl_down_sync(~0u, sum, k);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
  }
}

__device__ unsigned arrived;
__global__ void single_pass(const int* in, volatile int* partial, int* out, int n) {
  __shared__ bool last;
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum += in[i];
  sum = __reduce_add_sync(~0u, sum);
  __shared__ int of_warp[32];
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = 0;
    for (int w = 0; w < blockDim.x / 32; ++w) sum += of_warp[w];
    partial[blockIdx.x] = sum;
    __threadfence();
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  sum = 0;
  for (int b = 0; b < gridDim.x; ++b) sum += partial[b];
  *out = sum;
}

__global__ void by_atomics(const int* in, double* out_double, float* out_float,
                           unsigned long long* out_long, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(out_double, in[i] * 0.5);
  if (in[i] % 4 == 0) atomicAdd(out_float, 0.25f);
  atomicMax(out_long, (1ull << 40) + in[i]);
}

__global__ void whole_grid(int* data, int* sums, int n) {
  const cg::grid_group grid = cg::this_grid();
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<16>(block);
  int sum = 0;
  for (unsigned long long i = grid.thread_rank(); i < n; i += grid.size()) sum += data[i];
  sum = cg::reduce(tile, sum, cg::plus<int>());
  if (tile.thread_rank() == 0) atomicAdd(&sums[0], sum);
  grid.sync();
  const int total = *const_cast<volatile int*>(&sums[0]);
  for (unsigned long long i = grid.thread_rank(); i < n; i += grid.size())
    data[i] = total - data[i];
  grid.sync();
  const int before = cg::exclusive_scan(tile, static_cast<int>(tile.thread_rank()));
  if (grid.thread_rank() == 15) sums[1] = before;
  const cg::coalesced_group some = cg::coalesced_threads();
  if (grid.thread_rank() == 0) sums[2] = some.size();
}

__global__ void warps(const int* in, unsigned* out) {
  const int lane = threadIdx.x, v = in[lane];
  out[lane] = __match_any_sync(~0u, v % 5);
  int all = 0;
  const unsigned same = __match_all_sync(~0u, v / 1000000, &all);
  const unsigned odd = __ballot_sync(~0u, v & 1);
  if (lane == 0) {
    out[32] = odd, out[33] = same, out[34] = all;
    out[35] = __popc(odd), out[36] = __ffs(odd), out[37] = __clz(odd), out[38] = __brev(odd);
  }
  const int any = __any_sync(~0u, v == in[3]), none = __all_sync(~0u, v == in[3]);
  const int counted = __syncthreads_count(v & 1), ored = __syncthreads_or(v == 0);
  if (lane == 0) out[39] = any, out[40] = none, out[41] = counted, out[42] = ored;
  if (lane < 20) {
    const unsigned here = __activemask();
    const int got = __shfl_xor_sync(0xfffffu, v, 1);
    if (lane == 4) out[43] = here, out[44] = got;
  }
  const unsigned least = __reduce_min_sync(~0u, static_cast<unsigned>(v));
  const unsigned bits = __reduce_or_sync(~0u, 1u << (v % 32));
  if (lane == 0) out[45] = least, out[46] = bits;
}

int main() {
  constexpr int n = 100000;
  std::vector<int> in(n);
  for (int i = 0; i < n; ++i) in[i] = i * 7919 % 1009;
  const int expected = std::accumulate(in.begin(), in.end(), 0);
  int *data, *out;
  OK(cudaMalloc(&data, n * sizeof(int)));
  OK(cudaMalloc(&out, 1024 * sizeof(int)));
  OK(cudaMemcpy(data, in.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  std::vector<int> got(64);
  tree<256><<<64, 256>>>(data, out, n);
  OK(cudaMemcpy(got.data(), out, 256, cudaMemcpyDeviceToHost));
  CHECK(std::accumulate(got.begin(), got.end(), 0) == expected);
  int total = 0;
  for (int k = 0; k < 3; ++k) {
    single_pass<<<40, 128>>>(data, out + 1, out, n);
    OK(cudaMemcpy(&total, out, sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(total == expected);
  }
  double* sums;
  OK(cudaMalloc(&sums, 24));
  OK(cudaMemset(sums, 0, 24));
  by_atomics<<<(n + 127) / 128, 128>>>(data, sums, reinterpret_cast<float*>(sums + 1),
                                       reinterpret_cast<unsigned long long*>(sums + 2), n);
  double host_sums[3];
  OK(cudaMemcpy(host_sums, sums, 24, cudaMemcpyDeviceToHost));
  CHECK(host_sums[0] == expected * 0.5);
  int fourths = 0;
  for (int v : in) fourths += v % 4 == 0;
  CHECK(*reinterpret_cast<float*>(host_sums + 1) == fourths * 0.25f);
  CHECK(*reinterpret_cast<unsigned long long*>(host_sums + 2) == (1ull << 40) + 1008);

  unsigned* words;
  OK(cudaMalloc(&words, 256));
  warps<<<1, 32>>>(data, words);
  unsigned w[64];
  OK(cudaMemcpy(w, words, 256, cudaMemcpyDeviceToHost));
  unsigned odd = 0, least = ~0u, bits = 0, wrong = 0;
  for (int i = 0; i < 32; ++i) {
    unsigned like = 0;
    for (int j = 0; j < 32; ++j) like |= (in[j] % 5 == in[i] % 5) << j;
    wrong += w[i] != like;
    odd |= static_cast<unsigned>(in[i] & 1) << i;
    least = std::min(least, static_cast<unsigned>(in[i]));
    bits |= 1u << in[i] % 32;
  }
  CHECK(wrong == 0);
  CHECK(w[32] == odd && w[33] == ~0u && w[34] == 1);
  CHECK(w[35] == __builtin_popcount(odd) && w[36] == __builtin_ffs(odd));
  CHECK(w[37] == (odd ? __builtin_clz(odd) : 32));
  CHECK(w[39] == 1 && w[40] == 0 && w[41] == __builtin_popcount(odd) && w[42] == 1);
  CHECK(w[43] == 0xfffff && w[44] == in[5]);
  CHECK(w[45] == least && w[46] == bits);

  int per_sm = 0, sms = 0;
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, whole_grid, 128, 0));
  OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  CHECK(per_sm > 0);
  OK(cudaMemset(out, 0, 16));
  int m = n;
  void* arguments[] = {&data, &out, &m};
  OK(cudaLaunchCooperativeKernel(whole_grid, dim3(std::min(per_sm * sms, 64)), dim3(128),
                                 arguments));
  OK(cudaDeviceSynchronize());
  std::vector<int> after(n);
  OK(cudaMemcpy(after.data(), data, n * sizeof(int), cudaMemcpyDeviceToHost));
  OK(cudaMemcpy(got.data(), out, 12, cudaMemcpyDeviceToHost));
  wrong = 0;
  for (int i = 0; i < n; ++i) wrong += after[i] != expected - in[i];
  CHECK(wrong == 0);
  CHECK(got[0] == expected && got[1] == 105 && got[2] == 32);
  // A grid that cannot be there at once.
  ANSWERS(cudaErrorCooperativeLaunchTooLarge,
          cudaLaunchCooperativeKernel(whole_grid, dim3(per_sm * sms + 1), dim3(128), arguments));
  cudaGetLastError();
  return result();
}
