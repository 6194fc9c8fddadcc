// SPDX-License-Identifier: Apache-2.0
// SLUICE_SOFT_CHECK through the driver API: what the library tells its checker, and what comes out.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/unit/softgpu/fixture.h"

namespace sluice {
namespace {

// Before cuInit, which reads them; once for the process.
const std::string& log_path() {
  static const std::string path = [] {
    std::string name = "/tmp/sluice-check-" + std::to_string(::getpid()) + ".json";
    ::setenv("SLUICE_SOFT_CHECK", "all", 1);
    ::setenv("SLUICE_SOFT_CHECK_LOG", name.c_str(), 1);
    return name;
  }();
  return path;
}
const std::string& kEarly = log_path();

class SoftGpuCheck : public SoftGpuTest {
 protected:
  void SetUp() override {
    SoftGpuTest::SetUp();
    before_ = contents().size();
  }
  static std::string contents() {
    std::ifstream file(kEarly);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  // What this test has added to the file.
  std::string reported() const { return contents().substr(before_); }
  static void TearDownTestSuite() { std::remove(kEarly.c_str()); }

 private:
  size_t before_ = 0;
};

TEST_F(SoftGpuCheck, ARightProgramIsSilent) {
  constexpr unsigned kCount = 1000;
  const CUdeviceptr a = allocate(kCount * 4), b = allocate(kCount * 4);
  OK(launch("iota", 4, 256, nullptr, a, kCount, 5u));
  OK(api.cuMemcpyDtoD(b, a, kCount * 4));
  OK(launch("add", 4, 256, nullptr, uint8_t{1}, b, uint16_t{0}, kCount));
  OK(api.cuMemsetD32(a, 3, kCount));
  OK(launch("add", 4, 256, nullptr, uint8_t{1}, a, uint16_t{0}, kCount));
  OK(api.cuCtxSynchronize());
  std::vector<uint32_t> out(kCount);
  OK(api.cuMemcpyDtoH(out.data(), b, kCount * 4));
  EXPECT_EQ(out[10], 16u);
  OK(api.cuMemFree(a));
  OK(api.cuMemFree(b));
  EXPECT_EQ(reported(), "");
}

TEST_F(SoftGpuCheck, MemoryThatNobodyWrote) {
  const CUdeviceptr a = allocate(400);
  OK(launch("add", 1, 128, nullptr, uint8_t{1}, a, uint16_t{0}, 100u));
  OK(api.cuCtxSynchronize());
  const std::string text = reported();
  EXPECT_NE(text.find("\"check\":\"uninit\",\"kernel\":\"add\""), std::string::npos) << text;
  OK(api.cuMemFree(a));
}

TEST_F(SoftGpuCheck, WhatAContextLeavesBehind) {
  allocate(12345);
  OK(api.cuCtxDestroy(context_));
  context_ = nullptr;
  const std::string text = reported();
  EXPECT_NE(text.find("\"check\":\"leak\""), std::string::npos) << text;
  EXPECT_NE(text.find("12345 bytes"), std::string::npos) << text;
  // Once: the module's variables and the freed are none.
  EXPECT_EQ(text.find("leak"), text.rfind("\"check\":\"leak\"") + 9) << text;
}

}  // namespace
}  // namespace sluice
