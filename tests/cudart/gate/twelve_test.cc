// SPDX-License-Identifier: Apache-2.0
// What is different in libcudart.so.12: its version, its properties, its older forms.
#include <gtest/gtest.h>

#include "kernels.ptx.h"
#include "tests/cudart/gate/program.h"

using namespace sluice::cudart;

namespace {

char host_sum_up;

TEST(Runtime12, PropertiesInBothLayouts) {
  int version = 0;
  EXPECT_EQ(cudaRuntimeGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version / 1000, 12);
  DeviceProperties12 p;
  ASSERT_EQ(cudaGetDeviceProperties_v2(&p, 0), cudaSuccess);
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, 13, 0), cudaSuccess);
  EXPECT_EQ(p.clockRate, value);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, 16, 0), cudaSuccess);
  EXPECT_EQ(p.multiProcessorCount, value);
  EXPECT_EQ(p.warpSize, 32);
  // The older form ends where the fields of CUDA 12 begin.
  char old[sizeof p];
  std::memset(old, 0x5A, sizeof old);
  ASSERT_EQ(cudaGetDeviceProperties(old, 0), cudaSuccess);
  constexpr size_t kOldBytes = offsetof(DeviceProperties12, hostRegisterSupported);
  EXPECT_EQ(std::memcmp(old, &p, kOldBytes), 0);
  EXPECT_EQ(old[kOldBytes], 0x5A);
  int device = -1;
  EXPECT_EQ(cudaChooseDevice(&device, &p), cudaSuccess);
  EXPECT_EQ(device, 0);
}

TEST(Runtime12, LaunchesTheOldWay) {
  Program program(fat_binary_of(sluice::suite::kKernelsPtx));
  program.kernel(&host_sum_up, "sum_up");
  void* out = nullptr;
  ASSERT_EQ(cudaMalloc(&out, 4), cudaSuccess);
  void* args[] = {&out};
  EXPECT_EQ(cudaLaunchKernel(&host_sum_up, {1, 1, 1}, {1, 1, 1}, args, 0, nullptr), cudaSuccess);
  int value = 0;
  EXPECT_EQ(cudaMemcpy(&value, out, 4, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(value, 20);
  EXPECT_EQ(cudaLaunchKernel(&host_sum_up, {0, 1, 1}, {1, 1, 1}, args, 0, nullptr),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaThreadSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaThreadExit(), cudaSuccess);
}

}  // namespace
