// SPDX-License-Identifier: Apache-2.0
// A worker whose guest's kernel faults: sluiced hears of it whatever the guest does next, and no
// other kernel of the session reaches the GPU.
#include "tests/support/worker_process.h"

namespace sluice::test {
namespace {

class WorkerFaults : public WorkerProcess {
 protected:
  // Stores to an address that is not mapped. Nobody waits for it.
  void fault() {
    const uint64_t wild = function("wild", 0), memory = alloc(4096).as<uint64_t>();
    sluice_launch l{};
    l.function = wild;
    for (int i = 0; i < 3; ++i) l.grid[i] = l.block[i] = 1;
    l.param_bytes = 8;
    b->post(SLUICE_CALL_LAUNCH, bytes({raw(l), raw(memory)}), context, SLUICE_RECORD_NO_REPLY);
  }
};

// As a guest does that closes its connection while its kernel is about to fault.
TEST_F(WorkerFaults, LeavingDoesNotHideAFault) {
  char gpu[] = "/tmp/sluice-gpu-XXXXXX";
  const Fd file(::mkstemp(gpu));
  WorkerBench::Options o;
  o.soft_gpu_file = gpu;
  o.environment = {"SLUICE_SOFT_FAULT_US=50000", "SLUICE_WORKER_SEE_OUT_MS=60000"};
  start(std::move(o));
  make_context();
  make_module();
  fault();
  const auto& h = b->report->header;
  while (__atomic_load_n(&h.in_flight, __ATOMIC_SEQ_CST) == 0 &&
         __atomic_load_n(&h.error, __ATOMIC_RELAXED) == 0)
    ::usleep(100);
  b->end(CUDA_SUCCESS, "the program has ended");
  EXPECT_EQ(b->wait_exit(), 0);
  EXPECT_EQ(h.error, static_cast<uint64_t>(CUDA_ERROR_ILLEGAL_ADDRESS));
  ::unlink(gpu);
}

TEST_F(WorkerFaults, OneContextKeepsItsSession) {
  start();
  make_context();
  make_module();
  fault();
  EXPECT_EQ(sync().status, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(generic(kOpcode_cuDevicePrimaryCtxReset_v2, {raw<int>(0)}).status,
            CUDA_ERROR_ILLEGAL_ADDRESS)
      << "a new context is a new session";
  EXPECT_EQ(
      generic(kOpcode_cuCtxCreate_v2, {raw<uint8_t>(1), raw<unsigned>(0), raw<int>(0)}).status,
      CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_FALSE(b->ended());
}

// What its other contexts have on the GPU may fault as well, each of them once.
TEST_F(WorkerFaults, SeveralContextsEndWithTheFirstFault) {
  start();
  make_context();
  make_module();
  ASSERT_EQ(
      generic(kOpcode_cuCtxCreate_v2, {raw<uint8_t>(1), raw<unsigned>(0), raw<int>(0)}).status,
      CUDA_SUCCESS);
  fault();
  EXPECT_EQ(b->wait_exit(), 0);
  EXPECT_TRUE(b->ended());
  EXPECT_EQ(b->slot->error, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_NE(std::string(b->slot->reason).find("several contexts"), std::string::npos)
      << b->slot->reason;
}

}  // namespace
}  // namespace sluice::test
