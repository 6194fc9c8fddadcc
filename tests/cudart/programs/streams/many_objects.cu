// SPDX-License-Identifier: Apache-2.0
// Thousands of streams, events, modules, allocations and launches; large grids; 16 host threads.
// nvcc: -lcuda
#include <cuda.h>
#include <string>
#include <thread>
#include <vector>
#include "../check.h"
__global__ void inc(int* p) { atomicAdd(p, 1); }
__global__ void big(unsigned long long* c) {
  if (threadIdx.x == 0) atomicAdd(c, 1ull + blockIdx.x);
}
__global__ void yz(unsigned long long* c) { atomicAdd(c, 1ull + blockIdx.y + blockIdx.z); }
int main() {
  int* d;
  OK(cudaMalloc(&d, 64));
  OK(cudaMemset(d, 0, 64));
  std::vector<cudaStream_t> s(2000);
  for (auto& x : s) {
    cudaError_t e_ = cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking);
    if (e_) {
      printf("stream %ld: %s\n", &x - s.data(), cudaGetErrorName(e_));
      ++failures;
      break;
    }
  }
  std::vector<cudaEvent_t> e(5000);
  for (auto& x : e) OK(cudaEventCreate(&x));
  for (size_t i = 0; i < s.size(); ++i) {
    inc<<<1, 1, 0, s[i]>>>(d);
    OK(cudaEventRecord(e[i], s[i]));
    OK(cudaStreamWaitEvent(s[(i + 1) % s.size()], e[i], 0));
  }
  OK(cudaDeviceSynchronize());
  int v;
  OK(cudaMemcpy(&v, d, 4, cudaMemcpyDeviceToHost));
  CHECK(v == 2000);
  for (auto x : s) OK(cudaStreamDestroy(x));
  for (auto x : e) OK(cudaEventDestroy(x));
  std::vector<void*> m(5000);
  for (auto& x : m) OK(cudaMalloc(&x, 256));
  for (auto x : m) OK(cudaFree(x));
  std::vector<CUmodule> mods(300);
  for (size_t i = 0; i < mods.size(); ++i) {
    std::string t = ".version 7.0\n.target sm_70\n.address_size 64\n.global .u32 g" +
                    std::to_string(i) + " = " + std::to_string(i) +
                    ";\n.visible .entry k() { ret; }\n";
    CUresult r = cuModuleLoadData(&mods[i], t.c_str());
    if (r) {
      printf("module %zu: %d\n", i, r);
      ++failures;
      break;
    }
  }
  CUdeviceptr g;
  size_t b;
  if (mods[299]) {
    cuModuleGetGlobal(&g, &b, mods[299], "g299");
    int gv;
    OK(cudaMemcpy(&gv, (void*)g, 4, cudaMemcpyDeviceToHost));
    CHECK(gv == 299);
  }
  for (auto x : mods)
    if (x) cuModuleUnload(x);
  for (int i = 0; i < 5000; ++i) inc<<<1, 1>>>(d);
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpy(&v, d, 4, cudaMemcpyDeviceToHost));
  CHECK(v == 7000);
  unsigned long long* c;
  OK(cudaMalloc(&c, 8));
  OK(cudaMemset(c, 0, 8));
  big<<<1 << 15, 1>>>(c);
  unsigned long long cv;
  OK(cudaMemcpy(&cv, c, 8, cudaMemcpyDeviceToHost));
  CHECK(cv == (1ull << 15) + ((1ull << 15) - 1) * (1ull << 14));
  OK(cudaMemset(c, 0, 8));
  yz<<<dim3(1, 65535, 1), 1>>>(c);
  yz<<<dim3(1, 1, 65535), 1>>>(c);
  OK(cudaMemcpy(&cv, c, 8, cudaMemcpyDeviceToHost));
  CHECK(cv == 2 * (65535ull + 65535ull * 65534 / 2));
  std::vector<std::thread> t;
  for (int i = 0; i < 16; ++i)
    t.emplace_back([&, i] {
      cudaStream_t q;
      OK(cudaStreamCreate(&q));
      int* p;
      OK(cudaMallocAsync(&p, 4096, q));
      OK(cudaMemsetAsync(p, 0, 4, q));
      for (int k = 0; k < 50; ++k) inc<<<1, 4, 0, q>>>(p);
      int r;
      OK(cudaMemcpyAsync(&r, p, 4, cudaMemcpyDeviceToHost, q));
      OK(cudaStreamSynchronize(q));
      CHECK(r == 200);
      OK(cudaFreeAsync(p, q));
      OK(cudaStreamDestroy(q));
      (void)i;
    });
  for (auto& x : t) x.join();
  return result();
}
