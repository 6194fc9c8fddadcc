// SPDX-License-Identifier: Apache-2.0
// The software GPU's driver API: virtual memory management. What calls answer is compared with a
// GPU's in tests/conformance/virtual_memory; here: what kernels and copies see.
#include "tests/unit/softgpu/fixture.h"

namespace sluice {
namespace {

constexpr size_t kUnit = size_t{2} << 20;

class SoftGpuVirtualTest : public SoftGpuTest {
 protected:
  CUdeviceptr reserve(size_t bytes) {
    CUdeviceptr p = 0;
    EXPECT_EQ(api.cuMemAddressReserve(&p, bytes, 0, 0, 0), CUDA_SUCCESS);
    return p;
  }
  CUmemGenericAllocationHandle create(size_t bytes, int handle_types = 0) {
    CUmemAllocationProp prop{};
    prop.requestedHandleTypes = handle_types;
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle h = 0;
    EXPECT_EQ(api.cuMemCreate(&h, bytes, &prop, 0), CUDA_SUCCESS);
    return h;
  }
  CUresult access(CUdeviceptr p, size_t bytes, int flags) {
    const CUmemAccessDesc desc{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
    return api.cuMemSetAccess(p, bytes, &desc, 1);
  }
  void map(CUdeviceptr p, size_t bytes, CUmemGenericAllocationHandle h) {
    OK(api.cuMemMap(p, bytes, 0, h, 0));
    OK(access(p, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  }
};

TEST_F(SoftGpuVirtualTest, MemoryThatMayBeExportedIsNotExported) {
  const auto kFile = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const CUmemGenericAllocationHandle plain = create(kUnit), shared = create(kUnit, kFile);
  CUmemAllocationProp prop{};
  OK(api.cuMemGetAllocationPropertiesFromHandle(&prop, shared));
  EXPECT_EQ(prop.requestedHandleTypes, kFile);
  int file = -1;
  FAILS(CUDA_ERROR_NOT_SUPPORTED, api.cuMemExportToShareableHandle(&file, shared, kFile, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemExportToShareableHandle(&file, plain, kFile, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemExportToShareableHandle(nullptr, shared, kFile, 0));
  OK(api.cuMemRelease(plain));
  OK(api.cuMemRelease(shared));
}

TEST_F(SoftGpuVirtualTest, MappingsSideBySideAreAsOneAndMemoryMayBeMappedTwice) {
  const CUdeviceptr p = reserve(4 * kUnit);
  const CUmemGenericAllocationHandle a = create(kUnit), b = create(kUnit);
  map(p, kUnit, a);
  map(p + kUnit, kUnit, b);
  map(p + 3 * kUnit, kUnit, b);  // the same pages again
  // A kernel writes across the border, a copy reads across it.
  OK(launch("iota", 8, 128, nullptr, p + kUnit - 2048, 1024u, 100u));
  const std::vector<uint32_t> words = read(p + kUnit - 2048, 1024);
  for (uint32_t i = 0; i < 1024; ++i) ASSERT_EQ(words[i], 100 + i) << i;
  EXPECT_EQ(read(p + 3 * kUnit, 1)[0], 100u + 512);
  OK(api.cuMemsetD32(p + 3 * kUnit, 7, 1));
  EXPECT_EQ(read(p + kUnit, 1)[0], 7u);
  // What a mapping had is there again when it is mapped elsewhere, also after its handle was
  // released.
  OK(api.cuMemRelease(b));
  OK(api.cuMemUnmap(p + kUnit, kUnit));
  uint32_t word = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyDtoH(&word, p + kUnit, 4));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyDtoH(&word, p + kUnit - 2, 4));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpy(p + kUnit, p, 4));
  CUmemGenericAllocationHandle again = 0;
  OK(api.cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(p + 3 * kUnit + 5)));
  EXPECT_EQ(again, b);
  map(p + kUnit, kUnit, b);
  EXPECT_EQ(read(p + kUnit, 1)[0], 7u);
  OK(api.cuMemUnmap(p + kUnit, 3 * kUnit));  // two whole mappings, and a gap
  OK(api.cuMemRelease(b));
  OK(api.cuMemUnmap(p, kUnit));
  OK(api.cuMemRelease(a));
  OK(api.cuMemAddressFree(p, 4 * kUnit));
}

TEST_F(SoftGpuVirtualTest, WhatIsNotMappedOrNotAllowedFaults) {
  const CUmemGenericAllocationHandle h = create(kUnit);
  const CUdeviceptr p = reserve(2 * kUnit);
  OK(api.cuMemMap(p, kUnit, 0, h, 0));
  const auto poke = [&](CUdeviceptr at) -> CUresult {
    CUcontext own = nullptr;
    EXPECT_EQ(api.cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(api.cuModuleLoadData(&module_, kTestPtx), CUDA_SUCCESS);
    EXPECT_EQ(launch("poke", 1, 1, nullptr, at, 9u), CUDA_SUCCESS);
    const CUresult r = api.cuCtxSynchronize();
    EXPECT_EQ(api.cuCtxDestroy(own), CUDA_SUCCESS);
    return r;
  };
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, poke(p));  // no access yet
  OK(access(p, kUnit, CU_MEM_ACCESS_FLAGS_PROT_READ));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, poke(p));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemsetD32(p, 1, 1));
  EXPECT_EQ(read(p, 1)[0], 0u);
  OK(access(p, kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  OK(poke(p));
  EXPECT_EQ(read(p, 1)[0], 9u) << "written by another context, which is gone";
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, poke(p + kUnit));
  OK(api.cuMemUnmap(p, kUnit));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, poke(p));
  OK(api.cuMemRelease(h));
  OK(api.cuMemAddressFree(p, 2 * kUnit));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, poke(p));
}

// Unmapping waits for the kernels that may still use it; mapping beside them waits for nobody.
TEST_F(SoftGpuVirtualTest, GrowsBesideARunningKernelAndShrinksBehindIt) {
  const CUdeviceptr p = reserve(2 * kUnit);
  const CUmemGenericAllocationHandle a = create(kUnit), b = create(kUnit);
  map(p, kUnit, a);
  OK(api.cuMemsetD32(p, 0, 2));
  const CUstream s = stream();
  OK(launch("spin", 1, 1, s, p));  // reads that word until it is set
  map(p + kUnit, kUnit, b);
  OK(api.cuMemsetD32Async(p + kUnit, 3, 1, nullptr));
  OK(api.cuMemsetD32(p, 1, 1));
  OK(api.cuMemUnmap(p, 2 * kUnit));
  OK(api.cuStreamQuery(s));
  OK(api.cuMemRelease(a));
  OK(api.cuMemRelease(b));
  OK(api.cuMemAddressFree(p, 2 * kUnit));
}

TEST_F(SoftGpuVirtualTest, PhysicalMemoryCountsOnceUntilNothingHoldsIt) {
  size_t before = 0, now = 0, total = 0;
  OK(api.cuMemGetInfo(&before, &total));
  const CUmemGenericAllocationHandle h = create(4 * kUnit);
  const CUdeviceptr p = reserve(64 * (total / kUnit) * kUnit);  // addresses are free
  map(p, 4 * kUnit, h);
  map(p + 4 * kUnit, 4 * kUnit, h);
  OK(api.cuMemGetInfo(&now, &total));
  EXPECT_EQ(now, before - 4 * kUnit);
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle none = 0;
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, api.cuMemCreate(&none, (total / kUnit) * kUnit, &prop, 0));
  OK(api.cuMemRelease(h));
  OK(api.cuMemUnmap(p, 4 * kUnit));
  OK(api.cuMemGetInfo(&now, &total));
  EXPECT_EQ(now, before - 4 * kUnit);
  OK(api.cuMemUnmap(p + 4 * kUnit, 4 * kUnit));
  OK(api.cuMemGetInfo(&now, &total));
  EXPECT_EQ(now, before);
  OK(api.cuMemAddressFree(p, 64 * (total / kUnit) * kUnit));
}

}  // namespace
}  // namespace sluice
