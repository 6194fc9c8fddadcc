// SPDX-License-Identifier: Apache-2.0
// Green contexts: parts of the SMs, streams that have only those, errors. What an H200 answers to
// more of them, and to what crashes it: tests/conformance/green.
#include <cstring>
#include <set>

#include "tests/conformance/driver/driver_case.h"

namespace sluice::test {
namespace {

constexpr unsigned kFine = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;
constexpr unsigned kBlocks = 256;

// Where each block is.
const char* const kPlaces = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry places(.param .u64 out)
{
  .reg .b32 %r<3>; .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %smid;
  mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2;
  st.global.u32 [%d1], %r2;
  ret;
}
)";

class Green : public DriverCase {
 protected:
  void SetUp() override {
    DriverCase::SetUp();
    OK(cuDeviceGetDevResource(0, &all_, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuMemAlloc(&memory_, 4096));
    OK(cuMemsetD8(memory_, 0, 4096));
    OK(cuCtxSynchronize());
  }
  void TearDown() override {
    OK(cuMemFree(memory_));
    DriverCase::TearDown();
  }
  std::vector<CUdevResource> split(unsigned most, CUdevResource* left = nullptr) {
    std::vector<CUdevResource> groups(most);
    OK(cuDevSmResourceSplitByCount(groups.data(), &most, &all_, left, kFine, 1));
    groups.resize(most);
    return groups;
  }
  CUgreenCtx make(std::vector<CUdevResource> of) {
    CUdevResourceDesc desc = nullptr;
    CUgreenCtx green = nullptr;
    OK(cuDevResourceGenerateDesc(&desc, of.data(), static_cast<unsigned>(of.size())));
    OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
  }
  CUcontext view_of(CUgreenCtx green) {
    CUcontext view = nullptr;
    OK(cuCtxFromGreenCtx(&view, green));
    return view;
  }
  CUstream stream_of(CUgreenCtx green) {
    CUstream stream = nullptr;
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
  }
  unsigned sms_of(CUgreenCtx green) {
    CUdevResource its;
    OK(cuGreenCtxGetDevResource(green, &its, CU_DEV_RESOURCE_TYPE_SM));
    return its.sm.smCount;
  }
  // On how many SMs blocks of the stream are.
  size_t spread(CUstream stream) {
    CUmodule module = nullptr;
    CUfunction places = nullptr;
    OK(cuModuleLoadData(&module, kPlaces));
    OK(cuModuleGetFunction(&places, module, "places"));
    void* parameters[] = {&memory_};
    OK(cuLaunchKernel(places, kBlocks, 1, 1, 1024, 1, 1, 0, stream, parameters, nullptr));
    OK(cuStreamSynchronize(stream));
    unsigned sms[kBlocks];
    OK(cuMemcpyDtoH(sms, memory_, sizeof sms));
    OK(cuModuleUnload(module));
    return std::set<unsigned>(sms, sms + kBlocks).size();
  }
  void add_one(CUstream stream) {
    void* parameters[] = {&memory_};
    OK(cuLaunchKernel(kernel("add_one"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }
  uint32_t word() {
    uint32_t value = 0;
    OK(cuMemcpyDtoH(&value, memory_, 4));
    return value;
  }
  CUdevResource all_{};
  CUdeviceptr memory_ = 0;
};
class GuestCallsGreen : public Green {};  // of functions that the software GPU alone lacks

TEST_F(Green, ADeviceHasAllItsSms) {
  int sms = 0;
  OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  EXPECT_EQ(all_.type, CU_DEV_RESOURCE_TYPE_SM);
  EXPECT_EQ(all_.sm.smCount, static_cast<unsigned>(sms));
  CUdevResource its;
  OK(cuCtxGetDevResource(context_, &its, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(its.sm.smCount, all_.sm.smCount);
}
TEST_F(Green, SplitsGiveGroupsAndARest) {
  unsigned possible = 0;
  OK(cuDevSmResourceSplitByCount(nullptr, &possible, &all_, nullptr, kFine, 1));
  ASSERT_GE(possible, 2u);
  CUdevResource left;
  const auto groups = split(possible - 1, &left);
  ASSERT_EQ(groups.size(), possible - 1);
  unsigned sum = left.sm.smCount;
  for (const CUdevResource& one : groups) {
    EXPECT_EQ(one.sm.smCount, groups[0].sm.smCount);
    sum += one.sm.smCount;
  }
  EXPECT_EQ(sum, all_.sm.smCount);
}
TEST_F(Green, WrongResources) {
  CUdevResource r, left;
  unsigned count = 1, none = 0;
  ANSWERS(CUDA_ERROR_INVALID_RESOURCE_TYPE,
          cuDeviceGetDevResource(0, &r, CU_DEV_RESOURCE_TYPE_INVALID));
  ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDevResource(99, &r, CU_DEV_RESOURCE_TYPE_SM));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetDevResource(0, nullptr, CU_DEV_RESOURCE_TYPE_SM));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevResource(nullptr, &r, CU_DEV_RESOURCE_TYPE_SM));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT,
          cuGreenCtxGetDevResource(nullptr, &r, CU_DEV_RESOURCE_TYPE_SM));
  ANSWERS(CUDA_ERROR_INVALID_VALUE,
          cuDevSmResourceSplitByCount(&r, nullptr, &all_, nullptr, kFine, 1));
  ANSWERS(CUDA_ERROR_INVALID_VALUE,
          cuDevSmResourceSplitByCount(&r, &count, nullptr, nullptr, kFine, 1));
  ANSWERS(CUDA_ERROR_INVALID_VALUE,
          cuDevSmResourceSplitByCount(&r, &none, &all_, nullptr, kFine, 1));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplitByCount(&r, &count, &all_, nullptr, 3, 1));
  ANSWERS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
          cuDevSmResourceSplitByCount(&r, &count, &all_, nullptr, kFine, all_.sm.smCount + 1));
  // What a split gave is not split again, but by way of a context.
  const auto groups = split(1, &left);
  for (const CUdevResource* one : {&groups[0], static_cast<const CUdevResource*>(&left)})
    ANSWERS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
            cuDevSmResourceSplitByCount(&r, &count, one, nullptr, kFine, 1));
  CUdevResource empty;
  std::memset(&empty, 0, sizeof empty);
  ANSWERS(CUDA_ERROR_INVALID_RESOURCE_TYPE,
          cuDevSmResourceSplitByCount(&r, &count, &empty, nullptr, kFine, 1));
}
TEST_F(Green, WrongDescriptorsAndContexts) {
  auto groups = split(2);
  CUdevResourceDesc desc = nullptr;
  CUgreenCtx green = nullptr;
  CUcontext view = nullptr;
  CUdevResource empty;
  std::memset(&empty, 0, sizeof empty);
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuDevResourceGenerateDesc(nullptr, groups.data(), 1));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuDevResourceGenerateDesc(&desc, nullptr, 1));
  ANSWERS(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDevResourceGenerateDesc(&desc, &empty, 1));
  OK(cuDevResourceGenerateDesc(&desc, groups.data(), 2));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(nullptr, desc, 0, 1));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, desc, 0, 0));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, desc, 0, 2));
  ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuGreenCtxCreate(&green, desc, 99, 1));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(nullptr));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxFromGreenCtx(&view, nullptr));
  green = make(groups);
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuCtxFromGreenCtx(nullptr, green));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(view_of(green)));
  OK(cuGreenCtxDestroy(green));
}
TEST_F(Green, BlocksStayOnTheirSms) {
  const auto groups = split(2);
  ASSERT_EQ(groups.size(), 2u);
  const CUgreenCtx one = make({groups[0]}), both = make(groups);
  EXPECT_EQ(sms_of(one), groups[0].sm.smCount);
  EXPECT_EQ(sms_of(both), 2 * groups[0].sm.smCount);
  CUstream in_one = stream_of(one), in_both = stream_of(both);
  EXPECT_LE(spread(in_one), sms_of(one));
  EXPECT_LE(spread(in_both), sms_of(both));
  OK(cuStreamDestroy(in_one));
  OK(cuStreamDestroy(in_both));
  OK(cuGreenCtxDestroy(one));
  OK(cuGreenCtxDestroy(both));
}
TEST_F(Green, TheRestIsAPartToo) {
  CUdevResource left;
  const auto groups = split(1, &left);
  const CUgreenCtx green = make({left});
  EXPECT_EQ(sms_of(green), all_.sm.smCount - groups[0].sm.smCount);
  const CUstream stream = stream_of(green);
  EXPECT_LE(spread(stream), sms_of(green));
  OK(cuStreamDestroy(stream));
  OK(cuGreenCtxDestroy(green));
}
TEST_F(Green, APartCanBeSplitAgain) {
  const CUgreenCtx outer = make(split(2));
  CUdevResource its, half;
  OK(cuGreenCtxGetDevResource(outer, &its, CU_DEV_RESOURCE_TYPE_SM));
  unsigned count = 1;
  OK(cuDevSmResourceSplitByCount(&half, &count, &its, nullptr, kFine, 1));
  const CUgreenCtx inner = make({half});
  EXPECT_EQ(sms_of(inner), sms_of(outer) / 2);
  OK(cuGreenCtxDestroy(inner));
  OK(cuGreenCtxDestroy(outer));
}
TEST_F(Green, MadeCurrentItIsAContext) {
  const CUgreenCtx green = make(split(1));
  const CUcontext view = view_of(green);
  EXPECT_NE(view, context_);
  CUcontext now = nullptr;
  CUdevice device = -1;
  unsigned version = 0;
  OK(cuCtxPushCurrent(view));
  OK(cuCtxGetCurrent(&now));
  EXPECT_EQ(now, view);
  OK(cuCtxGetDevice(&device));
  EXPECT_EQ(device, 0);
  OK(cuCtxGetApiVersion(view, &version));
  // Its default stream is in order with copies that name none.
  for (int i = 0; i < 20; ++i) add_one(nullptr);
  EXPECT_EQ(word(), 20u);
  EXPECT_LE(spread(nullptr), sms_of(green));
  ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(CU_STREAM_PER_THREAD));
  CUstream made = nullptr;
  OK(cuStreamCreate(&made, CU_STREAM_DEFAULT));
  unsigned flags = 1;
  OK(cuStreamGetFlags(made, &flags));
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  OK(cuCtxPopCurrent(&now));
  EXPECT_EQ(now, view);
  OK(cuCtxGetCurrent(&now));
  EXPECT_EQ(now, context_);
  EXPECT_LE(spread(made), sms_of(green));
  OK(cuStreamDestroy(made));
  OK(cuGreenCtxDestroy(green));
}
TEST_F(Green, StreamsKnowTheirContext) {
  const CUgreenCtx green = make(split(1));
  const CUcontext view = view_of(green);
  const CUstream stream = stream_of(green);
  CUcontext of = nullptr;
  CUgreenCtx its = nullptr;
  CUstream bad = nullptr;
  int priority = 0, least = 0, greatest = 0;
  OK(cuStreamGetCtx(stream, &of));
  EXPECT_EQ(of, view);
  OK(cuStreamGetGreenCtx(stream, &its));
  EXPECT_EQ(its, green);
  OK(cuStreamGetGreenCtx(nullptr, &its));
  EXPECT_EQ(its, nullptr);
  OK(cuCtxSetCurrent(view));
  OK(cuStreamGetGreenCtx(nullptr, &its));
  EXPECT_EQ(its, green);
  OK(cuCtxSetCurrent(context_));
  ANSWERS(CUDA_ERROR_INVALID_VALUE,
          cuGreenCtxStreamCreate(nullptr, green, CU_STREAM_NON_BLOCKING, 0));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate(&bad, green, CU_STREAM_DEFAULT, 0));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT,
          cuGreenCtxStreamCreate(&bad, nullptr, CU_STREAM_NON_BLOCKING, 0));
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  OK(cuGreenCtxStreamCreate(&bad, green, CU_STREAM_NON_BLOCKING, -100));
  OK(cuStreamGetPriority(bad, &priority));
  EXPECT_EQ(priority, greatest);
  OK(cuStreamDestroy(bad));
  OK(cuStreamDestroy(stream));
  OK(cuGreenCtxDestroy(green));
}
TEST_F(Green, EventsOfAll) {
  const CUgreenCtx green = make(split(1));
  const CUstream first = stream_of(green), second = stream_of(green);
  CUstream outside = nullptr;
  CUevent done = nullptr;
  OK(cuStreamCreate(&outside, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < 20; ++i) add_one(first);
  OK(cuGreenCtxRecordEvent(green, done));
  OK(cuStreamWaitEvent(outside, done, 0));
  for (int i = 0; i < 20; ++i) add_one(outside);
  OK(cuEventRecord(done, outside));
  OK(cuGreenCtxWaitEvent(green, done));
  for (int i = 0; i < 20; ++i) add_one(second);
  OK(cuStreamSynchronize(second));
  EXPECT_EQ(word(), 60u);
  ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuGreenCtxRecordEvent(green, nullptr));
  ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuGreenCtxWaitEvent(green, nullptr));
  OK(cuEventDestroy(done));
  for (const CUstream stream : {first, second, outside}) OK(cuStreamDestroy(stream));
  OK(cuGreenCtxDestroy(green));
}
TEST_F(Green, SynchronizedByEitherContext) {
  const CUgreenCtx green = make(split(1));
  const CUstream stream = stream_of(green);
  for (int i = 0; i < 20; ++i) add_one(stream);
  OK(cuCtxSynchronize());
  OK(cuStreamQuery(stream));
  for (int i = 0; i < 20; ++i) add_one(stream);
  OK(cuCtxSetCurrent(view_of(green)));
  OK(cuCtxSynchronize());
  OK(cuStreamQuery(stream));
  EXPECT_EQ(word(), 40u);
  OK(cuCtxSetCurrent(context_));
  OK(cuStreamDestroy(stream));
  OK(cuGreenCtxDestroy(green));
}
TEST_F(Green, CooperativeGridsHaveToFit) {
  const CUgreenCtx green = make(split(1));
  const CUstream stream = stream_of(green);
  int blocks = 0;
  const CUfunction f = kernel("add_one");
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1024, 0));
  CUdeviceptr out = 0;
  OK(cuMemAlloc(&out, 4096));
  void* parameters[] = {&out};
  const unsigned most = static_cast<unsigned>(blocks) * sms_of(green);
  OK(cuLaunchCooperativeKernel(f, most, 1, 1, 1024, 1, 1, 0, stream, parameters));
  ANSWERS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
          cuLaunchCooperativeKernel(f, most + 1, 1, 1, 1024, 1, 1, 0, stream, parameters));
  OK(cuStreamSynchronize(stream));
  OK(cuMemFree(out));
  OK(cuStreamDestroy(stream));
  OK(cuGreenCtxDestroy(green));
}
TEST_F(Green, DestroyedItAnswersNothing) {
  const CUgreenCtx green = make(split(1));
  const CUcontext view = view_of(green);
  const CUstream left = stream_of(green);
  for (int i = 0; i < 20; ++i) add_one(left);
  OK(cuStreamSynchronize(left));
  OK(cuCtxSetCurrent(view));
  OK(cuGreenCtxDestroy(green));
  ANSWERS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
  OK(cuCtxSetCurrent(context_));
  ANSWERS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGreenCtxDestroy(green));
  ANSWERS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamQuery(left));
  ANSWERS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamSynchronize(left));
  ANSWERS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamDestroy(left));
  CUdevResource its;
  ANSWERS(CUDA_ERROR_CONTEXT_IS_DESTROYED,
          cuGreenCtxGetDevResource(green, &its, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(word(), 20u);
  OK(cuCtxSynchronize());
}
TEST_F(Green, ComingAndGoingCostsNothing) {
  const auto groups = split(2);
  size_t before = 0, after = 0, total = 0;
  OK(cuGreenCtxDestroy(make(groups)));  // the first may keep something
  OK(cuMemGetInfo(&before, &total));
  for (int i = 0; i < 20; ++i) {
    const CUgreenCtx green = make({groups[0]});
    const CUstream stream = stream_of(green);
    add_one(stream);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
    OK(cuGreenCtxDestroy(green));
  }
  OK(cuMemGetInfo(&after, &total));
  EXPECT_GE(after + (16u << 20), before);
  EXPECT_EQ(word(), 20u);
}
TEST_F(GuestCallsGreen, Numbers) {
  const CUgreenCtx green = make(split(1));
  unsigned long long id = 0, same = 0, other = 0;
  OK(cuGreenCtxGetId(green, &id));
  OK(cuCtxSetCurrent(view_of(green)));
  OK(cuGreenCtxGetId(nullptr, &same));
  OK(cuCtxSetCurrent(context_));
  OK(cuCtxGetId(context_, &other));
  EXPECT_EQ(id, same);
  EXPECT_NE(id, other);
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxGetId(green, nullptr));
  REFUSED(cuGreenCtxGetId(nullptr, &id));
  CUgreenCtx its = nullptr;
  CUcontext of = nullptr;
  const CUstream stream = stream_of(green);
  OK(cuStreamGetCtx_v2(stream, &of, &its));
  EXPECT_EQ(of, context_);
  EXPECT_EQ(its, green);
  OK(cuStreamDestroy(stream));
  OK(cuGreenCtxDestroy(green));
}

}  // namespace
}  // namespace sluice::test
