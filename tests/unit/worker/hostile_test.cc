// SPDX-License-Identifier: Apache-2.0
// A real sluice-worker on the software GPU, and everything that a hostile or broken program can put
// into its ring.
#include <fcntl.h>

#include <random>

#include "tests/support/worker_process.h"

namespace sluice::test {
namespace {

// --- what breaks the protocol ends the session with a reason, and nothing else ---

TEST_F(WorkerProcess, UnknownOpcodesAreOfALaterLibrary) {
  start();
  for (uint16_t opcode : {0x7777, 0x0fff, 0x0000, 0xffff, 0x100e})
    EXPECT_EQ(b->call(opcode, uint64_t{0}).status, CUDA_ERROR_NOT_SUPPORTED) << opcode;
  EXPECT_EQ(b->call(calls::kOpcode_cuInit, uint64_t{0}).status, CUDA_SUCCESS);
}
TEST_F(WorkerProcess, UnknownOpcodeThatWantsNoAnswer) {
  start();
  b->post(0x7777, uint64_t{0}, 0, SLUICE_RECORD_NO_REPLY);
  expect_violation("unknown opcode");
}
TEST_F(WorkerProcess, UnknownFlags) {
  start();
  b->post(SLUICE_CALL_LAUNCH, sluice_launch{}, 0, 0x40);
  expect_violation("flags");
}
TEST_F(WorkerProcess, ShortStruct) {
  start();
  b->post(SLUICE_CALL_LAUNCH, std::span<const std::byte>{});
  expect_violation("launch");
}
TEST_F(WorkerProcess, ParameterBytesBeyondTheRecord) {
  start();
  sluice_launch l{};
  l.param_bytes = 0xffffffff;
  b->post(SLUICE_CALL_LAUNCH, l);
  expect_violation("launch");
}
TEST_F(WorkerProcess, BulkOutsideTheSession) {
  start();
  make_context();
  uint64_t d = alloc(4096).as<uint64_t>();
  b->post(SLUICE_CALL_COPY, to_device(d, SLUICE_SLOT_OFFSET, 64), context);
  expect_violation("bulk range");
}
TEST_F(WorkerProcess, BulkThatWrapsAround) {
  start();
  make_context();
  uint64_t d = alloc(4096).as<uint64_t>();
  b->post(SLUICE_CALL_COPY, to_device(d, ~0ull - 8, 64), context);
  expect_violation("bulk range");
}
TEST_F(WorkerProcess, ModuleTextOutsideTheSession) {
  start();
  make_context();
  sluice_module_load m{};
  m.bulk = {kStaging, WorkerBench::kStagingBytes + 1};
  b->post(SLUICE_CALL_MODULE_LOAD, m, context);
  expect_violation("bulk range");
}
TEST_F(WorkerProcess, IndexThatJumps) {
  start();
  auto ring = submit_ring(b->region(), 0);
  __atomic_store_n(&ring.indices->head, ~uint64_t{0} - 31, __ATOMIC_SEQ_CST);
  b->ring_bell();
  expect_violation("");
}
TEST_F(WorkerProcess, ArgumentsOfAGenericCallTooShort) {
  start();
  b->post(kOpcode_cuDeviceGetAttribute, std::span<const std::byte>{});
  expect_violation("malformed");
}

// Calls with bodies of the right size and values that mean something somewhere: whatever happens,
// the worker ends by itself or goes on.
TEST_F(WorkerProcess, RandomRecordsNeverCrashIt) {
  const std::pair<uint16_t, size_t> kinds[] = {
      {SLUICE_CALL_MODULE_LOAD, sizeof(sluice_module_load)},
      {SLUICE_CALL_FUNCTION_GET, sizeof(sluice_function_get)},
      {SLUICE_CALL_LAUNCH, sizeof(sluice_launch) + 24},
      {SLUICE_CALL_COPY, sizeof(sluice_copy)},
      {SLUICE_CALL_MEMSET, sizeof(sluice_memset)},
      {SLUICE_CALL_SYNCHRONIZE, sizeof(sluice_synchronize)},
      {SLUICE_CALL_EVENT_RECORD, sizeof(sluice_stream_event)},
      {SLUICE_CALL_STREAM_WAIT, sizeof(sluice_stream_event)},
      {SLUICE_CALL_QUERY, sizeof(sluice_synchronize)},
      {SLUICE_CALL_EXTENT_ALLOC, sizeof(sluice_extent)},
      {SLUICE_CALL_EXTENT_FREE, sizeof(sluice_bulk)},
      {SLUICE_CALL_STREAM_VALUE, sizeof(sluice_stream_value)},
      {SLUICE_CALL_STREAM_VALUE64, sizeof(sluice_stream_value64)},
      {SLUICE_CALL_HOST_FUNC_DONE, 8},
      {kOpcode_cuMemFree_v2, 8},
      {kOpcode_cuStreamDestroy_v2, 8},
      {kOpcode_cuEventDestroy_v2, 8},
      {kOpcode_cuModuleUnload, 8},
      {kOpcode_cuCtxDestroy_v2, 8},
      {kOpcode_cuMemFreeAsync, 16},
      {kOpcode_cuMemAddressFree, 16},
      {kOpcode_cuMemRelease, 8},
      {kOpcode_cuMemMap, 40},
      {kOpcode_cuMemUnmap, 16},
      {kOpcode_cuMemSetAccess, 24 + sizeof(CUmemAccessDesc)},
      {SLUICE_CALL_COPY_BOX, sizeof(sluice_copy_box)},
      {kOpcode_cuArrayDestroy, 8},
      {kOpcode_cuTexObjectDestroy, 8},
      {kOpcode_cuSurfObjectDestroy, 8}};
  int lived = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    start();
    make_context();
    make_module();
    const uint64_t d = alloc(4096).as<uint64_t>();
    const uint64_t stream =
        generic(kOpcode_cuStreamCreate, {raw<uint8_t>(1), raw<uint32_t>(1)}, context)
            .as<uint64_t>();
    const uint64_t event =
        generic(kOpcode_cuEventCreate, {raw<uint8_t>(1), raw<uint32_t>(0)}, context).as<uint64_t>();
    const CUDA_ARRAY3D_DESCRIPTOR texels{16, 16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    const uint64_t array =
        generic(kOpcode_cuArray3DCreate_v2, {raw<uint8_t>(1), raw(texels)}, context).as<uint64_t>();
    const uint64_t values[] = {array,
                               uint64_t{SLUICE_COPY_ARRAY},
                               0,
                               1,
                               2,
                               4,
                               16,
                               64,
                               d,
                               d + 8,
                               context,
                               module,
                               add,
                               event,
                               stream,
                               512,
                               kStaging,
                               4096,
                               0,
                               1,
                               ~0ull,
                               1ull << 32 | 1,
                               0x4000000040ull,
                               1ull << 63};
    std::mt19937_64 rng(seed);
    for (int i = 0; i < 400 && !b->ended(); ++i) {
      const auto [opcode, size] = kinds[rng() % std::size(kinds)];
      std::vector<std::byte> body(size);
      for (size_t at = 0; at < size; at += 8) {
        const uint64_t v = rng() % 40 == 0 ? rng() : values[rng() % std::size(values)];
        std::memcpy(body.data() + at, &v, 8);
      }
      b->post(opcode, body, rng() % 8 ? context : 0, rng() % 2);
      if (i % 16 == 0) b->wait(~0ull, 0);  // takes completions out of the ring
    }
    const int status = b->wait_exit(100);
    EXPECT_TRUE(status == -1 || (status == 0 && b->ended())) << "it died: " << status;
    lived += status == -1;
  }
  RecordProperty("sessions_that_lived", lived);
}

}  // namespace
}  // namespace sluice::test
