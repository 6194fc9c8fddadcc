// SPDX-License-Identifier: Apache-2.0
// Virtual memory management beside the runtime, found through cudaGetDriverEntryPoint: a range that
// grows, two addresses of one memory, access rights; and stream-ordered pools.
#include <cuda.h>

#include <vector>

#include "../check.h"
template <typename F>
F entry(const char* name) {
  void* p = nullptr;
  cudaDriverEntryPointQueryResult found;
  OK(cudaGetDriverEntryPointByVersion(name, &p, 12000, cudaEnableDefault, &found));
  CHECK(found == cudaDriverEntryPointSuccess && p != nullptr);
  return reinterpret_cast<F>(p);
}
#define ENTRY(name) const auto name##_p = entry<decltype(&name)>(#name)
__global__ void fill(int* p, size_t n, int v) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    p[i] = v + static_cast<int>(i);
}
int main() {
  OK(cudaFree(nullptr));
  ENTRY(cuMemGetAllocationGranularity);
  ENTRY(cuMemAddressReserve);
  ENTRY(cuMemAddressFree);
  ENTRY(cuMemCreate);
  ENTRY(cuMemMap);
  ENTRY(cuMemUnmap);
  ENTRY(cuMemSetAccess);
  ENTRY(cuMemRelease);
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  size_t grain = 0;
  CHECK(cuMemGetAllocationGranularity_p(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == 0);
  CUdeviceptr at = 0;
  CHECK(cuMemAddressReserve_p(&at, 8 * grain, 0, 0, 0) == 0);
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle piece[3];
  for (int k = 0; k < 3; ++k) {
    CHECK(cuMemCreate_p(&piece[k], grain, &prop, 0) == 0);
    CHECK(cuMemMap_p(at + k * grain, grain, 0, piece[k], 0) == 0);
    CHECK(cuMemSetAccess_p(at + k * grain, grain, &access, 1) == 0);
    fill<<<32, 128>>>(reinterpret_cast<int*>(at), (k + 1) * grain / 4, k);
    OK(cudaDeviceSynchronize());
  }
  CHECK(cuMemMap_p(at + 5 * grain, grain, 0, piece[0], 0) == 0);
  CHECK(cuMemSetAccess_p(at + 5 * grain, grain, &access, 1) == 0);
  int v[2];
  OK(cudaMemcpy(v, reinterpret_cast<int*>(at + 5 * grain) + 7, 8, cudaMemcpyDeviceToHost));
  CHECK(v[0] == 9 && v[1] == 10);
  OK(cudaMemset(reinterpret_cast<void*>(at + 5 * grain), 0, 64));
  OK(cudaMemcpy(v, reinterpret_cast<int*>(at) + 15, 8, cudaMemcpyDeviceToHost));
  CHECK(v[0] == 0 && v[1] == 18);
  cudaPointerAttributes what;
  OK(cudaPointerGetAttributes(&what, reinterpret_cast<void*>(at + grain)));
  CHECK(what.type == cudaMemoryTypeDevice && what.device == 0);
  for (int k : {0, 1, 2, 5}) CHECK(cuMemUnmap_p(at + k * grain, grain) == 0);
  for (auto h : piece) CHECK(cuMemRelease_p(h) == 0);
  CHECK(cuMemAddressFree_p(at, 8 * grain) == 0);
  void* none = &none;
  cudaDriverEntryPointQueryResult found;
  (void)cudaGetDriverEntryPointByVersion("cuNoSuchCall", &none, 12000, cudaEnableDefault, &found);
  CHECK(found == cudaDriverEntryPointSymbolNotFound);
  cudaGetLastError();

  cudaMemPool_t pool;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  unsigned long long keep = ~0ull, used = 0, reserved = 0;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  cudaStream_t s[2];
  for (auto& t : s) OK(cudaStreamCreateWithPriority(&t, cudaStreamNonBlocking, 0));
  cudaEvent_t ready;
  OK(cudaEventCreate(&ready));
  int* p;
  std::vector<int> got(1 << 16);
  for (int k = 0; k < 10; ++k) {
    OK(cudaMallocAsync(&p, 4 << 16, s[0]));
    fill<<<16, 128, 0, s[0]>>>(p, 1 << 16, k);
    OK(cudaEventRecord(ready, s[0]));
    OK(cudaStreamWaitEvent(s[1], ready));
    OK(cudaMemcpyAsync(got.data(), p, 4 << 16, cudaMemcpyDeviceToHost, s[1]));
    OK(cudaFreeAsync(p, s[1]));
    OK(cudaStreamSynchronize(s[1]));
    CHECK(got[0] == k && got[65535] == k + 65535);
  }
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &reserved));
  CHECK(used == 0 && reserved >= 4 << 16);
  OK(cudaMemPoolTrimTo(pool, 0));
  return result();
}
