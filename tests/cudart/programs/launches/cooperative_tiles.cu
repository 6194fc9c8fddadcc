// SPDX-License-Identifier: Apache-2.0
// Cooperative groups: tiles of every size and of several warps, partitions by label, scans,
// reductions, copies in the background, barriers of a grid.
// ptx: compute_80
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cstring>
#include <cuda/barrier>
#include <vector>
#include "../check.h"
namespace cg = cooperative_groups;
template <int N>
__device__ void tile(const int* in, int* out) {
  auto block = cg::this_thread_block();
  auto t = cg::tiled_partition<N>(block);
  int v = in[threadIdx.x];
  int s = cg::reduce(t, v, cg::plus<int>());
  int m = cg::reduce(t, v, cg::greater<int>());
  int x = cg::reduce(t, v, cg::bit_xor<int>());
  int e = cg::exclusive_scan(t, v);
  int i = cg::inclusive_scan(t, v, cg::plus<int>());
  out[threadIdx.x] = s * 3 + m * 5 + x * 7 + e * 11 + i * 13 + t.meta_group_rank() * 17 +
                     t.shfl_xor(v, N / 2) + t.shfl_up(v, 1) + (t.any(v == 3) ? 19 : 0) +
                     (t.all(v >= 0) ? 23 : 0) + __popc(t.ballot(v & 1));
}
__global__ void tiles(const int* in, int* out, int which) {
  switch (which) {
    case 2:
      tile<2>(in, out);
      break;
    case 4:
      tile<4>(in, out);
      break;
    case 8:
      tile<8>(in, out);
      break;
    case 16:
      tile<16>(in, out);
      break;
    default:
      tile<32>(in, out);
  }
}
__global__ void big_tiles(const int* in, int* out) {
  __shared__ cg::block_tile_memory<256> mem;
  auto block = cg::this_thread_block(mem);
  auto t = cg::tiled_partition<128>(block);
  int v = in[block.thread_rank()];
  int s = cg::reduce(t, v, cg::plus<int>());
  int e = cg::exclusive_scan(t, v, cg::plus<int>());
  int w = t.shfl(v, 100);
  int any = t.any(v == 77);
  t.sync();
  out[block.thread_rank()] = s + e * 3 + w * 5 + any * 7;
}
__global__ void partitions(const int* in, int* out) {
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  int v = in[threadIdx.x];
  auto lab = cg::labeled_partition(warp, v % 3);
  auto bin = cg::binary_partition(warp, (v & 1) != 0);
  int a = cg::reduce(lab, v, cg::plus<int>());
  int b = cg::reduce(bin, v, cg::less<int>());
  int c = 0;
  if (v % 5 < 2) {
    auto co = cg::coalesced_threads();
    c = cg::reduce(co, v, cg::plus<int>()) + co.size() * 100 + cg::inclusive_scan(co, 1);
    c += co.shfl(v, 0);
  }
  int leader = 0;
  cg::invoke_one(warp, [&] { leader = 1; });
  int bc = cg::invoke_one_broadcast(warp, [&] { return 42; });
  unsigned mm = warp.match_any(v % 4);
  out[threadIdx.x * 4] = a + b * 1000;
  out[threadIdx.x * 4 + 1] = c;
  out[threadIdx.x * 4 + 2] =
      warp.shfl(leader, 0) + bc + __popc(mm) + __reduce_add_sync(~0u, leader);
  out[threadIdx.x * 4 + 3] = lab.thread_rank() + 100 * bin.size() + 10000 * lab.meta_group_size();
}
__global__ void async(const int* in, int* out, int n) {
  extern __shared__ int sm[];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, sm, in, sizeof(int) * n);
  cg::memcpy_async(block, sm + n, in + n, cuda::aligned_size_t<16>(sizeof(int) * n));
  cg::wait_prior<1>(block);
  int a = sm[threadIdx.x];
  cg::wait(block);
  out[threadIdx.x] = a - sm[n + threadIdx.x];
}
__global__ void grid(int* data, int* out) {
  auto g = cg::this_grid();
  auto tok = g.barrier_arrive();
  data[g.thread_rank()] = g.thread_rank() * 2;
  g.barrier_wait(std::move(tok));
  g.sync();
  unsigned long long r = g.size() - 1 - g.thread_rank();
  out[g.thread_rank()] =
      data[r] + g.num_blocks() + g.block_rank() * 0 + g.is_valid() + g.dim_threads().x;
  __shared__ int x;
  auto b = cg::this_thread_block();
  auto t2 = b.barrier_arrive();
  if (b.thread_rank() == 0) x = 0;
  b.barrier_wait(std::move(t2));
  b.sync();
}
int main() {
  std::vector<int> in(512);
  for (int i = 0; i < 512; ++i) in[i] = (i * 37 + 11) % 101;
  int *d, *o;
  OK(cudaMalloc(&d, 2048));
  OK(cudaMalloc(&o, 8192));
  OK(cudaMemcpy(d, in.data(), 2048, cudaMemcpyHostToDevice));
  std::vector<int> got(2048);
  for (int N : {2, 4, 8, 16, 32}) {
    tiles<<<1, 128>>>(d, o, N);
    OK(cudaMemcpy(got.data(), o, 512, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < 128; ++i) {
      int b = i / N * N, s = 0, m = 0, x = 0, e = 0, any = 0, odd = 0;
      for (int k = b; k < b + N; ++k) {
        s += in[k];
        m = std::max(m, in[k]);
        x ^= in[k];
        if (k < i) e += in[k];
        any |= in[k] == 3;
        odd += in[k] & 1;
      }
      int want = s * 3 + m * 5 + x * 7 + e * 11 + (e + in[i]) * 13 + i / N * 17 +
                 in[b + ((i - b) ^ (N / 2))] + in[i == b ? i : i - 1] + any * 19 + 23 + odd;
      wrong += got[i] != want;
    }
    CHECK(wrong == 0);
  }
  big_tiles<<<1, 256>>>(d, o);
  OK(cudaMemcpy(got.data(), o, 1024, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 256; ++i) {
    int b = i / 128 * 128, s = 0, e = 0, any = 0;
    for (int k = b; k < b + 128; ++k) {
      s += in[k];
      if (k < i) e += in[k];
      any |= in[k] == 77;
    }
    CHECK(got[i] == s + e * 3 + in[b + 100] * 5 + any * 7);
  }
  partitions<<<1, 64>>>(d, o);
  OK(cudaMemcpy(got.data(), o, 1024, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) {
    int b = i / 32 * 32, a = 0, lo = 1 << 30, cs = 0, cn = 0, cb = 0, first = -1, mm = 0, lr = 0,
        bs = 0;
    bool seen[3] = {};
    for (int k = b; k < b + 32; ++k) {
      seen[in[k] % 3] = true;
      if (in[k] % 3 == in[i] % 3) a += in[k], lr += k < i;
      if ((in[k] & 1) == (in[i] & 1)) lo = std::min(lo, in[k]), ++bs;
      if (in[k] % 5 < 2) {
        cs += in[k];
        ++cn;
        cb += k <= i;
        if (first < 0) first = in[k];
      }
      mm += in[k] % 4 == in[i] % 4;
    }
    int c = in[i] % 5 < 2 ? cs + cn * 100 + cb + first : 0;
    CHECK(got[i * 4] == a + lo * 1000);
    CHECK(got[i * 4 + 1] == c);
    CHECK((got[i * 4 + 2] == 42 + mm + 1) || (got[i * 4 + 2] == 43 + mm + 1));
    CHECK(got[i * 4 + 3] % 10000 == lr + 100 * bs);
    CHECK(got[i * 4 + 3] / 10000 == seen[0] + seen[1] + seen[2]);
  }
  async<<<1, 256, 2048>>>(d, o, 256);
  OK(cudaMemcpy(got.data(), o, 1024, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 256; ++i) CHECK(got[i] == in[i] - in[i + 256]);
  void* args[] = {&d, &o};
  OK(cudaLaunchCooperativeKernel((void*)grid, dim3(4), dim3(64), args, 0, 0));
  OK(cudaMemcpy(got.data(), o, 1024, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 256; ++i) CHECK(got[i] == (255 - i) * 2 + 4 + 1 + 256);
  return result();
}
