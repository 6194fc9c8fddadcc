// SPDX-License-Identifier: Apache-2.0
// A real sluice-worker on the software GPU, and everything that a hostile or broken program can put
// into its ring.
#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

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
TEST_F(WorkerProcess, ALogLongerThanAny) {
  start();
  make_context();
  sluice_module_load m{};
  m.log_bytes = 4097;
  b->post(SLUICE_CALL_MODULE_LOAD, m, context);
  expect_violation("module_load: log");
}
// sluiced answers none of them here.
TEST_F(WorkerProcess, HandlesOfOthersWithoutEnd) {
  start();
  make_context();
  sluice_ipc_handle handle{};
  handle.magic = SLUICE_IPC_MAGIC;
  for (int i = 0; i < 5000 && !b->ended(); ++i)
    b->post(
        kOpcode_cuIpcOpenMemHandle_v2,
        bytes({raw<uint8_t>(1), raw(handle), raw<unsigned>(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)}),
        context);
  // Its last message to sluiced may be behind the questions that it had no room for.
  EXPECT_EQ(b->wait_exit(), 0);
  EXPECT_NE(std::string(b->slot->reason).find("too many calls wait for memory"), std::string::npos)
      << b->slot->reason;
}
TEST_F(WorkerProcess, APitchThatWrapsAround) {
  start();
  make_context();
  for (const auto& [width, height] : std::initializer_list<std::pair<uint64_t, uint64_t>>{
           {~0ull, 1}, {~0ull - 511, 2}, {1ull << 40, 1ull << 24}, {(1ull << 63) + 512, 2}})
    EXPECT_EQ(generic(kOpcode_cuMemAllocPitch_v2,
                      {raw<uint8_t>(1), raw<uint8_t>(1), raw(width), raw(height), raw<unsigned>(4)},
                      context)
                  .status,
              CUDA_ERROR_OUT_OF_MEMORY)
        << width;
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

struct Kind {
  uint16_t opcode;
  size_t bytes;
  size_t results = 0;  // bytes before them, which say that a result is wanted
};
constexpr Kind kKinds[] = {
    {SLUICE_CALL_MODULE_LOAD, sizeof(sluice_module_load)},
    {SLUICE_CALL_FUNCTION_GET, sizeof(sluice_function_get)},
    {SLUICE_CALL_FUNCTION_CLONES, sizeof(sluice_function_clones)},
    {SLUICE_CALL_LAUNCH, sizeof(sluice_launch) + 24},
    {SLUICE_CALL_LAUNCH, sizeof(sluice_launch) + 24},
    {SLUICE_CALL_COPY, sizeof(sluice_copy)},
    {SLUICE_CALL_COPY_BOX, sizeof(sluice_copy_box)},
    {SLUICE_CALL_MEMSET, sizeof(sluice_memset)},
    {SLUICE_CALL_SYNCHRONIZE, sizeof(sluice_synchronize)},
    {SLUICE_CALL_QUERY, sizeof(sluice_synchronize)},
    {SLUICE_CALL_EVENT_RECORD, sizeof(sluice_stream_event)},
    {SLUICE_CALL_STREAM_WAIT, sizeof(sluice_stream_event)},
    {SLUICE_CALL_STREAM_VALUE, sizeof(sluice_stream_value)},
    {SLUICE_CALL_STREAM_VALUE64, sizeof(sluice_stream_value64)},
    {SLUICE_CALL_HOST_FUNC, sizeof(sluice_synchronize)},
    {SLUICE_CALL_HOST_FUNC_DONE, 8},
    {SLUICE_CALL_EXTENT_ALLOC, sizeof(sluice_extent)},
    {SLUICE_CALL_EXTENT_FREE, sizeof(sluice_bulk)},
    {SLUICE_CALL_CLUSTERS, sizeof(sluice_clusters)},
    {SLUICE_CALL_GREEN_SPLIT, sizeof(sluice_green)},
    {SLUICE_CALL_GREEN_CREATE, sizeof(sluice_green)},
    {kOpcode_cuMemAlloc_v2, 8, 1},
    {kOpcode_cuMemAllocPitch_v2, 20, 2},
    {kOpcode_cuMemAllocAsync, 16, 1},
    {kOpcode_cuMemFree_v2, 8},
    {kOpcode_cuMemFreeAsync, 16},
    {kOpcode_cuStreamCreate, 4, 1},
    {kOpcode_cuStreamDestroy_v2, 8},
    {kOpcode_cuEventDestroy_v2, 8},
    {kOpcode_cuModuleUnload, 8},
    {kOpcode_cuCtxDestroy_v2, 8},
    {kOpcode_cuCtxSetLimit, 12},
    {kOpcode_cuFuncSetAttribute, 16},
    {kOpcode_cuIpcGetMemHandle, 8, 1},
    {kOpcode_cuIpcOpenMemHandle_v2, sizeof(CUipcMemHandle) + 4, 1},
    {kOpcode_cuIpcCloseMemHandle, 8},
    {kOpcode_cuMemCreate, 8 + sizeof(CUmemAllocationProp) + 8, 1},
    {kOpcode_cuMemAddressReserve, 32, 1},
    {kOpcode_cuMemAddressFree, 16},
    {kOpcode_cuMemRelease, 8},
    {kOpcode_cuMemRetainAllocationHandle, 8, 1},
    {kOpcode_cuMemMap, 40},
    {kOpcode_cuMemUnmap, 16},
    {kOpcode_cuMemSetAccess, 24 + sizeof(CUmemAccessDesc)},
    {kOpcode_cuArray3DCreate_v2, sizeof(CUDA_ARRAY3D_DESCRIPTOR), 1},
    {kOpcode_cuMipmappedArrayCreate, sizeof(CUDA_ARRAY3D_DESCRIPTOR) + 4, 1},
    {kOpcode_cuArrayDestroy, 8},
    {kOpcode_cuTexObjectCreate,
     sizeof(CUDA_RESOURCE_DESC) + sizeof(CUDA_TEXTURE_DESC) + 1 + sizeof(CUDA_RESOURCE_VIEW_DESC),
     1},
    {kOpcode_cuTexObjectDestroy, 8},
    {kOpcode_cuSurfObjectDestroy, 8},
    {kOpcode_cuGreenCtxStreamCreate, 16, 1}};

// Calls with bodies of the right size, mostly well-formed, and values that mean something
// somewhere, absurd ones among them: whatever happens, the worker ends by itself or goes on.
class RandomRecords : public WorkerProcess {
 protected:
  void make_objects() {
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
    values_ = {array,  0,          1,
               2,      4,          16,
               64,     d,          d + 8,
               module, add,        event,
               add,    stream,     512,
               4096,   kStaging,   context,
               0,      1,          ~0ull,
               d,      1u << 20,   1ull << 32,
               d,      1ull << 63, 0x4000000040ull,
               8,      1000,       1ull << 32 | 1};
  }
  uint64_t value() { return rng_() % 40 == 0 ? rng_() : values_[rng_() % values_.size()]; }
  template <class T>
  void edit(std::vector<std::byte>& body, const std::function<void(T&)>& change) {
    T t;
    std::memcpy(&t, body.data(), sizeof t);
    change(t);
    std::memcpy(body.data(), &t, sizeof t);
  }
  // What the protocol asks for, so that the session goes on; one in a hundred stays as it is.
  void make_well_formed(const Kind& kind, std::vector<std::byte>& body) {
    if (rng_() % 100 == 0) return;
    const auto staged = [&](uint32_t end, uint64_t* at) {
      if (end == SLUICE_COPY_BULK) *at = kStaging + *at % 4096;
    };
    switch (kind.opcode) {
      case SLUICE_CALL_MODULE_LOAD:
        return edit<sluice_module_load>(body, [](auto& m) { m = {}; });
      case SLUICE_CALL_FUNCTION_GET:
        return edit<sluice_function_get>(body, [](auto& f) { f.name_bytes = 0; });
      case SLUICE_CALL_FUNCTION_CLONES:
        return edit<sluice_function_clones>(body, [](auto& f) { f.address_bytes = 0; });
      case SLUICE_CALL_LAUNCH:
        return edit<sluice_launch>(body, [&](auto& l) {
          l.param_bytes = 24;
          if (rng_() % 4 != 0) l.function = add;
          // Grids without end are another test's.
          for (uint32_t& side : l.grid) side %= 64;
        });
      case SLUICE_CALL_COPY:
        return edit<sluice_copy>(body, [&](auto& c) {
          c.dst_kind %= 2, c.src_kind %= 2;
          if (c.dst_kind == SLUICE_COPY_BULK || c.src_kind == SLUICE_COPY_BULK)
            c.width %= 4096, c.height %= 16, c.dst_pitch %= 8192, c.src_pitch %= 8192;
          staged(c.dst_kind, &c.dst), staged(c.src_kind, &c.src);
        });
      case SLUICE_CALL_COPY_BOX:
        return edit<sluice_copy_box>(body, [&](auto& c) {
          for (auto* end : {&c.dst, &c.src}) {
            end->kind %= 3;
            staged(end->kind, &end->at);
            if (end->kind == SLUICE_COPY_BULK)
              c.width %= 64, c.height %= 16, c.depth %= 4, end->pitch %= 4096, end->rows %= 64;
          }
        });
      case SLUICE_CALL_MEMSET:
        return edit<sluice_memset>(body,
                                   [&](auto& m) { m.element_bytes = 1u << m.element_bytes % 3; });
      case SLUICE_CALL_SYNCHRONIZE:
        return edit<sluice_synchronize>(body, [&](auto& w) { w.what %= 3; });
      case SLUICE_CALL_QUERY:
        return edit<sluice_synchronize>(body, [&](auto& w) { w.what = 1 + w.what % 2; });
      case kOpcode_cuMemSetAccess:
        std::fill_n(body.begin() + 16, 8, std::byte{0});
        body[16] = std::byte{1};  // one description follows
        return;
      case kOpcode_cuTexObjectCreate:
        body[1 + sizeof(CUDA_RESOURCE_DESC) + sizeof(CUDA_TEXTURE_DESC)] = std::byte(rng_() % 2);
    }
  }
  void post_one() {
    const Kind& kind = kKinds[rng_() % std::size(kKinds)];
    std::vector<std::byte> body(kind.results + kind.bytes, std::byte{1});
    for (size_t at = 0; at < kind.bytes; at += 8) {
      const uint64_t v = value();
      std::memcpy(body.data() + kind.results + at, &v, std::min<size_t>(kind.bytes - at, 8));
    }
    make_well_formed(kind, body);
    const bool answered = kind.opcode == SLUICE_CALL_HOST_FUNC || rng_() % 2 == 0;
    const uint64_t id =
        b->post(kind.opcode, body, rng_() % 8 ? context : 0, answered ? 0 : SLUICE_RECORD_NO_REPLY);
    if (kind.opcode == SLUICE_CALL_HOST_FUNC && rng_() % 4 != 0)
      b->post(SLUICE_CALL_HOST_FUNC_DONE, id, 0, SLUICE_RECORD_NO_REPLY);
  }

  std::mt19937_64 rng_;
  std::vector<uint64_t> values_;
};

TEST_F(RandomRecords, NeverCrashTheWorker) {
  const char* first = std::getenv("SLUICE_FIRST_SEED");
  const uint32_t from = first ? static_cast<uint32_t>(std::atoi(first)) : 0;
  int lived = 0;
  for (uint32_t seed = from; seed < from + 40; ++seed) {
    SCOPED_TRACE(seed);
    start();
    make_objects();
    rng_.seed(seed);
    int calls = 0;
    for (; calls < 400 && !b->ended(); ++calls) {
      post_one();
      if (calls % 16 == 0) b->wait(~0ull, 0);  // takes completions out of the ring
    }
    const int status = b->wait_exit(100);
    EXPECT_TRUE(status == -1 || (status == 0 && b->ended())) << "it died: " << status;
    lived += status == -1;
  }
  RecordProperty("sessions_that_lived", lived);
  std::printf("%d of 40 sessions lived\n", lived);
}

}  // namespace
}  // namespace sluice::test
