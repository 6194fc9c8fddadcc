// SPDX-License-Identifier: Apache-2.0
// Each way in which a kernel can go wrong on libsluice-softcuda.so: the CUresult that CUDA has for
// it, sticky, and a message that names kernel, PTX line, block, thread, address and space.
#include <dlfcn.h>

#include "mediator/softgpu/softgpu.h"
#include "tests/unit/softgpu/fixture.h"

namespace sluice {
namespace {

const char* const kFaults = R"(.version 8.0
.target sm_90
.address_size 64
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n,
.param .b64 s);
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.global .align 1 .b8 text[5] = {116, 101, 120, 116, 0};
.const .align 4 .u32 constant = 1;
.func again(.param .b32 n)
{ .local .b8 room[256]; .reg .b32 %x; ld.param.b32 %x, [n]; st.local.b32 [room], %x;
call again, (%x); ret; }
.visible .entry fault(.param .u64 address, .param .u32 which)
{
 .reg .b64 %a<8>; .reg .b32 %x<8>; .reg .pred %p<4>;
 .shared .align 8 .b8 box[64];
 .local .align 8 .b8 mine[64];
 ld.param.u64 %a0, [address]; ld.param.u32 %x0, [which]; mov.u32 %x1, %tid.x;
 setp.ne.u32 %p1, %x1, 33; setp.eq.u32 %p2, %x0, 9; @%p2 bra DEADLOCK; @%p1 ret;
 T: .branchtargets GLOBAL, SHARED, LOCAL, STACK, TRAP, ASSERT, POINTER, FREE, SPACE, DEADLOCK,
 BARRIER, CONSTANT;
 brx.idx %x0, T;
GLOBAL: ld.global.u64 %a1, [%a0];
 ret;
SHARED: cvt.u32.u64 %x2, %a0; st.shared.u32 [%x2], 1;
 ret;
LOCAL: st.local.u32 [%a0], 1;
 ret;
STACK: call again, (1);
 ret;
TRAP: trap;
ASSERT: { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;
 mov.u64 %a1, text; st.param.b64 [m], %a1; st.param.b64 [f], %a1; st.param.b32 [l], 12;
 st.param.b64 [n], %a1; st.param.b64 [s], 1;
 call __assertfail, (m, f, l, n, s); }
 ret;
POINTER: { P: .callprototype _ (); call %a0, (), P; }
 ret;
FREE: { .param .b64 p; st.param.b64 [p], %a0; call free, (p); }
 ret;
SPACE: { mov.u64 %a1, address; cvta.param.u64 %a1, %a1; st.u32 [%a1], 1; }
 ret;
DEADLOCK: @!%p1 bar.sync 1; @%p1 bar.sync 2;
 ret;
BARRIER: mov.u32 %x3, 17; barrier.sync %x3;
 ret;
CONSTANT: mov.u64 %a1, constant; st.global.u32 [%a1+4096], 1;
 ret;
}
.visible .entry recursion(.param .u32 unused) { call again, (1); ret; }
.visible .entry deep(.param .u64 out, .param .u32 n)
{
 .reg .b64 %a<8>; .reg .b32 %x<8>; .reg .pred %p<4>;
 ld.param.u64 %a0, [out];
 { .param .b64 p; st.param.b64 [p], 5000; .param .b64 q; call (q), malloc, (p);
 ld.param.b64 %a1, [q]; }
 ld.param.u32 %x0, [n];
 { .param .b32 p; st.param.b32 [p], %x0; .param .b32 q; call (q), sum, (p); ld.param.b32 %x1, [q]; }
 st.global.u32 [%a0], %x1; st.global.u64 [%a0+8], %a1;
 ret;
}
.func (.param .b32 r) sum(.param .b32 n)
{ .reg .b32 %x<4>; .reg .pred %p; .local .b8 room[64];
 ld.param.b32 %x0, [n]; setp.eq.u32 %p, %x0, 0; mov.u32 %x1, 0; @%p bra E;
 sub.u32 %x2, %x0, 1; call (%x1), sum, (%x2); add.u32 %x1, %x1, %x0;
E: st.param.b32 [r], %x1; ret; }
)";

class SoftGpuFaults : public SoftGpuTest {
 protected:
  void SetUp() override {
    SoftGpuTest::SetUp();
    OK(api.cuModuleLoadData(&faults_, kFaults));
  }
  CUfunction function(const char* name) {
    CUfunction f = nullptr;
    EXPECT_EQ(api.cuModuleGetFunction(&f, faults_, name), CUDA_SUCCESS) << name;
    return f;
  }
  // The message of a fault in a context of its own, which must be `error` and stay.
  std::string fault(uint32_t which, CUdeviceptr address, CUresult error) {
    void* pointers[] = {&address, &which};
    EXPECT_EQ(
        api.cuLaunchKernel(function("fault"), 3, 1, 1, 64, 1, 1, 0, nullptr, pointers, nullptr),
        CUDA_SUCCESS);
    FAILS(error, api.cuCtxSynchronize());
    CUdeviceptr p = 0;
    FAILS(error, api.cuMemAlloc(&p, 16));
    FAILS(error, api.cuCtxSynchronize());
    const auto last = reinterpret_cast<decltype(&sluice_softgpu_fault)>(
        ::dlsym(api.library, "sluice_softgpu_fault"));
    char text[600] = "";
    EXPECT_EQ(last(nullptr, text, sizeof text), error);
    const std::string message(text);
    EXPECT_NE(message.find(" in fault at PTX line "), std::string::npos) << message;
    EXPECT_NE(message.find("thread (33,0,0)"), std::string::npos) << message;
    EXPECT_NE(message.find(",0,0), thread"), std::string::npos) << message;
    return message;
  }
  static void expect(const std::string& message, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  CUmodule faults_ = nullptr;
};

TEST_F(SoftGpuFaults, OutOfBoundsNamesTheNearestAllocation) {
  const CUdeviceptr p = allocate(1024);
  expect(
      fault(0, p + 1024, CUDA_ERROR_ILLEGAL_ADDRESS),
      {"PTX line 23", "8 bytes at 0x", "(global)", "0 bytes after the end of the 1024 bytes at"});
}
TEST_F(SoftGpuFaults, ALittleBehindAnAllocationIsNone) {
  const CUdeviceptr p = allocate(1001);
  CUdeviceptr address = p + 1016;
  uint32_t which = 0;
  void* pointers[] = {&address, &which};
  OK(api.cuLaunchKernel(function("fault"), 1, 1, 1, 64, 1, 1, 0, nullptr, pointers, nullptr));
  OK(api.cuCtxSynchronize());
  char byte;
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyDtoH(&byte, p + 1001, 1)) << "calls are exact";
  expect(fault(0, p + 1024, CUDA_ERROR_ILLEGAL_ADDRESS), {"23 bytes after the end of the 1001"});
}
TEST_F(SoftGpuFaults, FreedMemory) {
  const CUdeviceptr p = allocate(1024);
  OK(api.cuMemFree(p));
  expect(fault(0, p + 8, CUDA_ERROR_ILLEGAL_ADDRESS), {"1024 bytes", "have been freed"});
}
TEST_F(SoftGpuFaults, Misaligned) {
  const CUdeviceptr p = allocate(1024);
  expect(fault(0, p + 4, CUDA_ERROR_MISALIGNED_ADDRESS), {"misaligned", "8 bytes"});
}
TEST_F(SoftGpuFaults, SharedMemory) {
  expect(fault(1, 64, CUDA_ERROR_ILLEGAL_ADDRESS), {"PTX line 25", "(shared)", "has 64 bytes"});
}
TEST_F(SoftGpuFaults, MisalignedSharedMemory) {
  expect(fault(1, 2, CUDA_ERROR_MISALIGNED_ADDRESS), {"PTX line 25", "(shared)", "misaligned"});
}
TEST_F(SoftGpuFaults, LocalMemory) {
  expect(fault(2, 1 << 20, CUDA_ERROR_ILLEGAL_ADDRESS), {"PTX line 27", "(local)"});
}
TEST_F(SoftGpuFaults, Stack) {
  expect(fault(3, 0, CUDA_ERROR_HARDWARE_STACK_ERROR), {"stack overflow", "again"});
}
TEST_F(SoftGpuFaults, Trap) { expect(fault(4, 0, CUDA_ERROR_LAUNCH_FAILED), {"PTX line 31"}); }
TEST_F(SoftGpuFaults, Assert) {
  const std::string line = ",0,0], thread: [33,0,0] Assertion `text` failed.";
  ::testing::internal::CaptureStderr();
  const std::string message = fault(5, 0, CUDA_ERROR_ASSERT);
  const std::string output = ::testing::internal::GetCapturedStderr();
  expect(message, {"text:12: text: block: [", line.c_str()});
  EXPECT_EQ(output.find("text:12: text: block: ["), 0u) << output;
  EXPECT_NE(output.find(line + "\n"), std::string::npos) << output;
}
TEST_F(SoftGpuFaults, PointerToNoFunction) {
  expect(fault(6, 4096, CUDA_ERROR_INVALID_PC), {"no function has this address"});
}
TEST_F(SoftGpuFaults, FreeOfWhatIsNotOfTheHeap) {
  expect(fault(7, allocate(16), CUDA_ERROR_LAUNCH_FAILED), {"invalid free"});
}
TEST_F(SoftGpuFaults, StoreToAParameter) {
  expect(fault(8, 0, CUDA_ERROR_INVALID_ADDRESS_SPACE), {"PTX line 41"});
}
TEST_F(SoftGpuFaults, Deadlock) {
  void* pointers[] = {nullptr, nullptr};
  CUdeviceptr address = 0;
  uint32_t which = 9;
  pointers[0] = &address;
  pointers[1] = &which;
  OK(api.cuLaunchKernel(function("fault"), 1, 1, 1, 64, 1, 1, 0, nullptr, pointers, nullptr));
  FAILS(CUDA_ERROR_LAUNCH_TIMEOUT, api.cuCtxSynchronize());
  FAILS(CUDA_ERROR_LAUNCH_TIMEOUT, api.cuCtxSynchronize());
}
TEST_F(SoftGpuFaults, BarrierOutOfRange) {
  expect(fault(10, 0, CUDA_ERROR_ILLEGAL_INSTRUCTION), {"PTX line 45"});
}
TEST_F(SoftGpuFaults, BeyondAConstant) {
  expect(fault(11, 0, CUDA_ERROR_ILLEGAL_ADDRESS), {"PTX line 47"});
}

TEST_F(SoftGpuFaults, LimitsOfStackAndHeapCount) {
  size_t value = 0;
  OK(api.cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
  EXPECT_EQ(value, 1024u);
  OK(api.cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
  EXPECT_EQ(value, 8u << 20);
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 16 << 20));
  OK(api.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 100000));
  OK(api.cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8192));
  CUdeviceptr out = allocate(16);
  uint32_t n = 900;  // frames of some 100 bytes: not within the 1024 of the beginning
  void* pointers[] = {&out, &n};
  uint64_t answer[2];
  for (int k = 0; k < 2; ++k) {
    OK(api.cuLaunchKernel(function("deep"), 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr));
    OK(api.cuMemcpyDtoH(answer, out, 16));
    EXPECT_EQ(answer[0] & 0xffffffffu, 900u * 901 / 2);
    EXPECT_EQ(answer[1] != 0, k == 0) << "one of them fits into the heap";
  }
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20));
}

TEST_F(SoftGpuFaults, LimitsOfTheCacheAreHints) {
  const auto set = [this](CUlimit limit, size_t value) {
    EXPECT_EQ(api.cuCtxSetLimit(limit, value), CUDA_SUCCESS);
    EXPECT_EQ(api.cuCtxGetLimit(&value, limit), CUDA_SUCCESS);
    return value;
  };
  EXPECT_EQ(set(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 32), 32u);
  EXPECT_EQ(set(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 4096), 128u);
  EXPECT_EQ(set(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1 << 20), 0u);
  FAILS(CUDA_ERROR_UNSUPPORTED_LIMIT, api.cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 3));
}

}  // namespace
}  // namespace sluice
