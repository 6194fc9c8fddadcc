// SPDX-License-Identifier: Apache-2.0
// libcu++ in kernels: barriers, latches, semaphores, references to atomics of 1 to 8 bytes, wait
// and notify, pipelines of one and two roles, parts of cuda::std.
#include <cooperative_groups.h>
#include <cstring>
#include <cuda/annotated_ptr>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/cmath>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/chrono>
#include <cuda/std/complex>
#include <cuda/std/functional>
#include <cuda/std/mdspan>
#include <cuda/std/numeric>
#include <cuda/std/optional>
#include <cuda/std/span>
#include <cuda/std/tuple>
#include <cuda/std/variant>
#include <vector>
#include "../check.h"
__global__ void barriers(int* out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  __shared__ int s[128];
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  for (int r = 0; r < 3; ++r) {
    s[threadIdx.x] = threadIdx.x + r;
    auto t = bar.arrive();
    bar.wait(std::move(t));
    out[r * 128 + threadIdx.x] = s[(threadIdx.x + 1) % 128];
    bar.arrive_and_wait();
  }
  if (threadIdx.x >= 64) {
    bar.arrive_and_drop();
    return;
  }
  s[threadIdx.x] = 1;
  bar.arrive_and_wait();
  out[384 + threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void latches(int* out) {
  __shared__ alignas(
      cuda::latch<cuda::thread_scope_block>) char lm[sizeof(cuda::latch<cuda::thread_scope_block>)];
  auto& l = *reinterpret_cast<cuda::latch<cuda::thread_scope_block>*>(lm);
  __shared__ alignas(16) char sx[64];
  auto& sem = *reinterpret_cast<cuda::counting_semaphore<cuda::thread_scope_block, 4>*>(sx);
  __shared__ int in, most;
  if (threadIdx.x == 0) {
    new (&l) cuda::latch<cuda::thread_scope_block>(blockDim.x);
    new (&sem) cuda::counting_semaphore<cuda::thread_scope_block, 4>(2);
    in = most = 0;
  }
  __syncthreads();
  sem.acquire();
  int now = atomicAdd(&in, 1) + 1;
  atomicMax(&most, now);
  atomicAdd(&in, -1);
  sem.release();
  l.count_down();
  l.wait();
  if (threadIdx.x == 0) out[0] = most <= 2 && most >= 1;
  out[1] = sem.try_acquire();
}
__global__ void completes(int* out) {
  __shared__ int n;
  using B = cuda::barrier<cuda::thread_scope_block>;
  __shared__ B b;
  if (threadIdx.x == 0) {
    n = 0;
    init(&b, blockDim.x);
  }
  __syncthreads();
  cuda::atomic_ref<int, cuda::thread_scope_block> r(n);
  r.fetch_add(2, cuda::memory_order_relaxed);
  b.arrive_and_wait();
  if (threadIdx.x == 0) out[1] = r.load(cuda::memory_order_acquire);
  cuda::atomic_ref<float, cuda::thread_scope_device> f(*reinterpret_cast<float*>(out + 2));
  f.fetch_add(0.5f);
  cuda::atomic_ref<double, cuda::thread_scope_device> d(*reinterpret_cast<double*>(out + 4));
  d.fetch_add(0.25);
  cuda::atomic_ref<int> mx(out[6]);
  mx.fetch_max(static_cast<int>(threadIdx.x));
  cuda::atomic_ref<unsigned long long> c(*reinterpret_cast<unsigned long long*>(out + 8));
  unsigned long long was = c.load();
  while (!c.compare_exchange_weak(was, was * 3 + 1)) {
  }
}
__global__ void bytes(unsigned char* b, unsigned short* h) {
  cuda::atomic_ref<unsigned char, cuda::thread_scope_device> r(b[1]);
  r.fetch_add(1);
  cuda::atomic_ref<unsigned short, cuda::thread_scope_device> s(h[3]);
  s.fetch_xor(static_cast<unsigned short>(1u << (threadIdx.x % 16)));
  unsigned short e = 5;
  cuda::atomic_ref<unsigned short, cuda::thread_scope_device>(h[4]).compare_exchange_strong(e, 6);
}
__global__ void notify(int* out, cuda::atomic<int, cuda::thread_scope_device>* a) {
  if (threadIdx.x < 32) {
    a->wait(0);
    out[threadIdx.x] = a->load();
  } else if (threadIdx.x == 32) {
    __nanosleep(1000);
    a->store(9);
    a->notify_all();
  }
}
constexpr int kStages = 2;
__global__ void piped(const int* in, int* out, int batches) {
  extern __shared__ int sm[];
  auto block = cooperative_groups::this_thread_block();
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> st;
  auto p = cuda::make_pipeline(block, &st);
  int sum = 0;
  const int n = blockDim.x;
  for (int c = 0, f = 0; c < batches; ++c) {
    for (; f < batches && f < c + kStages; ++f) {
      p.producer_acquire();
      cuda::memcpy_async(block, sm + (f % kStages) * n, in + f * n, cuda::aligned_size_t<16>(n * 4),
                         p);
      p.producer_commit();
    }
    p.consumer_wait();
    sum += sm[(c % kStages) * n + (threadIdx.x + 1) % n];
    block.sync();
    p.consumer_release();
  }
  out[threadIdx.x] = sum;
}
__global__ void roles(const int* in, int* out, int batches) {
  extern __shared__ int sm[];
  auto block = cooperative_groups::this_thread_block();
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> st;
  const auto role =
      threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto p = cuda::make_pipeline(block, &st, role);
  if (role == cuda::pipeline_role::producer) {
    for (int b = 0; b < batches; ++b) {
      p.producer_acquire();
      for (int i = threadIdx.x; i < 64; i += 32)
        cuda::memcpy_async(sm + b % kStages * 64 + i, in + b * 64 + i, 4, p);
      p.producer_commit();
    }
  } else {
    int s = 0;
    for (int b = 0; b < batches; ++b) {
      p.consumer_wait();
      s += sm[b % kStages * 64 + 63 - (threadIdx.x - 32)];
      p.consumer_release();
    }
    out[threadIdx.x - 32] = s;
  }
}
__global__ void stdlib(float* out, const int* in) {
  cuda::std::complex<float> z(1, 2);
  z = z * z + cuda::std::exp(cuda::std::complex<float>(0, 0));
  out[0] = z.real(), out[1] = z.imag();
  cuda::std::span<const int> s(in, 10);
  out[2] = cuda::std::accumulate(s.begin(), s.end(), 0);
  cuda::std::mdspan<const int, cuda::std::extents<int, 4, 8>> m(in);
  out[3] = m(3, 7);
  cuda::std::optional<int> o =
      in[0] > 1000 ? cuda::std::optional<int>{} : cuda::std::optional<int>{4};
  out[4] = o.value_or(1);
  cuda::std::variant<int, float> v = 2.5f;
  out[5] = cuda::std::visit([](auto x) { return static_cast<float>(x) * 2; }, v);
  out[6] = cuda::std::popcount(0xff0fu) + cuda::std::countl_zero(1u) + cuda::std::bit_ceil(17u);
  cuda::std::array<int, 4> a{4, 2, 3, 1};
  for (int i = 0; i < 4; ++i)
    for (int j = i + 1; j < 4; ++j)
      if (a[j] < a[i]) cuda::std::swap(a[i], a[j]);
  out[7] = a[0] * 1000 + a[1] * 100 + a[2] * 10 + a[3];
  auto t0 = cuda::std::chrono::high_resolution_clock::now();
  auto t1 = cuda::std::chrono::system_clock::now();
  out[8] = t1.time_since_epoch().count() > 0 && t0.time_since_epoch().count() > 0;
  auto tp = cuda::std::make_tuple(1, 2.0f);
  out[9] = cuda::std::get<0>(tp) + cuda::std::get<1>(tp) + cuda::ceil_div(7, 2);
  cuda::annotated_ptr<const int, cuda::access_property::persisting> ap(in);
  out[10] = ap[5];
  cuda::discard_memory(out + 64, 128);
}
int main() {
  int* o;
  OK(cudaMalloc(&o, 8192));
  OK(cudaMemset(o, 0, 8192));
  std::vector<int> got(1024);
  auto fetch = [&] {
    OK(cudaMemcpy(got.data(), o, 4096, cudaMemcpyDeviceToHost));
    OK(cudaMemset(o, 0, 8192));
  };
  barriers<<<1, 128>>>(o);
  fetch();
  for (int r = 0; r < 3; ++r)
    for (int i = 0; i < 128; ++i) CHECK(got[r * 128 + i] == (i + 1) % 128 + r);
  for (int i = 0; i < 64; ++i) CHECK(got[384 + i] == 1);
  latches<<<1, 96>>>(o);
  fetch();
  CHECK(got[0] == 1);
  completes<<<2, 64>>>(o);
  fetch();
  CHECK(got[1] == 128);
  float f;
  memcpy(&f, &got[2], 4);
  CHECK(f == 64);
  double dd;
  memcpy(&dd, &got[4], 8);
  CHECK(dd == 32);
  CHECK(got[6] == 63);
  unsigned long long w = 0, g;
  for (int i = 0; i < 128; ++i) w = w * 3 + 1;
  memcpy(&g, &got[8], 8);
  CHECK(g == w);
  unsigned short h5[8] = {0, 0, 0, 0, 5};
  OK(cudaMemcpy(o + 8, h5, 16, cudaMemcpyHostToDevice));
  bytes<<<3, 16>>>((unsigned char*)o, (unsigned short*)(o + 8));
  fetch();
  CHECK(got[0] == 48 << 8);
  CHECK(((unsigned short*)&got[8])[3] == 0xffff);
  CHECK(((unsigned short*)&got[8])[4] == 6);
  notify<<<1, 64>>>(o + 16, (cuda::atomic<int, cuda::thread_scope_device>*)o);
  fetch();
  for (int i = 0; i < 32; ++i) CHECK(got[16 + i] == 9);
  std::vector<int> in(2048);
  for (int i = 0; i < 2048; ++i) in[i] = i * 7 % 100;
  int* d;
  OK(cudaMalloc(&d, 8192));
  OK(cudaMemcpy(d, in.data(), 8192, cudaMemcpyHostToDevice));
  piped<<<1, 128, 1024>>>(d, o, 16);
  fetch();
  for (int i = 0; i < 128; ++i) {
    int s = 0;
    for (int b = 0; b < 16; ++b) s += in[b * 128 + (i + 1) % 128];
    CHECK(got[i] == s);
  }
  roles<<<1, 96, 512>>>(d, o, 20);
  fetch();
  for (int i = 0; i < 64; ++i) {
    int s = 0;
    for (int b = 0; b < 20; ++b) s += in[b * 64 + 63 - i];
    CHECK(got[i] == s);
  }
  stdlib<<<1, 1>>>((float*)o, d);
  fetch();
  float* r = (float*)got.data();
  int acc = 0;
  for (int i = 0; i < 10; ++i) acc += in[i];
  CHECK(r[0] == -2 && r[1] == 4 && r[2] == acc && r[3] == in[31] && r[4] == 4 && r[5] == 5 &&
        r[6] == 12 + 31 + 32 && r[7] == 1234 && r[8] == 1 && r[9] == 7 && r[10] == in[5]);
  OK(cudaGetLastError());
  return result();
}
