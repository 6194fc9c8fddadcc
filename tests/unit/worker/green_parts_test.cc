// SPDX-License-Identifier: Apache-2.0
// The parts of GreenContexts, without a driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "mediator/worker/launch/sms/block_record.h"
#include "mediator/worker/launch/sms/bounded_wait.h"
#include "mediator/worker/launch/sms/sm_groups.h"

namespace sluice::worker {
namespace {

TEST(SmGroups, WholeGroupsAreAUnion) {
  const SmGroups groups = SmGroups::of(8, 4, 32);
  EXPECT_TRUE(groups.is_union(SmSet(0, 8)));
  EXPECT_TRUE(groups.is_union(SmSet(8, 32)));
  EXPECT_TRUE(groups.is_union(SmSet(0, 8) | SmSet(24, 32)));
}

TEST(SmGroups, APieceOfAGroupIsNone) {
  const SmGroups groups = SmGroups::of(8, 4, 32);
  EXPECT_FALSE(groups.is_union(SmSet(0, 7)));
  EXPECT_FALSE(groups.is_union(SmSet(4, 12)));
  EXPECT_FALSE(groups.is_union(SmSet(0, 8) | SmSet(9, 16)));
}

// 36 SMs: the last four are in no group.
TEST(SmGroups, SmsOfNoGroupAreInNoUnion) {
  const SmGroups groups = SmGroups::of(8, 4, 36);
  EXPECT_TRUE(groups.is_union(SmSet(0, 32)));
  EXPECT_FALSE(groups.is_union(SmSet(0, 36)));
  EXPECT_FALSE(groups.is_union(SmSet(32, 36)));
}

// The driver counts a last group that the GPU has a part of.
TEST(SmGroups, AGroupThatTheGpuHasAPartOfIsInNoUnion) {
  const SmGroups groups = SmGroups::of(8, 5, 36);
  EXPECT_EQ(groups.all, SmSet(0, 36));
  EXPECT_TRUE(groups.is_union(SmSet(0, 32)));
  EXPECT_FALSE(groups.is_union(SmSet(32, 36)));
}

TEST(BoundedWait, EndsAtItsBound) {
  BoundedWait wait(100);
  EXPECT_TRUE(wait.asked(1000));
  EXPECT_TRUE(wait.asked(1099));
  EXPECT_FALSE(wait.asked(1100));
  EXPECT_FALSE(wait.asked(1150));
}

TEST(BoundedWait, BeginsAnewWhenItWasOver) {
  BoundedWait wait(100);
  EXPECT_TRUE(wait.asked(1000));
  EXPECT_FALSE(wait.asked(1100));
  wait.over();
  EXPECT_TRUE(wait.asked(1110));
}

TEST(BoundedWait, BeginsAnewWhenNobodyAskedForLong) {
  BoundedWait wait(100);
  EXPECT_TRUE(wait.asked(1000));
  EXPECT_FALSE(wait.asked(1100));
  EXPECT_FALSE(wait.asked(1200));
  EXPECT_TRUE(wait.asked(1301));
}

// A driver whose kernel writes down what the test wants.
struct FakeDriver {
  static inline std::vector<uint32_t> memory, writes;
  static inline unsigned blocks = 0;

  static gpu::DriverApi api() {
    gpu::DriverApi api;
    api.cuModuleLoadDataEx = [](CUmodule* m, const void*, unsigned, CUjit_option*, void**) {
      *m = reinterpret_cast<CUmodule>(1);
      return CUDA_SUCCESS;
    };
    api.cuModuleGetFunction = [](CUfunction* f, CUmodule, const char*) {
      *f = reinterpret_cast<CUfunction>(1);
      return CUDA_SUCCESS;
    };
    api.cuMemHostAlloc = [](void** p, size_t bytes, unsigned) {
      memory.assign(bytes / sizeof(uint32_t), 99);
      *p = memory.data();
      return CUDA_SUCCESS;
    };
    api.cuMemHostGetDevicePointer = [](CUdeviceptr* d, void* p, unsigned) {
      *d = reinterpret_cast<CUdeviceptr>(p);
      return CUDA_SUCCESS;
    };
    api.cuLaunchKernel = [](CUfunction, unsigned grid, unsigned, unsigned, unsigned, unsigned,
                            unsigned, unsigned, CUstream, void** parameters, void**) {
      blocks = grid;
      auto* to = reinterpret_cast<uint32_t*>(*static_cast<CUdeviceptr*>(parameters[0]));
      std::copy(writes.begin(), writes.end(), to);
      return CUDA_SUCCESS;
    };
    return api;
  }
};

bool keeps_to(uint32_t sms, std::vector<uint32_t> writes) {
  const gpu::DriverApi api = FakeDriver::api();
  BlockRecord record(4, 2);
  FakeDriver::writes = std::move(writes);
  EXPECT_EQ(record.load(api), CUDA_SUCCESS);
  EXPECT_EQ(record.launch(api, 1, sms, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(FakeDriver::blocks, BlockRecord::kBlocks * sms);
  return record.keeps_to(1, sms);
}

TEST(BlockRecord, CountsTheSmsOfAllBlocks) {
  EXPECT_TRUE(keeps_to(2, {1, 2, 1, 2}));
  EXPECT_TRUE(keeps_to(2, {4, 4, 4, 4}));
  EXPECT_FALSE(keeps_to(2, {1, 2, 3, 2}));
}

TEST(BlockRecord, ABlockThatWroteNothingProvesNothing) {
  EXPECT_FALSE(keeps_to(2, {1, 2, 1}));
  EXPECT_FALSE(keeps_to(2, {1, 2, 1, SmSet::kMax + 1}));
}

TEST(BlockRecord, PlacesAreUsedAgain) {
  BlockRecord record(4, 2);
  const size_t a = record.take(), b = record.take();
  EXPECT_NE(a, b);
  record.give_back(a);
  EXPECT_EQ(record.take(), a);
}

}  // namespace
}  // namespace sluice::worker
