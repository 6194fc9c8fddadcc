// SPDX-License-Identifier: Apache-2.0
// The software GPU's driver API: modules, libraries, parameters, launches, occupancy, faults,
// handles.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "mediator/softgpu/softgpu.h"
#include "tests/unit/softgpu/fixture.h"

namespace sluice {
namespace {

TEST_F(SoftGpuTest, FindsFunctionsAndVariables) {
  CUfunction f = nullptr;
  OK(api.cuModuleGetFunction(&f, module_, "iota"));
  CUfunction again = nullptr;
  OK(api.cuModuleGetFunction(&again, module_, "iota"));
  EXPECT_EQ(f, again);
  FAILS(CUDA_ERROR_NOT_FOUND, api.cuModuleGetFunction(&f, module_, "nothing"));
  CUdeviceptr p = 0;
  size_t bytes = 0;
  OK(api.cuModuleGetGlobal(&p, &bytes, module_, "table"));
  EXPECT_EQ(bytes, 16u);
  EXPECT_EQ(read(p, 4), (std::vector<uint32_t>{10, 20, 30, 40}));
  OK(api.cuModuleGetGlobal(&p, &bytes, module_, "factor"));
  double factor = 0;
  OK(api.cuMemcpyDtoH(&factor, p, 8));
  EXPECT_EQ(factor, 2.0);
  FAILS(CUDA_ERROR_NOT_FOUND, api.cuModuleGetGlobal(&p, &bytes, module_, "nothing"));
  const char* name = nullptr;
  OK(api.cuFuncGetName(&name, kernel("iota")));
  EXPECT_STREQ(name, "iota");
  unsigned count = 0;
  OK(api.cuModuleGetFunctionCount(&count, module_));
  std::vector<CUfunction> all(count);
  OK(api.cuModuleEnumerateFunctions(all.data(), count, module_));
  EXPECT_NE(std::find(all.begin(), all.end(), again), all.end());
}

TEST_F(SoftGpuTest, TwoLoadsOfAModuleHaveVariablesOfTheirOwn) {
  CUmodule other;
  OK(api.cuModuleLoadData(&other, kTestPtx));
  CUdeviceptr a = 0, b = 0;
  OK(api.cuModuleGetGlobal(&a, nullptr, module_, "table"));
  OK(api.cuModuleGetGlobal(&b, nullptr, other, "table"));
  EXPECT_NE(a, b);
  OK(api.cuMemsetD32(a, 0, 4));
  EXPECT_EQ(read(b, 1)[0], 10u);
  CUfunction f;
  OK(api.cuModuleGetFunction(&f, other, "empty"));
  OK(api.cuModuleUnload(other));
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuModuleUnload(other));
  FAILS(CUDA_ERROR_INVALID_HANDLE,
        api.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  EXPECT_EQ(read(a, 1)[0], 0u);
  std::vector<char> host(16);
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyDtoH(host.data(), b, 16));
}

TEST_F(SoftGpuTest, RefusesWhatIsNoModuleAndSaysWhy) {
  CUmodule m;
  char log[300] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_OPTIMIZATION_LEVEL};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log), reinterpret_cast<void*>(3)};
  const char* wrong =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n  frobnicate.u32 "
      "%r1;\n}\n";
  FAILS(CUDA_ERROR_INVALID_PTX, api.cuModuleLoadDataEx(&m, wrong, 3, options, values));
  EXPECT_NE(std::string(log).find("6"), std::string::npos) << "the line is reported: " << log;
  EXPECT_EQ(reinterpret_cast<size_t>(values[1]), std::strlen(log));
  FAILS(CUDA_ERROR_INVALID_PTX,
        api.cuModuleLoadData(&m, ".version 8.0\n.target sm_80\n.entry k() { ret;"));
  FAILS(CUDA_ERROR_INVALID_IMAGE, api.cuModuleLoadData(&m, ""));
  FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, api.cuModuleLoadData(&m,
                                                           "\x7f"
                                                           "ELF and so on"));
  FAILS(CUDA_ERROR_INVALID_IMAGE, api.cuModuleLoadData(&m, "hello, this is no PTX"));
  FAILS(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        api.cuModuleLoadData(&m,
                             ".version 9.9\n.target sm_80\n.address_size 64\n.entry k() { ret; }"));
  FAILS(CUDA_ERROR_INVALID_PTX,
        api.cuModuleLoadData(
            &m, ".version 8.7\n.target sm_100\n.address_size 64\n.entry k() { ret; }"));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuModuleLoadData(&m, nullptr));
  FAILS(CUDA_ERROR_FILE_NOT_FOUND, api.cuModuleLoad(&m, "/nowhere.ptx"));
}

TEST_F(SoftGpuTest, TellsAndPacksParameters) {
  const CUfunction f = kernel("add");
  const size_t offsets[] = {0, 8, 16, 20}, sizes[] = {1, 8, 2, 4};
  for (size_t i = 0; i < 4; ++i) {
    size_t offset = 99, bytes = 99;
    OK(api.cuFuncGetParamInfo(f, i, &offset, &bytes));
    EXPECT_EQ(offset, offsets[i]);
    EXPECT_EQ(bytes, sizes[i]);
  }
  size_t offset = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuFuncGetParamInfo(f, 4, &offset, nullptr));

  const CUdeviceptr out = allocate(4000);
  OK(launch("iota", 8, 128, nullptr, out, 1000u, 0u));
  // One parameter after the other.
  uint8_t c = 200;
  uint16_t unused = 7;
  uint32_t n = 1000;
  CUdeviceptr p = out;
  void* pointers[] = {&c, &p, &unused, &n};
  OK(api.cuLaunchKernel(f, 8, 1, 1, 128, 1, 1, 0, nullptr, pointers, nullptr));
  // The whole block.
  struct {
    uint8_t c = 50;
    alignas(8) uint64_t out;
    uint16_t unused = 0;
    uint32_t n = 1000;
  } block;
  block.out = out;
  size_t bytes = sizeof block;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  OK(api.cuLaunchKernel(f, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
  const std::vector<uint32_t> result = read(out, 1000);
  for (uint32_t i = 0; i < 1000; ++i) ASSERT_EQ(result[i], i + 250);

  bytes = 23;  // as a driver does: it counts words of 4 bytes
  OK(api.cuLaunchKernel(f, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
  bytes = 25;
  FAILS(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        api.cuLaunchKernel(f, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
  bytes = 20;
  FAILS(CUDA_ERROR_INVALID_VALUE,
        api.cuLaunchKernel(f, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
  bytes = sizeof block;
  FAILS(CUDA_ERROR_INVALID_VALUE,
        api.cuLaunchKernel(f, 8, 1, 1, 128, 1, 1, 0, nullptr, pointers, extra));
  FAILS(CUDA_ERROR_INVALID_VALUE,
        api.cuLaunchKernel(f, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr));
}

// A tensor map is aligned to 64 bytes, and a kernel's parameters begin where that is not so.
TEST_F(SoftGpuTest, LaysOutAlignedParametersAsMachineCodeHasThem) {
  CUmodule m;
  OK(api.cuModuleLoadData(&m, R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry aligned(.param .align 64 .b8 map[128], .param .u64 out,
.param .align 64 .b8 other[128], .param .u32 n)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [map+124];
  ld.param.u32 %r2, [other+4];
  add.u32 %r1, %r1, %r2;
  ld.param.u32 %r2, [n];
  add.u32 %r1, %r1, %r2;
  st.global.u32 [%rd1], %r1;
  ret;
}
)"));
  CUfunction f;
  OK(api.cuModuleGetFunction(&f, m, "aligned"));
  const size_t offsets[] = {48, 176, 240, 368};
  for (size_t i = 0; i < 4; ++i) {
    size_t offset = 0;
    OK(api.cuFuncGetParamInfo(f, i, &offset, nullptr));
    EXPECT_EQ(offset, offsets[i]);
  }
  const CUdeviceptr out = allocate(8);
  uint32_t map[32] = {}, other[32] = {}, n = 3;
  map[31] = 100;
  other[1] = 20;
  CUdeviceptr p = out;
  void* pointers[] = {map, &p, other, &n};
  OK(api.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr));
  EXPECT_EQ(read(out, 1)[0], 123u);
  std::vector<std::byte> block(372);
  n = 4;
  p = out + 4;
  const size_t sizes[] = {sizeof map, sizeof p, sizeof other, sizeof n};
  for (size_t i = 0; i < 4; ++i) std::memcpy(block.data() + offsets[i], pointers[i], sizes[i]);
  size_t bytes = block.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, block.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  OK(api.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(read(out, 2)[1], 124u);
}

TEST_F(SoftGpuTest, RefusesShapesThatNoGpuRuns) {
  const CUfunction f = kernel("empty");
  const auto shape = [&](unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                         unsigned bz, unsigned shared) {
    return api.cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, nullptr, nullptr, nullptr);
  };
  OK(shape(2, 3, 4, 8, 4, 2, 0));
  OK(shape(1, 1, 1, 1024, 1, 1, 48 * 1024));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(0, 1, 1, 1, 1, 1, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(1, 1, 1, 1025, 1, 1, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(1, 1, 1, 1, 1, 65, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(1, 1, 1, 64, 32, 1, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(1, 65536, 1, 1, 1, 1, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(1, 1, 1, 1, 1, 1, 48 * 1024 + 1));
  OK(api.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 * 1024));
  OK(shape(1, 1, 1, 1, 1, 1, 100 * 1024));
  FAILS(CUDA_ERROR_INVALID_VALUE,
        api.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 * 1024));
  OK(api.cuCtxSynchronize());
}

TEST_F(SoftGpuTest, RunsWithDynamicSharedMemory) {
  const CUdeviceptr out = allocate(1024);
  CUdeviceptr p = out;
  uint32_t n = 256;
  void* pointers[] = {&p, &n};
  OK(api.cuLaunchKernel(kernel("shared"), 1, 1, 1, n, 1, 1, n * 4, nullptr, pointers, nullptr));
  std::vector<uint32_t> expected(256);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(read(out, 256), expected);
}

TEST_F(SoftGpuTest, BlocksRunOnAllSms) {
  int sms = 0;
  OK(api.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  const CUdeviceptr out = allocate(4 * 256);
  OK(launch("where", 256, 1, nullptr, out));
  std::set<uint32_t> seen;
  for (uint32_t sm : read(out, 256)) {
    EXPECT_LT(sm, static_cast<uint32_t>(sms));
    seen.insert(sm);
  }
  EXPECT_GE(seen.size(), 1u);
}

TEST_F(SoftGpuTest, AnswersOccupancy) {
  int blocks = 0, most = 0, grid = 0, size = 0;
  OK(api.cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 0));
  const CUfunction f = kernel("empty");
  OK(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 32, 0));
  EXPECT_EQ(blocks, most);
  OK(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1024, 0));
  EXPECT_EQ(blocks, 2);
  OK(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 32, 100 * 1024));
  EXPECT_EQ(blocks, 0) << "more than the function asked for";
  OK(api.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200 * 1024));
  OK(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 32, 100 * 1024));
  EXPECT_EQ(blocks, 2);
  OK(api.cuOccupancyMaxPotentialBlockSize(&grid, &size, f, nullptr, 0, 0));
  EXPECT_EQ(size, 1024);
  size_t shared = 0;
  OK(api.cuOccupancyAvailableDynamicSMemPerBlock(&shared, f, 2, 64));
  EXPECT_EQ(shared, 113u * 1024);
}

TEST_F(SoftGpuTest, LibrariesWorkInEveryContext) {
  CUlibrary library;
  OK(api.cuLibraryLoadData(&library, kTestPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel k;
  OK(api.cuLibraryGetKernel(&k, library, "iota"));
  FAILS(CUDA_ERROR_NOT_FOUND, api.cuLibraryGetKernel(&k, library, "nothing"));
  size_t offset = 0, bytes = 0;
  OK(api.cuKernelGetParamInfo(k, 1, &offset, &bytes));
  EXPECT_EQ(offset, 8u);
  CUfunction f;
  OK(api.cuKernelGetFunction(&f, k));
  for (const CUfunction launched : {f, reinterpret_cast<CUfunction>(k)}) {
    const CUdeviceptr out = allocate(400);
    CUdeviceptr p = out;
    uint32_t n = 100, first = 3;
    void* pointers[] = {&p, &n, &first};
    OK(api.cuLaunchKernel(launched, 1, 1, 1, 128, 1, 1, 0, nullptr, pointers, nullptr));
    EXPECT_EQ(read(out, 100)[99], 102u);
  }
  CUcontext other;
  OK(api.cuCtxCreate_v2(&other, 0, 0));
  CUfunction there;
  OK(api.cuKernelGetFunction(&there, k));
  EXPECT_NE(there, f);
  OK(api.cuLaunchKernel(kernel("empty"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) ==
             CUDA_ERROR_INVALID_HANDLE
         ? CUDA_SUCCESS
         : CUDA_ERROR_UNKNOWN);  // a function of another context
  OK(api.cuCtxDestroy(other));
  OK(api.cuLibraryUnload(library));
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuLibraryUnload(library));
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuKernelGetFunction(&f, k));
}

// What a kernel does wrong, what the API then says, and that it goes on saying so.
void expect_sticky(const gpu::DriverApi& api, CUresult error, const char* kernel) {
  FAILS(error, api.cuCtxSynchronize());
  CUdeviceptr p = 0;
  FAILS(error, api.cuMemAlloc(&p, 16));
  FAILS(error, api.cuStreamSynchronize(nullptr));
  const auto fault = reinterpret_cast<decltype(&sluice_softgpu_fault)>(
      ::dlsym(api.library, "sluice_softgpu_fault"));
  ASSERT_NE(fault, nullptr);
  char text[300];
  EXPECT_EQ(fault(nullptr, text, sizeof text), error);
  EXPECT_NE(std::string(text).find(kernel), std::string::npos) << text;
}

TEST_F(SoftGpuTest, FaultsStayWithTheirContext) {
  CUcontext first = context_;
  const CUdeviceptr p = allocate(1000);
  OK(launch("poke", 1, 1, nullptr, p + 1024, 1u));
  expect_sticky(api, CUDA_ERROR_ILLEGAL_ADDRESS, "poke");
  CUcontext other;
  OK(api.cuCtxCreate_v2(&other, 0, 0));
  OK(api.cuCtxSynchronize());
  OK(api.cuCtxDestroy(other));
  CUcontext now;
  OK(api.cuCtxGetCurrent(&now));
  EXPECT_EQ(now, first);
}

TEST_F(SoftGpuTest, FreedMemoryFaults) {
  const CUdeviceptr p = allocate(1000);
  OK(api.cuMemFree(p));
  OK(launch("poke", 1, 1, nullptr, p, 1u));
  expect_sticky(api, CUDA_ERROR_ILLEGAL_ADDRESS, "poke");
}

TEST_F(SoftGpuTest, OtherContextsMemoryFaults) {
  CUcontext other;
  OK(api.cuCtxCreate_v2(&other, 0, 0));
  const CUdeviceptr theirs = allocate(16);
  OK(api.cuCtxPopCurrent(nullptr));
  OK(launch("poke", 1, 1, nullptr, theirs, 1u));
  expect_sticky(api, CUDA_ERROR_ILLEGAL_ADDRESS, "poke");
  OK(api.cuCtxDestroy(other));
}

TEST_F(SoftGpuTest, MisalignedAccessFaults) {
  const CUdeviceptr p = allocate(1000);
  OK(launch("poke", 1, 1, nullptr, p + 2, 1u));
  expect_sticky(api, CUDA_ERROR_MISALIGNED_ADDRESS, "poke");
}

TEST_F(SoftGpuTest, TrapFaultsAndWhatIsQueuedBehindIsDropped) {
  uint32_t* word = pinned_word();
  CUstream s = stream();
  const CUfunction poke = kernel("poke");
  CUdeviceptr p = address(word);
  uint32_t value = 1;
  void* pointers[] = {&p, &value};
  OK(launch("trapped", 1, 1, s));
  // Refused if the fault came first, dropped otherwise.
  (void)api.cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, s, pointers, nullptr);
  (void)api.cuMemsetD32Async(address(word), 2, 1, s);
  expect_sticky(api, CUDA_ERROR_LAUNCH_FAILED, "trapped");
  EXPECT_EQ(*word, 0u);
}

TEST_F(SoftGpuTest, NoHandleIsEverFollowed) {
  const uint64_t garbage[] = {3,
                              8,
                              0x1000,
                              0x7fff'ffff'ffff,
                              ~0ull,
                              0xc100'0001'0000'0001,
                              0xc300'0001'ffff'ffff,
                              reinterpret_cast<uint64_t>(context_) ^ (1ull << 40)};
  for (const uint64_t word : garbage) {
    SCOPED_TRACE(word);
    const auto as = [&]<class T>(T*) { return reinterpret_cast<T>(word); };
    CUfunction f;
    unsigned flags;
    FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxSetCurrent(as(static_cast<CUcontext*>(nullptr))));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxDestroy(as(static_cast<CUcontext*>(nullptr))));
    FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuModuleUnload(as(static_cast<CUmodule*>(nullptr))));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          api.cuModuleGetFunction(&f, as(static_cast<CUmodule*>(nullptr)), "iota"));
    FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuLaunchKernel(as(static_cast<CUfunction*>(nullptr)), 1, 1,
                                                        1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          api.cuStreamGetFlags(as(static_cast<CUstream*>(nullptr)), &flags));
    FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuStreamDestroy(as(static_cast<CUstream*>(nullptr))));
    FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuEventQuery(as(static_cast<CUevent*>(nullptr))));
    FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuEventDestroy(as(static_cast<CUevent*>(nullptr))));
    FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuLibraryUnload(as(static_cast<CUlibrary*>(nullptr))));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          api.cuKernelGetFunction(&f, as(static_cast<CUkernel*>(nullptr))));
  }
  CUstream s = stream();
  OK(api.cuStreamDestroy(s));
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuStreamSynchronize(s));
  CUstream next = stream();
  EXPECT_NE(next, s) << "a new stream in the same place has another generation";
}

TEST_F(SoftGpuTest, FindsFunctionsByNameAndVersion) {
  void* p = nullptr;
  CUdriverProcAddressQueryResult status;
#define SLUICE_LOOK_UP(symbol, name, since, parameters)                             \
  OK(api.cuGetProcAddress(#name, &p, since, CU_GET_PROC_ADDRESS_DEFAULT, &status)); \
  EXPECT_EQ(p, reinterpret_cast<void*>(api.symbol)) << #symbol;
  SLUICE_CUDA_DRIVER_FUNCTIONS(SLUICE_LOOK_UP)
  SLUICE_CUDA_GREEN_FUNCTIONS(SLUICE_LOOK_UP)
#undef SLUICE_LOOK_UP
  OK(api.cuGetProcAddress("cuCtxCreate", &p, 12000, 0, nullptr));
  EXPECT_EQ(p, reinterpret_cast<void*>(api.cuCtxCreate_v3))
      << "what a program built for 12.0 means";
  OK(api.cuGetProcAddress("cuMemAlloc", &p, 2000, 0, &status));
  EXPECT_EQ(p, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  OK(api.cuGetProcAddress("cuFrobnicate", &p, 13000, 0, &status));
  EXPECT_EQ(p, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
#define SLUICE_ALIAS(symbol, target, name, since)                                         \
  EXPECT_EQ(::dlsym(api.library, symbol), reinterpret_cast<void*>(api.target)) << symbol; \
  OK(api.cuGetProcAddress(name, &p, since, 0, nullptr));
  SLUICE_CUDA_DRIVER_ALIASES(SLUICE_ALIAS)
#undef SLUICE_ALIAS
  CUuuid id{};
  const void* table = nullptr;
  FAILS(CUDA_ERROR_NOT_SUPPORTED, api.cuGetExportTable(&table, &id));
}

}  // namespace
}  // namespace sluice
