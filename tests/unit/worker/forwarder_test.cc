// SPDX-License-Identifier: Apache-2.0
// A context whose opening fails behind EvictForwarder::open is not sent evictions: it has been
// destroyed by then. The driver library of this test (failing_driver.cc) fails there, and ends
// whoever uses that context later.
#include "tests/support/worker_process.h"

namespace wp = sluice::worker_protocol;

namespace sluice::test {
namespace {

TEST_F(WorkerProcess, AContextThatCouldNotBeOpenedIsNotSentEvictions) {
  if (kNvidia) GTEST_SKIP() << "the failing driver stands before the software GPU";
  for (wp::Signal signal : {wp::Signal::kWrite, wp::Signal::kCopy}) {
    SCOPED_TRACE(wp::kSignalNames[static_cast<size_t>(signal)]);
    WorkerBench::Options o;
    o.signal = signal;
    start(o);
    make_context();
    make_module();
    ASSERT_EQ(
        generic(kOpcode_cuCtxCreate_v2, {raw<uint8_t>(1), raw<uint32_t>(0), raw<int>(0)}).status,
        CUDA_ERROR_OUT_OF_MEMORY);
    const uint32_t kN = 64 * kGrid;
    const uint64_t d = alloc(kN * 4).as<uint64_t>();
    zero(d, kN * 4);
    uint32_t expected = 0;
    for (uint32_t k = 0; k < 4; ++k) {
      launch(kGrid, 64, d, kN, k);
      expected = advance(expected, k, kRounds);
      b->take_back();
      ASSERT_TRUE(b->wait_left());
      b->grant();
    }
    ASSERT_EQ(sync().status, CUDA_SUCCESS);
    const uint32_t* got = words(d, kN * 4);
    for (uint32_t i : {0u, kN / 2, kN - 1}) EXPECT_EQ(got[i], expected);
    // The next one opens.
    EXPECT_EQ(
        generic(kOpcode_cuCtxCreate_v2, {raw<uint8_t>(1), raw<uint32_t>(0), raw<int>(0)}).status,
        CUDA_SUCCESS);
  }
}

}  // namespace
}  // namespace sluice::test
