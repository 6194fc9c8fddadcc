// SPDX-License-Identifier: Apache-2.0
// Copies that run beside the arithmetic: pipelines and barriers of libcu++, memcpy_async of
// cooperative groups, atomics with scopes, bulk copies on Hopper, clocks and pauses.
// ptx: compute_90
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <vector>

#include "../check.h"
namespace cg = cooperative_groups;
constexpr int kBatch = 256;
__global__ void two_stages(const int* in, int* out, int batches) {
  __shared__ int buffer[2][kBatch];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  int sum = 0;
  for (int compute = 0, fetch = 0; compute < batches; ++compute) {
    for (; fetch < batches && fetch < compute + 2; ++fetch) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, buffer[fetch % 2], in + fetch * kBatch,
                         cuda::aligned_size_t<16>(kBatch * sizeof(int)), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    sum += buffer[compute % 2][(threadIdx.x * 7 + 1) % kBatch];
    pipe.consumer_release();
  }
  out[threadIdx.x] = sum;
}
__global__ void by_groups(const int* in, int* out) {
  __shared__ int buffer[kBatch];
  const auto block = cg::this_thread_block();
  cg::memcpy_async(block, buffer, in, sizeof buffer);
  cg::wait(block);
  out[threadIdx.x] = buffer[kBatch - 1 - threadIdx.x];
}
__global__ void by_barrier(const int* in, int* out) {
  __shared__ alignas(128) int buffer[kBatch];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  if (threadIdx.x == 0) {
    init(&bar, blockDim.x);
    cuda::device::experimental::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  cuda::barrier<cuda::thread_scope_block>::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::device::experimental::cp_async_bulk_global_to_shared(buffer, in, sizeof buffer, bar);
    token = cuda::device::barrier_arrive_tx(bar, 1, sizeof buffer);
  } else {
    token = bar.arrive();
  }
  bar.wait(std::move(token));
  out[threadIdx.x] = buffer[threadIdx.x ^ 1] * 2;
}
__global__ void scoped(int* words) {
  cuda::atomic_ref<int, cuda::thread_scope_device> total(words[0]);
  total.fetch_add(1, cuda::memory_order_relaxed);
  cuda::atomic_ref<int, cuda::thread_scope_system> most(words[1]);
  most.fetch_max(static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x));
  __shared__ cuda::atomic<int, cuda::thread_scope_block> turn;
  if (threadIdx.x == 0) turn.store(0);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    const int warp = threadIdx.x / 32;
    while (turn.load(cuda::memory_order_acquire) != warp) __nanosleep(20);
    words[2] = words[2] * 3 + warp;
    turn.store(warp + 1, cuda::memory_order_release);
  }
}
__global__ void clocks(long long* out) {
  const long long before = clock64();
  unsigned long long t0, t1;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t0));
  for (int k = 0; k < 10; ++k) __nanosleep(1000);
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t1));
  out[0] = clock64() - before, out[1] = static_cast<long long>(t1 - t0);
}
int main() {
  constexpr int kBatches = 10;
  std::vector<int> in(kBatch * kBatches), got(kBatch);
  for (int i = 0; i < static_cast<int>(in.size()); ++i) in[i] = i * 31 % 1013;
  int *from, *out;
  OK(cudaMalloc(&from, in.size() * 4));
  OK(cudaMalloc(&out, kBatch * 4));
  OK(cudaMemcpy(from, in.data(), in.size() * 4, cudaMemcpyHostToDevice));
  const auto take = [&] {
    OK(cudaGetLastError());
    OK(cudaMemcpy(got.data(), out, kBatch * 4, cudaMemcpyDeviceToHost));
  };
  int wrong = 0;
  two_stages<<<1, kBatch>>>(from, out, kBatches);
  take();
  for (int i = 0; i < kBatch; ++i) {
    int sum = 0;
    for (int k = 0; k < kBatches; ++k) sum += in[k * kBatch + (i * 7 + 1) % kBatch];
    wrong += got[i] != sum;
  }
  CHECK(wrong == 0);
  by_groups<<<1, kBatch>>>(from, out);
  take();
  for (int i = 0; i < kBatch; ++i) wrong += got[i] != in[kBatch - 1 - i];
  CHECK(wrong == 0);
  by_barrier<<<1, kBatch>>>(from, out);
  take();
  for (int i = 0; i < kBatch; ++i) wrong += got[i] != 2 * in[i ^ 1];
  CHECK(wrong == 0);
  OK(cudaMemset(out, 0, 12));
  scoped<<<1, 128>>>(out);
  take();
  CHECK(got[0] == 128 && got[1] == 127 && got[2] == ((0 * 3 + 1) * 3 + 2) * 3 + 3);
  long long* times;
  OK(cudaMallocManaged(&times, 16));
  clocks<<<1, 1>>>(times);
  OK(cudaDeviceSynchronize());
  CHECK(times[0] > 0 && times[1] > 0);
  return result();
}
