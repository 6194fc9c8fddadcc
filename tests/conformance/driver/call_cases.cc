// SPDX-License-Identifier: Apache-2.0
// Launches, streams, events, contexts, modules: what right calls do.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/conformance/driver/driver_case.h"

namespace sluice::test {
namespace {

struct Launch {
  const char* name;
  unsigned grid[3], block[3];
};
constexpr Launch kLaunches[] = {
    {"OneThread", {1, 1, 1}, {1, 1, 1}},          {"AWarp", {1, 1, 1}, {32, 1, 1}},
    {"AnOddBlock", {3, 1, 1}, {33, 1, 1}},        {"ALargeBlock", {2, 1, 1}, {1024, 1, 1}},
    {"BlocksOfThreeSides", {2, 1, 1}, {4, 3, 5}}, {"GridsOfThreeSides", {3, 4, 5}, {8, 1, 1}},
    {"BothOfThreeSides", {2, 3, 4}, {3, 5, 2}},   {"ManyBlocks", {1000, 1, 1}, {64, 1, 1}},
    {"ATallGrid", {1, 500, 1}, {16, 1, 1}},       {"ADeepGrid", {1, 1, 300}, {16, 1, 1}}};

class Launches : public DriverCase, public testing::WithParamInterface<Launch> {};

TEST_P(Launches, RunEachThreadOnce) {
  const Launch& l = GetParam();
  const unsigned n = l.grid[0] * l.grid[1] * l.grid[2] * l.block[0] * l.block[1] * l.block[2];
  Piece out(Kind::kDevice, n * 4);
  CUdeviceptr to = out.address();
  unsigned count = n;
  void* parameters[] = {&to, &count};
  OK(cuMemsetD32(to, 0, n));
  OK(cuLaunchKernel(kernel("index"), l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1],
                    l.block[2], 0, nullptr, parameters, nullptr));
  OK(cuCtxSynchronize());
  std::vector<uint32_t> words(n), expected(n);
  std::iota(expected.begin(), expected.end(), 1u);
  const std::vector<uint8_t> bytes = out.read();
  std::memcpy(words.data(), bytes.data(), bytes.size());
  EXPECT_EQ(words, expected);
}
INSTANTIATE_TEST_SUITE_P(All, Launches, testing::ValuesIn(kLaunches),
                         [](const auto& one) { return std::string(one.param.name); });

// A kernel reads and writes each kind of memory that has a device address.
class KernelsOn : public DriverCase, public testing::WithParamInterface<Kind> {};
TEST_P(KernelsOn, WriteWhatTheHostReads) {
  Piece memory(GetParam(), 4096);
  memory.write(std::vector<uint8_t>(4096, 0));
  CUdeviceptr at = memory.address();
  if (GetParam() == Kind::kRegistered || GetParam() == Kind::kPinned)
    OK(cuMemHostGetDevicePointer(&at, reinterpret_cast<void*>(at), 0));
  void* parameters[] = {&at};
  for (int round = 0; round < 3; ++round)
    OK(cuLaunchKernel(kernel("add_one"), 1, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr));
  OK(cuCtxSynchronize());
  const std::vector<uint8_t> bytes = memory.read();
  EXPECT_EQ(bytes[0], 3);
  EXPECT_EQ(bytes[255 * 4], 3);
  EXPECT_EQ(bytes[256 * 4], 0);
}
INSTANTIATE_TEST_SUITE_P(All, KernelsOn,
                         testing::Values(Kind::kPinned, Kind::kDevice, Kind::kRegistered,
                                         Kind::kManaged),
                         [](const auto& one) { return std::string(name_of(one.param)); });

class Calls : public DriverCase {
 protected:
  void SetUp() override {
    DriverCase::SetUp();
    OK(cuMemAlloc(&memory_, 4096));
    OK(cuMemsetD8(memory_, 0, 4096));
    OK(cuStreamSynchronize(nullptr));  // stream_ does not wait for the legacy one
    OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  void TearDown() override {
    OK(cuStreamDestroy(stream_));
    OK(cuMemFree(memory_));
    DriverCase::TearDown();
  }
  uint32_t word(size_t i = 0) {
    uint32_t value = 0;
    OK(cuMemcpyDtoH(&value, memory_ + 4 * i, 4));
    return value;
  }
  void add_one(CUstream stream) {
    void* parameters[] = {&memory_};
    OK(cuLaunchKernel(kernel("add_one"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }
  CUdeviceptr memory_ = 0;
  CUstream stream_ = nullptr;
};

TEST_F(Calls, ParametersInABuffer) {
  struct {
    CUdeviceptr out;
    uint32_t a;
    float b;
  } packed{memory_, 40, 2.5f};
  size_t bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(kernel("add_two_numbers"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(word(), 42u);
}
TEST_F(Calls, LaunchesWithAttributes) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream_;
  config.attrs = &attribute;
  config.numAttrs = 1;
  void* parameters[] = {&memory_};
  OK(cuLaunchKernelEx(&config, kernel("add_one"), parameters, nullptr));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(word(), 1u);
}
// An event that comes when the blocks have begun, or have triggered it; it may come later.
TEST_F(Calls, LaunchesThatRecordEvents) {
  for (const auto id :
       {CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT}) {
    CUevent event = nullptr;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUlaunchAttribute attribute{};
    attribute.id = id;
    attribute.value.programmaticEvent = {event, 0, 0};  // of both they begin so
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream_;
    config.attrs = &attribute;
    config.numAttrs = 1;
    void* parameters[] = {&memory_};
    OK(cuLaunchKernelEx(&config, kernel("add_one"), parameters, nullptr));
    OK(cuEventSynchronize(event));
    OK(cuStreamSynchronize(stream_));
    OK(cuEventDestroy(event));
  }
  EXPECT_EQ(word(), 2u);
}
TEST_F(Calls, ManyStreams) {
  std::vector<CUstream> streams(1200);
  for (CUstream& s : streams) OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  for (const size_t k : {size_t{0}, streams.size() - 1}) {
    add_one(streams[k]);
    OK(cuStreamSynchronize(streams[k]));
  }
  EXPECT_EQ(word(), 2u);
  for (CUstream s : streams) OK(cuStreamDestroy(s));
}
TEST_F(Calls, CooperativeLaunches) {
  void* parameters[] = {&memory_};
  OK(cuLaunchCooperativeKernel(kernel("add_one"), 1, 1, 1, 32, 1, 1, 0, stream_, parameters));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(word(31), 1u);
}
TEST_F(Calls, StreamsKeepTheirOrder) {
  for (int i = 0; i < 50; ++i) add_one(stream_);
  OK(cuMemsetD32Async(memory_ + 4, 7, 1, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(word(), 50u);
  EXPECT_EQ(word(1), 7u);
}
TEST_F(Calls, EventsJoinStreams) {
  CUstream other = nullptr;
  CUevent done = nullptr;
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < 20; ++i) add_one(stream_);
  OK(cuEventRecord(done, stream_));
  OK(cuStreamWaitEvent(other, done, 0));
  OK(cuMemcpyDtoDAsync(memory_ + 64, memory_, 4, other));
  OK(cuStreamSynchronize(other));
  EXPECT_EQ(word(16), 20u);
  OK(cuEventQuery(done));
  OK(cuEventDestroy(done));
  OK(cuStreamDestroy(other));
}
TEST_F(Calls, EventsMeasure) {
  CUevent start = nullptr, end = nullptr;
  OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
  OK(cuEventRecord(start, stream_));
  add_one(stream_);
  OK(cuEventRecord(end, stream_));
  OK(cuEventSynchronize(end));
  float ms = -1;
  OK(cuEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 0);
  OK(cuEventDestroy(start));
  OK(cuEventDestroy(end));
}
TEST_F(Calls, HostFunctionsRunBetween) {
  static int seen;
  seen = 0;
  add_one(stream_);
  OK(cuLaunchHostFunc(
      stream_, [](void* to) { *static_cast<int*>(to) = 5; }, &seen));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(seen, 5);
}
// What is queued meanwhile in another stream is taken, or waits to be.
TEST_F(Calls, ASlowHostFunctionOnlySlowsOthersDown) {
  constexpr int kQueued = 280'000;
  static std::atomic<int> queued;
  queued = 0;
  CUstream other;
  CUevent event;
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const auto slow = [](void*) {  // ends when the program has queued all, or is made to wait
    for (int before = -1; queued != kQueued && (queued == 0 || queued != before);) {
      before = queued;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  };
  OK(cuLaunchHostFunc(stream_, slow, nullptr));
  OK(cuEventRecord(event, stream_));
  OK(cuStreamWaitEvent(other, event, 0));
  for (; queued < kQueued; ++queued) OK(cuEventRecord(event, other));
  OK(cuStreamSynchronize(other));
  OK(cuStreamSynchronize(stream_));
  OK(cuEventDestroy(event));
  OK(cuStreamDestroy(other));
}
TEST_F(Calls, WordsOfStreams) {
  OK(cuStreamWriteValue32(stream_, memory_ + 8, 3, 0));
  OK(cuStreamWaitValue32(stream_, memory_ + 8, 3, CU_STREAM_WAIT_VALUE_EQ));
  add_one(stream_);
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(word(2), 3u);
  EXPECT_EQ(word(), 1u);
}
TEST_F(Calls, WideWordsOfStreams) {
  constexpr uint64_t kWord = 0x1'2345'6789;
  OK(cuMemsetD8(memory_ + 8, 0, 8));
  OK(cuCtxSynchronize());  // stream_ is not in order with it
  OK(cuStreamWriteValue64(stream_, memory_ + 8, kWord, 0));
  OK(cuStreamWaitValue64(stream_, memory_ + 8, kWord, CU_STREAM_WAIT_VALUE_EQ));
  add_one(stream_);
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(word(2), uint32_t{0x2345'6789});
  EXPECT_EQ(word(3), 1u);
  EXPECT_EQ(word(), 1u);
}
TEST_F(Calls, MemoryInStreamOrder) {
  CUdeviceptr later = 0;
  OK(cuMemAllocAsync(&later, 1 << 16, stream_));
  OK(cuMemsetD32Async(later, 9, 1 << 14, stream_));
  OK(cuMemcpyDtoDAsync(memory_, later + 400, 4, stream_));
  OK(cuMemFreeAsync(later, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(word(), 9u);
}
TEST_F(Calls, RowsAreAsFarApartAsIsSaid) {
  CUdeviceptr rows = 0;
  size_t pitch = 0;
  OK(cuMemAllocPitch(&rows, &pitch, 100, 20, 4));
  EXPECT_GE(pitch, 100u);
  EXPECT_EQ(pitch % 32, 0u);
  OK(cuMemsetD2D8(rows, pitch, 1, 100, 20));
  OK(cuMemFree(rows));
}
TEST_F(Calls, AddressesAreKnown) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  OK(cuMemGetAddressRange(&base, &bytes, memory_ + 100));
  EXPECT_EQ(base, memory_);
  EXPECT_EQ(bytes, 4096u);
  unsigned type = 0;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory_ + 100));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  int here = 0;
  REFUSED(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                reinterpret_cast<CUdeviceptr>(&here)));
}
TEST_F(Calls, Globals) {
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module,
                      ".version 7.0\n.target sm_70\n.address_size 64\n"
                      ".visible .global .align 4 .u32 answer = 42;\n"));
  CUdeviceptr at = 0;
  size_t bytes = 0;
  OK(cuModuleGetGlobal(&at, &bytes, module, "answer"));
  EXPECT_EQ(bytes, 4u);
  uint32_t value = 0;
  OK(cuMemcpyDtoH(&value, at, 4));
  EXPECT_EQ(value, 42u);
  ANSWERS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&at, &bytes, module, "question"));
  OK(cuModuleUnload(module));
}
TEST_F(Calls, FunctionsReportWhatTheyNeed) {
  int value = -1;
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel("index")));
  EXPECT_EQ(value, 1024);
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel("index")));
  EXPECT_EQ(value, 0);
  size_t offset = 0, bytes = 0;
  OK(cuFuncGetParamInfo(kernel("add_two_numbers"), 2, &offset, &bytes));
  EXPECT_EQ(offset, 12u);
  EXPECT_EQ(bytes, 4u);
  ANSWERS(CUDA_ERROR_INVALID_VALUE,
          cuFuncGetParamInfo(kernel("add_two_numbers"), 3, &offset, &bytes));
}
TEST_F(Calls, Occupancy) {
  int blocks = 0, grid = 0, block = 0;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel("index"), 256, 0));
  EXPECT_GE(blocks, 4);
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel("index"), nullptr, 0, 0));
  EXPECT_GT(grid, 0);
  EXPECT_GE(block, 32);
}
TEST_F(Calls, OccupancyOfClusters) {
  CUlaunchConfig config{};
  config.gridDimX = 64, config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 128, config.blockDimY = config.blockDimZ = 1;
  int capability = 0, clusters = -1, size = -1;
  OK(cuDeviceGetAttribute(&capability, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0));
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {2, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  if (capability != 0) {
    OK(cuOccupancyMaxActiveClusters(&clusters, kernel("index"), &config));
    EXPECT_GT(clusters, 0);
    OK(cuOccupancyMaxPotentialClusterSize(&size, kernel("index"), &config));
    EXPECT_GE(size, 8);
  } else {
    REFUSED(cuOccupancyMaxActiveClusters(&clusters, kernel("index"), &config));
  }
  REFUSED(cuOccupancyMaxPotentialClusterSize(&size, nullptr, &config));
  attribute.value.clusterDim = {3, 1, 1};  // not a part of the grid
  REFUSED(cuOccupancyMaxActiveClusters(&clusters, kernel("index"), &config));
}
TEST_F(Calls, ContextsAreAStack) {
  CUcontext other = nullptr, top = nullptr;
  OK(cuCtxCreate(&other, nullptr, 0, 0));
  OK(cuCtxGetCurrent(&top));
  EXPECT_EQ(top, other);
  OK(cuCtxPushCurrent(context_));
  OK(cuCtxPopCurrent(&top));
  EXPECT_EQ(top, context_);
  CUdeviceptr there = 0;
  OK(cuMemAlloc(&there, 64));
  OK(cuCtxDestroy(other));
  OK(cuCtxGetCurrent(&top));
  EXPECT_EQ(top, context_);
}
// One context's stream records only events of its own, and waits for any.
TEST_F(Calls, EventsOfAnotherContext) {
  CUcontext other = nullptr;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  OK(cuEventCreate(&event, 0));
  OK(cuStreamCreate(&stream, 0));
  OK(cuEventRecord(event, stream));
  OK(cuCtxCreate(&other, nullptr, 0, 0));
  ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, nullptr));
  OK(cuStreamWaitEvent(nullptr, event, 0));
  OK(cuEventRecord(event, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuEventSynchronize(event));
  OK(cuCtxDestroy(other));
  OK(cuStreamDestroy(stream));
  OK(cuEventDestroy(event));
}
TEST_F(Calls, LinksOfText) {
  CUlinkState link = nullptr;
  OK(cuLinkCreate(0, nullptr, nullptr, &link));
  char text[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".visible .entry nothing() { ret; }\n";
  OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, text, sizeof text, "text", 0, nullptr, nullptr));
  void* image = nullptr;
  size_t bytes = 0;
  OK(cuLinkComplete(link, &image, &bytes));
  CUmodule module = nullptr;
  CUfunction nothing = nullptr;
  OK(cuModuleLoadData(&module, image));
  OK(cuModuleGetFunction(&nothing, module, "nothing"));
  OK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  OK(cuCtxSynchronize());
  OK(cuModuleUnload(module));
  OK(cuLinkDestroy(link));
}

// Calls that the software GPU alone lacks: the guest's library has them, as NVIDIA's has.
class GuestCalls : public Calls {};
// What NVIDIA's driver ends the program for.
class NotOnNvidia : public Calls {};

TEST_F(GuestCalls, LaunchesOfTheOldForm) {
  const CUfunction function = kernel("add_two_numbers");
  OK(cuFuncSetBlockShape(function, 1, 1, 1));
  OK(cuFuncSetSharedSize(function, 16));
  OK(cuParamSetSize(function, 16));
  OK(cuParamSetv(function, 0, &memory_, sizeof memory_));
  OK(cuParamSeti(function, 8, 30));
  OK(cuParamSetf(function, 12, 12.25f));
  OK(cuLaunch(function));
  EXPECT_EQ(word(), 42u);
  OK(cuParamSeti(function, 8, 1));
  OK(cuLaunchGrid(function, 2, 2));
  EXPECT_EQ(word(), 13u);
  OK(cuParamSeti(function, 8, 2));
  OK(cuLaunchGridAsync(function, 1, 1, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(word(), 14u);
}
TEST_F(NotOnNvidia, LaunchesOfTheOldFormThatAreWrong) {
  const CUfunction function = kernel("add_two_numbers");
  REFUSED(cuFuncSetBlockShape(function, 0, 1, 1));
  REFUSED(cuLaunchGrid(function, 0, 1));
  REFUSED(cuLaunchGridAsync(function, 1, -1, stream_));
  REFUSED(cuLaunch(nullptr));
  REFUSED(cuFuncSetSharedSize(nullptr, 16));
  REFUSED(cuParamSetSize(nullptr, 16));
  REFUSED(cuParamSetv(function, -8, &memory_, sizeof memory_));
  REFUSED(cuParamSeti(function, -4, 1));
  REFUSED(cuParamSetf(function, -4, 1));
}
TEST_F(GuestCalls, EventsOfAContext) {
  CUevent all = nullptr;
  CUstream other = nullptr;
  OK(cuEventCreate(&all, CU_EVENT_DISABLE_TIMING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 30; ++i) add_one(stream_);
  OK(cuMemsetD32Async(memory_ + 4, 5, 1, nullptr));
  OK(cuCtxRecordEvent(context_, all));
  OK(cuCtxWaitEvent(context_, all));
  OK(cuMemcpyDtoDAsync(memory_ + 64, memory_, 8, other));
  OK(cuStreamSynchronize(other));
  EXPECT_EQ(word(16), 30u);
  EXPECT_EQ(word(17), 5u);
  OK(cuEventSynchronize(all));
  REFUSED(cuCtxRecordEvent(context_, nullptr));
  REFUSED(cuCtxWaitEvent(context_, nullptr));
  OK(cuEventDestroy(all));
  OK(cuStreamDestroy(other));
}
TEST_F(GuestCalls, ContextsAttachedAndDetached) {
  CUcontext other = nullptr, again = nullptr;
  OK(cuCtxCreate(&other, nullptr, 0, 0));
  OK(cuCtxAttach(&again, 0));
  EXPECT_EQ(again, other);
  REFUSED(cuCtxAttach(&again, 1));
  OK(cuCtxDetach(other));
  OK(cuCtxSynchronize());
  OK(cuCtxDestroy(other));
  REFUSED(cuCtxDetach(nullptr));
}
TEST_F(GuestCalls, ACooperativeLaunchOnEachDevice) {
  void* parameters[] = {&memory_};
  CUDA_LAUNCH_PARAMS one{kernel("add_one"), 1, 1, 1, 8, 1, 1, 0, stream_, parameters};
  OK(cuLaunchCooperativeKernelMultiDevice(&one, 1, 0));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(word(7), 1u);
  REFUSED(cuLaunchCooperativeKernelMultiDevice(&one, 0, 0));
  REFUSED(cuLaunchCooperativeKernelMultiDevice(nullptr, 1, 0));
}
TEST_F(GuestCalls, WhatThereIsOnce) {
  size_t width = 0;
  OK(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 1, 0));
  EXPECT_GE(width, size_t{1} << 20);
  REFUSED(cuDeviceGetTexture1DLinearMaxWidth(nullptr, CU_AD_FORMAT_FLOAT, 1, 0));
  CUexecAffinityParam affinity{};
  int sms = 0;
  OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  REFUSED(cuCtxGetExecAffinity(&affinity, static_cast<CUexecAffinityType>(99)));
  if (cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT) == CUDA_SUCCESS) {
    EXPECT_EQ(affinity.param.smCount.val, static_cast<unsigned>(sms));
  }
}
TEST_F(GuestCalls, BatchesOfPrefetches) {
  int concurrent = 0;
  OK(cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
  Piece one(Kind::kManaged, 8192), other(Kind::kManaged, 8192);
  one.write(std::vector<uint8_t>(8192, 1));
  CUdeviceptr addresses[] = {one.address(), other.address()};
  size_t sizes[] = {8192, 8192}, indices[] = {0};
  CUmemLocation place{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  OK(cuMemPrefetchBatchAsync(addresses, sizes, 2, &place, indices, 1, 0, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(one.read()[8191], 1);
  OK(cuMemDiscardBatchAsync(addresses + 1, sizes + 1, 1, 0, stream_));
  OK(cuMemDiscardAndPrefetchBatchAsync(addresses + 1, sizes + 1, 1, &place, indices, 1, 0,
                                       stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(one.read()[0], 1);
  REFUSED(cuMemPrefetchBatchAsync(addresses, sizes, 0, &place, indices, 1, 0, stream_));
  REFUSED(cuMemPrefetchBatchAsync(addresses, sizes, 2, &place, indices, 0, 0, stream_));
  REFUSED(cuMemDiscardBatchAsync(addresses, sizes, 2, 77, stream_));
  REFUSED(cuMemDiscardAndPrefetchBatchAsync(addresses, sizes, 0, &place, indices, 1, 0, stream_));
}
// CUDA 12.8's form, by its own number: it says which copy is wrong.
TEST_F(GuestCalls, BatchesOfCopiesInTheOlderForm) {
  using Batch = CUresult (*)(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                             size_t*, size_t, size_t*, CUstream);
  void* found = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  OK(cuGetProcAddress("cuMemcpyBatchAsync", &found, 12080, 0, &status));
  ASSERT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  const auto batch = reinterpret_cast<Batch>(found);
  OK(cuMemsetD32(memory_, 6, 2));
  OK(cuCtxSynchronize());
  CUdeviceptr to[] = {memory_ + 64, memory_ + 96}, from[] = {memory_, memory_ + 4};
  size_t sizes[] = {4, 4}, indices[] = {0}, failed = 0;
  CUmemcpyAttributes how{};
  how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  OK(batch(to, from, sizes, 2, &how, indices, 1, &failed, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(word(16), 6u);
  EXPECT_EQ(word(24), 6u);
  sizes[1] = 0;
  REFUSED(batch(to, from, sizes, 0, &how, indices, 1, &failed, stream_));
}
TEST_F(GuestCalls, ContextsOfStreams) {
  CUcontext of = nullptr;
  CUgreenCtx green = nullptr;
  OK(cuStreamGetCtx_v2(stream_, &of, &green));
  EXPECT_EQ(of, context_);
  EXPECT_EQ(green, nullptr);
  OK(cuStreamGetGreenCtx(stream_, &green));
  EXPECT_EQ(green, nullptr);
  of = nullptr;
  OK(cuStreamGetCtx_v2(stream_, &of, nullptr));
  EXPECT_EQ(of, context_);
  REFUSED(cuStreamGetCtx(stream_, nullptr));
  REFUSED(cuStreamGetGreenCtx(stream_, nullptr));
}
TEST_F(GuestCalls, NoFunctionForBothProcessors) {
  CUlibrary library = nullptr;
  OK(cuLibraryLoadData(&library,
                       ".version 7.0\n.target sm_70\n.address_size 64\n"
                       ".visible .entry nothing() { ret; }\n",
                       nullptr, nullptr, 0, nullptr, nullptr, 0));
  void* function = nullptr;
  REFUSED(cuLibraryGetUnifiedFunction(&function, library, "nothing"));
  OK(cuLibraryUnload(library));
}

}  // namespace
}  // namespace sluice::test
