// SPDX-License-Identifier: Apache-2.0
// The driver as a table of functions: loading, refusing, choosing.
#include "mediator/gpu/driver_api.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace sluice::gpu {
namespace {

std::string soft_library() { return std::getenv("SLUICE_TEST_SOFTCUDA"); }

TEST(DriverApi, LoadsEveryFunction) {
  auto api = load_driver(soft_library());
  ASSERT_TRUE(api.ok()) << api.error().message;
  EXPECT_EQ(api->missing, 0u);
  EXPECT_TRUE(api->green_contexts);
#define SLUICE_EXPECT(symbol, name, since, parameters) EXPECT_NE(api->symbol, nullptr) << #symbol;
  SLUICE_CUDA_DRIVER_FUNCTIONS(SLUICE_EXPECT)
  SLUICE_CUDA_GREEN_FUNCTIONS(SLUICE_EXPECT)
#undef SLUICE_EXPECT
  // The plain names mean the table's versioned entries.
  EXPECT_EQ(reinterpret_cast<void*>(api->cuMemAlloc), reinterpret_cast<void*>(api->cuMemAlloc_v2));
}

TEST(DriverApi, SaysWhatIsMissing) {
  auto none = load_driver("/nowhere/libcuda.so.1");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("/nowhere"), std::string::npos);
  auto no_driver = load_driver("libm.so.6");
  ASSERT_FALSE(no_driver.ok());
  EXPECT_NE(no_driver.error().message.find("cuLaunchKernel"), std::string::npos)
      << no_driver.error().message;
}

TEST(DriverApi, RefusesTheGuestsLibrary) {
  auto shim = load_driver(std::getenv("SLUICE_TEST_FAKE_SHIM"));
  ASSERT_FALSE(shim.ok());
  EXPECT_NE(shim.error().message.find("guest"), std::string::npos) << shim.error().message;
}

TEST(DriverApi, AnOlderDriverLacksFunctionsThatThenFail) {
  auto old = load_driver(std::getenv("SLUICE_TEST_OLD_DRIVER"));
  ASSERT_TRUE(old.ok()) << old.error().message;
  EXPECT_GT(old->missing, 0u);
  EXPECT_EQ(old->cuProfilerStart(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_FALSE(old->green_contexts);
  CUdevResource sms;
  EXPECT_EQ(old->cuDeviceGetDevResource(0, &sms, CU_DEV_RESOURCE_TYPE_SM),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(old->cuInit(0), CUDA_SUCCESS);
}

TEST(DriverApi, DescribesResults) {
  EXPECT_EQ(describe(CUDA_ERROR_OUT_OF_MEMORY),
            "CUDA_ERROR_OUT_OF_MEMORY (2): not enough device memory");
  EXPECT_EQ(describe(static_cast<CUresult>(4711)), "CUresult 4711");
}

}  // namespace
}  // namespace sluice::gpu
