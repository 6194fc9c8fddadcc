// SPDX-License-Identifier: Apache-2.0
// Waits that end by a word of the GPU's (abi/end_word.h), before their answer comes.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/unit/shim/fixture.h"

namespace sluice::testing {
namespace {

// Something to wait for.
CUdeviceptr queue_work() {
  CUdeviceptr at = 0;
  EXPECT_EQ(cuMemAlloc(&at, 16), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8Async(at, 0, 1, nullptr), CUDA_SUCCESS);
  return at;
}

TEST(EndWord, EndsAWaitBeforeItsAnswer) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    worker.set_hold_syncs(100);  // nobody is answered
    worker.set_writes_end_words(true);
    const CUdeviceptr at = queue_work();
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 20; ++i) {
      OK(cuMemsetD8Async(at, 0, 1, nullptr));
      OK(cuCtxSynchronize());
      OK(cuMemsetD8Async(at, 0, 1, stream));
      OK(cuStreamSynchronize(stream));
    }
    EXPECT_TRUE(worker.problems().empty());
  });
}

TEST(EndWord, AnErrorInTheLateAnswerIsNotLost) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    worker.set_hold_syncs(2);
    worker.set_writes_end_words(true);
    worker.set_sync_status(CUDA_ERROR_NOT_SUPPORTED);
    const CUdeviceptr at = queue_work();
    OK(cuCtxSynchronize());  // by its word
    OK(cuMemsetD8Async(at, 0, 1, nullptr));
    const CUresult second = cuCtxSynchronize();  // now both are answered, perhaps later
    for (int i = 0; i < 60'000 && worker.answered_syncs() < 2; ++i) ::usleep(1000);
    worker.set_sync_status(CUDA_SUCCESS);
    worker.set_hold_syncs(0);
    OK(cuMemsetD8Async(at, 0, 1, nullptr));
    const CUresult third = cuCtxSynchronize();
    EXPECT_TRUE(second == CUDA_ERROR_NOT_SUPPORTED || third == CUDA_ERROR_NOT_SUPPORTED);
  });
}

// The memory has been another program's.
TEST(EndWord, AnEarlierSessionsWordTellsNothing) {
  in_process({}, [](FakeWorker& worker) {
    worker.put_end_word(1);
    set_up();
    const CUdeviceptr at = queue_work();
    CUcontext context;
    OK(cuCtxGetCurrent(&context));
    worker.set_hold_syncs(2);
    std::atomic<bool> over{false};
    std::thread waiter([&] {
      OK(cuCtxSetCurrent(context));
      OK(cuCtxSynchronize());
      over = true;
    });
    ::usleep(100'000);
    EXPECT_FALSE(over) << "nobody has answered";
    worker.set_hold_syncs(0);
    OK(cuMemsetD8Async(at, 0, 1, nullptr));
    OK(cuCtxSynchronize());
    waiter.join();
  });
}

// Another wait's number, later or forged, ends none; the answer does.
TEST(EndWord, OthersWordsEndNoWait) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    const CUdeviceptr at = queue_work();
    for (uint32_t forged : {0u, 77u, ~0u}) {
      OK(cuCtxSynchronize());
      worker.put_end_word(forged);
      const uint64_t before = worker.records();
      OK(cuMemsetD8Async(at, 0, 1, nullptr));
      OK(cuCtxSynchronize());
      EXPECT_EQ(worker.records(), before + 2);
    }
  });
}

TEST(EndWord, AFaultStillEndsTheWait) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    worker.set_hold_syncs(100);
    const CUdeviceptr at = queue_work();
    OK(cuMemsetD8Async(at, 0, 1, nullptr));
    std::thread end([&] {
      ::usleep(50'000);
      worker.end_session(CUDA_ERROR_ILLEGAL_ADDRESS, "a test");
    });
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    end.join();
  });
}

}  // namespace
}  // namespace sluice::testing
