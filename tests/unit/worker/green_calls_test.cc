// SPDX-License-Identifier: Apache-2.0
// Green contexts of the guest's own, by a real sluice-worker on the software GPU: their launches
// are evicted like others, they are charged and bounded, and forged ones cost their session an
// error.
#include "tests/unit/worker/kernels.h"

namespace sluice::test {
namespace {

constexpr uint64_t kMiB = 1u << 20;
constexpr unsigned kFine = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;

class GreenCalls : public WorkerProcess {
 protected:
  void start_with(uint64_t limit = 64 * kMiB) {
    WorkerBench::Options o;
    o.memory_limit = o.lease_limit = limit;
    o.environment = {"SLUICE_SOFT_SMS=12", "SLUICE_SOFT_THREADS=2"};
    start(std::move(o));
    make_context();
  }
  // The first two groups of the smallest.
  static sluice_green first_two() {
    sluice_green g{};
    g.flags = SLUICE_GREEN_SPLIT;
    g.groups = 3;
    g.min_count = 1;
    g.how = kFine;
    g.chosen[0] = 3;
    return g;
  }
  Answer create(const sluice_green& g) { return b->call(SLUICE_CALL_GREEN_CREATE, g, context); }
  Answer split(const sluice_green& g) { return b->call(SLUICE_CALL_GREEN_SPLIT, g, context); }
  uint64_t make_green() {
    const Answer a = create(first_two());
    EXPECT_EQ(a.status, CUDA_SUCCESS);
    return a.as<sluice_green_reply>().handle;
  }
  int destroy(uint64_t green) {
    return generic(kOpcode_cuGreenCtxDestroy, {raw(green)}, context).status;
  }
  Answer make_stream(uint64_t green, unsigned flags = CU_STREAM_NON_BLOCKING) {
    return generic(kOpcode_cuGreenCtxStreamCreate,
                   {raw<uint8_t>(1), raw(green), raw(flags), raw<int>(0)}, context);
  }
  uint64_t free_memory() {
    const Answer a = generic(kOpcode_cuMemGetInfo_v2, {raw<uint8_t>(1), raw<uint8_t>(1)}, context);
    return a.as<uint64_t>();
  }
};

TEST_F(GreenCalls, SplitsTellSizesAndNoAddresses) {
  start_with();
  sluice_green g = first_two();
  const auto reply = split(g).as<sluice_green_reply>();
  EXPECT_EQ(reply.all.count, 12u);
  EXPECT_EQ(reply.groups, 3u);
  EXPECT_EQ(reply.group.count, 2u);
  EXPECT_EQ(reply.rest.count, 6u);
  g.groups = 0;
  EXPECT_EQ(split(g).as<sluice_green_reply>().groups, 6u);
  g.flags = 0;
  EXPECT_EQ(split(g).as<sluice_green_reply>().all.count, 12u);
}

TEST_F(GreenCalls, LaunchesInThemAreEvictedAndEachTaskRunsOnce) {
  start_with();
  make_module();
  const uint64_t green = make_green(), stream = make_stream(green).as<uint64_t>();
  constexpr uint32_t kN = 64 * 400;
  const uint64_t data = alloc(2 * kN * 4).as<uint64_t>();
  zero(data, 2 * kN * 4);
  ASSERT_EQ(sync().status, CUDA_SUCCESS);  // green streams wait for no default stream
  uint32_t expected = 0, k = 0;
  const auto relaunches = [&] {
    return __atomic_load_n(&b->report->header.relaunches, __ATOMIC_RELAXED);
  };
  for (int round = 0; round < 10 || (round < 400 && relaunches() < 10); ++round) {
    ++k;
    b->post(SLUICE_CALL_LAUNCH, launch_body(add, 400, 64, data, kN, k, stream, 20), context,
            SLUICE_RECORD_NO_REPLY);
    // Its default stream: null, in its name.
    b->post(SLUICE_CALL_LAUNCH, launch_body(add, 400, 64, data + kN * 4, kN, k, 0, 20), green,
            SLUICE_RECORD_NO_REPLY);
    expected = advance(expected, k, 20);
    ::usleep(500 * (round % 5));
    b->take_back();
    ASSERT_TRUE(b->wait_left());
    b->grant();
  }
  ASSERT_EQ(sync().status, CUDA_SUCCESS);
  const uint32_t* got = words(data, 2 * kN * 4);
  for (uint32_t i = 0; i < 2 * kN; ++i) ASSERT_EQ(got[i], expected) << i;
  EXPECT_GE(relaunches(), 10u);
  EXPECT_EQ(destroy(green), CUDA_SUCCESS);
}

TEST_F(GreenCalls, AreBoundedAndCharged) {
  start_with(64 * kMiB);
  const uint64_t before = free_memory();
  std::vector<uint64_t> made;
  for (int i = 0; i < 40; ++i) {
    const Answer a = create(first_two());
    if (a.status != CUDA_SUCCESS) {
      EXPECT_EQ(a.status, CUDA_ERROR_OUT_OF_MEMORY);
      break;
    }
    made.push_back(a.as<sluice_green_reply>().handle);
  }
  EXPECT_EQ(made.size(), 10u);  // of 6 MiB
  EXPECT_LE(free_memory(), before - 60 * kMiB);
  // Those that come in the place of others are paid for.
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(destroy(made.back()), CUDA_SUCCESS);
    made.back() = make_green();
  }
  for (const uint64_t green : made) EXPECT_EQ(destroy(green), CUDA_SUCCESS);
}

TEST_F(GreenCalls, AreAtMostSoMany) {
  start_with(1024 * kMiB);
  int made = 0;
  while (made < 100 && create(first_two()).status == CUDA_SUCCESS) ++made;
  EXPECT_EQ(made, 32);
}

TEST_F(GreenCalls, WhatIsForgedIsAnError) {
  start_with();
  const uint64_t green = make_green();
  for (const auto& [edit, expected] :
       std::initializer_list<std::pair<void (*)(sluice_green&), CUresult>>{
           {[](sluice_green& g) { g.flags |= 4; }, CUDA_ERROR_INVALID_VALUE},
           {[](sluice_green& g) { g.flags = SLUICE_GREEN_REST; }, CUDA_ERROR_INVALID_VALUE},
           {[](sluice_green& g) { g.groups = SLUICE_GREEN_GROUPS + 1; }, CUDA_ERROR_INVALID_VALUE},
           {[](sluice_green& g) { g.groups = ~0u; }, CUDA_ERROR_INVALID_VALUE},
           {[](sluice_green& g) { g.how = 3; }, CUDA_ERROR_INVALID_VALUE},
           {[](sluice_green& g) { g.device = -1; }, CUDA_ERROR_INVALID_CONTEXT},
           {[](sluice_green& g) { g.base = 1; }, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION},
           {[](sluice_green& g) { g.base = ~uint64_t{0}; },
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION},
           {[](sluice_green& g) { g.min_count = ~0u; }, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION},
           {[](sluice_green& g) { g.chosen[0] = 0; }, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION},
           {[](sluice_green& g) { g.chosen[0] = 8; }, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION},
           {[](sluice_green& g) { g.chosen[3] = ~uint64_t{0}; },
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION}}) {
    sluice_green g = first_two();
    edit(g);
    EXPECT_EQ(create(g).status, expected);
  }
  // Not in a context, in one that is not the device's, and in one that is none.
  EXPECT_EQ(b->call(SLUICE_CALL_GREEN_CREATE, first_two(), 0).status, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(make_stream(context).status, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(make_stream(green, CU_STREAM_DEFAULT).status, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(destroy(context), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(
      b->call(SLUICE_CALL_SYNCHRONIZE, sluice_synchronize{SLUICE_SYNC_STREAM, 0, 2}, green).status,
      CUDA_ERROR_INVALID_HANDLE);
  EXPECT_FALSE(b->ended());
}

TEST_F(GreenCalls, DestroyedTheyNameNothingAndTheirWorkEnds) {
  start_with();
  make_module();
  constexpr uint32_t kN = 64 * 400;
  const uint64_t data = alloc(kN * 4).as<uint64_t>();
  zero(data, kN * 4);
  ASSERT_EQ(sync().status, CUDA_SUCCESS);
  b->take_back();
  ASSERT_TRUE(b->wait_left());
  const uint64_t green = make_green(), stream = make_stream(green).as<uint64_t>();
  b->post(SLUICE_CALL_LAUNCH, launch_body(add, 400, 64, data, kN, 5, stream, 3), context,
          SLUICE_RECORD_NO_REPLY);
  EXPECT_EQ(destroy(green), CUDA_SUCCESS);
  EXPECT_EQ(destroy(green), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(make_stream(green).status, CUDA_ERROR_INVALID_CONTEXT);
  sluice_green inside = first_two();
  inside.base = green;
  EXPECT_EQ(create(inside).status, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  EXPECT_EQ(
      b->call(SLUICE_CALL_SYNCHRONIZE, sluice_synchronize{SLUICE_SYNC_STREAM, 0, 0}, green).status,
      CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(
      b->call(SLUICE_CALL_SYNCHRONIZE, sluice_synchronize{SLUICE_SYNC_STREAM, 0, stream}, context)
          .status,
      CUDA_ERROR_INVALID_HANDLE);
  b->grant();
  ASSERT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(words(data, kN * 4)[kN - 1], advance(0, 5, 3));
}

TEST_F(GreenCalls, TheyGoWithTheirContext) {
  start_with();
  make_module();
  const uint64_t green = make_green(), stream = make_stream(green).as<uint64_t>();
  constexpr uint32_t kN = 64;
  const uint64_t data = alloc(kN * 4).as<uint64_t>();
  b->post(SLUICE_CALL_LAUNCH, launch_body(add, 1, 64, data, kN, 5, stream, 3), context,
          SLUICE_RECORD_NO_REPLY);
  EXPECT_EQ(generic(kOpcode_cuDevicePrimaryCtxReset_v2, {raw<int>(0)}).status, CUDA_SUCCESS);
  EXPECT_EQ(destroy(green), CUDA_ERROR_INVALID_CONTEXT);
  make_context();
  EXPECT_EQ(destroy(make_green()), CUDA_SUCCESS);
}

}  // namespace
}  // namespace sluice::test
