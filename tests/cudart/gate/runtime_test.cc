// SPDX-License-Identifier: Apache-2.0
// The runtime library on the software GPU, without a compiler for CUDA: kernels of kernels.ptx are
// registered and launched as compiled programs do it. What ends a context, or a process, runs in a
// process of its own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "kernels.ptx.h"
#include "tests/cudart/gate/program.h"

using namespace sluice::cudart;

namespace {

// Host addresses by which kernels and variables are named.
char host_add, host_sum_up, host_store, host_wild, host_reverse;
int host_weights[4], host_total;

Program& program() {
  static Program* const p = [] {
    auto* made = new Program(fat_binary_of(sluice::suite::kKernelsPtx));
    made->kernel(&host_add, "add");
    made->kernel(&host_sum_up, "sum_up");
    made->kernel(&host_store, "store");
    made->kernel(&host_wild, "wild");
    made->kernel(&host_reverse, "reverse");
    made->variable(host_weights, "weights", sizeof host_weights);
    made->variable(&host_total, "total", sizeof host_total);
    return made;
  }();
  return *p;
}

class Runtime : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    program();
    cudaGetLastError();
  }
};

template <class T>
T* device_memory(size_t count) {
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, count * sizeof(T)), cudaSuccess);
  return static_cast<T*>(p);
}
template <class T>
T value_at(const T* p) {
  T value{};
  EXPECT_EQ(cudaMemcpy(&value, p, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  return value;
}
// As the stub of a kernel does it: the new way by handle, the old one by address.
cudaError_t launch_new(const void* host, dim3 grid, dim3 block, void** args, size_t shared = 0) {
  cudaKernel_t kernel = nullptr;
  __cudaGetKernel(&kernel, host);
  if (__cudaPushCallConfiguration(grid, block, shared, nullptr) != 0) return cudaErrorUnknown;
  cudaStream_t stream = nullptr;
  const cudaError_t popped = __cudaPopCallConfiguration(&grid, &block, &shared, &stream);
  return popped != cudaSuccess ? popped
                               : __cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}
int sum_up() {
  int* out = device_memory<int>(1);
  void* args[] = {&out};
  EXPECT_EQ(launch_new(&host_sum_up, {1, 1, 1}, {1, 1, 1}, args), cudaSuccess);
  const int value = value_at(out);
  EXPECT_EQ(cudaFree(out), cudaSuccess);
  return value;
}

TEST_F(Runtime, LaunchesBothWays) {
  constexpr int n = 1000;
  std::vector<float> a(n), b(n), c(n);
  for (int i = 0; i < n; ++i) a[i] = static_cast<float>(i), b[i] = 0.5f;
  auto *da = device_memory<float>(n), *db = device_memory<float>(n), *dc = device_memory<float>(n);
  EXPECT_EQ(cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(db, b.data(), n * sizeof(float), cudaMemcpyDefault), cudaSuccess);
  int count = n;
  void* args[] = {&da, &db, &dc, &count};
  for (const bool old_way : {false, true}) {
    EXPECT_EQ(cudaMemset(dc, 0, n * sizeof(float)), cudaSuccess);
    EXPECT_EQ(old_way ? cudaLaunchKernel(&host_add, {8, 1, 1}, {128, 1, 1}, args, 0, nullptr)
                      : launch_new(&host_add, {8, 1, 1}, {128, 1, 1}, args),
              cudaSuccess);
    EXPECT_EQ(cudaMemcpy(c.data(), dc, n * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
    for (int i = 0; i < n; ++i) ASSERT_EQ(c[i], a[i] + 0.5f) << i;
  }
  for (float* p : {da, db, dc}) EXPECT_EQ(cudaFree(p), cudaSuccess);
}

TEST_F(Runtime, ParametersOfAllSizesArrive) {
  int* out = device_memory<int>(1);
  char tag = 7;
  double value = 42.5;
  void* args[] = {&tag, &value, &out};
  EXPECT_EQ(launch_new(&host_store, {1, 1, 1}, {1, 1, 1}, args), cudaSuccess);
  EXPECT_EQ(value_at(out), 7042);
  EXPECT_EQ(cudaFree(out), cudaSuccess);
}

TEST_F(Runtime, VariablesAndResets) {
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(sum_up(), 20);
  const int other[2] = {30, 40};
  EXPECT_EQ(cudaMemcpyToSymbol(host_weights, other, sizeof other, 2 * sizeof(int),
                               cudaMemcpyHostToDevice),
            cudaSuccess);
  EXPECT_EQ(sum_up(), 20 + 73);
  int total = 0;
  EXPECT_EQ(cudaMemcpyFromSymbol(&total, &host_total, sizeof total, 0, cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(total, 93);
  size_t size = 0;
  EXPECT_EQ(cudaGetSymbolSize(&size, host_weights), cudaSuccess);
  EXPECT_EQ(size, sizeof host_weights);
  EXPECT_EQ(cudaMemcpyToSymbol(host_weights, other, sizeof other, 3 * sizeof(int),
                               cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  void* address = nullptr;
  EXPECT_EQ(cudaGetSymbolAddress(&address, &total), cudaErrorInvalidSymbol);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(sum_up(), 20);
}

TEST_F(Runtime, ErrorsAreTheThreadsOwn) {
  EXPECT_EQ(cudaMalloc(nullptr, 4), cudaErrorInvalidValue);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
  std::thread([] { EXPECT_EQ(cudaGetLastError(), cudaSuccess); }).join();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(4711)), "unrecognized error code");
  EXPECT_NE(cudaGetErrorString(static_cast<cudaError_t>(4711)), nullptr);
}

TEST_F(Runtime, WrongLaunches) {
  int* out = device_memory<int>(1);
  void* args[] = {&out};
  EXPECT_EQ(cudaLaunchKernel(&out, {1, 1, 1}, {1, 1, 1}, args, 0, nullptr),
            cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaLaunchKernel(nullptr, {1, 1, 1}, {1, 1, 1}, args, 0, nullptr),
            cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(launch_new(&host_sum_up, {0, 1, 1}, {1, 1, 1}, args), cudaErrorInvalidValue);
  EXPECT_EQ(launch_new(&host_sum_up, {1, 1, 1}, {2048, 1, 1}, args), cudaErrorInvalidValue);
  EXPECT_EQ(launch_new(&host_sum_up, {1, 1, 1}, {1, 1, 1}, args, size_t{1} << 33),
            cudaErrorInvalidValue);
  EXPECT_EQ(__cudaLaunchKernel(nullptr, {1, 1, 1}, {1, 1, 1}, args, 0, nullptr),
            cudaErrorInvalidDeviceFunction);
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  EXPECT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared, &stream),
            cudaErrorMissingConfiguration);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(__cudaPushCallConfiguration({1, 1, 1}, {1, 1, 1}, 0, nullptr), 0u);
  EXPECT_NE(__cudaPushCallConfiguration({1, 1, 1}, {1, 1, 1}, 0, nullptr), 0u);
  for (int i = 0; i < 32; ++i) __cudaPopCallConfiguration(&grid, &block, &shared, &stream);
  EXPECT_EQ(cudaFree(out), cudaSuccess);
}

TEST_F(Runtime, CorruptBinariesAreErrors) {
  const std::string good = fat_binary_of(sluice::suite::kKernelsPtx);
  std::vector<std::string> images = {std::string(64, '\0'), fat_binary_of("no PTX at all")};
  for (const size_t at : {0, 8, 16, 20, 24, 45}) {  // magic, sizes, kinds, target
    images.push_back(good);
    images.back()[at] ^= 0x7F;
  }
  for (std::string& image : images) {
    static char host;
    image.append(256, '\0');  // nobody tells a driver how long it is: room for a size too large
    Program bad(image);
    bad.kernel(&host, "sum_up");
    int* out = nullptr;
    void* args[] = {&out};
    EXPECT_NE(launch_new(&host, {1, 1, 1}, {1, 1, 1}, args), cudaSuccess);
  }
  {
    static char host;
    Program bad(good);
    bad.kernel(&host, "not_in_it");
    bad.kernel(nullptr, nullptr);
    EXPECT_EQ(launch_new(&host, {1, 1, 1}, {1, 1, 1}, nullptr), cudaErrorInvalidDeviceFunction);
    bad.wrapper().magic = 0;
    bad.kernel(&host, "sum_up");
    cudaDeviceReset();
    EXPECT_EQ(launch_new(&host, {1, 1, 1}, {1, 1, 1}, nullptr), cudaErrorInvalidKernelImage);
  }
  __cudaUnregisterFatBinary(nullptr);
  __cudaRegisterFatBinaryEnd(nullptr);
  int* out = nullptr;
  void* args[] = {&out};
  EXPECT_EQ(launch_new(&images, {1, 1, 1}, {1, 1, 1}, args), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(sum_up(), 20);  // the others are as they were, after the reset above
}

// In the ways in which a text may name them: loads and stores with an offset, an address in a
// register, the sum of one, another variable in the same function, a call.
constexpr char kManagedPtx[] = R"(.version 8.0
.target sm_75
.address_size 64
.global .attribute(.managed) .align 4 .u32 counter = 5;
.visible .global .attribute(.managed) .align 4 .b8 table[32] = {1, 0, 0, 0, 2};
.func add_to(.param .b64 at, .param .b32 by)
{
 .reg .b64 %rd<2>; .reg .b32 %r<3>;
 ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [by];
 ld.u32 %r2, [%rd1]; add.u32 %r2, %r2, %r1; st.u32 [%rd1], %r2;
 ret;
}
.visible .entry work()
{
 .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<2>;
 ld.global.u32 %r1, [counter];
 add.u32 %r1, %r1, 1;
 st.global.u32 [counter], %r1;
 st.global.u32 [table+8], %r1;
 mov.u64 %rd1, table+12;
 cvta.global.u64 %rd2, %rd1;
 st.u32 [%rd2], 12;
 setp.eq.u32 %p1, %r1, 0;
 @%p1 st.global.u32 [table], %r1;
 mov.u64 %rd3, counter;
 { .param .b64 a; .param .b32 b; st.param.b64 [a], %rd3; st.param.b32 [b], 100;
   call add_to, (a, b); }
 atom.global.add.u32 %r2, [table+4], 40;
 ret;
}
)";

TEST_F(Runtime, ManagedVariablesAreBothSides) {
  static void *counter_at = nullptr, *table_at = nullptr;
  static char host;
  Program with(fat_binary_of(kManagedPtx));
  with.kernel(&host, "work");
  with.managed_variable(&counter_at, "counter", 4);
  with.managed_variable(&table_at, "table", 32);
  ASSERT_TRUE(with.start());
  ASSERT_NE(counter_at, nullptr);
  ASSERT_NE(table_at, nullptr);
  auto* counter = static_cast<volatile uint32_t*>(counter_at);
  auto* table = static_cast<volatile uint32_t*>(table_at);
  EXPECT_EQ(*counter, 5u);
  EXPECT_EQ(table[0], 1u);
  EXPECT_EQ(table[1], 2u);
  EXPECT_EQ(table[7], 0u);
  *counter = 8;
  for (uint32_t round = 1; round <= 2; ++round) {
    ASSERT_EQ(launch_new(&host, {1, 1, 1}, {1, 1, 1}, nullptr), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(*counter, 8 + 101 * round);
    EXPECT_EQ(table[0], 1u);
    EXPECT_EQ(table[1], 2 + 40 * round);
    EXPECT_EQ(table[2], 9 + 101 * (round - 1));
    EXPECT_EQ(table[3], 12u);
  }
  // As a symbol, and as what it is.
  uint32_t value = 0;
  EXPECT_EQ(cudaMemcpyFromSymbol(&value, &counter_at, 4, 0, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(value, 210u);
  void* address = nullptr;
  EXPECT_EQ(cudaGetSymbolAddress(&address, &table_at), cudaSuccess);
  EXPECT_EQ(address, table_at);
  EXPECT_NE(cudaFree(counter_at), cudaSuccess);
  cudaGetLastError();
  // A reset makes them anew.
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  ASSERT_EQ(launch_new(&host, {1, 1, 1}, {1, 1, 1}, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(*static_cast<volatile uint32_t*>(counter_at), 106u);
}

// What the library has said since CaptureStderr(). A trace that was asked for is passed on.
std::string said() {
  const std::string text = testing::internal::GetCapturedStderr();
  if (!std::getenv("SLUICE_TRACE")) return text;
  std::cerr << text;
  return "";
}

// What is linked of relocatable parts, one of which has nothing for this GPU.
TEST_F(Runtime, LinkedParts) {
  const std::string caller = fat_binary_of(
      ".version 8.0\n.target sm_75\n.address_size 64\n"
      ".extern .func (.param .b32 r) callee(.param .b32 x);\n"
      ".visible .entry linked(.param .u64 out) {\n .reg .b64 %rd<3>; .reg .b32 %r<3>;\n"
      " ld.param.u64 %rd1, [out];\n cvta.to.global.u64 %rd2, %rd1;\n mov.u32 %r1, 20;\n"
      " { .param .b32 p; .param .b32 q; st.param.b32 [p], %r1; call.uni (q), callee, (p);"
      " ld.param.b32 %r2, [q]; }\n st.global.u32 [%rd2], %r2;\n ret;\n}\n");
  const std::string callee = fat_binary_of(
      ".version 8.0\n.target sm_75\n.address_size 64\n"
      ".visible .func (.param .b32 r) callee(.param .b32 x) {\n .reg .b32 %r<3>;\n"
      " ld.param.u32 %r1, [x];\n add.s32 %r2, %r1, 22;\n st.param.b32 [r], %r2;\n ret;\n}\n");
  std::string machine_code = callee;
  machine_code[16] = 2;  // the entry's kind
  const void* parts[] = {caller.data(), machine_code.data(), callee.data(), nullptr};
  Program linked(std::string(16, '\0'));
  linked.wrapper().version = kLinkedWrapper;
  linked.wrapper().more = parts;
  static char host;
  linked.kernel(&host, "linked");
  int* out = device_memory<int>(1);
  void* args[] = {&out};
  testing::internal::CaptureStderr();
  ASSERT_EQ(launch_new(&host, {1, 1, 1}, {1, 1, 1}, args), cudaSuccess);
  EXPECT_EQ(said(), "") << "nothing is wrong";
  EXPECT_EQ(value_at(out), 42);

  const void* machine_parts[] = {machine_code.data(), nullptr};
  Program machine(std::string(16, '\0'));
  machine.wrapper().version = kLinkedWrapper;
  machine.wrapper().more = machine_parts;
  static char other;
  machine.kernel(&other, "linked");
  EXPECT_EQ(launch_new(&other, {1, 1, 1}, {1, 1, 1}, args), cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(cudaFree(out), cudaSuccess);
}

// Where the linked image comes without a managed variable, as a guest's machine code does, the
// parts have it.
TEST_F(Runtime, ManagedVariablesOfLinkedParts) {
  const std::string part = fat_binary_of(kManagedPtx);
  const void* parts[] = {part.data(), nullptr};
  Program linked(fat_binary_of(
      ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry work()\n{\n ret;\n}\n"));
  linked.wrapper().version = kLinkedWrapper;
  linked.wrapper().more = parts;
  static void *counter_at = nullptr, *missing_at = nullptr;
  static char host;
  linked.kernel(&host, "work");
  linked.managed_variable(&counter_at, "counter", 4);
  testing::internal::CaptureStderr();
  ASSERT_TRUE(linked.start());
  EXPECT_EQ(said(), "");
  ASSERT_NE(counter_at, nullptr);
  ASSERT_EQ(launch_new(&host, {1, 1, 1}, {1, 1, 1}, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(*static_cast<volatile uint32_t*>(counter_at), 106u);

  ASSERT_EQ(launch_new(&host, {1, 1, 1}, {1, 1, 1}, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(*static_cast<volatile uint32_t*>(counter_at), 207u);
  // They are made anew by a reset.
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  ASSERT_EQ(launch_new(&host, {1, 1, 1}, {1, 1, 1}, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(*static_cast<volatile uint32_t*>(counter_at), 106u);

  Program without(fat_binary_of(kManagedPtx));
  without.managed_variable(&missing_at, "missing", 4);
  testing::internal::CaptureStderr();
  without.start();
  const std::string why = said();
  if (!std::getenv("SLUICE_TRACE")) {
    EXPECT_NE(why.find("the managed variable missing is in machine code"), std::string::npos);
  }
  EXPECT_EQ(missing_at, nullptr);
  cudaGetLastError();
}

// Nothing of it is for the user to read.
TEST_F(Runtime, PropertiesSayNothing) {
  testing::internal::CaptureStderr();
  cudaDeviceProp properties;
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(said(), "");
}

TEST_F(Runtime, AttributesAndOccupancy) {
  cudaFuncAttributes a;
  EXPECT_EQ(cudaFuncGetAttributes(&a, &host_reverse), cudaSuccess);
  EXPECT_GT(a.maxThreadsPerBlock, 0);
  int blocks = 0;
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &host_reverse, 64, 1024),
            cudaSuccess);
  EXPECT_GT(blocks, 0);
  EXPECT_EQ(cudaFuncGetAttributes(&a, &a), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaFuncGetAttributes(nullptr, &host_reverse), cudaErrorInvalidValue);
  const char* name = nullptr;
  EXPECT_EQ(cudaFuncGetName(&name, &host_reverse), cudaSuccess);
  EXPECT_STREQ(name, "reverse");
  cudaKernel_t kernel = nullptr;
  EXPECT_EQ(cudaGetKernel(&kernel, &host_reverse), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, 8, 4096), cudaSuccess);  // most dynamic shared memory

  std::vector<int> values(64);
  for (int i = 0; i < 64; ++i) values[i] = i;
  int* p = device_memory<int>(64);
  int n = 64;
  void* args[] = {&p, &n};
  EXPECT_EQ(cudaMemcpy(p, values.data(), 256, cudaMemcpyHostToDevice), cudaSuccess);
  cudaLaunchConfig_t config = {{1, 1, 1}, {64, 1, 1}, 256, nullptr, nullptr, 0};
  EXPECT_EQ(cudaLaunchKernelExC(&config, kernel, args), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(values.data(), p, 256, cudaMemcpyDeviceToHost), cudaSuccess);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(values[i], 63 - i);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
}

TEST_F(Runtime, RowsAndBoxes) {
  constexpr size_t w = 60, h = 9;
  std::vector<char> from(w * h), to(w * h);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i);
  void* p = nullptr;
  size_t pitch = 0;
  ASSERT_EQ(cudaMallocPitch(&p, &pitch, w, h), cudaSuccess);
  EXPECT_GE(pitch, w);
  EXPECT_EQ(cudaMemcpy2D(p, pitch, from.data(), w, w, h, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemset2D(p, pitch, 1, 3, 2), cudaSuccess);
  EXPECT_EQ(cudaMemcpy2DAsync_ptsz(to.data(), w, p, pitch, w, h, cudaMemcpyDeviceToHost, nullptr),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize_ptsz(nullptr), cudaSuccess);
  for (size_t i = 0; i < to.size(); ++i) {
    EXPECT_EQ(to[i], i % w < 3 && i / w < 2 ? 1 : from[i]);
  }
  EXPECT_EQ(cudaMemcpy2D(p, w - 1, from.data(), w, w, h, cudaMemcpyHostToDevice),
            cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaMemcpy2D(p, pitch, from.data(), w, w, h, 17), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy3D(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  cudaPitchedPtr box;
  EXPECT_EQ(cudaMalloc3D(&box, {8, SIZE_MAX / 2, 4}), cudaErrorMemoryAllocation);
}

TEST_F(Runtime, PropertiesAgreeWithAttributes) {
  cudaDeviceProp p;
  ASSERT_EQ(cudaGetDeviceProperties(&p, 0), cudaSuccess);
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, 16, 0), cudaSuccess);
  EXPECT_EQ(p.multiProcessorCount, value);
  EXPECT_EQ(p.warpSize, 32);
  EXPECT_NE(p.name[0], '\0');
  EXPECT_EQ(cudaGetDeviceProperties(&p, 1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetDeviceProperties(nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  int version = 0;
  EXPECT_EQ(cudaRuntimeGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, 13000);
}

TEST_F(Runtime, AbsentFunctionsSaySo) {
  EXPECT_EQ(cudaGLSetGLDevice(), cudaErrorNotSupported);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotSupported);
  const void* table = nullptr;
  EXPECT_EQ(cudaGetExportTable(&table, nullptr), cudaErrorNotSupported);
  EXPECT_EQ(table, nullptr);
}

TEST_F(Runtime, AChildCannotUseCuda) {
  EXPECT_EQ(sum_up() > 0, true);
  const pid_t child = fork();
  if (child == 0) {
    void* p = nullptr;
    _exit(cudaMalloc(&p, 4) == cudaErrorInitializationError &&
                  cudaDeviceReset() == cudaErrorInitializationError
              ? 0
              : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(sum_up() > 0, true);
}

TEST_F(Runtime, AFaultStaysUntilTheReset) {
  EXPECT_EXIT(
      {
        int* nowhere = reinterpret_cast<int*>(16);
        void* args[] = {&nowhere};
        launch_new(&host_wild, {1, 1, 1}, {1, 1, 1}, args);
        void* p = nullptr;
        const bool stays = cudaDeviceSynchronize() == cudaErrorIllegalAddress &&
                           cudaGetLastError() == cudaErrorIllegalAddress &&
                           cudaGetLastError() == cudaSuccess &&
                           cudaMalloc(&p, 4) == cudaErrorIllegalAddress;
        const bool ends = cudaDeviceReset() == cudaSuccess;
        cudaGetLastError();
        _exit(stays && ends && cudaMalloc(&p, 4) == cudaSuccess && sum_up() == 20 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

// SLUICE_CUDART_LOG: what did not load, and why.
TEST_F(Runtime, TheLogSaysWhyABinaryDoesNotLoad) {
  EXPECT_EXIT(
      {
        setenv("SLUICE_CUDART_LOG", "1", 1);
        static char host;
        Program bad(
            fat_binary_of(".version 7.0\n.target sm_75\n.address_size 64\n"
                          ".visible .entry k() { nonsense.u32 %r1, 2; ret; }\n"));
        bad.kernel(&host, "k");
        const cudaError_t error = launch_new(&host, {1, 1, 1}, {1, 1, 1}, nullptr);
        std::exit(error == cudaErrorInvalidPtx ? 0 : 1);
      },
      testing::ExitedWithCode(0), "fat binary: cudaErrorInvalidPtx\n.*nonsense");
}

struct Late {
  ~Late() {
    void* p = nullptr;
    const cudaError_t error = cudaMalloc(&p, 4);
    _exit(error == cudaSuccess || error == cudaErrorCudartUnloading ? 0 : 1);
  }
};

TEST_F(Runtime, DestructorsMayCallItAtExit) {
  EXPECT_EXIT(
      {
        static Late early;  // ends after the driver
        sum_up();
        std::exit(1);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        sum_up();
        static Late late;  // ends before it
        std::exit(1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
