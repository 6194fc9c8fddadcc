// SPDX-License-Identifier: Apache-2.0
// Green contexts: which SMs their blocks are on, what waits for what, and every error. The software
// GPU of these tests has 4 SMs of 4 blocks. Two processes: modes_test.cc.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <thread>

#include "tests/unit/softgpu/fixture.h"

namespace sluice {
namespace {

constexpr unsigned kFine = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;

// out[2 * block] = SM, out[2 * block + 1] = SMs of the GPU.
constexpr const char* kPlaces = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry places(.param .u64 out) {
  .reg .b32 %r<4>; .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %smid;
  mov.u32 %r3, %nsmid;
  mul.wide.u32 %d2, %r1, 8;
  add.u64 %d1, %d1, %d2;
  st.global.v2.u32 [%d1], {%r2, %r3};
  ret;
})";

// The primary context is current.
class Green : public SoftGpuTest {
 protected:
  void SetUp() override {
    OK(api.cuInit(0));
    OK(api.cuDevicePrimaryCtxRetain(&primary_, 0));
    OK(api.cuCtxSetCurrent(primary_));
    OK(api.cuModuleLoadData(&module_, kTestPtx));
    CUmodule places;
    OK(api.cuModuleLoadData(&places, kPlaces));
    OK(api.cuModuleGetFunction(&places_, places, "places"));
    OK(api.cuDeviceGetDevResource(0, &all_, CU_DEV_RESOURCE_TYPE_SM));
  }
  void TearDown() override {
    for (CUgreenCtx context : made_) api.cuGreenCtxDestroy(context);
    EXPECT_EQ(api.cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    while (api.cuCtxPopCurrent(nullptr) == CUDA_SUCCESS) {
    }
  }

  // Two groups of two SMs.
  std::array<CUdevResource, 2> groups() {
    std::array<CUdevResource, 2> g;
    unsigned count = 2;
    EXPECT_EQ(api.cuDevSmResourceSplitByCount(g.data(), &count, &all_, nullptr, kFine, 2),
              CUDA_SUCCESS);
    EXPECT_EQ(count, 2u);
    return g;
  }
  CUgreenCtx green(CUdevResource resource) {
    CUdevResourceDesc desc = nullptr;
    CUgreenCtx context = nullptr;
    EXPECT_EQ(api.cuDevResourceGenerateDesc(&desc, &resource, 1), CUDA_SUCCESS);
    EXPECT_EQ(api.cuGreenCtxCreate(&context, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_SUCCESS);
    std::lock_guard lock(mutex_);
    made_.push_back(context);
    return context;
  }
  CUstream stream_of(CUgreenCtx context) {
    CUstream s = nullptr;
    EXPECT_EQ(api.cuGreenCtxStreamCreate(&s, context, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    return s;
  }
  // The SMs that 64 blocks in the stream have been on, a bit each.
  unsigned sms_of(CUstream in) {
    const CUdeviceptr out = allocate(64 * 8);
    CUdeviceptr argument = out;
    void* arguments[] = {&argument};
    EXPECT_EQ(api.cuLaunchKernel(places_, 64, 1, 1, 32, 1, 1, 0, in, arguments, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(api.cuStreamSynchronize(in), CUDA_SUCCESS);
    unsigned set = 0;
    const std::vector<uint32_t> words = read(out, 128);
    for (size_t i = 0; i < words.size(); i += 2) {
      set |= 1u << words[i];
      EXPECT_EQ(words[i + 1], 4u) << "%nsmid is the GPU's";
    }
    return set;  // freeing the memory would wait for all
  }

  CUcontext primary_ = nullptr;
  CUfunction places_ = nullptr;
  std::mutex mutex_;
  std::vector<CUgreenCtx> made_;  // under mutex_
  CUdevResource all_;
};

TEST_F(Green, SplitsGiveGroupsAndWhatIsLeft) {
  EXPECT_EQ(all_.type, CU_DEV_RESOURCE_TYPE_SM);
  EXPECT_EQ(all_.sm.smCount, 4u);
  EXPECT_EQ(all_.sm.minSmPartitionSize, 4u) << "without the flag 8, but there are no 8";
  struct Case {
    unsigned flags, wanted, made, size, left;
  };
  for (const Case& c : {Case{kFine, 0, 2, 2, 0},
                        {kFine, 1, 2, 2, 0},
                        {kFine, 2, 2, 2, 0},
                        {kFine, 3, 1, 4, 0},
                        {kFine, 4, 1, 4, 0},
                        {0, 0, 1, 4, 0},
                        {0, 1, 1, 4, 0},
                        {CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE, 1, 1, 4, 0}}) {
    unsigned count = 0;
    OK(api.cuDevSmResourceSplitByCount(nullptr, &count, &all_, nullptr, c.flags, c.wanted));
    EXPECT_EQ(count, c.made) << "asked how many, " << c.flags << ' ' << c.wanted;
    std::array<CUdevResource, 8> g;
    CUdevResource left;
    count = 8;
    OK(api.cuDevSmResourceSplitByCount(g.data(), &count, &all_, &left, c.flags, c.wanted));
    EXPECT_EQ(count, c.made);
    for (unsigned i = 0; i < count; ++i) EXPECT_EQ(g[i].sm.smCount, c.size);
    EXPECT_EQ(left.type, CU_DEV_RESOURCE_TYPE_INVALID);
  }
  // Fewer than there could be: the others are left.
  CUdevResource one, left, second;
  unsigned count = 1;
  OK(api.cuDevSmResourceSplitByCount(&one, &count, &all_, &left, kFine, 2));
  EXPECT_EQ(left.type, CU_DEV_RESOURCE_TYPE_SM);
  EXPECT_EQ(left.sm.smCount, 2u);
  EXPECT_EQ(left.sm.minSmPartitionSize, 0u) << "for";
  FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        api.cuDevSmResourceSplitByCount(&second, &count, &left, nullptr, kFine, 2))
      << "it cannot be split";
  EXPECT_EQ(sms_of(stream_of(green(left))), 0b1100u);
  // Who only asks how many does not learn what would be left.
  left = all_;
  OK(api.cuDevSmResourceSplitByCount(nullptr, &count, &all_, &left, kFine, 2));
  EXPECT_EQ(left.sm.smCount, 4u);
}

TEST_F(Green, BlocksAreOnTheSmsOfTheirContext) {
  const auto g = groups();
  const CUgreenCtx low = green(g[0]), high = green(g[1]);
  EXPECT_EQ(sms_of(stream_of(low)), 0b0011u);
  EXPECT_EQ(sms_of(stream_of(high)), 0b1100u);
  EXPECT_EQ(sms_of(stream()), 0b1111u) << "the primary context has them all";
  // Groups together.
  CUdevResource both[2] = {g[1], g[0]};
  CUdevResourceDesc desc;
  CUgreenCtx all;
  OK(api.cuDevResourceGenerateDesc(&desc, both, 2));
  OK(api.cuGreenCtxCreate(&all, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  EXPECT_EQ(sms_of(stream_of(all)), 0b1111u);
  CUdevResource r;
  OK(api.cuGreenCtxGetDevResource(all, &r, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(r.sm.smCount, 4u);
  OK(api.cuGreenCtxGetDevResource(high, &r, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(r.sm.smCount, 2u);
  EXPECT_EQ(r.sm.minSmPartitionSize, 2u) << "as it was split";
  // What a context has may be split again.
  unsigned count = 1;
  OK(api.cuDevSmResourceSplitByCount(both, &count, &r, nullptr, kFine, 2));
  EXPECT_EQ(sms_of(stream_of(green(both[0]))), 0b1100u);
  OK(api.cuGreenCtxDestroy(all));
}

TEST_F(Green, DisjointContextsDoNotHoldUpOneAnother) {
  const auto g = groups();
  const CUgreenCtx low = green(g[0]), high = green(g[1]);
  const CUstream a = stream_of(low), behind = stream_of(green(g[0])), b = stream_of(high);
  uint32_t* flag = pinned_word();
  // More than its SMs hold, and of another context a cooperative grid that waits for all of them.
  OK(launch("spin", 12, 32, a, address(flag)));
  CUdeviceptr out = allocate(64);
  void* arguments[] = {&out};
  OK(api.cuLaunchCooperativeKernel(kernel("where"), 8, 1, 1, 32, 1, 1, 0, behind, arguments));
  EXPECT_EQ(sms_of(b), 0b1100u) << "b runs while a fills its own";
  EXPECT_EQ(sms_of(stream()), 0b1100u) << "the primary context has what a leaves";
  OK(api.cuLaunchCooperativeKernel(kernel("where"), 8, 1, 1, 32, 1, 1, 0, b, arguments));
  OK(api.cuStreamSynchronize(b));
  FAILS(CUDA_ERROR_NOT_READY, api.cuStreamQuery(a));
  FAILS(CUDA_ERROR_NOT_READY, api.cuStreamQuery(behind));
  store_word(flag, 1);
  OK(api.cuStreamSynchronize(behind));
  for (uint32_t sm : read(out, 8)) EXPECT_LT(sm, 2u);
  FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        api.cuLaunchCooperativeKernel(kernel("where"), 9, 1, 1, 32, 1, 1, 0, a, arguments));
  int blocks = 0;
  OK(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel("where"), 32, 0));
  EXPECT_EQ(blocks, 4) << "per SM, whoever has how many";
  OK(api.cuStreamSynchronize(a));
}

TEST_F(Green, EventsOrderThePrimaryContextsStreamsAndItsGreenOnes) {
  const CUgreenCtx context = green(groups()[1]);
  const CUstream its = stream_of(context), plain = stream();
  uint32_t* flag = pinned_word(2);
  uint32_t* out = pinned_word();
  const CUevent e = event(), f = event();
  OK(launch("spin", 1, 1, plain, address(flag)));
  OK(api.cuEventRecord(e, plain));
  OK(api.cuStreamWaitEvent(its, e, 0));
  OK(launch("poke", 1, 1, its, address(out), 1u));
  OK(launch("spin", 1, 1, its, address(flag + 1)));
  OK(api.cuEventRecord(f, its));
  OK(api.cuStreamWaitEvent(plain, f, 0));
  OK(api.cuMemsetD32Async(address(out), 2, 1, plain));
  EXPECT_EQ(load_word(out), 0u);
  store_word(flag, 1);
  while (load_word(out) != 1) {
  }
  FAILS(CUDA_ERROR_NOT_READY, api.cuEventQuery(f));
  store_word(flag + 1, 1);
  OK(api.cuStreamSynchronize(plain));
  EXPECT_EQ(load_word(out), 2u);
  OK(api.cuEventSynchronize(f));
}

TEST_F(Green, EventsOfAWholeContext) {
  const CUgreenCtx context = green(groups()[0]);
  const CUstream a = stream_of(context), b = stream_of(context), plain = stream();
  uint32_t* flag = pinned_word(2);
  uint32_t* out = pinned_word();
  const CUevent e = event(), f = event();
  OK(launch("spin", 1, 1, a, address(flag)));
  OK(launch("poke", 1, 1, b, address(out), 1u));
  OK(api.cuGreenCtxRecordEvent(context, e));
  OK(api.cuStreamSynchronize(b));
  FAILS(CUDA_ERROR_NOT_READY, api.cuEventQuery(e)) << "a has not come so far";
  // What waits for the event, streams made later too; the primary context does not.
  OK(launch("spin", 1, 1, plain, address(flag + 1)));
  OK(api.cuEventRecord(f, plain));
  OK(api.cuGreenCtxWaitEvent(context, f));
  OK(launch("poke", 1, 1, b, address(out), 2u));
  const CUstream late = stream_of(context), other = stream();
  OK(launch("poke", 1, 1, late, address(out), 3u));
  OK(launch("empty", 1, 1, other));
  OK(api.cuStreamSynchronize(other));
  store_word(flag, 1);
  OK(api.cuEventSynchronize(e));
  OK(api.cuStreamSynchronize(a));
  FAILS(CUDA_ERROR_NOT_READY, api.cuStreamQuery(b));
  FAILS(CUDA_ERROR_NOT_READY, api.cuStreamQuery(late));
  EXPECT_EQ(load_word(out), 1u);
  store_word(flag + 1, 1);
  OK(api.cuStreamSynchronize(b));
  OK(api.cuStreamSynchronize(late));
  EXPECT_NE(load_word(out), 1u);
}

TEST_F(Green, AContextMadeCurrentIsThePrimaryOneWithFewerSms) {
  const CUgreenCtx context = green(groups()[1]);
  CUcontext view = nullptr, now = nullptr, of_stream = nullptr;
  OK(api.cuCtxFromGreenCtx(&view, context));
  EXPECT_NE(view, primary_);
  const CUdeviceptr before = allocate(64);
  OK(api.cuCtxPushCurrent(view));
  OK(api.cuCtxGetCurrent(&now));
  EXPECT_EQ(now, view);
  EXPECT_EQ(sms_of(nullptr), 0b1100u) << "its default stream";
  OK(api.cuMemsetD32(before, 7, 16));
  const CUdeviceptr inside = allocate(64);
  const CUstream made = stream(CU_STREAM_DEFAULT);
  EXPECT_EQ(sms_of(made), 0b1100u);
  OK(api.cuStreamGetCtx(made, &of_stream));
  EXPECT_EQ(of_stream, view);
  CUgreenCtx of = nullptr;
  OK(api.cuStreamGetGreenCtx(made, &of));
  EXPECT_EQ(of, context);
  OK(api.cuStreamGetGreenCtx(nullptr, &of));
  EXPECT_EQ(of, context);
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuStreamSynchronize(CU_STREAM_PER_THREAD));
  int sms = 0;
  OK(api.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  EXPECT_EQ(sms, 4) << "the device's";
  CUdevResource r;
  OK(api.cuCtxGetDevResource(view, &r, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(r.sm.smCount, 2u);
  OK(api.cuCtxGetDevResource(primary_, &r, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(r.sm.smCount, 4u);
  // Its default stream waits for no other, and what is made while it is current not for that.
  uint32_t* flag = pinned_word();
  OK(launch("spin", 1, 1, made, address(flag)));
  OK(launch("empty", 1, 1, nullptr));
  OK(api.cuStreamSynchronize(nullptr));
  int grid = 0, block = 0;
  OK(api.cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel("empty"), nullptr, 0, 0));
  int per_sm = 0;
  OK(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel("empty"), block, 0));
  EXPECT_EQ(grid, 2 * per_sm) << "a grid that fills its SMs";
  OK(api.cuCtxPopCurrent(&now));
  EXPECT_EQ(now, view);
  OK(api.cuStreamQuery(nullptr)) << "the primary context's default stream is another";
  OK(api.cuStreamGetGreenCtx(nullptr, &of));
  EXPECT_EQ(of, nullptr);
  uint32_t* other = pinned_word();
  const CUstream plain = stream(CU_STREAM_DEFAULT);
  OK(launch("spin", 1, 1, plain, address(other)));
  store_word(flag, 1);
  OK(api.cuCtxPushCurrent(view));
  OK(api.cuCtxSynchronize()) << "its own work only";
  OK(api.cuCtxPopCurrent(nullptr));
  FAILS(CUDA_ERROR_NOT_READY, api.cuStreamQuery(plain));
  store_word(other, 1);
  OK(api.cuCtxSynchronize());
  EXPECT_EQ(read(before, 1)[0], 7u);
  OK(api.cuMemFree(inside)) << "memory is the primary context's";
  FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxDestroy(view));
}

TEST_F(Green, ThePrimaryContextsWaitCoversItsGreenOnes) {
  const CUstream its = stream_of(green(groups()[0]));
  uint32_t* flag = pinned_word();
  uint32_t* out = pinned_word();
  OK(launch("spin", 1, 1, its, address(flag)));
  OK(launch("poke", 1, 1, its, address(out), 5u));
  OK(api.cuLaunchHostFunc(
      stream(), [](void* word) { store_word(static_cast<uint32_t*>(word), 1); }, flag));
  OK(api.cuCtxSynchronize());
  EXPECT_EQ(load_word(out), 5u);
}

TEST_F(Green, ADestroyedContextHasEndedItsWorkAndItsStreamsTell) {
  const CUgreenCtx context = green(groups()[0]), other = green(groups()[0]);
  const CUstream its = stream_of(context);
  CUcontext view;
  OK(api.cuCtxFromGreenCtx(&view, context));
  OK(api.cuCtxPushCurrent(view));
  const CUevent e = event();
  OK(api.cuCtxPopCurrent(nullptr));
  const CUdeviceptr out = allocate(64 * 128 * 4);
  OK(launch("churn", 8, 128, its, out, 20u));
  OK(launch("poke", 1, 1, its, out, 77u));
  OK(api.cuGreenCtxDestroy(context));
  EXPECT_EQ(read(out, 1)[0], 77u);
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, launch("empty", 1, 1, its));
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, api.cuStreamSynchronize(its));
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, api.cuStreamDestroy(its));
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, api.cuGreenCtxDestroy(context));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxSetCurrent(view));
  CUstream s = nullptr;
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED,
        api.cuGreenCtxStreamCreate(&s, context, CU_STREAM_NON_BLOCKING, 0));
  OK(api.cuEventRecord(e, nullptr)) << "events are the primary context's";
  // A green context is a use of the primary context.
  const CUstream still = stream_of(other);
  OK(api.cuDevicePrimaryCtxRelease(0));
  EXPECT_EQ(sms_of(still), 0b0011u);
  OK(api.cuCtxFromGreenCtx(&view, other));
  OK(api.cuCtxPushCurrent(view));
  OK(api.cuGreenCtxDestroy(other));
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, api.cuCtxSynchronize());
  unsigned flags = 0;
  int active = 1;
  OK(api.cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 0);
  // And does not outlive it, whoever gives back more than it has.
  OK(api.cuDevicePrimaryCtxRetain(&primary_, 0));
  const CUgreenCtx third = green(groups()[1]);
  FAILS(CUDA_ERROR_NOT_PERMITTED, api.cuDevicePrimaryCtxReset(0));
  OK(api.cuDevicePrimaryCtxRelease(0));
  OK(api.cuDevicePrimaryCtxRelease(0));
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED,
        api.cuGreenCtxStreamCreate(&s, third, CU_STREAM_NON_BLOCKING, 0));
  OK(api.cuDevicePrimaryCtxRetain(&primary_, 0));
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, api.cuGreenCtxDestroy(third));
  OK(api.cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 1) << "a later primary context is none of its business";
}

TEST_F(Green, ThreadsMakeUseAndDestroyThemTogether) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      ASSERT_EQ(api.cuCtxSetCurrent(primary_), CUDA_SUCCESS);
      for (int round = 0; round < 20; ++round) {
        const unsigned which = (t + static_cast<unsigned>(round)) % 2;
        const CUgreenCtx context = green(groups()[which]);
        const CUstream its = stream_of(context);
        EXPECT_EQ(sms_of(its), which == 0 ? 0b0011u : 0b1100u);
        EXPECT_EQ(launch("empty", 8, 32, its), CUDA_SUCCESS);
        EXPECT_EQ(api.cuStreamDestroy(its), CUDA_SUCCESS);
        EXPECT_EQ(api.cuGreenCtxDestroy(context), CUDA_SUCCESS);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Green, AFaultThereIsThePrimaryContexts) {
  const CUgreenCtx context = green(groups()[0]);
  const CUstream its = stream_of(context);
  OK(launch("trapped", 1, 1, its));
  FAILS(CUDA_ERROR_LAUNCH_FAILED, api.cuCtxSynchronize());
  CUstream s = nullptr;
  FAILS(CUDA_ERROR_LAUNCH_FAILED,
        api.cuGreenCtxStreamCreate(&s, context, CU_STREAM_NON_BLOCKING, 0));
}

TEST_F(Green, BadArgumentsAreRefused) {
  CUdevResource r, left;
  FAILS(CUDA_ERROR_INVALID_DEVICE, api.cuDeviceGetDevResource(1, &r, CU_DEV_RESOURCE_TYPE_SM));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuDeviceGetDevResource(0, nullptr, CU_DEV_RESOURCE_TYPE_SM));
  FAILS(CUDA_ERROR_INVALID_RESOURCE_TYPE,
        api.cuDeviceGetDevResource(0, &r, CU_DEV_RESOURCE_TYPE_INVALID));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxGetDevResource(nullptr, &r, CU_DEV_RESOURCE_TYPE_SM));
  FAILS(CUDA_ERROR_INVALID_CONTEXT,
        api.cuGreenCtxGetDevResource(nullptr, &r, CU_DEV_RESOURCE_TYPE_SM));

  const auto split = [&](CUdevResource* result, unsigned* count, const CUdevResource* input,
                         unsigned flags, unsigned wanted) {
    return api.cuDevSmResourceSplitByCount(result, count, input, &left, flags, wanted);
  };
  unsigned count = 1, none = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, split(&r, nullptr, &all_, kFine, 2));
  FAILS(CUDA_ERROR_INVALID_VALUE, split(&r, &count, nullptr, kFine, 2));
  FAILS(CUDA_ERROR_INVALID_VALUE, split(&r, &none, &all_, kFine, 2));
  FAILS(CUDA_ERROR_INVALID_VALUE, split(&r, &count, &all_, 3, 2)) << "one of the two";
  OK(split(&r, &count, &all_, 4, 2)) << "what is no flag is none";
  FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, split(&r, &count, &all_, kFine, 5))
      << "more than there are";
  CUdevResource forged;
  std::memset(&forged, 0, sizeof forged);
  FAILS(CUDA_ERROR_INVALID_RESOURCE_TYPE, split(&r, &count, &forged, kFine, 2));
  forged.type = CU_DEV_RESOURCE_TYPE_SM;
  FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, split(&r, &count, &forged, kFine, 2));
  forged = all_;
  forged.sm.smCount = 400;
  FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, split(&r, &count, &forged, kFine, 300));
  auto first = groups(), second = groups();
  FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, split(&r, &count, &first[0], kFine, 2))
      << "a group has to become a context first";

  CUdevResourceDesc desc = nullptr;
  const auto describe_all = [&](std::initializer_list<CUdevResource> list) {
    std::vector<CUdevResource> resources(list);
    return api.cuDevResourceGenerateDesc(&desc, resources.data(),
                                         static_cast<unsigned>(resources.size()));
  };
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuDevResourceGenerateDesc(nullptr, first.data(), 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuDevResourceGenerateDesc(&desc, nullptr, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuDevResourceGenerateDesc(&desc, first.data(), 0));
  FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, describe_all({first[0], first[0]}))
      << "twice the same SMs";
  FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, describe_all({first[0], second[1]}))
      << "of two splits";
  FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, describe_all({all_, all_}));
  FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, describe_all({forged}));
  OK(split(first.data(), &(count = 2), &all_, kFine, 2));
  FAILS(CUDA_ERROR_INVALID_RESOURCE_TYPE, describe_all({first[0], left})) << "nothing was left";

  CUgreenCtx context = nullptr;
  OK(describe_all({first[0], first[1]}));
  FAILS(CUDA_ERROR_INVALID_VALUE,
        api.cuGreenCtxCreate(nullptr, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  FAILS(CUDA_ERROR_INVALID_VALUE,
        api.cuGreenCtxCreate(&context, nullptr, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuGreenCtxCreate(&context, desc, 0, 0))
      << "the flag is required";
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuGreenCtxCreate(&context, desc, 0, 3));
  FAILS(CUDA_ERROR_INVALID_DEVICE,
        api.cuGreenCtxCreate(&context, desc, 1, CU_GREEN_CTX_DEFAULT_STREAM));
  OK(api.cuGreenCtxCreate(&context, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));

  CUstream s = nullptr;
  CUcontext view = nullptr;
  FAILS(CUDA_ERROR_INVALID_VALUE,
        api.cuGreenCtxStreamCreate(nullptr, context, CU_STREAM_NON_BLOCKING, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuGreenCtxStreamCreate(&s, context, CU_STREAM_DEFAULT, 0));
  FAILS(CUDA_ERROR_INVALID_CONTEXT,
        api.cuGreenCtxStreamCreate(&s, nullptr, CU_STREAM_NON_BLOCKING, 0));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuGreenCtxDestroy(reinterpret_cast<CUgreenCtx>(primary_)));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxSetCurrent(reinterpret_cast<CUcontext>(context)))
      << "it has to be converted";
  FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxFromGreenCtx(&view, nullptr));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuCtxFromGreenCtx(nullptr, context));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuStreamGetGreenCtx(nullptr, nullptr));
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuGreenCtxRecordEvent(context, nullptr));
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuGreenCtxWaitEvent(context, nullptr));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuGreenCtxRecordEvent(nullptr, event()));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuGreenCtxWaitEvent(nullptr, event()));
  CUcontext another;
  OK(api.cuCtxCreate_v2(&another, 0, 0));
  const CUevent its = event();
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuGreenCtxRecordEvent(context, its)) << "of another context";
  OK(api.cuGreenCtxWaitEvent(context, its));
  OK(api.cuCtxDestroy(another));
  OK(api.cuGreenCtxDestroy(context));
}

}  // namespace
}  // namespace sluice
