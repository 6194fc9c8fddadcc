// SPDX-License-Identifier: Apache-2.0
// Streams and events: making and ending them, what they report, waits, host functions, attributes,
// and the default stream of a thread.
#include <atomic>
#include <thread>

#include "tests/cudart/gate/cases/cases.h"

using namespace sluice::cudart;

namespace {

constexpr unsigned kNonBlocking = 1, kNoTiming = 2;
class StreamCases : public Cases {};

TEST_F(StreamCases, FlagsAndPriorities) {
  cudaStream_t stream = nullptr;
  unsigned flags = 0;
  int priority = 4711, least = 0, greatest = 0;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  OK(cudaStreamCreateWithFlags(&stream, kNonBlocking));
  OK(cudaStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, kNonBlocking);
  OK(cudaStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, 0);
  OK(cudaStreamDestroy(stream));
  OK(cudaStreamCreateWithPriority(&stream, kNonBlocking, greatest));
  OK(cudaStreamGetPriority_ptsz(stream, &priority));
  EXPECT_EQ(priority, greatest);
  OK(cudaStreamDestroy(stream));
  OK(cudaStreamCreateWithPriority(&stream, 0, greatest - 100));  // clamped to what there is
  OK(cudaStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, greatest);
  ANSWERS(cudaErrorInvalidValue, cudaStreamGetFlags(stream, nullptr));
  ANSWERS(cudaErrorInvalidValue, cudaStreamGetPriority(stream, nullptr));
  OK(cudaStreamDestroy(stream));
  ANSWERS(cudaErrorInvalidValue, cudaStreamCreate(nullptr));
  stream = nullptr;
  ANSWERS(cudaErrorInvalidValue, cudaStreamCreateWithFlags(&stream, 77));
  ANSWERS(cudaErrorInvalidValue, cudaStreamCreateWithPriority(&stream, 77, 0));
  EXPECT_EQ(stream, nullptr);
  REFUSED(cudaStreamDestroy(nullptr));
}

TEST_F(StreamCases, IdentifiersAndDevices) {
  Stream one, other;
  unsigned long long id = 0, other_id = 0, again = 0;
  OK(cudaStreamGetId(one, &id));
  OK(cudaStreamGetId(other, &other_id));
  OK(cudaStreamGetId_ptsz(one, &again));
  EXPECT_NE(id, other_id);
  EXPECT_EQ(id, again);
  int device = -1;
  OK(cudaStreamGetDevice(one, &device));
  EXPECT_EQ(device, 0);
  ANSWERS(cudaErrorInvalidValue, cudaStreamGetId(one, nullptr));
  REFUSED(cudaStreamGetDevice(one, nullptr));
}

TEST_F(StreamCases, Attributes) {
  constexpr int kSynchronizationPolicy = 3, kPolicySpin = 2, kPriority = 8, kNoAttribute = 99;
  Stream one, other;
  cudaLaunchAttributeValue value = {};
  OK(cudaStreamGetAttribute(one, kPriority, &value));
  EXPECT_EQ(value.cooperative, 0);
  value = {};
  value.cooperative = kPolicySpin;
  OK(cudaStreamSetAttribute(one, kSynchronizationPolicy, &value));
  value = {};
  OK(cudaStreamGetAttribute_ptsz(one, kSynchronizationPolicy, &value));
  EXPECT_EQ(value.cooperative, kPolicySpin);
  OK(cudaStreamCopyAttributes(other, one));
  value = {};
  OK(cudaStreamGetAttribute(other, kSynchronizationPolicy, &value));
  EXPECT_EQ(value.cooperative, kPolicySpin);
  // The first word of the value, whatever the attribute.
  int least = 0, greatest = 0, priority = 1;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  value = {};
  value.cooperative = greatest - 10;
  OK(cudaStreamSetAttribute(one, kPriority, &value));
  OK(cudaStreamGetPriority(one, &priority));
  EXPECT_EQ(priority, greatest);
  value.cooperative = 0;
  OK(cudaStreamSetAttribute(one, kPriority, &value));
  OK(cudaStreamGetAttribute(one, kPriority, &value));
  EXPECT_EQ(value.cooperative, 0);
  REFUSED(cudaStreamGetAttribute(one, kNoAttribute, &value));
  REFUSED(cudaStreamSetAttribute(one, kNoAttribute, &value));
  REFUSED(cudaStreamGetAttribute(one, kPriority, nullptr));
  REFUSED(cudaStreamSetAttribute(one, kSynchronizationPolicy, nullptr));
}

TEST_F(StreamCases, WorkAndWaits) {
  Stream stream;
  Memory<int> memory(4);
  OK(cudaMemsetAsync(memory.at(), 1, 16, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaStreamQuery(stream));
  OK(cudaStreamQuery_ptsz(nullptr));
  OK(cudaStreamSynchronize(kLegacyStream));
  OK(cudaStreamSynchronize(kPerThreadStream));
  EXPECT_EQ(memory[3], 0x01010101);
}

// A stream that waits for the host: work behind it is not ready, and not ready is no error that
// stays.
TEST_F(StreamCases, NotReadyIsNoLastError) {
  Stream stream;
  cudaEvent_t event = nullptr;
  OK(cudaEventCreateWithFlags(&event, kNoTiming));
  static std::atomic<bool> open;
  open = false;
  OK(cudaLaunchHostFunc(
      stream,
      [](void*) {
        while (!open) std::this_thread::yield();
      },
      nullptr));
  OK(cudaEventRecord(event, stream));
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  cudaGetLastError();
  open = true;
  OK(cudaEventSynchronize(event));
  OK(cudaEventQuery(event));
  OK(cudaStreamSynchronize(stream));
  OK(cudaEventDestroy(event));
}

TEST_F(StreamCases, EventsMeasureAndOrder) {
  Stream one, other;
  Memory<int> memory(1);
  cudaEvent_t start = nullptr, end = nullptr;
  OK(cudaEventCreate(&start));
  OK(cudaEventCreateWithFlags(&end, 0));
  OK(cudaEventRecord(start, one));
  OK(cudaMemsetAsync(memory.at(), 7, 4, one));
  OK(cudaEventRecordWithFlags(end, one, 0));
  OK(cudaStreamWaitEvent(other, end, 0));
  OK(cudaMemsetAsync(memory.at(), 8, 4, other));
  OK(cudaStreamSynchronize(other));
  EXPECT_EQ(memory[0], 0x08080808);
  float ms = -1;
  OK(cudaEventSynchronize(end));
  OK(cudaEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 0);
  REFUSED(cudaEventRecordWithFlags(end, one, 77));
  REFUSED(cudaStreamWaitEvent(other, end, 77));
  REFUSED(cudaStreamWaitEvent(other, nullptr, 0));
  REFUSED(cudaEventElapsedTime(nullptr, start, end));
  OK(cudaEventDestroy(start));
  OK(cudaEventDestroy(end));
}

TEST_F(StreamCases, WrongEvents) {
  cudaEvent_t event = nullptr, other = nullptr;
  ANSWERS(cudaErrorInvalidValue, cudaEventCreate(nullptr));
  ANSWERS(cudaErrorInvalidValue, cudaEventCreateWithFlags(&event, 99));
  constexpr unsigned kInterprocess = 4;  // needs kNoTiming
  ANSWERS(cudaErrorInvalidValue, cudaEventCreateWithFlags(&event, kInterprocess));
  EXPECT_EQ(event, nullptr);
  OK(cudaEventCreate(&event));
  OK(cudaEventCreateWithFlags(&other, kNoTiming));
  OK(cudaEventQuery(event));  // never recorded: all of it is done
  OK(cudaEventSynchronize(event));
  float ms = 0;
  ANSWERS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, event, event));
  OK(cudaEventRecord(event, nullptr));
  OK(cudaEventRecord_ptsz(other, nullptr));
  ANSWERS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, event, other));
  OK(cudaEventDestroy(event));
  OK(cudaEventDestroy(other));
  REFUSED(cudaEventDestroy(nullptr));
  REFUSED(cudaEventRecord(nullptr, nullptr));
  REFUSED(cudaEventQuery(nullptr));
  REFUSED(cudaEventSynchronize(nullptr));
}

std::atomic<int> stream_calls;
int stream_step = 5;

TEST_F(StreamCases, HostFunctionsRunInOrder) {
  Stream stream;
  stream_calls = 0;
  OK(cudaLaunchHostFunc(
      stream, [](void* user) { stream_calls += *static_cast<int*>(user); }, &stream_step));
  OK(cudaStreamAddCallback(
      stream,
      [](cudaStream_t, cudaError_t status, void*) {
        if (status == cudaSuccess) stream_calls = stream_calls * 10;
      },
      nullptr, 0));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(stream_calls, 50);
  REFUSED(cudaLaunchHostFunc(stream, nullptr, nullptr));
  REFUSED(cudaStreamAddCallback(stream, nullptr, nullptr, 0));
}

// Each thread has a default stream of its own, beside the one of all.
TEST_F(StreamCases, DefaultStreamsOfThreads) {
  unsigned long long legacy = 0, mine = 0, other = 0;
  OK(cudaStreamGetId(nullptr, &legacy));
  OK(cudaStreamGetId_ptsz(nullptr, &mine));
  EXPECT_NE(legacy, mine);
  std::thread([&] { OK(cudaStreamGetId(kPerThreadStream, &other)); }).join();
  EXPECT_NE(mine, other);
  Memory<int> memory(1);
  OK(cudaMemsetAsync_ptsz(memory.at(), 3, 4, nullptr));
  OK(cudaStreamSynchronize_ptsz(nullptr));
  EXPECT_EQ(memory[0], 0x03030303);
  OK(cudaMemset_ptds(memory.at(), 4, 4));
  int value = 0;
  OK(cudaMemcpy_ptds(&value, memory.at(), 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(value, 0x04040404);
}

TEST_F(StreamCases, ManagedMemoryOfAStream) {
  constexpr unsigned kAttachGlobal = 1, kAttachSingle = 4;
  Stream stream;
  void* managed = nullptr;
  OK(cudaMallocManaged(&managed, 4096, kAttachGlobal));
  OK(cudaStreamAttachMemAsync(stream, managed, 0, kAttachSingle));
  OK(cudaStreamSynchronize(stream));
  REFUSED(cudaStreamAttachMemAsync(stream, managed, 0, 77));
  REFUSED(cudaStreamAttachMemAsync(stream, nullptr, 0, kAttachSingle));
  OK(cudaFree(managed));
}

}  // namespace
