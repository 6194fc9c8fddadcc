// SPDX-License-Identifier: Apache-2.0
// Kernels: launches in all forms, attributes, occupancy, libraries that are loaded at run time, and
// what compiled programs call by themselves.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "kernels.ptx.h"
#include "tests/cudart/gate/cases/cases.h"

using namespace sluice::cudart;

namespace {

constexpr int kMaxDynamicShared = 8, kClusterDimension = 4;
class ExecutionCases : public Cases {
 protected:
  // 64 values, in the other order.
  void expect_reversed(cudaError_t launched) {
    EXPECT_EQ(launched, cudaSuccess);
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 64; i += 21) EXPECT_EQ(values_[i], 63 - i);
    fill();
  }
  void fill() {
    int values[64];
    for (int i = 0; i < 64; ++i) values[i] = i;
    OK(cudaMemcpy(values_.at(), values, sizeof values, cudaMemcpyHostToDevice));
  }
  void SetUp() override {
    Cases::SetUp();
    fill();
  }
  Memory<int> values_{64};
  int* at_ = values_.at();
  int n_ = 64, here_ = 0;
  void* args_[2] = {&at_, &n_};
};

TEST_F(ExecutionCases, LaunchesInAllForms) {
  Stream stream;
  const dim3 one{1, 1, 1}, block{64, 1, 1};
  expect_reversed(cudaLaunchKernel(&host_reverse, one, block, args_, 256, stream));
  expect_reversed(cudaLaunchKernel_ptsz(&host_reverse, one, block, args_, 256, nullptr));
  expect_reversed(cudaLaunchCooperativeKernel(&host_reverse, one, block, args_, 256, stream));
  const cudaLaunchConfig_t config{one, block, 256, stream, nullptr, 0};
  expect_reversed(cudaLaunchKernelExC(&config, &host_reverse, args_));
  expect_reversed(cudaLaunchKernelExC_ptsz(&config, &host_reverse, args_));
  cudaKernel_t kernel = nullptr;
  EXPECT_EQ(__cudaGetKernel(&kernel, &host_reverse), cudaSuccess);
  expect_reversed(__cudaLaunchKernel(kernel, one, block, args_, 256, stream));
  expect_reversed(__cudaLaunchKernel_ptsz(kernel, one, block, args_, 256, nullptr));
}

TEST_F(ExecutionCases, WrongLaunches) {
  const dim3 none{0, 1, 1}, one{1, 1, 1}, many{4096, 1, 1}, block{64, 1, 1};
  ANSWERS(cudaErrorInvalidValue, cudaLaunchKernel(&host_reverse, none, block, args_, 0, nullptr));
  ANSWERS(cudaErrorInvalidValue, cudaLaunchKernel(&host_reverse, one, many, args_, 0, nullptr));
  ANSWERS(cudaErrorInvalidResourceHandle, cudaLaunchKernel(&here_, one, block, args_, 0, nullptr));
  REFUSED(cudaLaunchCooperativeKernel(&here_, one, block, args_, 0, nullptr));
  REFUSED(
      cudaLaunchCooperativeKernel(&host_reverse, dim3{1 << 20, 1, 1}, block, args_, 0, nullptr));
  ANSWERS(cudaErrorInvalidValue, cudaLaunchKernelExC(nullptr, &host_reverse, args_));
  cudaKernel_t kernel = nullptr;
  REFUSED(__cudaGetKernel(&kernel, nullptr));
  REFUSED(__cudaLaunchKernel(nullptr, one, block, args_, 0, nullptr));
  REFUSED(__cudaLaunchKernel_ptsz(nullptr, one, block, args_, 0, nullptr));
  void* function = nullptr;
  REFUSED(__cudaGetProcAddress(nullptr, &function, 0, 0, nullptr));
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(values_[1], 1);
}

TEST_F(ExecutionCases, AttributesOfKernels) {
  cudaFuncAttributes attributes = {};
  OK(cudaFuncGetAttributes(&attributes, &host_reverse));
  EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
  EXPECT_EQ(attributes.sharedSizeBytes, 0u);
  OK(cudaFuncSetAttribute(&host_reverse, kMaxDynamicShared, 8192));
  OK(cudaFuncGetAttributes(&attributes, &host_reverse));
  EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, 8192);
  cudaKernel_t kernel = nullptr;
  OK(cudaGetKernel(&kernel, &host_reverse));
  OK(cudaKernelSetAttributeForDevice(kernel, kMaxDynamicShared, 16384, 0));
  OK(cudaFuncGetAttributes(&attributes, &host_reverse));
  EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, 16384);
  OK(cudaFuncSetCacheConfig(&host_reverse, 1));
  OK(cudaFuncSetSharedMemConfig(&host_reverse, 1));
  const char* name = nullptr;
  OK(cudaFuncGetName(&name, &host_reverse));
  EXPECT_STREQ(name, "reverse");
  size_t offset = 99, size = 99;
  OK(cudaFuncGetParamInfo(&host_reverse, 1, &offset, &size));
  EXPECT_EQ(offset, 8u);
  EXPECT_EQ(size, 4u);
  cudaFunction_t function = nullptr;
  OK(cudaGetFuncBySymbol(&function, &host_reverse));
  EXPECT_NE(function, nullptr);

  REFUSED(cudaFuncGetAttributes(&attributes, &here_));
  REFUSED(cudaFuncSetAttribute(&here_, kMaxDynamicShared, 8192));
  REFUSED(cudaFuncSetAttribute(&host_reverse, kMaxDynamicShared, 1 << 24));
  REFUSED(cudaFuncSetAttribute(&host_reverse, 99, 1));
  REFUSED(cudaKernelSetAttributeForDevice(kernel, 99, 1, 0));
  REFUSED(cudaFuncSetCacheConfig(&here_, 1));
  REFUSED(cudaFuncSetSharedMemConfig(&here_, 1));
  REFUSED(cudaFuncGetName(&name, &here_));
  REFUSED(cudaFuncGetName(nullptr, &host_reverse));
  REFUSED(cudaFuncGetParamInfo(&host_reverse, 2, &offset, &size));
  REFUSED(cudaGetFuncBySymbol(&function, &here_));
  REFUSED(cudaGetKernel(&kernel, &here_));
}

TEST_F(ExecutionCases, Occupancy) {
  int blocks = 0, same = 0;
  size_t bytes = 0;
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &host_add, 256, 0));
  EXPECT_GT(blocks, 0);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&same, &host_add, 256, 0, 0));
  EXPECT_EQ(blocks, same);
  OK(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, &host_add, 1, 256));
  EXPECT_GE(bytes, 16384u);
  cudaLaunchAttribute cluster = {};
  cluster.id = kClusterDimension;
  cluster.val.cluster[0] = cluster.val.cluster[1] = cluster.val.cluster[2] = 1;
  const cudaLaunchConfig_t config{dim3{4, 1, 1}, dim3{64, 1, 1}, 0, nullptr, &cluster, 1};
  int clusters = 0;
  OK(cudaOccupancyMaxActiveClusters(&clusters, &host_add, &config));
  EXPECT_GT(clusters, 0);
  clusters = 0;
  OK(cudaOccupancyMaxPotentialClusterSize(&clusters, &host_add, &config));
  EXPECT_GT(clusters, 0);
  REFUSED(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &here_, 256, 0));
  REFUSED(cudaOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, &host_add, 256, 0));
  REFUSED(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &host_add, -1, 0));
  REFUSED(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, &here_, 256, 0, 0));
  REFUSED(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, &here_, 1, 256));
  REFUSED(cudaOccupancyMaxActiveClusters(&clusters, &here_, &config));
  REFUSED(cudaOccupancyMaxPotentialClusterSize(&clusters, &here_, &config));
}

void use_library(cudaLibrary_t library) {
  unsigned count = 0;
  OK(cudaLibraryGetKernelCount(&count, library));
  EXPECT_EQ(count, 11u);
  cudaKernel_t kernels[16] = {}, kernel = nullptr;
  OK(cudaLibraryEnumerateKernels(kernels, count, library));
  for (unsigned i = 0; i < count; ++i) EXPECT_NE(kernels[i], nullptr);
  EXPECT_EQ(kernels[count], nullptr);
  OK(cudaLibraryGetKernel(&kernel, library, "sum_up"));
  void* total = nullptr;
  size_t bytes = 0;
  OK(cudaLibraryGetGlobal(&total, &bytes, library, "total"));
  EXPECT_EQ(bytes, 4u);
  Memory<int> out(1);
  int* at = out.at();
  void* args[] = {&at};
  OK(cudaLaunchKernel(kernel, dim3{1, 1, 1}, dim3{1, 1, 1}, args, 0, nullptr));
  EXPECT_EQ(out[0], 20);
  int value = 0;
  OK(cudaMemcpy(&value, total, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(value, 20);
  REFUSED(cudaLibraryGetKernel(&kernel, library, "not_in_it"));
  REFUSED(cudaLibraryGetGlobal(&total, &bytes, library, "not_in_it"));
  REFUSED(cudaLibraryGetManaged(&total, &bytes, library, "not_in_it"));
  REFUSED(cudaLibraryGetUnifiedFunction(&total, library, "not_in_it"));
  REFUSED(cudaLibraryGetKernelCount(nullptr, library));
  REFUSED(cudaLibraryEnumerateKernels(nullptr, 1, library));
}

TEST_F(ExecutionCases, LibrariesFromMemory) {
  cudaLibrary_t library = nullptr;
  OK(cudaLibraryLoadData(&library, sluice::suite::kKernelsPtx, nullptr, nullptr, 0, nullptr,
                         nullptr, 0));
  use_library(library);
  OK(cudaLibraryUnload(library));
  library = nullptr;
  // Refused at once or, where libraries load lazily, when something of it is asked for.
  if (cudaLibraryLoadData(&library, "no code", nullptr, nullptr, 0, nullptr, nullptr, 0) ==
      cudaSuccess) {
    cudaKernel_t kernel = nullptr;
    REFUSED(cudaLibraryGetKernel(&kernel, library, "add"));
    OK(cudaLibraryUnload(library));
    library = nullptr;
  }
  cudaGetLastError();
  REFUSED(cudaLibraryLoadData(nullptr, sluice::suite::kKernelsPtx, nullptr, nullptr, 0, nullptr,
                              nullptr, 0));
  REFUSED(cudaLibraryUnload(nullptr));
  EXPECT_EQ(library, nullptr);
}

TEST_F(ExecutionCases, LibrariesFromFiles) {
  const std::string path = testing::TempDir() + "sluice_cases_" + std::to_string(getpid());
  std::ofstream(path) << sluice::suite::kKernelsPtx;
  cudaLibrary_t library = nullptr;
  OK(cudaLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  use_library(library);
  OK(cudaLibraryUnload(library));
  std::remove(path.c_str());
  library = nullptr;
  REFUSED(
      cudaLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_EQ(library, nullptr);
}

constexpr char kManagedAlonePtx[] = R"(.version 8.0
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 shared_number = 6;
.visible .entry nothing() { ret; }
)";

TEST_F(ExecutionCases, ManagedVariablesOfLibraries) {
  cudaLibrary_t library = nullptr;
  OK(cudaLibraryLoadData(&library, kManagedAlonePtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  void* number = nullptr;
  size_t bytes = 0;
  OK(cudaLibraryGetManaged(&number, &bytes, library, "shared_number"));
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(*static_cast<int*>(number), 6);
  OK(cudaLibraryUnload(library));
}

// As a compiled program registers itself: before anything of it is used.
TEST_F(ExecutionCases, Registration) {
  static char host_there, host_absent, variable_there, variable_absent;
  static void *managed_there = nullptr, *managed_absent = nullptr;
  char there[] = "nothing", absent[] = "absent", number[] = "shared_number";
  const std::string image = fat_binary_of(kManagedAlonePtx);
  FatBinaryWrapper wrapper{kWrapperMagic, 1, image.data(), nullptr};
  void** handle = __cudaRegisterFatBinary(&wrapper);
  ASSERT_NE(handle, nullptr);
  __cudaRegisterFunction(handle, &host_there, there, there, -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  __cudaRegisterManagedVar(handle, &managed_there, number, number, 0, 4, 0, 0);
  __cudaRegisterVar(handle, &variable_there, number, number, 0, 4, 0, 0);
  __cudaRegisterFatBinaryEnd(handle);
  EXPECT_NE(__cudaInitModule(handle), 0);
  ASSERT_NE(managed_there, nullptr);
  EXPECT_EQ(*static_cast<int*>(managed_there), 6);
  OK(cudaLaunchKernel(&host_there, dim3{1, 1, 1}, dim3{1, 1, 1}, nullptr, 0, nullptr));
  OK(cudaDeviceSynchronize());

  cudaFuncAttributes attributes;
  void* address = nullptr;
  REFUSED((__cudaRegisterFunction(handle, &host_absent, absent, absent, -1, nullptr, nullptr,
                                  nullptr, nullptr, nullptr),
           cudaFuncGetAttributes(&attributes, &host_absent)));
  REFUSED((__cudaRegisterVar(handle, &variable_absent, absent, absent, 0, 4, 0, 0),
           cudaGetSymbolAddress(&address, &variable_absent)));
  REFUSED((__cudaRegisterManagedVar(handle, &managed_absent, absent, absent, 0, 4, 0, 0),
           cudaGetSymbolAddress(&address, &managed_absent)));
  static char host_broken;
  std::string broken_image = image;
  broken_image[broken_image.find(".version") + 1] = '#';
  FatBinaryWrapper broken{kWrapperMagic, 1, broken_image.data(), nullptr};
  void** broken_handle = nullptr;
  REFUSED((broken_handle = __cudaRegisterFatBinary(&broken),
           __cudaRegisterFunction(broken_handle, &host_broken, there, there, -1, nullptr, nullptr,
                                  nullptr, nullptr, nullptr),
           __cudaRegisterFatBinaryEnd(broken_handle),
           cudaFuncGetAttributes(&attributes, &host_broken)));
  __cudaUnregisterFatBinary(broken_handle);
  REFUSED((__cudaUnregisterFatBinary(handle), cudaFuncGetAttributes(&attributes, &host_there)));
}

}  // namespace
