// SPDX-License-Identifier: Apache-2.0
// The software GPU's driver API: device, memory, copies and fills, host memory.
#include <sys/mman.h>

#include <cstring>
#include <numeric>

#include "tests/unit/softgpu/fixture.h"

#include "tests/support/device_images.h"  // behind gtest: its namespace is sluice::testing

namespace sluice {
namespace {

TEST_F(SoftGpuTest, SaysWhatItIs) {
  int count = 0, major = 0, minor = 0, version = 0, value = 0;
  OK(api.cuDeviceGetCount(&count));
  EXPECT_EQ(count, 1);
  CUdevice device = -1;
  OK(api.cuDeviceGet(&device, 0));
  FAILS(CUDA_ERROR_INVALID_DEVICE, api.cuDeviceGet(&device, 1));
  char name[64];
  OK(api.cuDeviceGetName(name, sizeof name, 0));
  EXPECT_STREQ(name, "Sluice software GPU");
  OK(api.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  OK(api.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
  EXPECT_EQ(major * 10 + minor, 90);
  OK(api.cuDriverGetVersion(&version));
  EXPECT_EQ(version, 13000);
  OK(api.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
  EXPECT_EQ(value, 32);
  for (int i = 1; i < CU_DEVICE_ATTRIBUTE_MAX; ++i) {
    EXPECT_EQ(api.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(i), 0), CUDA_SUCCESS)
        << i;
  }
  FAILS(CUDA_ERROR_INVALID_VALUE,
        api.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0));
  const char* text = nullptr;
  OK(api.cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  OK(api.cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(text, "not enough device memory");
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuGetErrorName(static_cast<CUresult>(12345), &text));
  EXPECT_EQ(text, nullptr);
}

// The pages of exported memory move to a file. Threads that write there meanwhile wait.
TEST_F(SoftGpuTest, MemoryIsExportedWhileWorkWritesToIt) {
  constexpr size_t kBytes = 4 << 20;
  for (unsigned round = 1; round <= 20; ++round) {
    const CUdeviceptr p = allocate(kBytes);
    const CUstream filler = stream();
    for (unsigned i = 0; i < 4; ++i) OK(api.cuMemsetD32Async(p, 4 * round + i, kBytes / 4, filler));
    CUipcMemHandle handle;
    OK(api.cuIpcGetMemHandle(&handle, p));
    OK(api.cuStreamSynchronize(filler));
    EXPECT_EQ(read(p, kBytes / 4), std::vector<uint32_t>(kBytes / 4, 4 * round + 3));
    OK(api.cuStreamDestroy(filler));
    OK(api.cuMemFree(p));
  }
}

TEST_F(SoftGpuTest, AllocatesAndFrees) {
  const CUdeviceptr p = allocate(1000);
  EXPECT_EQ(p % 256, 0u);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  OK(api.cuMemGetAddressRange(&base, &bytes, p + 999));
  EXPECT_EQ(base, p);
  EXPECT_EQ(bytes, 1000u);
  FAILS(CUDA_ERROR_NOT_FOUND, api.cuMemGetAddressRange(&base, &bytes, p + 1000));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemFree(p + 4));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemFree(12345));
  OK(api.cuMemFree(p));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemFree(p));
  OK(api.cuMemFree(0));
  CUdeviceptr none = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemAlloc(&none, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemAlloc(nullptr, 16));
}

TEST_F(SoftGpuTest, MemoryEndsAndComesBack) {
  size_t free_before = 0, free_now = 0, total = 0;
  OK(api.cuMemGetInfo(&free_before, &total));
  CUdeviceptr p = 0, q = 0;
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, api.cuMemAlloc(&p, total + 1));
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, api.cuMemAlloc(&p, size_t{1} << 62));
  OK(api.cuMemAlloc(&p, free_before / 2));
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, api.cuMemAlloc(&q, free_before / 2 + 4096));
  OK(api.cuMemGetInfo(&free_now, &total));
  EXPECT_EQ(free_now, free_before - free_before / 2);
  OK(api.cuMemFree(p));
  OK(api.cuMemGetInfo(&free_now, &total));
  EXPECT_EQ(free_now, free_before);
}

TEST_F(SoftGpuTest, ADestroyedContextGivesAllBack) {
  size_t before = 0, after = 0, total = 0;
  OK(api.cuMemGetInfo(&before, &total));
  CUcontext other;
  OK(api.cuCtxCreate_v2(&other, 0, 0));
  CUmodule module;
  OK(api.cuModuleLoadData(&module, kTestPtx));
  allocate(1 << 20);
  OK(api.cuCtxDestroy(other));
  OK(api.cuMemGetInfo(&after, &total));
  EXPECT_EQ(after, before);
}

TEST_F(SoftGpuTest, CopiesGoBetweenContexts) {
  const std::vector<uint32_t> in = {3, 5, 7, 11};
  const CUdeviceptr mine = allocate(16);
  OK(api.cuMemcpyHtoD(mine, in.data(), 16));
  CUcontext other;
  OK(api.cuCtxCreate_v2(&other, 0, 0));
  const CUdeviceptr theirs = allocate(16);
  OK(api.cuMemcpyDtoD(theirs, mine, 16));
  EXPECT_EQ(read(theirs, 4), in);
  EXPECT_EQ(read(mine, 4), in);
  OK(api.cuCtxDestroy(other));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyDtoD(mine, theirs, 16));
}

TEST_F(SoftGpuTest, CopiesBothWaysAndWithin) {
  std::vector<uint32_t> in(1000);
  std::iota(in.begin(), in.end(), 7);
  const CUdeviceptr a = allocate(4000), b = allocate(4000);
  OK(api.cuMemcpyHtoD(a, in.data(), 4000));
  OK(api.cuMemcpyDtoD(b, a, 4000));
  EXPECT_EQ(read(b, 1000), in);
  // Unified addressing: the direction follows from the pointers.
  std::vector<uint32_t> out(1000);
  OK(api.cuMemcpy(address(out.data()), b, 4000));
  EXPECT_EQ(out, in);
  OK(api.cuMemsetD32(a, 0, 1000));
  OK(api.cuMemcpy(a, address(in.data()), 4000));
  EXPECT_EQ(read(a, 1000), in);
  OK(api.cuMemcpyHtoD(a, nullptr, 0));
}

TEST_F(SoftGpuTest, RefusesCopiesBeyondAnAllocation) {
  std::vector<char> host(2000);
  const CUdeviceptr p = allocate(1000);
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyHtoD(p, host.data(), 1001));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyDtoH(host.data(), p + 1, 1000));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyHtoD(0, host.data(), 10));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyHtoD(address(host.data()), host.data(), 10))
      << "pageable is not device";
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemsetD8(p, 0, 1001));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemsetD8(p, 0, ~size_t{0}));
  OK(api.cuMemFree(p));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyHtoD(p, host.data(), 10));
}

TEST_F(SoftGpuTest, Fills) {
  const CUdeviceptr p = allocate(64);
  OK(api.cuMemsetD32(p, 0x01020304, 16));
  OK(api.cuMemsetD16(p + 2, 0xabcd, 1));
  OK(api.cuMemsetD8(p + 8, 0xff, 3));
  const std::vector<uint32_t> out = read(p, 4);
  EXPECT_EQ(out, (std::vector<uint32_t>{0xabcd0304, 0x01020304, 0x01ffffff, 0x01020304}));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemsetD32(p + 1, 0, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemsetD16(p + 1, 0, 1));
}

TEST_F(SoftGpuTest, CopiesAndFillsRectangles) {
  CUdeviceptr p = 0;
  size_t pitch = 0;
  OK(api.cuMemAllocPitch(&p, &pitch, 20, 4, 4));
  EXPECT_EQ(pitch % 512, 0u);
  OK(api.cuMemsetD2D32(p, pitch, 1, 5, 4));
  std::vector<uint32_t> in(12);
  std::iota(in.begin(), in.end(), 100);
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = in.data();
  c.srcPitch = 12;
  c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.dstDevice = p;
  c.dstPitch = pitch;
  c.dstXInBytes = 4;
  c.dstY = 1;
  c.WidthInBytes = 8;
  c.Height = 3;
  OK(api.cuMemcpy2D(&c));
  std::vector<uint32_t> out(20);
  CUDA_MEMCPY2D back{};
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = p;
  back.srcPitch = pitch;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = out.data();
  back.dstPitch = 20;
  back.WidthInBytes = 20;
  back.Height = 4;
  OK(api.cuMemcpy2D(&back));
  EXPECT_EQ(out, (std::vector<uint32_t>{1, 1,   1,   1, 1,  //
                                        1, 100, 101, 1, 1,  //
                                        1, 103, 104, 1, 1,  //
                                        1, 106, 107, 1, 1}));
  c.dstY = 2;
  c.Height = 3;
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpy2D(&c)) << "one row too many";
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpy2D(&c)) << "no array given";
}

TEST_F(SoftGpuTest, KernelsSeePinnedMemoryAtItsOwnAddress) {
  uint32_t* word = pinned_word(4);
  CUdeviceptr device = 0;
  OK(api.cuMemHostGetDevicePointer(&device, word, 0));
  EXPECT_EQ(device, address(word));
  OK(launch("poke", 1, 1, nullptr, device + 4, 99u));
  OK(api.cuCtxSynchronize());
  EXPECT_EQ(word[1], 99u);
  unsigned flags = 0;
  OK(api.cuMemHostGetFlags(&flags, word));
  OK(api.cuMemFreeHost(word));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemFreeHost(word));
}

TEST_F(SoftGpuTest, RegistersHostMemory) {
  alignas(16) static uint32_t words[64];
  FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, api.cuMemHostUnregister(words));
  OK(api.cuMemHostRegister(words, sizeof words, 0));
  FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
        api.cuMemHostRegister(words + 60, sizeof words, 0));
  OK(launch("iota", 1, 64, nullptr, address(words), 64u, 5u));
  OK(api.cuCtxSynchronize());
  EXPECT_EQ(words[63], 68u);
  // A context made later sees it too.
  CUcontext other;
  OK(api.cuCtxCreate_v2(&other, 0, 0));
  CUmodule module;
  OK(api.cuModuleLoadData(&module, kTestPtx));
  CUfunction poke;
  OK(api.cuModuleGetFunction(&poke, module, "poke"));
  CUdeviceptr where = address(words);
  uint32_t value = 1234;
  void* arguments[] = {&where, &value};
  OK(api.cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  OK(api.cuCtxSynchronize());
  EXPECT_EQ(words[0], 1234u);
  OK(api.cuCtxDestroy(other));
  OK(api.cuMemHostUnregister(words));
  void* hole = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::munmap(hole, 4096);
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemHostRegister(hole, 4096, 0)) << "not mapped";
}

TEST_F(SoftGpuTest, AReadOnlyRegistrationCannotBeWrittenByKernels) {
  alignas(16) static uint32_t words[4];
  OK(api.cuMemHostRegister(words, sizeof words, CU_MEMHOSTREGISTER_READ_ONLY));
  OK(launch("poke", 1, 1, nullptr, address(words), 1u));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, api.cuCtxSynchronize());
  EXPECT_EQ(words[0], 0u);
  api.cuCtxDestroy(context_);
  OK(api.cuCtxCreate_v2(&context_, 0, 0));
  OK(api.cuMemHostUnregister(words));
}

TEST_F(SoftGpuTest, TellsWhatPointersAre) {
  const CUdeviceptr p = allocate(100);
  uint32_t* pinned = pinned_word();
  unsigned type = 0;
  OK(api.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 50));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  OK(api.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(pinned)));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
  int local = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE,
        api.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(&local)));
  CUcontext owner = nullptr;
  size_t range = 0;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                 CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
  void* data[] = {&owner, &range, &type};
  OK(api.cuPointerGetAttributes(3, which, data, p));
  EXPECT_EQ(owner, context_);
  EXPECT_EQ(range, 100u);
  OK(api.cuPointerGetAttributes(3, which, data, address(&local)));
  EXPECT_EQ(owner, nullptr);
  EXPECT_EQ(type, 0u);
}

// What programs that run originals against clones on hardware compare memory by
// (tests/support/device_images.h).
TEST_F(SoftGpuTest, ImagesOnTheDeviceDifferByABit) {
  CUstream stream;
  OK(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr a = allocate(10000), b = allocate(64);
  // Whole words, a rest, one that begins anywhere, none.
  const testing::DevicePiece pieces[] = {{a, 5001}, {b + 3, 40}, {b, 0}};
  testing::DeviceImages images(api, stream,
                               [](CUresult r, const char*) { ASSERT_EQ(r, CUDA_SUCCESS); });
  testing::DeviceImages::Image image;
  OK(api.cuMemsetD8(a, 7, 10000));
  OK(api.cuMemsetD8(b, 9, 64));
  images.take(pieces, image);
  EXPECT_TRUE(images.same(pieces, image));
  for (const CUdeviceptr at : {a, a + 15, a + 4999, a + 5000, b + 3, b + 42}) {
    OK(api.cuMemsetD8(at, 0x87, 1));
    OK(api.cuCtxSynchronize());
    EXPECT_FALSE(images.same(pieces, image)) << at - a;
    images.put(pieces, image);
    EXPECT_TRUE(images.same(pieces, image));
  }
  for (const CUdeviceptr at : {a + 5001, b + 2, b + 43}) {
    OK(api.cuMemsetD8(at, 0x87, 1));
    OK(api.cuCtxSynchronize());
    EXPECT_TRUE(images.same(pieces, image)) << "beside the pieces";
  }
  images.free(image);
  OK(api.cuStreamDestroy(stream));
}

}  // namespace
}  // namespace sluice
