// SPDX-License-Identifier: Apache-2.0
// Kernels that launch kernels.
#include <algorithm>
#include <string>

#include "tests/unit/softgpu/fixture.h"

namespace sluice {
namespace {

// launch(KERNEL, GRID, BLOCK, P, V, STREAM): the registers that hold its two parameters, and a
// stream.
std::string launch_text(const char* kernel, const char* grid, const char* block, const char* p,
                        const char* v, const char* stream) {
  const std::string dims[] = {grid, block};
  std::string text =
      "{\n.param .b64 a0; .param .align 4 .b8 a1[12]; .param .align 4 .b8 a2[12];\n"
      ".param .b32 a3; .param .b64 r0; .param .b64 b0; .param .b64 b1; .param .b32 r1;\n"
      "mov.u64 %rd9, " +
      std::string(kernel) + ";\nst.param.b64 [a0], %rd9;\n";
  for (int i = 0; i < 2; ++i) {
    const std::string to = i == 0 ? "a1" : "a2";
    text += "st.param.b32 [" + to + "], " + dims[i] + ";\nst.param.b32 [" + to +
            "+4], 1;\nst.param.b32 [" + to + "+8], 1;\n";
  }
  return text +
         "st.param.b32 [a3], 0;\n"
         "call.uni (r0), __cudaCDP2GetParameterBufferV2, (a0, a1, a2, a3);\n"
         "ld.param.b64 %rd8, [r0];\nsetp.eq.s64 %p9, %rd8, 0;\nmov.u32 %r9, 1000;\n"
         "@%p9 bra none_" +
         std::string(kernel) + stream + ";\nst.b64 [%rd8], " + p + ";\nst.b32 [%rd8+8], " + v +
         ";\nst.param.b64 [b0], %rd8;\nst.param.b64 [b1], " + stream +
         ";\ncall.uni (r1), __cudaCDP2LaunchDeviceV2, (b0, b1);\nld.param.b32 %r9, [r1];\n"
         "none_" +
         std::string(kernel) + stream + ":\n}\n";
}

// call_text(FUNCTION, {{"b64", VALUE}, ...}): its result in %r9.
std::string call_text(const char* function,
                      const std::vector<std::pair<const char*, const char*>>& arguments) {
  std::string text = "{\n.param .b32 r;\n", list;
  for (const auto& [type, value] : arguments) {
    const std::string name = "a" + std::to_string(list.size());
    text += ".param ." + std::string(type) + " " + name + "; st.param." + type + " [" + name +
            "], " + value + ";\n";
    list += (list.empty() ? "" : ", ") + name;
  }
  return text + "call.uni (r), __cudaCDP2" + function + ", (" + list +
         ");\nld.param.b32 %r9, [r];\n}\n";
}

std::string module_text() {
  const std::string head =
      R"(.version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2(.param .b64 a,
    .param .align 4 .b8 b[12], .param .align 4 .b8 c[12], .param .b32 d);
.extern .func (.param .b32 r) __cudaCDP2LaunchDeviceV2(.param .b64 a, .param .b64 b);
.extern .func (.param .b32 r) __cudaCDP2GetLastError();
.extern .func (.param .b64 r) __cudaCDP2GetErrorName(.param .b32 a);
.extern .func (.param .b64 r) __cudaCDP2GetErrorString(.param .b32 a);
.extern .func (.param .b32 r) __cudaCDP2DeviceGetLimit(.param .b64 a, .param .b32 b);
.extern .func (.param .b32 r) __cudaCDP2GetDevice(.param .b64 a);
.extern .func (.param .b32 r) __cudaCDP2GetDeviceCount(.param .b64 a);
.extern .func (.param .b32 r) __cudaCDP2RuntimeGetVersion(.param .b64 a);
.extern .func (.param .b32 r) __cudaCDP2DeviceGetAttribute(.param .b64 a, .param .b32 b,
    .param .b32 c);
.extern .func (.param .b32 r) __cudaCDP2FuncGetAttributes(.param .b64 a, .param .b64 b);
.extern .func (.param .b32 r) __cudaCDP2OccupancyMaxActiveBlocksPerMultiprocessor(.param .b64 a,
    .param .b64 b, .param .b32 c, .param .b64 d);
.extern .func (.param .b32 r) __cudaCDP2Memcpy2DAsync(.param .b64 a, .param .b64 b, .param .b64 c,
    .param .b64 d, .param .b64 e, .param .b64 f, .param .b32 g, .param .b64 h);
.extern .func (.param .b32 r) __cudaCDP2Memset2DAsync(.param .b64 a, .param .b64 b, .param .b32 c,
    .param .b64 d, .param .b64 e, .param .b64 f);
.extern .func (.param .b32 r) __cudaCDP2MemcpyAsync(.param .b64 a, .param .b64 b, .param .b64 c,
    .param .b32 d, .param .b64 e);
.extern .func (.param .b32 r) __cudaCDP2MemsetAsync(.param .b64 a, .param .b32 b, .param .b64 c,
    .param .b64 d);
)";
  const auto kernel = [](const char* name, const std::string& body) {
    return std::string(".visible .entry ") + name + R"((.param .u64 p, .param .u32 v)
{
.reg .pred %p<10>; .reg .b32 %r<10>; .reg .b64 %rd<10>;
ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [v];
)" + body + "ret;\n}\n";
  };
  return head + kernel("add", "atom.global.add.u32 %r2, [%rd1], %r1;\n") +
         // Writes what is there, doubled, plus v.
         kernel("turn",
                "ld.global.u32 %r2, [%rd1];\nshl.b32 %r2, %r2, 1;\nadd.u32 %r2, %r2, %r1;\n"
                "st.global.u32 [%rd1], %r2;\n") +
         kernel("stray", "mov.u64 %rd1, 0;\nst.global.u32 [%rd1], %r1;\n") +
         // Itself, v times over, and 8 threads of `add` each.
         kernel("nest", launch_text("add", "2", "4", "%rd1", "1", "0") +
                            "sub.u32 %r1, %r1, 1;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 ret;\n" +
                            launch_text("nest", "1", "1", "%rd1", "%r1", "4")) +
         // cudaStreamTailLaunch (3) comes last, others in their order.
         kernel("order", launch_text("turn", "1", "1", "%rd1", "1", "3") +
                             launch_text("turn", "1", "1", "%rd1", "2", "0") +
                             launch_text("turn", "1", "1", "%rd1", "3", "256") +
                             "mov.u32 %r2, 7;\nst.global.u32 [%rd1], %r2;\n") +
         kernel("faulty", launch_text("stray", "1", "1", "%rd1", "1", "0") +
                              launch_text("add", "1", "1", "%rd1", "1", "0")) +
         // A fill, what adds to it, a copy of the sum; v more is where nothing is.
         kernel(
             "copies",
             "add.u64 %rd2, %rd1, 4;\ncvt.u64.u32 %rd3, %r1;\nadd.u64 %rd3, %rd3, 4;\n"
             "{\n.param .b64 a; .param .b32 b; .param .b64 c; .param .b64 d; .param .b32 r;\n"
             "st.param.b64 [a], %rd1; st.param.b32 [b], 1; st.param.b64 [c], 4;\n"
             "st.param.b64 [d], 0;\ncall.uni (r), __cudaCDP2MemsetAsync, (a, b, c, d);\n}\n" +
                 launch_text("add", "2", "4", "%rd1", "1", "0") +
                 "{\n.param .b64 a; .param .b64 b; .param .b64 c; .param .b32 d; .param .b64 e;\n"
                 ".param .b32 r;\n"
                 "st.param.b64 [a], %rd2; st.param.b64 [b], %rd1; st.param.b64 [c], %rd3;\n"
                 "st.param.b32 [d], 3; st.param.b64 [e], 0;\n"
                 "call.uni (r), __cudaCDP2MemcpyAsync, (a, b, c, d, e);\n}\n") +
         // Each thread a byte with v.
         kernel("fill_bytes",
                "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\n"
                "mad.lo.u32 %r2, %r2, %r3, %r4;\ncvt.u64.u32 %rd2, %r2;\n"
                "add.u64 %rd1, %rd1, %rd2;\n"
                "{\n.param .b64 a; .param .b32 b; .param .b64 c; .param .b64 d; .param .b32 r;\n"
                "st.param.b64 [a], %rd1; st.param.b32 [b], %r1; st.param.b64 [c], 1;\n"
                "st.param.b64 [d], 0;\ncall.uni (r), __cudaCDP2MemsetAsync, (a, b, c, d);\n}\n") +
         // What it is told, at words 0 to 7, the sum of errors at 8, attributes from 10.
         kernel(
             "asks",
             "mov.u64 %rd4, add;\nadd.u64 %rd2, %rd1, 4;\nadd.u64 %rd3, %rd1, 8;\n"
             "add.u64 %rd5, %rd1, 12;\nadd.u64 %rd6, %rd1, 16;\nadd.u64 %rd7, %rd1, 40;\n" +
                 call_text("GetDevice", {{"b64", "%rd1"}}) + "mov.u32 %r8, %r9;\n" +
                 call_text("GetDeviceCount", {{"b64", "%rd2"}}) + "add.u32 %r8, %r8, %r9;\n" +
                 call_text("RuntimeGetVersion", {{"b64", "%rd3"}}) + "add.u32 %r8, %r8, %r9;\n" +
                 call_text("DeviceGetAttribute", {{"b64", "%rd5"}, {"b32", "16"}, {"b32", "0"}}) +
                 "add.u32 %r8, %r8, %r9;\n" +
                 call_text("OccupancyMaxActiveBlocksPerMultiprocessor",
                           {{"b64", "%rd6"}, {"b64", "%rd4"}, {"b32", "64"}, {"b64", "0"}}) +
                 "add.u32 %r8, %r8, %r9;\n" +
                 call_text("FuncGetAttributes", {{"b64", "%rd7"}, {"b64", "%rd4"}}) +
                 "add.u32 %r8, %r8, %r9;\nst.global.u32 [%rd1+32], %r8;\n" +
                 call_text("DeviceGetAttribute", {{"b64", "%rd6"}, {"b32", "16"}, {"b32", "1"}}) +
                 "st.global.u32 [%rd1+20], %r9;\n" +
                 call_text("DeviceGetAttribute", {{"b64", "%rd6"}, {"b32", "9999"}, {"b32", "0"}}) +
                 "st.global.u32 [%rd1+24], %r9;\n" +
                 call_text("FuncGetAttributes", {{"b64", "%rd7"}, {"b64", "%rd7"}}) +
                 "st.global.u32 [%rd1+28], %r9;\n") +
         // Three rows of 4 bytes, 8 apart, of ones; their copies beside them; v rows more.
         kernel("boxes", "add.u64 %rd2, %rd1, 4;\ncvt.u64.u32 %rd3, %r1;\n" +
                             call_text("Memset2DAsync", {{"b64", "%rd1"},
                                                         {"b64", "8"},
                                                         {"b32", "1"},
                                                         {"b64", "4"},
                                                         {"b64", "3"},
                                                         {"b64", "0"}}) +
                             call_text("Memcpy2DAsync", {{"b64", "%rd2"},
                                                         {"b64", "8"},
                                                         {"b64", "%rd1"},
                                                         {"b64", "8"},
                                                         {"b64", "4"},
                                                         {"b64", "%rd3"},
                                                         {"b32", "3"},
                                                         {"b64", "0"}}) +
                             "st.global.u32 [%rd1+24], %r9;\n" +
                             call_text("Memset2DAsync", {{"b64", "%rd1"},
                                                         {"b64", "3"},
                                                         {"b32", "1"},
                                                         {"b64", "4"},
                                                         {"b64", "3"},
                                                         {"b64", "0"}}) +
                             "st.global.u32 [%rd1+28], %r9;\n") +
         // The bytes of error v's name and of its sentence, 64 each; the limits 2 and 99.
         kernel("words_of_errors",
                ".param .b32 e; .param .b64 n; .param .b64 s;\nst.param.b32 [e], %r1;\n"
                "call.uni (n), __cudaCDP2GetErrorName, (e);\nld.param.b64 %rd2, [n];\n"
                "call.uni (s), __cudaCDP2GetErrorString, (e);\nld.param.b64 %rd3, [s];\n"
                "mov.u64 %rd4, %rd1;\nmov.u32 %r2, 0;\n"
                "next:\nld.u8 %r3, [%rd2];\nst.global.u8 [%rd4], %r3;\n"
                "setp.ne.u32 %p1, %r3, 0;\n@%p1 add.u64 %rd2, %rd2, 1;\n"
                "ld.u8 %r3, [%rd3];\nst.global.u8 [%rd4+64], %r3;\n"
                "setp.ne.u32 %p1, %r3, 0;\n@%p1 add.u64 %rd3, %rd3, 1;\n"
                "add.u64 %rd4, %rd4, 1;\nadd.u32 %r2, %r2, 1;\n"
                "setp.lt.u32 %p1, %r2, 64;\n@%p1 bra next;\nadd.u64 %rd5, %rd1, 128;\n" +
                    call_text("DeviceGetLimit", {{"b64", "%rd5"}, {"b32", "2"}}) +
                    "st.global.u32 [%rd1+136], %r9;\n" +
                    call_text("DeviceGetLimit", {{"b64", "%rd5"}, {"b32", "99"}}) +
                    "st.global.u32 [%rd1+140], %r9;\n") +
         // Its children's blocks are too large; then it asks why.
         kernel("wrong", launch_text("add", "1", "2000", "%rd1", "1", "0") +
                             ".param .b32 e;\n"
                             "call.uni (e), __cudaCDP2GetLastError, ();\nld.param.b32 %r2, [e];\n"
                             "st.global.u32 [%rd1], %r9;\nst.global.u32 [%rd1+4], %r2;\n"
                             "call.uni (e), __cudaCDP2GetLastError, ();\nld.param.b32 %r2, [e];\n"
                             "st.global.u32 [%rd1+8], %r2;\n");
}

class DeviceLaunches : public SoftGpuTest {
 protected:
  void SetUp() override {
    SoftGpuTest::SetUp();
    OK(api.cuModuleLoadData(&module_, module_text().c_str()));
    words_ = allocate(12);
    OK(api.cuMemsetD32(words_, 0, 3));
  }
  CUdeviceptr words_ = 0;
};

TEST_F(DeviceLaunches, AreOverBeforeTheirGridIs) {
  for (uint32_t round = 1; round <= 3; ++round) {
    OK(launch("nest", 2, 1, nullptr, words_, 5u));
    EXPECT_EQ(read(words_, 1)[0], round * 2 * 5 * 8);
  }
}
TEST_F(DeviceLaunches, RunInOrderAndTheTailLast) {
  OK(launch("order", 1, 1, nullptr, words_, 0u));
  EXPECT_EQ(read(words_, 1)[0], ((7u * 2 + 2) * 2 + 3) * 2 + 1);
}
TEST_F(DeviceLaunches, AFaultIsTheGrids) {
  OK(launch("faulty", 1, 1, nullptr, words_, 0u));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, api.cuCtxSynchronize());
}
TEST_F(DeviceLaunches, CopiesAndFillsAreAmongThem) {
  OK(launch("copies", 1, 1, nullptr, words_, 0u));
  EXPECT_EQ(read(words_, 2), (std::vector<uint32_t>{0x01010109, 0x01010109}));
  OK(launch("copies", 1, 1, nullptr, words_, 1u << 30));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, api.cuCtxSynchronize());
}
TEST_F(DeviceLaunches, SayWhyTheyAreRefused) {
  OK(launch("wrong", 1, 1, nullptr, words_, 0u));
  constexpr uint32_t kNoBuffer = 1000, kInvalidConfiguration = 9;
  EXPECT_EQ(read(words_, 3), (std::vector<uint32_t>{kNoBuffer, kInvalidConfiguration, 0}));
}
TEST_F(DeviceLaunches, KernelsAskWhatTheHostAsks) {
  const CUdeviceptr words = allocate(160);
  OK(api.cuMemsetD32(words, 77, 40));
  OK(launch("asks", 1, 1, nullptr, words, 0u));
  const std::vector<uint32_t> told = read(words, 40);
  int sms, blocks, registers, threads;
  CUfunction add;
  OK(api.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  OK(api.cuModuleGetFunction(&add, module_, "add"));
  OK(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 64, 0));
  OK(api.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, add));
  OK(api.cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add));
  constexpr uint32_t kInvalidDevice = 101, kInvalidValue = 1, kInvalidDeviceFunction = 98;
  EXPECT_EQ(
      std::vector<uint32_t>(told.begin(), told.begin() + 9),
      (std::vector<uint32_t>{0, 1, 13000, static_cast<uint32_t>(sms), static_cast<uint32_t>(blocks),
                             kInvalidDevice, kInvalidValue, kInvalidDeviceFunction, 0}));
  EXPECT_EQ(told[16], static_cast<uint32_t>(threads));
  EXPECT_EQ(told[17], static_cast<uint32_t>(registers));
  EXPECT_EQ(told[23], 77u);  // older versions' attributes end here
}
TEST_F(DeviceLaunches, KernelsReadErrorsInWords) {
  const CUdeviceptr bytes = allocate(36 * 4);
  const auto words = [&](uint32_t error) {
    EXPECT_EQ(launch("words_of_errors", 2, 32, nullptr, bytes, error), CUDA_SUCCESS);
    const std::vector<uint32_t> got = read(bytes, 36);
    const auto* text = reinterpret_cast<const char*>(got.data());
    constexpr uint32_t kUnsupportedLimit = 215;
    EXPECT_EQ(got[34], 0u);
    EXPECT_EQ(got[35], kUnsupportedLimit);
    size_t heap = 0;
    EXPECT_EQ(api.cuCtxGetLimit(&heap, CU_LIMIT_MALLOC_HEAP_SIZE), CUDA_SUCCESS);
    EXPECT_EQ(got[32], heap);
    return std::pair(std::string(text), std::string(text + 64));
  };
  EXPECT_EQ(words(0), std::pair(std::string("cudaSuccess"), std::string("success")));
  EXPECT_EQ(words(999).first, "cudaErrorUnknown");
  EXPECT_EQ(words(999).second, "an error without a name");
  EXPECT_EQ(words(7777).first, "unrecognized error code");
  EXPECT_EQ(words(7777).second, "unrecognized error code");
}
TEST_F(DeviceLaunches, CopyAndFillBoxes) {
  const CUdeviceptr words = allocate(32);
  OK(api.cuMemsetD32(words, 0, 8));
  OK(launch("boxes", 1, 1, nullptr, words, 3u));
  constexpr uint32_t kOnes = 0x01010101, kInvalidPitch = 12;
  EXPECT_EQ(read(words, 8),
            (std::vector<uint32_t>{kOnes, kOnes, kOnes, kOnes, kOnes, kOnes, 0, kInvalidPitch}));
  // As many rows as a grid's children can wait, and more: refused at the first too many.
  OK(launch("boxes", 1, 1, nullptr, words, 1u << 31));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, api.cuCtxSynchronize());
}
TEST_F(DeviceLaunches, WaitInLimitedNumber) {
  size_t most = 0;
  OK(api.cuCtxGetLimit(&most, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT));
  const size_t blocks = most / 128 + 1;
  const CUdeviceptr bytes = allocate(blocks * 128);
  OK(api.cuMemsetD8(bytes, 0, blocks * 128));
  OK(launch("fill_bytes", static_cast<unsigned>(blocks), 128, nullptr, bytes, 1u));
  std::vector<uint8_t> all(blocks * 128);
  OK(api.cuMemcpyDtoH(all.data(), bytes, all.size()));
  EXPECT_EQ(static_cast<size_t>(std::count(all.begin(), all.end(), 1)), most);
}

}  // namespace
}  // namespace sluice
