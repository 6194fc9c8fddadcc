// SPDX-License-Identifier: Apache-2.0
// Filler (mediator/worker/launch/filler.h): when its grids are queued, that they end when they are
// told to, what follows from contexts that change or go, and a driver that refuses; on the software
// GPU.
#include <gtest/gtest.h>

#include <cstring>

#include "mediator/worker/launch/driver_calls.h"
#include "mediator/worker/launch/filler.h"

namespace sluice::worker {
namespace {

constexpr int kPriority = -2;  // of a lane above

class FillerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = gpu::load_driver(SLUICE_TEST_SOFTCUDA);
    ASSERT_TRUE(loaded.ok());
    api_ = *loaded;
    ASSERT_EQ(api_.cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(api_.cuDeviceGet(&device_, 0), CUDA_SUCCESS);
    make(first_, 1);
    make(second_, 2);
  }
  void TearDown() override {
    for (const ContextObject* c : {&first_, &second_}) {
      EXPECT_EQ(api_.cuCtxDestroy(c->cu), CUDA_SUCCESS);
    }
    forget_current();
  }
  void make(ContextObject& c, ContextId id) {
    c.id = id;
    c.shape.clock_khz = 1000;  // blocks of 2 cycles: here they need not last
    ASSERT_EQ(api_.cuCtxCreate(&c.cu, nullptr, 0, device_), CUDA_SUCCESS);
    forget_current();
  }
  // All that is queued has ended.
  void all_end(const ContextObject& c) {
    ASSERT_EQ(make_current(api_, c.cu), CUDA_SUCCESS);
    EXPECT_EQ(api_.cuCtxSynchronize(), CUDA_SUCCESS);
  }

  gpu::DriverApi api_;
  CUdevice device_ = 0;
  ContextObject first_, second_;
};

TEST_F(FillerTest, GridsAreQueuedWhileAChainIsAboveAndTheGateIsOpen) {
  Filler filler(api_);
  filler.follow(20, true);
  EXPECT_FALSE(filler.fills()) << "nothing was launched above";
  filler.launched_above(first_, kPriority);
  filler.follow(Filler::kLeastChain - 1, true);
  EXPECT_FALSE(filler.fills()) << "too short a chain";
  filler.launched_above(first_, kPriority);
  filler.follow(Filler::kLeastChain, true);
  EXPECT_TRUE(filler.fills());
  EXPECT_EQ(filler.grids(), Filler::kDepth);
  all_end(first_);
  filler.follow(2, true);
  EXPECT_EQ(filler.grids(), 2 * Filler::kDepth) << "others follow those that have ended";
  filler.follow(1, true);
  EXPECT_FALSE(filler.fills()) << "behind the last kernel there is no gap";
  all_end(first_);
  filler.follow(20, true);
  EXPECT_FALSE(filler.fills()) << "the next chain says where it is";
  filler.launched_above(first_, kPriority - 2);
  filler.follow(20, true);
  EXPECT_TRUE(filler.fills());
  filler.follow(20, false);
  EXPECT_FALSE(filler.fills());
  all_end(first_);
}

int g_loads = 0;
gpu::DriverApi g_loader;
CUresult count_load(CUmodule* module, const void* image, unsigned options, CUjit_option* names,
                    void** values) {
  ++g_loads;
  return g_loader.cuModuleLoadDataEx(module, image, options, names, values);
}

TEST_F(FillerTest, WhatIsPreparedIsNotMadeInTheChain) {
  g_loader = api_;
  gpu::DriverApi counting = api_;
  counting.cuModuleLoadDataEx = count_load;
  Filler filler(counting);
  for (int i = 0; i < 3; ++i) filler.prepare(first_);
  EXPECT_EQ(g_loads, 1);
  EXPECT_EQ(filler.grids(), 0u);
  filler.launched_above(first_, kPriority);
  filler.follow(20, true);
  EXPECT_TRUE(filler.fills());
  EXPECT_EQ(g_loads, 1);
  all_end(first_);
  filler.prepare(second_);
  EXPECT_EQ(g_loads, 2);
}

// The table's pointer leads here first.
gpu::DriverApi g_real;
CUfunction g_kernel = nullptr;
uint64_t g_stop = 0, g_seen = 0;
uint32_t g_fill = 0;
CUresult note_launch(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                     unsigned bz, unsigned shared, CUstream stream, void** params, void** extra) {
  g_kernel = f;
  std::memcpy(&g_stop, params[0], sizeof g_stop);
  std::memcpy(&g_seen, params[1], sizeof g_seen);
  std::memcpy(&g_fill, params[2], sizeof g_fill);
  return g_real.cuLaunchKernel(f, x, y, z, bx, by, bz, shared, stream, params, extra);
}

// Blocks that would take hours: the test would not end.
TEST_F(FillerTest, WhatHasNotBegunEndsAtOnceWhenItsFillIsOver) {
  g_real = api_;
  gpu::DriverApi noting = api_;
  noting.cuLaunchKernel = note_launch;
  Filler filler(noting);
  filler.launched_above(first_, kPriority);
  filler.follow(20, true);
  filler.follow(0, true);
  all_end(first_);
  ASSERT_NE(g_kernel, nullptr);
  uint32_t cycles = ~0u;
  void* params[] = {&g_stop, &g_seen, &g_fill, &cycles};
  ASSERT_EQ(api_.cuLaunchKernel(g_kernel, 1000, 1, 1, 1024, 1, 1, 0, nullptr, params, nullptr),
            CUDA_SUCCESS);
  all_end(first_);
  uint32_t seen = 0;
  ASSERT_EQ(api_.cuMemcpyDtoH(&seen, g_seen, sizeof seen), CUDA_SUCCESS);
  EXPECT_EQ(seen, g_fill);
}

TEST_F(FillerTest, ItFollowsTheContextWhoseLaunchCameLast) {
  Filler filler(api_);
  filler.launched_above(first_, kPriority);
  filler.follow(20, true);
  filler.launched_above(second_, kPriority);
  EXPECT_FALSE(filler.fills());
  filler.follow(20, true);
  EXPECT_TRUE(filler.fills());
  all_end(first_);
  filler.forget(second_);
  EXPECT_FALSE(filler.fills());
  filler.follow(20, true);
  EXPECT_FALSE(filler.fills());
  all_end(second_);
}

// A turn's launches at the lowest level are beside others' there: nothing keeps these out.
TEST_F(FillerTest, ALaunchInItsStreamsOwnLaneEndsIt) {
  Filler filler(api_);
  filler.launched_above(first_, kPriority);
  filler.follow(20, true);
  ASSERT_TRUE(filler.fills());
  filler.launched_below(second_);
  EXPECT_TRUE(filler.fills()) << "another context's";
  filler.launched_below(first_);
  EXPECT_FALSE(filler.fills());
  filler.follow(20, true);
  EXPECT_FALSE(filler.fills());
  all_end(first_);
}

CUresult refuse_stream(CUstream*, unsigned, int) { return CUDA_ERROR_OUT_OF_MEMORY; }
CUresult refuse_module(CUmodule*, const void*, unsigned, CUjit_option*, void**) {
  return CUDA_ERROR_INVALID_PTX;
}
CUresult refuse_launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, CUstream, void**, void**) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

TEST_F(FillerTest, ADriverThatRefusesIsNotAskedAgain) {
  for (int what = 0; what < 3; ++what) {
    SCOPED_TRACE(what);
    gpu::DriverApi broken = api_;
    if (what == 0) broken.cuStreamCreateWithPriority = refuse_stream;
    if (what == 1) broken.cuModuleLoadDataEx = refuse_module;
    if (what == 2) broken.cuLaunchKernel = refuse_launch;
    Filler filler(broken);
    filler.launched_above(first_, kPriority);
    filler.follow(20, true);
    EXPECT_FALSE(filler.fills());
    broken = api_;
    filler.launched_above(first_, kPriority);
    filler.follow(20, true);
    EXPECT_FALSE(filler.fills());
    EXPECT_EQ(filler.grids(), 0u);
  }
}

}  // namespace
}  // namespace sluice::worker
