// SPDX-License-Identifier: Apache-2.0
// libcu++ and cooperative groups: barriers, latches, semaphores, atomics, pipelines, group
// collectives. One kernel each, several blocks.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>
#include <cuda/std/complex>
#include <cuda/std/optional>
#include <cuda/std/variant>

#include "harness.cuh"

namespace cg = cooperative_groups;

constexpr int kThreads = 128;
constexpr int kBlocks = 6;
constexpr int kCount = kThreads * kBlocks;
using BlockBarrier = cuda::barrier<cuda::thread_scope_block>;

// Rounds of a ring shift with a full barrier each.
__global__ void barrier_ring(const int* in, int* out, int rounds) {
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ BlockBarrier barrier;
  __shared__ int ring[kThreads];
  const int t = threadIdx.x;
  if (t == 0) init(&barrier, kThreads);
  ring[t] = in[blockIdx.x * kThreads + t];
  __syncthreads();
  for (int round = 0; round < rounds; ++round) {
    const int next = ring[(t + 1) % kThreads] + round;
    barrier.arrive_and_wait();
    ring[t] = next;
    barrier.arrive_and_wait();
  }
  out[blockIdx.x * kThreads + t] = ring[t];
}

// Arrive, work, wait: one warp produces, the others consume; two phases in flight.
__global__ void barrier_split(const int* in, long long* out) {
  __shared__ BlockBarrier ready, done;
  __shared__ int stage[96];
  const int t = threadIdx.x;
  if (t == 0) {
    init(&ready, kThreads);
    init(&done, kThreads);
  }
  __syncthreads();
  long long sum = 0;
  for (int step = 0; step < 4; ++step) {
    if (t < 32) {
      for (int i = t; i < 96; i += 32) stage[i] = in[blockIdx.x * 384 + step * 96 + i];
      (void)ready.arrive();
      done.arrive_and_wait();
    } else {
      ready.arrive_and_wait();
      sum += stage[t - 32] * (step + 1);
      (void)done.arrive();
      if (step < 3) continue;
    }
  }
  if (t >= 32) out[blockIdx.x * 96 + t - 32] = sum;
}

__global__ void latch_gate(int* out) {
  using Latch = cuda::latch<cuda::thread_scope_block>;
  __shared__ alignas(Latch) unsigned char memory[sizeof(Latch)];
  __shared__ int value;
  Latch& gate = *reinterpret_cast<Latch*>(memory);
  if (threadIdx.x == 0) new (memory) Latch(32);
  __syncthreads();
  if (threadIdx.x < 32) {
    if (threadIdx.x == 7) value = 41 + blockIdx.x;
    gate.count_down();
  }
  gate.wait();
  out[blockIdx.x * kThreads + threadIdx.x] = value + threadIdx.x;
}

// A counting semaphore over all blocks: never more than two inside, and every one gets in.
__global__ void semaphore_count(cuda::counting_semaphore<cuda::thread_scope_device, 2>* semaphore,
                                int* inside, int* over, int* entered) {
  if (threadIdx.x != 0) return;
  semaphore->acquire();
  if (atomicAdd(inside, 1) >= 2) atomicAdd(over, 1);
  atomicAdd(entered, 1);
  atomicSub(inside, 1);
  semaphore->release();
}
__global__ void semaphore_make(cuda::counting_semaphore<cuda::thread_scope_device, 2>* semaphore) {
  new (semaphore) cuda::counting_semaphore<cuda::thread_scope_device, 2>(2);
}

__global__ void atomic_refs(const int* in, int* ints, unsigned long long* longs, float* floats,
                            double* doubles) {
  const int value = in[blockIdx.x * kThreads + threadIdx.x];
  cuda::atomic_ref<int, cuda::thread_scope_device>(ints[0]).fetch_add(value);
  cuda::atomic_ref<int, cuda::thread_scope_device>(ints[1]).fetch_max(value,
                                                                      cuda::memory_order_relaxed);
  cuda::atomic_ref<int, cuda::thread_scope_device>(ints[2]).fetch_xor(value);
  cuda::atomic_ref<unsigned long long, cuda::thread_scope_system>(longs[0]).fetch_add(
      static_cast<unsigned long long>(value), cuda::memory_order_acq_rel);
  cuda::atomic_ref<float, cuda::thread_scope_device>(floats[0]).fetch_add(
      static_cast<float>(value % 16));
  cuda::atomic_ref<double, cuda::thread_scope_device> cell(doubles[0]);
  double old = cell.load();
  while (!cell.compare_exchange_weak(old, old + value)) {
  }
}

// Blocks hand a token on in order: release, acquire and spinning across blocks, by ticket.
__global__ void message_passing(int* ticket, cuda::atomic<int, cuda::thread_scope_device>* turn,
                                int* log, int* token) {
  __shared__ int mine;
  if (threadIdx.x == 0) {
    mine = atomicAdd(ticket, 1);
    while (turn->load(cuda::memory_order_acquire) != mine) {
    }
    *token = *token * 3 + mine;
    log[mine] = *token;
    turn->store(mine + 1, cuda::memory_order_release);
    turn->notify_all();
  }
}

// Two stages of cuda::pipeline with memcpy_async.
__global__ void pipeline_copy(const int4* in, int4* out, int batches) {
  constexpr int stages = 2;
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
  __shared__ int4 buffer[stages][kThreads];
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  const int4* source = in + blockIdx.x * batches * kThreads;
  int4* target = out + blockIdx.x * batches * kThreads;
  for (int batch = 0, fetched = 0; batch < batches; ++batch) {
    for (; fetched < batches && fetched < batch + stages; ++fetched) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, buffer[fetched % stages], source + fetched * kThreads,
                         cuda::aligned_size_t<16>(sizeof(int4) * kThreads), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    int4 value = buffer[batch % stages][kThreads - 1 - threadIdx.x];
    value.x += batch;
    target[batch * kThreads + threadIdx.x] = value;
    pipe.consumer_release();
  }
}

// memcpy_async that completes on a barrier.
__global__ void barrier_copy(const int* in, int* out) {
  __shared__ BlockBarrier barrier;
  __shared__ alignas(16) int buffer[kThreads * 2];
  auto block = cg::this_thread_block();
  if (block.thread_rank() == 0) init(&barrier, kThreads);
  block.sync();
  cuda::memcpy_async(block, buffer, in + blockIdx.x * kThreads * 2, sizeof(buffer), barrier);
  barrier.arrive_and_wait();
  out[blockIdx.x * kThreads + threadIdx.x] = buffer[2 * threadIdx.x] - buffer[2 * threadIdx.x + 1];
}

__global__ void group_tiles(const int* in, int* sums, int* scans, int* shuffles) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<16>(block);
  const int sum = cg::reduce(tile, in[i], cg::plus<int>());
  if (tile.thread_rank() == 0) sums[i / 16] = sum;
  scans[i] = cg::inclusive_scan(tile, in[i], cg::greater<int>());
  shuffles[i] = tile.shfl_xor(in[i], 5) + static_cast<int>(tile.ballot(in[i] % 2 == 0) & 0xffu);
}

__global__ void group_coalesced(const int* in, int* count, int* ranks, int* labels) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  ranks[i] = -1;
  if (in[i] % 3 == 0) {
    auto active = cg::coalesced_threads();
    int base = 0;
    if (active.thread_rank() == 0) base = atomicAdd(count, active.size());
    (void)active.shfl(base, 0);
    ranks[i] = active.thread_rank();
  }
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  auto same = cg::labeled_partition(warp, in[i] % 4);
  labels[i] = cg::reduce(same, in[i], cg::plus<int>());
}

__global__ void group_copy(const int* in, int* out) {
  extern __shared__ int staged[];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, staged, in + blockIdx.x * kThreads * 3, sizeof(int) * kThreads * 3);
  cg::wait(block);
  int sum = 0;
  for (int i = 0; i < 3; ++i) sum += staged[threadIdx.x * 3 + i];
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

__global__ void std_types(const float* in, float* out, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  cuda::std::complex<float> z(in[i], in[n - 1 - i]);
  z = z * cuda::std::complex<float>(2, -3) + cuda::std::conj(z);
  cuda::std::variant<int, float> which;
  if (i % 2)
    which = z.real();
  else
    which = static_cast<int>(z.imag());
  cuda::std::optional<float> extra;
  if (i % 3 == 0) extra = 1000.0f;
  const float base = cuda::std::visit([](auto each) { return static_cast<float>(each); }, which);
  out[i] = base + extra.value_or(0.5f);
}

int main() {
  const auto in = values<int>(kCount * 4, 1);
  run_case("libcudacxx_barrier_ring", [&] {
    Device<int> d_in(in), d_out(kCount);
    barrier_ring<<<kBlocks, kThreads>>>(d_in, d_out, 5);
    std::vector<int> want(kCount);
    for (int i = 0; i < kCount; ++i)
      want[i] = in[i / kThreads * kThreads + (i % kThreads + 5) % kThreads] + 10;
    return d_out.read() == want;
  });
  run_case("libcudacxx_barrier_split", [&] {
    Device<int> d_in(in);
    Device<long long> d_out(96 * kBlocks);
    barrier_split<<<kBlocks, kThreads>>>(d_in, d_out);
    std::vector<long long> want(96 * kBlocks);
    for (int i = 0; i < 96 * kBlocks; ++i)
      for (int step = 0; step < 4; ++step)
        want[i] += in[i / 96 * 384 + step * 96 + i % 96] * (step + 1);
    return d_out.read() == want;
  });
  run_case("libcudacxx_latch", [&] {
    Device<int> d_out(kCount);
    latch_gate<<<kBlocks, kThreads>>>(d_out);
    std::vector<int> want(kCount);
    for (int i = 0; i < kCount; ++i) want[i] = 41 + i / kThreads + i % kThreads;
    return d_out.read() == want;
  });
  run_case("libcudacxx_counting_semaphore", [&] {
    Device<cuda::counting_semaphore<cuda::thread_scope_device, 2>> d_semaphore(1);
    // How many were inside at once depends on timing, so the kernel counts only violations.
    Device<int> d_inside(std::vector<int>{0}), d_over(std::vector<int>{0}),
        d_entered(std::vector<int>{0});
    semaphore_make<<<1, 1>>>(d_semaphore.get());
    semaphore_count<<<40, 32>>>(d_semaphore.get(), d_inside, d_over, d_entered);
    return d_inside.first() == 0 && d_over.first() == 0 && d_entered.first() == 40;
  });
  run_case("libcudacxx_atomic_ref", [&] {
    Device<int> d_in(in), d_ints(std::vector<int>{0, 0, 0});
    Device<unsigned long long> d_longs(std::vector<unsigned long long>{0});
    Device<float> d_floats(std::vector<float>{0});
    Device<double> d_doubles(std::vector<double>{0});
    atomic_refs<<<kBlocks, kThreads>>>(d_in, d_ints, d_longs, d_floats, d_doubles);
    int sum = 0, most = 0, all = 0;
    float small = 0;
    for (int i = 0; i < kCount; ++i) {
      sum += in[i];
      most = std::max(most, in[i]);
      all ^= in[i];
      small += static_cast<float>(in[i] % 16);
    }
    return d_ints.read() == std::vector<int>{sum, most, all} &&
           d_longs.first() == static_cast<unsigned long long>(sum) && d_floats.first() == small &&
           d_doubles.first() == sum;
  });
  run_case("libcudacxx_message_passing", [&] {
    Device<int> d_ticket(std::vector<int>{0}), d_log(20), d_token(std::vector<int>{1});
    Device<int> d_turn(std::vector<int>{0});
    message_passing<<<20, 32>>>(
        d_ticket, reinterpret_cast<cuda::atomic<int, cuda::thread_scope_device>*>(d_turn.get()),
        d_log, d_token);
    std::vector<int> want(20);
    unsigned token = 1;
    for (int i = 0; i < 20; ++i) want[i] = static_cast<int>(token = token * 3 + i);
    return d_log.read() == want;
  });
  run_case("libcudacxx_pipeline", [&] {
    constexpr int batches = 5;
    std::vector<int> data(kBlocks * batches * kThreads * 4);
    std::iota(data.begin(), data.end(), 3);
    Device<int> d_in(data), d_out(data.size());
    pipeline_copy<<<kBlocks, kThreads>>>(reinterpret_cast<int4*>(d_in.get()),
                                         reinterpret_cast<int4*>(d_out.get()), batches);
    std::vector<int> want(data.size());
    for (int vector = 0; vector < kBlocks * batches * kThreads; ++vector) {
      const int batch = vector / kThreads, t = vector % kThreads;
      for (int i = 0; i < 4; ++i)
        want[vector * 4 + i] =
            data[(batch * kThreads + kThreads - 1 - t) * 4 + i] + (i == 0 ? batch % batches : 0);
    }
    return d_out.read() == want;
  });
  run_case("libcudacxx_memcpy_async_barrier", [&] {
    Device<int> d_in(in), d_out(kCount);
    barrier_copy<<<kBlocks, kThreads>>>(d_in, d_out);
    std::vector<int> want(kCount);
    for (int i = 0; i < kCount; ++i) want[i] = in[2 * i] - in[2 * i + 1];
    return d_out.read() == want;
  });
  run_case("cooperative_groups_tiles", [&] {
    Device<int> d_in(in), d_sums(kCount / 16), d_scans(kCount), d_shuffles(kCount);
    group_tiles<<<kBlocks, kThreads>>>(d_in, d_sums, d_scans, d_shuffles);
    std::vector<int> sums(kCount / 16), scans(kCount), shuffles(kCount);
    for (int i = 0; i < kCount; ++i) {
      sums[i / 16] += in[i];
      scans[i] = i % 16 == 0 ? in[i] : std::max(scans[i - 1], in[i]);
      int ballot = 0;
      for (int lane = 0; lane < 8; ++lane)
        ballot |= (in[i / 16 * 16 + lane] % 2 == 0 ? 1 : 0) << lane;
      shuffles[i] = in[i ^ 5] + ballot;
    }
    return d_sums.read() == sums && d_scans.read() == scans && d_shuffles.read() == shuffles;
  });
  run_case("cooperative_groups_coalesced", [&] {
    Device<int> d_in(in), d_count(std::vector<int>{0}), d_ranks(kCount), d_labels(kCount);
    group_coalesced<<<kBlocks, kThreads>>>(d_in, d_count, d_ranks, d_labels);
    std::vector<int> ranks(kCount), labels(kCount);
    int count = 0;
    for (int i = 0; i < kCount; ++i) {
      int before = 0, same = 0;
      for (int lane = i / 32 * 32; lane < i / 32 * 32 + 32; ++lane) {
        if (lane < i && in[lane] % 3 == 0) ++before;
        if (in[lane] % 4 == in[i] % 4) same += in[lane];
      }
      ranks[i] = in[i] % 3 == 0 ? before : -1;
      labels[i] = same;
      count += in[i] % 3 == 0;
    }
    return d_count.first() == count && d_ranks.read() == ranks && d_labels.read() == labels;
  });
  run_case("cooperative_groups_memcpy_async", [&] {
    Device<int> d_in(in), d_out(kCount);
    group_copy<<<kBlocks, kThreads, sizeof(int) * kThreads * 3>>>(d_in, d_out);
    std::vector<int> want(kCount);
    for (int i = 0; i < kCount; ++i) want[i] = in[3 * i] + in[3 * i + 1] + in[3 * i + 2];
    return d_out.read() == want;
  });
  run_case("libcudacxx_std_types", [&] {
    const auto floats = signed_values<float>(kCount, 2, 64);
    Device<float> d_in(floats), d_out(kCount);
    std_types<<<kBlocks, kThreads>>>(d_in, d_out, kCount);
    std::vector<float> want(kCount);
    for (int i = 0; i < kCount; ++i) {
      const float x = floats[i], y = floats[kCount - 1 - i];
      const float real = 2 * x + 3 * y + x, imaginary = 2 * y - 3 * x - y;
      want[i] = (i % 2 ? real : static_cast<float>(static_cast<int>(imaginary))) +
                (i % 3 == 0 ? 1000.0f : 0.5f);
    }
    return d_out.read() == want;
  });
  return finish();
}
