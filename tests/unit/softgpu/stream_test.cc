// SPDX-License-Identifier: Apache-2.0
// The software GPU's driver API: the order of streams, events, host functions, memory words;
// several threads; the end of the process and forks.
#include "tests/support/sanitizers.h"
#ifdef SLUICE_ADDRESS_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/unit/softgpu/fixture.h"

namespace sluice {
namespace {

TEST_F(SoftGpuTest, AStreamKeepsItsOrder) {
  constexpr uint32_t kLength = 200;
  const CUdeviceptr log = allocate(4 * (kLength + 1));
  CUstream s = stream();
  OK(api.cuMemsetD32Async(log, 0, kLength + 1, s));
  for (uint32_t i = 0; i < kLength; ++i) OK(launch("append", 1, 1, s, log, i));
  OK(api.cuStreamSynchronize(s));
  const std::vector<uint32_t> out = read(log, kLength + 1);
  EXPECT_EQ(out[0], kLength);
  for (uint32_t i = 0; i < kLength; ++i) ASSERT_EQ(out[i + 1], i);
}

TEST_F(SoftGpuTest, KernelsCopiesAndFillsOfOneStreamAreInOrder) {
  CUstream s = stream();
  constexpr size_t kWords = 100'000;  // large enough to go to the copy thread
  const CUdeviceptr a = allocate(kWords * 4), b = allocate(kWords * 4);
  uint32_t* host = pinned_word(kWords);
  OK(api.cuMemsetD32Async(a, 5, kWords, s));
  OK(launch("iota", (kWords + 255) / 256, 256, s, a, uint32_t{kWords}, 11u));
  OK(api.cuMemcpyDtoDAsync(b, a, kWords * 4, s));
  OK(api.cuMemsetD32Async(a, 6, kWords, s));
  OK(api.cuMemcpyDtoHAsync(host, b, kWords * 4, s));
  OK(api.cuMemsetD32Async(b, 7, kWords, s));
  OK(api.cuStreamSynchronize(s));
  for (size_t i = 0; i < kWords; ++i) ASSERT_EQ(host[i], i + 11);
  EXPECT_EQ(read(a, kWords), std::vector<uint32_t>(kWords, 6));
  EXPECT_EQ(read(b, kWords), std::vector<uint32_t>(kWords, 7));
}

TEST_F(SoftGpuTest, APageableSourceMayBeReusedAtOnce) {
  uint32_t* flag = pinned_word();
  CUstream s = stream();
  const CUdeviceptr p = allocate(4);
  OK(launch("spin", 1, 1, s, address(flag)));
  uint32_t source = 41;
  OK(api.cuMemcpyHtoDAsync(p, &source, 4, s));
  source = 42;
  store_word(flag, 1);
  OK(api.cuStreamSynchronize(s));
  EXPECT_EQ(read(p, 1)[0], 41u);
}

TEST_F(SoftGpuTest, QueryTellsWhetherAStreamIsDone) {
  uint32_t* flag = pinned_word();
  CUstream s = stream();
  CUevent e = event();
  OK(api.cuEventQuery(e));
  OK(api.cuStreamQuery(s));
  OK(launch("spin", 1, 1, s, address(flag)));
  OK(api.cuEventRecord(e, s));
  FAILS(CUDA_ERROR_NOT_READY, api.cuStreamQuery(s));
  FAILS(CUDA_ERROR_NOT_READY, api.cuEventQuery(e));
  OK(api.cuStreamQuery(nullptr)) << "a non-blocking stream is none of the legacy stream's business";
  store_word(flag, 1);
  OK(api.cuEventSynchronize(e));
  OK(api.cuStreamSynchronize(s));
  OK(api.cuStreamQuery(s));
}

TEST_F(SoftGpuTest, EventsOrderStreams) {
  uint32_t* flag = pinned_word();
  uint32_t* out = pinned_word();
  CUstream a = stream(), b = stream();
  CUevent e = event();
  OK(launch("spin", 1, 1, a, address(flag)));
  OK(launch("poke", 1, 1, a, address(out), 1u));
  OK(api.cuEventRecord(e, a));
  OK(api.cuStreamWaitEvent(b, e, 0));
  OK(api.cuMemsetD32Async(address(out), 2, 1, b));
  FAILS(CUDA_ERROR_NOT_READY, api.cuStreamQuery(b));
  EXPECT_EQ(load_word(out), 0u);
  store_word(flag, 1);
  OK(api.cuStreamSynchronize(b));
  EXPECT_EQ(load_word(out), 2u);
}

TEST_F(SoftGpuTest, TheLegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
  uint32_t* flag = pinned_word();
  uint32_t* out = pinned_word(2);
  CUstream blocking = stream(CU_STREAM_DEFAULT), other = stream(CU_STREAM_DEFAULT),
           free_running = stream();
  OK(launch("spin", 1, 1, blocking, address(flag)));
  OK(api.cuMemsetD32Async(address(out), 1, 1, nullptr));
  OK(api.cuMemsetD32Async(address(out), 2, 1, other));
  OK(api.cuMemsetD32Async(address(out + 1), 3, 1, free_running));
  OK(api.cuStreamSynchronize(free_running));
  EXPECT_EQ(load_word(out + 1), 3u);
  FAILS(CUDA_ERROR_NOT_READY, api.cuStreamQuery(nullptr));
  FAILS(CUDA_ERROR_NOT_READY, api.cuStreamQuery(other));
  EXPECT_EQ(load_word(out), 0u);
  store_word(flag, 1);
  OK(api.cuStreamSynchronize(nullptr));
  OK(api.cuStreamSynchronize(other));
  EXPECT_EQ(load_word(out), 2u);
}

TEST_F(SoftGpuTest, EachThreadHasADefaultStreamOfItsOwn) {
  uint32_t* flag = pinned_word();
  uint32_t* out = pinned_word();
  OK(launch("spin", 1, 1, CU_STREAM_PER_THREAD, address(flag)));
  std::thread([&] {
    OK(api.cuCtxSetCurrent(context_));
    OK(api.cuMemsetD32Async(address(out), 1, 1, CU_STREAM_PER_THREAD));
    OK(api.cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT_EQ(load_word(out), 1u);
  FAILS(CUDA_ERROR_NOT_READY, api.cuStreamQuery(CU_STREAM_PER_THREAD));
  store_word(flag, 1);
  OK(api.cuCtxSynchronize());
}

TEST_F(SoftGpuTest, HostFunctionsRunInOrderAndBlockOnlyTheirStream) {
  struct Shared {
    uint32_t* word;
    uint32_t seen = 0;
    std::atomic<bool> begun{false}, go{false};
  } shared{pinned_word()};
  uint32_t* other_word = pinned_word();
  CUstream s = stream(), t = stream();
  OK(launch("poke", 1, 1, s, address(shared.word), 7u));
  OK(api.cuLaunchHostFunc(
      s,
      [](void* p) {
        auto* x = static_cast<Shared*>(p);
        x->begun = true;
        while (!x->go) ::usleep(100);
        x->seen = *x->word;
      },
      &shared));
  OK(launch("poke", 1, 1, s, address(shared.word), 8u));
  OK(launch("poke", 1, 1, t, address(other_word), 9u));
  OK(api.cuStreamSynchronize(t));
  EXPECT_EQ(load_word(other_word), 9u);
  while (!shared.begun) ::usleep(100);
  EXPECT_EQ(load_word(shared.word), 7u);
  shared.go = true;
  OK(api.cuStreamSynchronize(s));
  EXPECT_EQ(shared.seen, 7u);
  EXPECT_EQ(load_word(shared.word), 8u);
}

TEST_F(SoftGpuTest, CallbacksHearOfErrors) {
  static std::atomic<int> heard;
  heard = -1;
  CUstream s = stream();
  uint32_t* flag = pinned_word();
  OK(launch("spin", 1, 1, s, address(flag)));
  OK(launch("trapped", 1, 1, s));
  OK(api.cuStreamAddCallback(
      s, [](CUstream, CUresult status, void*) { heard = status; }, nullptr, 0));
  store_word(flag, 1);
  FAILS(CUDA_ERROR_LAUNCH_FAILED, api.cuCtxSynchronize());
  // An error ends the wait at once; the callback behind it comes when its thread gets there.
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (heard == -1 && std::chrono::steady_clock::now() < end) ::usleep(100);
  EXPECT_EQ(heard, int{CUDA_ERROR_LAUNCH_FAILED});
}

TEST_F(SoftGpuTest, StreamsWaitForAndWriteWords) {
  uint32_t* words = pinned_word(4);
  CUstream s = stream();
  OK(api.cuStreamWaitValue32(s, address(words), 5, CU_STREAM_WAIT_VALUE_GEQ));
  OK(api.cuStreamWriteValue32(s, address(words + 1), 77, 0));
  OK(api.cuStreamWaitValue32(s, address(words + 2), 4, CU_STREAM_WAIT_VALUE_AND));
  OK(api.cuStreamWriteValue32(s, address(words + 3), 78, 0));
  store_word(words, 4);
  ::usleep(2000);
  EXPECT_EQ(load_word(words + 1), 0u);
  store_word(words, 6);
  while (load_word(words + 1) != 77) ::usleep(100);
  EXPECT_EQ(load_word(words + 3), 0u);
  store_word(words + 2, 12);
  OK(api.cuStreamSynchronize(s));
  EXPECT_EQ(load_word(words + 3), 78u);
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuStreamWaitValue32(s, 4096, 0, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuStreamWriteValue32(s, address(words) + 2, 0, 0));
}

TEST_F(SoftGpuTest, EventsMeasureTime) {
  CUstream s = stream();
  CUevent a = event(), b = event(), untimed = nullptr;
  OK(api.cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  float ms = -1;
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuEventElapsedTime(&ms, a, b));
  uint32_t* flag = pinned_word();
  OK(api.cuEventRecord(a, s));
  OK(launch("spin", 1, 1, s, address(flag)));
  OK(api.cuEventRecord(b, s));
  OK(api.cuEventRecord(untimed, s));
  FAILS(CUDA_ERROR_NOT_READY, api.cuEventElapsedTime(&ms, a, b));
  ::usleep(20'000);
  store_word(flag, 1);
  OK(api.cuStreamSynchronize(s));
  OK(api.cuEventElapsedTime(&ms, a, b));
  EXPECT_GE(ms, 20.0f);
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuEventElapsedTime(&ms, a, untimed));
}

TEST_F(SoftGpuTest, ADestroyedStreamFinishesItsWork) {
  uint32_t* flag = pinned_word();
  uint32_t* out = pinned_word();
  CUstream s = stream();
  OK(launch("spin", 1, 1, s, address(flag)));
  OK(launch("poke", 1, 1, s, address(out), 3u));
  OK(api.cuStreamDestroy(s));
  EXPECT_EQ(load_word(out), 0u);
  store_word(flag, 1);
  OK(api.cuCtxSynchronize());
  EXPECT_EQ(load_word(out), 3u);
}

TEST_F(SoftGpuTest, ThreadsUseTheContextTogether) {
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      OK(api.cuCtxSetCurrent(context_));
      CUstream s = stream();
      const CUdeviceptr log = allocate(4 * 51);
      OK(api.cuMemsetD32Async(log, 0, 51, s));
      for (uint32_t i = 0; i < 50; ++i) OK(launch("append", 1, 1, s, log, i * 4 + t));
      std::vector<uint32_t> out(51);
      OK(api.cuMemcpyDtoHAsync(out.data(), log, 4 * 51, s));
      for (uint32_t i = 0; i < 50; ++i) ASSERT_EQ(out[i + 1], i * 4 + t);
      OK(api.cuMemFree(log));
      OK(api.cuStreamDestroy(s));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(SoftGpuTest, NothingOfADestroyedContextIsUsable) {
  CUcontext other;
  OK(api.cuCtxCreate_v2(&other, 0, 0));
  CUstream s = stream();
  CUevent e = event();
  const CUdeviceptr p = allocate(64);
  OK(api.cuCtxPopCurrent(nullptr));
  std::thread([&] {
    OK(api.cuCtxSetCurrent(other));
    OK(api.cuCtxDestroy(other));
  }).join();
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuStreamSynchronize(s));
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuMemsetD8Async(p, 0, 64, s));
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuEventQuery(e));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxPushCurrent(other));
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemFree(p));
  // A thread that still has it as its current one learns so.
  OK(api.cuCtxCreate_v2(&other, 0, 0));
  std::thread([&] { OK(api.cuCtxDestroy(other)); }).join();
  CUdeviceptr q;
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, api.cuMemAlloc(&q, 16));
  OK(api.cuCtxPopCurrent(nullptr));
}

TEST_F(SoftGpuTest, PrimaryContextsAreCounted) {
  CUcontext a, b;
  unsigned flags;
  int active;
  OK(api.cuDevicePrimaryCtxRetain(&a, 0));
  OK(api.cuDevicePrimaryCtxRetain(&b, 0));
  EXPECT_EQ(a, b);
  FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxDestroy(a));
  OK(api.cuDevicePrimaryCtxRelease(0));
  OK(api.cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 1);
  OK(api.cuDevicePrimaryCtxRelease(0));
  OK(api.cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 0);
  FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuDevicePrimaryCtxRelease(0));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxSetCurrent(a));
}

using SoftGpuDeathTest = SoftGpuTest;

// What is outstanding when a process ends is nobody's to free.
static void forget_leaks() {
#ifdef SLUICE_ADDRESS_SANITIZER
  __lsan_disable();
#endif
}

TEST_F(SoftGpuDeathTest, AProcessMayEndWithWorkOutstanding) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        forget_leaks();
        uint32_t* flag = pinned_word();
        CUstream s = stream();
        launch("spin", 1, 1, s, address(flag));
        launch("poke", 1, 1, s, address(flag), 1u);
        std::exit(3);
      },
      ::testing::ExitedWithCode(3), "");
}

TEST_F(SoftGpuTest, AForkedChildHasNoDriver) {
  const pid_t child = ::fork();
  if (child == 0) {
    CUdeviceptr p;
    const bool right =
        api.cuMemAlloc(&p, 4) == CUDA_ERROR_NOT_INITIALIZED && api.cuInit(0) != CUDA_SUCCESS;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  OK(launch("empty", 1, 1, nullptr));
  OK(api.cuCtxSynchronize());
}

}  // namespace
}  // namespace sluice
