// SPDX-License-Identifier: Apache-2.0
// Copies from pageable memory that return before the worker has done them: when they may, and what
// waits for them.
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "guest-agent/shim/session/known_idle.h"
#include "tests/unit/shim/fixture.h"

namespace sluice::testing {
namespace {

using guest::Effect;
using guest::KnownIdle;

constexpr uint64_t kContext = 7, kOther = 8, kStream = 100, kSecond = 101;

TEST(KnownIdle, TheFirstContextHasNothingQueued) {
  KnownIdle known;
  EXPECT_FALSE(known.idle(kContext)) << "nobody has said that it is one";
  known.ended(known.record(kContext, {Effect::kWaited, 0}));
  EXPECT_TRUE(known.idle(kContext));
  EXPECT_FALSE(known.idle(kOther));
}

TEST(KnownIdle, WorkEndsWithAWaitForItsStream) {
  KnownIdle known;
  const KnownIdle::Mark event = known.record(kContext, {Effect::kWork, kStream});
  EXPECT_FALSE(known.idle(kContext));
  known.ended(event);
  EXPECT_TRUE(known.idle(kContext));
  known.record(kContext, {Effect::kWork, kStream});
  known.ended(event);
  EXPECT_FALSE(known.idle(kContext)) << "it stood before that";
  known.ended(known.record(kContext, {Effect::kWait, kSecond}));
  EXPECT_FALSE(known.idle(kContext)) << "another stream's";
  known.ended(known.record(kContext, {Effect::kWait, kStream}));
  EXPECT_TRUE(known.idle(kContext));
  // The legacy stream's two names are one.
  known.record(kContext, {Effect::kWork, 0});
  known.ended(known.record(kContext, {Effect::kWait, 1}));
  EXPECT_TRUE(known.idle(kContext));
  // A thread's stream is not another thread's.
  known.record(kContext, {Effect::kWork, 2});
  known.ended(known.record(kContext, {Effect::kWait, 2}));
  EXPECT_FALSE(known.idle(kContext));
  known.ended(known.record(kContext, {Effect::kWait, Effect::kAll}));
  EXPECT_TRUE(known.idle(kContext));
}

TEST(KnownIdle, EachStreamHasToEnd) {
  KnownIdle known;
  known.record(kContext, {Effect::kWork, kStream});
  known.record(kContext, {Effect::kWork, kSecond});
  known.ended(known.record(kContext, {Effect::kWait, kStream}));
  EXPECT_FALSE(known.idle(kContext));
  known.ended(known.record(kContext, {Effect::kWait, kSecond}));
  EXPECT_TRUE(known.idle(kContext));
  // Of more streams than are kept only their context's end tells.
  for (uint64_t stream = 200; stream < 300; ++stream)
    known.record(kContext, {Effect::kWork, stream});
  for (uint64_t stream = 200; stream < 300; ++stream)
    known.ended(known.record(kContext, {Effect::kWait, stream}));
  EXPECT_FALSE(known.idle(kContext));
  known.ended(known.record(kContext, {Effect::kWait, Effect::kAll}));
  EXPECT_TRUE(known.idle(kContext));
}

TEST(KnownIdle, WorkBehindAWaitIsNotCovered) {
  KnownIdle known;
  known.record(kContext, {Effect::kWork, kStream});
  const KnownIdle::Mark mark = known.record(kContext, {Effect::kWait, kStream});
  known.record(kContext, {Effect::kWork, kStream});
  known.ended(mark);
  EXPECT_FALSE(known.idle(kContext));
  known.ended(known.record(kContext, {Effect::kWait, kStream}));
  EXPECT_TRUE(known.idle(kContext));
}

TEST(KnownIdle, OfAnotherContextNothingIsKnown) {
  KnownIdle known;
  known.ended(known.record(kContext, {Effect::kWaited, 0}));
  const KnownIdle::Mark late = known.record(kContext, {Effect::kWait, Effect::kAll});
  known.record(kOther, {Effect::kWork, 0});
  known.ended(late);
  known.ended(known.record(kOther, {Effect::kWait, 0}));
  EXPECT_FALSE(known.idle(kOther)) << "it may have had other work";
  EXPECT_FALSE(known.idle(kContext));
  known.ended(known.record(kOther, {Effect::kWait, Effect::kAll}));
  EXPECT_TRUE(known.idle(kOther));
  EXPECT_FALSE(known.idle(kContext));
}

// Whether `call` is still waiting after a while; then the worker goes on, and it has to return.
bool waits(FakeWorker& worker, const std::function<CUresult()>& call) {
  worker.pause(true);
  CUcontext context;
  EXPECT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
  std::atomic<bool> over{false};
  std::thread caller([&] {
    EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(call(), CUDA_SUCCESS);
    over = true;
  });
  ::usleep(100'000);
  const bool waiting = !over;
  worker.pause(false);
  caller.join();
  return waiting;
}

struct Memory {
  static constexpr size_t kBytes = 200'000;  // several pieces
  Memory() : in(kBytes, 1), out(kBytes) {
    EXPECT_EQ(cuMemAlloc(&at, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyHtoD(at, in.data(), kBytes), CUDA_SUCCESS);  // from here on it is idle
  }
  std::vector<unsigned char> in, out;
  CUdeviceptr at = 0;
  CUstream stream = nullptr;
};

TEST(EarlyCopies, ReturnWhileTheWorkerDoesNothing) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    Memory m;
    worker.pause(true);
    for (int i = 0; i < 3; ++i) {
      std::vector<unsigned char> from(Memory::kBytes, static_cast<unsigned char>(10 + i));
      OK(cuMemcpyHtoD(m.at, from.data(), from.size()));
      std::fill(from.begin(), from.end(), 0);  // read by now
    }
    worker.pause(false);
    OK(cuMemcpyDtoH(m.out.data(), m.at, Memory::kBytes));
    EXPECT_EQ(m.out, std::vector<unsigned char>(Memory::kBytes, 12));
  });
}

TEST(EarlyCopies, WaitBehindWorkThatMayNotHaveEnded) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    Memory m;
    CUfunction fill;
    load_fill(&fill);
    unsigned n = 1, value = 0;
    void* params[] = {&m.at, &n, &value};
    const auto upload = [&] { return cuMemcpyHtoD(m.at, m.in.data(), Memory::kBytes); };
    for (const CUstream stream : {CUstream{nullptr}, m.stream}) {
      OK(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, params, nullptr));
      EXPECT_TRUE(waits(worker, upload));
      OK(cuCtxSynchronize());
      OK(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, params, nullptr));
      OK(cuStreamSynchronize(stream));
      EXPECT_FALSE(waits(worker, upload));
      OK(cuMemsetD8Async(m.at, 0, 1, stream));
      EXPECT_TRUE(waits(worker, upload));
      OK(cuCtxSynchronize());
    }
    OK(cuLaunchHostFunc(
        m.stream, [](void*) {}, nullptr));
    EXPECT_TRUE(waits(worker, upload));
  });
}

TEST(EarlyCopies, OtherStreamsWaitForThem) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    Memory m;
    CUfunction fill;
    load_fill(&fill);
    unsigned n = 1, value = 0;
    void* params[] = {&m.at, &n, &value};
    const auto launch_in = [&](CUstream stream) {
      const CUresult r = cuMemcpyHtoD(m.at, m.in.data(), Memory::kBytes);
      if (r != CUDA_SUCCESS) return r;
      return cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, params, nullptr);
    };
    EXPECT_TRUE(waits(worker, [&] { return launch_in(m.stream); }));
    OK(cuCtxSynchronize());
    EXPECT_FALSE(waits(worker, [&] { return launch_in(nullptr); }));
    OK(cuCtxSynchronize());
    // To pinned memory the program looks itself.
    void* pinned;
    OK(cuMemAllocHost(&pinned, 64));
    EXPECT_TRUE(waits(worker, [&] {
      return cuMemcpy(reinterpret_cast<CUdeviceptr>(pinned),
                      reinterpret_cast<CUdeviceptr>(m.in.data()), 64) == CUDA_SUCCESS
                 ? cuCtxSynchronize()
                 : CUDA_ERROR_UNKNOWN;
    }));
  });
}

// Waits and questions of which the guest knows the answer are not asked.
TEST(EarlyCopies, WhatIsKnownToHaveEndedIsNotAskedFor) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    Memory m;
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, m.stream));
    OK(cuEventSynchronize(event));  // the last of all that there is
    const uint64_t before = worker.records();
    OK(cuCtxSynchronize());
    OK(cuStreamSynchronize(nullptr));
    OK(cuStreamSynchronize(m.stream));
    OK(cuStreamQuery(m.stream));
    OK(cuEventQuery(event));
    OK(cuEventSynchronize(event));
    EXPECT_EQ(worker.records(), before);
    // An early copy has to end first, and so has anything else.
    OK(cuMemcpyHtoD(m.at, m.in.data(), 16));
    OK(cuStreamSynchronize(nullptr));
    EXPECT_EQ(worker.records(), before + 2);
    OK(cuMemsetD8Async(m.at, 0, 1, m.stream));
    OK(cuStreamQuery(nullptr));
    EXPECT_EQ(worker.records(), before + 4);
    EXPECT_TRUE(waits(worker, [] { return cuCtxSynchronize(); }));
    EXPECT_EQ(worker.records(), before + 5);
    worker.end_session(CUDA_ERROR_ECC_UNCORRECTABLE, "a test");
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ECC_UNCORRECTABLE);
  });
}

TEST(EarlyCopies, WorkThatIsQueuedHasNotEnded) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    Memory m;
    CUfunction fill;
    load_fill(&fill);
    OK(cuCtxSynchronize());
    int clusters = 0;
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32, config.blockDimY = config.blockDimZ = 1;
    const auto asked = [&](CUresult (*wait)(CUstream)) {
      const uint64_t before = worker.records();
      EXPECT_EQ(wait(m.stream), CUDA_SUCCESS);
      return worker.records() - before;
    };
    for (const auto wait : {cuStreamSynchronize, cuStreamQuery}) {
      OK(cuMemsetD8Async(m.at, 0, 1, m.stream));
      OK(cuStreamWriteValue64(m.stream, m.at, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
      EXPECT_EQ(asked(wait), 1u);
      OK(cuCtxSynchronize());
      OK(cuMemsetD8Async(m.at, 0, 1, m.stream));
      OK(cuOccupancyMaxActiveClusters(&clusters, fill, &config));
      EXPECT_EQ(asked(wait), 1u);
      OK(cuCtxSynchronize());
      OK(cuOccupancyMaxActiveClusters(&clusters, fill, &config));
      EXPECT_EQ(asked(wait), 0u) << "a question queues nothing";
    }
  });
}

TEST(EarlyCopies, EndWithTheSession) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    Memory m;
    worker.pause(true);
    OK(cuMemcpyHtoD(m.at, m.in.data(), Memory::kBytes));
    worker.end_session(CUDA_ERROR_ECC_UNCORRECTABLE, "a test");
    EXPECT_EQ(cuMemsetD8Async(m.at, 0, 1, m.stream), CUDA_ERROR_ECC_UNCORRECTABLE);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ECC_UNCORRECTABLE);
  });
}

}  // namespace
}  // namespace sluice::testing
