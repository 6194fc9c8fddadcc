// SPDX-License-Identifier: Apache-2.0
// What the tests of libsluice-softcuda.so share: the library loaded once, a context per test, and a
// module of small kernels. Used by tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "mediator/gpu/driver_api.h"
#include "tests/unit/softgpu/ptx.h"

namespace sluice {

inline const gpu::DriverApi& soft_driver() {
  static const gpu::DriverApi api = [] {
    auto loaded = gpu::load_driver(std::getenv("SLUICE_TEST_SOFTCUDA"));
    if (!loaded) {
      std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
      std::abort();
    }
    return *std::move(loaded);
  }();
  return api;
}

#define OK(call) ASSERT_EQ(gpu::describe(call), gpu::describe(CUDA_SUCCESS)) << #call
#define FAILS(error, call) EXPECT_EQ(gpu::describe(call), gpu::describe(error)) << #call

// A context of its own for each test, so that sticky errors stay there.
class SoftGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    OK(api.cuInit(0));
    OK(api.cuCtxCreate_v2(&context_, 0, 0));
    OK(api.cuModuleLoadData(&module_, kTestPtx));
  }
  void TearDown() override { api.cuCtxDestroy(context_); }

  CUfunction kernel(const char* name) {
    CUfunction f = nullptr;
    EXPECT_EQ(api.cuModuleGetFunction(&f, module_, name), CUDA_SUCCESS) << name;
    return f;
  }
  template <class... A>
  CUresult launch(const char* name, unsigned grid, unsigned block, CUstream stream,
                  A... arguments) {
    void* pointers[] = {&arguments..., nullptr};
    return api.cuLaunchKernel(kernel(name), grid, 1, 1, block, 1, 1, 0, stream, pointers, nullptr);
  }
  CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr p = 0;
    EXPECT_EQ(api.cuMemAlloc(&p, bytes), CUDA_SUCCESS);
    return p;
  }
  // A zeroed word in pinned memory, and its address for kernels.
  uint32_t* pinned_word(size_t words = 1) {
    void* p = nullptr;
    EXPECT_EQ(api.cuMemHostAlloc(&p, words * 4, 0), CUDA_SUCCESS);
    return static_cast<uint32_t*>(p);
  }
  static CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }
  std::vector<uint32_t> read(CUdeviceptr from, size_t words) {
    std::vector<uint32_t> out(words);
    EXPECT_EQ(api.cuMemcpyDtoH(out.data(), from, words * 4), CUDA_SUCCESS);
    return out;
  }
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream s = nullptr;
    EXPECT_EQ(api.cuStreamCreate(&s, flags), CUDA_SUCCESS);
    return s;
  }
  CUevent event() {
    CUevent e = nullptr;
    EXPECT_EQ(api.cuEventCreate(&e, 0), CUDA_SUCCESS);
    return e;
  }

  const gpu::DriverApi& api = soft_driver();
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

// Stores that a running kernel's volatile load sees.
inline void store_word(uint32_t* word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}
inline uint32_t load_word(const uint32_t* word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

}  // namespace sluice
