// SPDX-License-Identifier: Apache-2.0
// A context whose opening fails behind EvictForwarder::open is not sent evictions: it has been
// destroyed by then. The driver library of this test (failing_driver.cc) fails there, and ends
// whoever uses that context later, and who makes calls that it should never get.
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

TEST_F(WorkerProcess, NoGuestHasTheDriverDoWhatConcernsTheWholeGpu) {
  if (kNvidia) GTEST_SKIP() << "the failing driver stands before the software GPU";
  start(WorkerBench::Options());
  make_context();
  const auto status = [&](auto opcode, std::initializer_list<std::vector<std::byte>> arguments) {
    return generic(opcode, arguments, context).status;
  };
  for (const unsigned flags : {CU_CTX_COREDUMP_ENABLE, CU_CTX_USER_COREDUMP_ENABLE}) {
    EXPECT_EQ(status(kOpcode_cuCtxCreate_v2, {raw<uint8_t>(1), raw(flags), raw<int>(0)}),
              CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(status(kOpcode_cuCtxSetFlags, {raw(flags)}), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(status(kOpcode_cuDevicePrimaryCtxSetFlags_v2, {raw<int>(0), raw(flags)}),
              CUDA_ERROR_NOT_SUPPORTED);
  }
  EXPECT_EQ(status(kOpcode_cuCtxSetFlags, {raw<unsigned>(CU_CTX_SCHED_SPIN)}), CUDA_SUCCESS);
  EXPECT_EQ(status(kOpcode_cuCtxSetLimit,
                   {raw<int>(CU_LIMIT_PERSISTING_L2_CACHE_SIZE), raw<uint64_t>(1)}),
            CUDA_ERROR_UNSUPPORTED_LIMIT);
  EXPECT_EQ(status(kOpcode_cuCtxResetPersistingL2Cache, {}), CUDA_SUCCESS);
  const Answer most = generic(
      kOpcode_cuDeviceGetAttribute,
      {raw<uint8_t>(1), raw<int>(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE), raw<int>(0)},
      context);
  EXPECT_EQ(most.status, CUDA_SUCCESS);
  EXPECT_EQ(most.as<int>(), 0);
}

TEST_F(WorkerProcess, NoGuestMakesACallThatCrashesNvidiasDriver) {
  if (kNvidia) GTEST_SKIP() << "the failing driver stands before the software GPU";
  start(WorkerBench::Options());
  make_context();
  make_module();
  for (const int attribute : {-1, int{CU_FUNC_ATTRIBUTE_MAX}, 1 << 20})
    EXPECT_EQ(generic(kOpcode_cuFuncSetAttribute, {raw(add), raw(attribute), raw<int>(1)}, context)
                  .status,
              CUDA_ERROR_INVALID_VALUE);
  const auto available = [&](uint8_t wanted) {
    return generic(kOpcode_cuOccupancyAvailableDynamicSMemPerBlock,
                   {raw(wanted), raw(add), raw<int>(1), raw<int>(64)}, context);
  };
  EXPECT_EQ(available(0).status, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(available(1).status, CUDA_SUCCESS);
}

// The software GPU has room for fewer; NVIDIA's driver for many more.
TEST_F(WorkerProcess, MappingsAreBounded) {
  if (kNvidia) GTEST_SKIP() << "the failing driver stands before the software GPU";
  start(WorkerBench::Options());
  make_context();
  constexpr uint64_t kUnit = 2u << 20, kMost = 1u << 18;
  const CUmemAllocationProp plain = {
      CU_MEM_ALLOCATION_TYPE_PINNED, 0, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, nullptr, {}};
  const uint64_t memory =
      generic(kOpcode_cuMemCreate, {raw<uint8_t>(1), raw(kUnit), raw(plain), raw(uint64_t{0})},
              context)
          .as<uint64_t>();
  const uint64_t base = generic(kOpcode_cuMemAddressReserve,
                                {raw<uint8_t>(1), raw(2 * kMost * kUnit), raw<uint64_t>(0),
                                 raw<uint64_t>(0), raw<uint64_t>(0)},
                                context)
                            .as<uint64_t>();
  EXPECT_EQ(made_of(kMost,
                    [&](uint64_t i) {
                      return b->post(kOpcode_cuMemMap,
                                     bytes({raw(base + i * kUnit), raw(kUnit), raw(uint64_t{0}),
                                            raw(memory), raw(uint64_t{0})}),
                                     context);
                    }),
            kMost);
}

}  // namespace
}  // namespace sluice::test
