// SPDX-License-Identifier: Apache-2.0
// A real sluice-worker on the software GPU: calls, quotas, faults, what CUDA refuses.
#include "abi/end_word.h"
#include "tests/support/cubins.h"
#include "tests/support/worker_process.h"

namespace sluice::test {
namespace {

TEST_F(WorkerProcess, AnswersAndCopies) {
  start();
  Answer a = generic(kOpcode_cuDeviceGetCount, {raw<uint8_t>(1)});
  EXPECT_EQ(a.status, CUDA_SUCCESS);
  EXPECT_EQ(a.as<int>(), 1);
  make_context();
  uint64_t d = alloc(1 << 20).as<uint64_t>();
  ASSERT_NE(d, 0u);
  for (int i = 0; i < 1 << 20; ++i) b->bulk(kStaging)[i] = static_cast<std::byte>(i * 7);
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_device(d, kStaging, 1 << 20), context).status, 0);
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_host(kStaging + (2 << 20), d, 1 << 20), context).status,
            0);
  EXPECT_EQ(std::memcmp(b->bulk(kStaging), b->bulk(kStaging + (2 << 20)), 1 << 20), 0);
  sluice_memset m{};
  m.dst = d;
  m.width = 1000;
  m.height = 1;
  m.value = 0x01020304;
  m.element_bytes = 4;
  m.wait = 1;
  EXPECT_EQ(b->call(SLUICE_CALL_MEMSET, m, context).status, 0);
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_host(kStaging, d, 8000), context).status, 0);
  uint32_t words[1001];
  std::memcpy(words, b->bulk(kStaging), sizeof words);
  EXPECT_EQ(words[999], 0x01020304u);
  EXPECT_NE(words[1000], 0x01020304u);
  EXPECT_EQ(generic(kOpcode_cuMemFree_v2, {raw(d)}, context).status, 0);
  EXPECT_EQ(generic(kOpcode_cuMemFree_v2, {raw(d)}, context).status, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_device(d, kStaging, 16), context).status,
            CUDA_ERROR_INVALID_VALUE);
}

// The worker's driver makes the map of the session's memory, and clones that copy by it are
// evicted.
TEST_F(WorkerProcess, CopiesByTensorMaps) {
  WorkerBench::Options o;
  if (kNvidia) o.signal = wp::Signal::kProxy;
  start(std::move(o));
  make_context();
  const uint32_t kTiles = 256, kSlots = kNvidia ? 32768 : 256, kEach = kNvidia ? 64 : 16,
                 kBlocks = kEach * kSlots, kWords = kSlots * 64;
  const uint64_t in = alloc(kTiles * 4096).as<uint64_t>(), out = alloc(kWords * 4).as<uint64_t>();
  constexpr int kUint32 = 2;  // CU_TENSOR_MAP_DATA_TYPE_UINT32
  const Answer map = generic(kOpcode_cuTensorMapEncodeTiled,
                             {raw<uint8_t>(1), raw(kUint32), raw(2u), raw(in), raw(0), raw(0),
                              raw(0), raw(0), raw<uint64_t>(64), raw<uint64_t>(16 * kTiles),
                              raw<uint64_t>(256), raw(64u), raw(16u), raw(1u), raw(1u)},
                             context);
  ASSERT_EQ(map.status, CUDA_SUCCESS);
  ASSERT_GE(map.body.size(), sizeof(CUtensorMap));
  auto* values = reinterpret_cast<uint32_t*>(b->bulk(kStaging));
  const auto value = [](uint32_t i) { return i * 2654435761u; };
  for (uint32_t i = 0; i < kTiles * 1024; ++i) values[i] = value(i);
  ASSERT_EQ(b->call(SLUICE_CALL_COPY, to_device(in, kStaging, kTiles * 4096), context).status, 0);
  zero(out, kWords * 4);
  auto rewritten = passes::rewrite_module(std::string(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry add(.param .align 64 .b8 p_map[128], .param .u64 p_out)
{
  .reg .pred %p<3>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<4>;
  .shared .align 128 .b8 tile[4096];
  .shared .align 8 .b64 full;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, tile;
  mov.u32 %r4, full;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra MADE;
  mbarrier.init.shared::cta.b64 [%r4], 1;
  fence.mbarrier_init.release.cluster;
MADE:
  bar.sync 0;
  @%p1 bra WAIT;
  mov.b64 %rd1, p_map;
  cvta.param.u64 %rd1, %rd1;
  and.b32 %r5, %r2, 255;
  shl.b32 %r5, %r5, 4;
  mov.u32 %r6, 0;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 4096;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd1,
  {%r6, %r5}], [%r4];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0;
  @!%p2 bra WAIT;
  shl.b32 %r7, %r1, 2;
  add.u32 %r7, %r7, %r3;
  ld.shared.u32 %r8, [%r7];
  ld.shared.u32 %r9, [%r7+3840];
  add.u32 %r8, %r8, %r9;
  and.b32 %r2, %r2, )") + std::to_string(kSlots - 1) +
                                          R"(;
  mad.lo.u32 %r10, %r2, 64, %r1;
  ld.param.u64 %rd2, [p_out];
  mul.wide.u32 %rd3, %r10, 4;
  add.u64 %rd2, %rd2, %rd3;
  red.global.add.u32 [%rd2], %r8;
  ret;
}
)");
  ASSERT_TRUE(rewritten.ok());
  ASSERT_TRUE(rewritten->kernels[0].evictable) << rewritten->kernels[0].reason;
  const Answer loaded = load(rewritten->text);
  ASSERT_EQ(loaded.status, CUDA_SUCCESS);
  module = loaded.as<uint64_t>();
  add = function("add", SLUICE_FUNCTION_EVICTABLE);
  struct {
    sluice_launch l{};
    uint32_t before[12] = {};  // the driver has the map at 48
    uint32_t map[32] = {};
    uint64_t out = 0;
  } body;
  body.l.function = add;
  for (int i = 0; i < 3; ++i) body.l.grid[i] = body.l.block[i] = 1;
  body.l.grid[0] = kBlocks;
  body.l.block[0] = 64;
  body.l.param_bytes = 184;
  std::memcpy(body.map, map.body.data(), sizeof body.map);
  body.out = out;
  std::vector<std::byte> sent(sizeof body.l + body.l.param_bytes);
  std::memcpy(sent.data(), &body, sent.size());
  uint32_t launches = 0;
  for (; launches < 200 && b->report->header.evictions < (kNvidia ? 20 : 3); ++launches) {
    b->post(SLUICE_CALL_LAUNCH, sent, context, SLUICE_RECORD_NO_REPLY);
    ::usleep(300);
    b->take_back();
    ASSERT_TRUE(b->wait_left());
    b->grant();
  }
  ASSERT_EQ(sync().status, CUDA_SUCCESS);
  const uint32_t* got = words(out, kWords * 4);
  uint32_t wrong = 0;
  for (uint32_t i = 0; i < kWords; ++i) {
    const uint32_t at = i / 64 % kTiles * 1024 + i % 64;
    wrong += got[i] != launches * kEach * (value(at) + value(at + 960));
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(b->report->header.opaque_launches, 0u);
  EXPECT_GT(b->report->header.evictions, 0u);
}

TEST_F(WorkerProcess, QuotaHoldsAndIsGivenBack) {
  WorkerBench::Options o;
  o.memory_limit = 128u << 20;
  o.lease_limit = 100u << 20;
  start(o);
  make_context();
  EXPECT_EQ(generic(kOpcode_cuDeviceTotalMem_v2, {raw<uint8_t>(1), raw<int>(0)}).as<uint64_t>(),
            128u << 20);
  Answer a = alloc(40u << 20);
  ASSERT_EQ(a.status, 0);
  uint64_t first = a.as<uint64_t>();
  a = alloc(50u << 20);
  ASSERT_EQ(a.status, 0) << "just what lacks is asked for when a chunk is refused";
  EXPECT_EQ(alloc(20u << 20).status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(alloc(~0ull).status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(alloc(0).status, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(generic(kOpcode_cuMemFree_v2, {raw(first)}, context).status, 0);
  EXPECT_EQ(alloc(20u << 20).status, 0);
  EXPECT_EQ(generic(kOpcode_cuDevicePrimaryCtxRelease_v2, {raw<int>(0)}).status, 0);
  for (int i = 0; i < 100 && b->leased() > (64u << 20); ++i) ::usleep(10000);
  EXPECT_LE(b->leased(), 64u << 20);
  EXPECT_EQ(alloc(4096).status, CUDA_ERROR_INVALID_CONTEXT);
}

// What a guest says of addresses, sizes and handles is checked before the driver sees it; memory is
// charged as long as a handle or a mapping holds it.
TEST_F(WorkerProcess, VirtualMemoryIsCheckedChargedAndGivenBack) {
  WorkerBench::Options o;
  o.memory_limit = o.lease_limit = 8u << 20;
  start(o);
  make_context();
  constexpr uint64_t kUnit = 2u << 20;
  const CUmemAllocationProp plain = {
      CU_MEM_ALLOCATION_TYPE_PINNED, 0, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, nullptr, {}};
  const auto reserve = [&](uint64_t n, uint64_t hint = 0) {
    return generic(kOpcode_cuMemAddressReserve,
                   {raw<uint8_t>(1), raw(n), raw(uint64_t{0}), raw(hint), raw(uint64_t{0})},
                   context);
  };
  const auto create = [&](uint64_t n, CUmemAllocationProp prop) {
    return generic(kOpcode_cuMemCreate, {raw<uint8_t>(1), raw(n), raw(prop), raw(uint64_t{0})},
                   context);
  };
  const auto map = [&](uint64_t at, uint64_t n, uint64_t offset, uint64_t handle) {
    return generic(kOpcode_cuMemMap, {raw(at), raw(n), raw(offset), raw(handle), raw(uint64_t{0})},
                   context)
        .status;
  };
  const auto access = [&](uint64_t at, uint64_t n, int flags,
                          int type = CU_MEM_LOCATION_TYPE_DEVICE) {
    return generic(kOpcode_cuMemSetAccess,
                   {raw(at), raw(n), raw(uint64_t{1}), raw(CUmemAccessDesc{{type, 0}, flags})},
                   context)
        .status;
  };
  const auto two = [&](uint16_t opcode, uint64_t a, uint64_t n) {
    return generic(opcode, {raw(a), raw(n)}, context).status;
  };
  const auto release = [&](uint64_t h) {
    return generic(kOpcode_cuMemRelease, {raw(h)}, context).status;
  };
  const auto invalid = CUDA_ERROR_INVALID_VALUE;

  EXPECT_EQ(reserve(0).status, invalid);
  EXPECT_EQ(reserve(~0ull).status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(reserve(uint64_t{65} << 40).status, CUDA_ERROR_OUT_OF_MEMORY);
  // A hint that names the worker's own memory is not followed.
  const uint64_t base = reserve(8 * kUnit, SLUICE_WINDOW_ADDRESS).as<uint64_t>();
  ASSERT_NE(base, 0u);
  EXPECT_NE(base, SLUICE_WINDOW_ADDRESS);

  EXPECT_EQ(create(kUnit - 1, plain).status, invalid);
  EXPECT_EQ(create(0, plain).status, invalid);
  EXPECT_EQ(create(~0ull - kUnit + 1, plain).status, CUDA_ERROR_OUT_OF_MEMORY);
  auto odd = plain;
  odd.win32HandleMetaData = this;
  EXPECT_EQ(create(kUnit, odd).status, invalid);
  odd = plain, odd.location.type = CU_MEM_LOCATION_TYPE_HOST;
  EXPECT_EQ(create(kUnit, odd).status, CUDA_ERROR_NOT_SUPPORTED);
  odd = plain, odd.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  EXPECT_EQ(create(kUnit, odd).status, CUDA_ERROR_NOT_SUPPORTED);
  odd = plain, odd.location.id = 77;
  EXPECT_EQ(create(kUnit, odd).status, CUDA_ERROR_INVALID_DEVICE);
  odd = plain, odd.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const uint64_t memory = create(2 * kUnit, odd).as<uint64_t>(),
                 more = create(kUnit, plain).as<uint64_t>();
  ASSERT_EQ(SLUICE_HANDLE_KIND(memory), static_cast<uint32_t>(SLUICE_HANDLE_MEMORY));
  EXPECT_EQ(create(2 * kUnit, plain).status, CUDA_ERROR_OUT_OF_MEMORY) << "the vGPU's memory";

  EXPECT_EQ(map(base, kUnit, 0, memory ^ 2), invalid) << "nobody's handle";
  EXPECT_EQ(map(base, kUnit, 0, context), invalid) << "a handle of another kind";
  EXPECT_EQ(map(base, kUnit, 0, 0), invalid);
  EXPECT_EQ(map(base + 4096, 2 * kUnit, 0, memory), invalid) << "not aligned";
  EXPECT_EQ(map(base, 4 * kUnit, 0, memory), CUDA_ERROR_NOT_SUPPORTED) << "more than there is";
  EXPECT_EQ(map(base, kUnit, 0, memory), CUDA_ERROR_NOT_SUPPORTED) << "less";
  EXPECT_EQ(map(base, kUnit, ~0ull - kUnit + 1, memory), CUDA_ERROR_NOT_SUPPORTED)
      << "an offset that wraps";
  EXPECT_EQ(map(base + 7 * kUnit, 2 * kUnit, 0, memory), invalid) << "beyond the reservation";
  EXPECT_EQ(map(SLUICE_WINDOW_ADDRESS, 2 * kUnit, 0, memory), invalid) << "no reservation";
  ASSERT_EQ(map(base, 2 * kUnit, 0, memory), CUDA_SUCCESS);
  ASSERT_EQ(map(base + 2 * kUnit, kUnit, 0, more), CUDA_SUCCESS);
  EXPECT_EQ(map(base, 2 * kUnit, 0, memory), invalid) << "mapped already";

  const auto copy_to = [&](uint64_t at, uint64_t n) {
    return b->call(SLUICE_CALL_COPY, to_device(at, kStaging, n), context).status;
  };
  EXPECT_EQ(copy_to(base, 64), invalid) << "nobody may touch it yet";
  EXPECT_EQ(access(base, kUnit, 3), invalid) << "half of a mapping";
  EXPECT_EQ(access(base, 4 * kUnit, 3), invalid) << "not mapped to its end";
  EXPECT_EQ(access(base, 3 * kUnit, 2), invalid) << "no such access";
  EXPECT_EQ(access(base, 3 * kUnit, 3, CU_MEM_LOCATION_TYPE_HOST), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(generic(kOpcode_cuMemSetAccess, {raw(base), raw(3 * kUnit), raw(uint64_t{0})}, context)
                .status,
            invalid);
  const auto access_of = [&](uint64_t devices) {
    const std::vector<CUmemAccessDesc> each(devices, {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, 3});
    std::vector<std::byte> all(devices * sizeof each[0]);
    std::memcpy(all.data(), each.data(), all.size());
    return generic(kOpcode_cuMemSetAccess, {raw(base), raw(3 * kUnit), raw(devices), all}, context)
        .status;
  };
  EXPECT_EQ(access_of(65), invalid) << "more devices than a machine has";
  EXPECT_EQ(access_of(64), CUDA_SUCCESS);
  ASSERT_EQ(access(base, 3 * kUnit, 3), CUDA_SUCCESS);
  std::memset(b->bulk(kStaging), 5, 4096);
  EXPECT_EQ(copy_to(base + 2 * kUnit - 2048, 4096), CUDA_SUCCESS)
      << "from one mapping into the next";
  EXPECT_EQ(copy_to(base + 3 * kUnit - 2048, 4096), invalid);
  EXPECT_EQ(copy_to(base + 3 * kUnit, 64), invalid);
  EXPECT_EQ(words(base + 2 * kUnit - 4, 8)[1], 0x05050505u);

  // The same handle again for what is mapped, also after the last one was released; then it holds
  // again.
  EXPECT_EQ(release(memory), CUDA_SUCCESS);
  EXPECT_EQ(release(memory), invalid);
  EXPECT_EQ(map(base + 4 * kUnit, kUnit, 0, memory), invalid);
  const auto retain = [&](uint64_t at) {
    return generic(kOpcode_cuMemRetainAllocationHandle, {raw<uint8_t>(1), raw(at)}, context);
  };
  EXPECT_EQ(retain(base + 3 * kUnit).status, invalid);
  EXPECT_EQ(retain(base + kUnit + 5).as<uint64_t>(), memory);
  Answer stored = generic(kOpcode_cuMemGetAllocationPropertiesFromHandle,
                          {raw<uint8_t>(1), raw(memory)}, context);
  EXPECT_EQ(stored.as<CUmemAllocationProp>().requestedHandleTypes,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

  EXPECT_EQ(generic(kOpcode_cuMemFree_v2, {raw(base)}, context).status, invalid);
  EXPECT_EQ(two(kOpcode_cuMemUnmap, base, kUnit), invalid) << "half of a mapping";
  EXPECT_EQ(two(kOpcode_cuMemUnmap, base + kUnit, 3 * kUnit), invalid) << "cut at its beginning";
  EXPECT_EQ(two(kOpcode_cuMemUnmap, base, 9 * kUnit), invalid) << "beyond the reservation";
  EXPECT_EQ(two(kOpcode_cuMemAddressFree, base, 8 * kUnit), invalid) << "still mapped";
  EXPECT_EQ(two(kOpcode_cuMemUnmap, base, 2 * kUnit), CUDA_SUCCESS);
  EXPECT_EQ(two(kOpcode_cuMemUnmap, base, 2 * kUnit), CUDA_SUCCESS)
      << "nothing there is as good as gone";
  EXPECT_EQ(copy_to(base, 64), invalid);
  EXPECT_EQ(copy_to(base + 2 * kUnit, 64), CUDA_SUCCESS);
  EXPECT_EQ(release(more), CUDA_SUCCESS);
  EXPECT_EQ(create(2 * kUnit, plain).status, CUDA_ERROR_OUT_OF_MEMORY)
      << "a handle holds the one, a mapping the other";
  EXPECT_EQ(release(memory), CUDA_SUCCESS);
  EXPECT_EQ(two(kOpcode_cuMemUnmap, base + 2 * kUnit, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(retain(base + 2 * kUnit).status, invalid);
  EXPECT_EQ(two(kOpcode_cuMemAddressFree, base, 7 * kUnit), invalid) << "not all of it";
  EXPECT_EQ(two(kOpcode_cuMemAddressFree, base + kUnit, 7 * kUnit), invalid);
  EXPECT_EQ(two(kOpcode_cuMemAddressFree, base, 8 * kUnit), CUDA_SUCCESS);
  EXPECT_EQ(two(kOpcode_cuMemAddressFree, base, 8 * kUnit), invalid);
  const Answer again = create(4 * kUnit, plain);
  EXPECT_EQ(again.status, CUDA_SUCCESS) << "given back";
  EXPECT_NE(again.as<uint64_t>(), memory);
}

TEST_F(WorkerProcess, AFaultSticksAndEndsDemand) {
  start();
  make_context();
  make_module();
  uint64_t d = alloc(4096).as<uint64_t>();
  uint64_t wild = function("wild", 0);
  sluice_launch l{};
  l.function = wild;
  for (int i = 0; i < 3; ++i) l.grid[i] = l.block[i] = 1;
  l.param_bytes = 8;
  b->post(SLUICE_CALL_LAUNCH, bytes({raw(l), raw(d)}), context, SLUICE_RECORD_NO_REPLY);
  launch(400, 64, d, 1000, 1);
  EXPECT_EQ(sync().status, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(sync().status, CUDA_ERROR_ILLEGAL_ADDRESS) << "again";
  EXPECT_EQ(alloc(16).status, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(b->report->header.error, static_cast<uint64_t>(CUDA_ERROR_ILLEGAL_ADDRESS));
  EXPECT_EQ(b->report->header.demand, 0u);
  EXPECT_EQ(b->report->header.in_flight, 0u);
  EXPECT_FALSE(b->ended()) << "the session lives; its GPU work does not";
}

TEST_F(WorkerProcess, BadPtxIsAnErrorWithALog) {
  start();
  make_context();
  Answer a = load(".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry x( { bogus }");
  EXPECT_NE(a.status, CUDA_SUCCESS);
  EXPECT_EQ(load("\x7f"
                 "ELF garbage")
                .status,
            CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load("").status, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(alloc(64).status, CUDA_SUCCESS) << "the session goes on";
}

// The driver is the software GPU, which runs the PTX that a test's cubin carries; what is machine
// code to the worker is launched as it is, gated, and counted as opaque.
TEST_F(WorkerProcess, MachineCodeIsOpaque) {
  if (kNvidia) GTEST_SKIP() << "no GPU has code of a test's own making";
  WorkerBench::Options o;
  o.open = false;
  start(std::move(o));
  make_context();
  const auto rewritten = passes::rewrite_module(std::string(kPtx));
  ASSERT_TRUE(rewritten.ok());
  const std::string cubin =
      CubinBuilder().kernel("add", {{0, 8}, {8, 4}, {12, 4}, {16, 4}}).ptx(rewritten->text).image();
  const Answer loaded = load(cubin);
  ASSERT_EQ(loaded.status, CUDA_SUCCESS);
  module = loaded.as<uint64_t>();
  add = function("add", SLUICE_FUNCTION_EVICTABLE);  // not true of machine code
  const uint32_t kN = 64 * kGrid;
  const uint64_t d = alloc(kN * 4).as<uint64_t>();
  launch(kGrid, 64, d, kN, 1);
  for (int i = 0; i < 2000 && b->report->header.demand == 0; ++i) ::usleep(1000);
  EXPECT_EQ(b->report->header.demand, 1u);
  EXPECT_EQ(b->report->header.in_flight, 0u) << "the gate is closed";
  b->grant();
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(b->report->header.opaque_launches, 1u);
  EXPECT_EQ(b->report->header.whole_launches, 0u) << "machine code has no clones";
  EXPECT_EQ(words(d, kN * 4)[kN - 1], advance(0, 1, kRounds));
}

TEST_F(WorkerProcess, MachineCodeThatNobodyRunsHasALog) {
  start();
  make_context();
  const std::string good = CubinBuilder().kernel("k", {{0, 8}}).image();
  const Answer refused = load(good);
  EXPECT_EQ(refused.status, CUDA_ERROR_NO_BINARY_FOR_GPU);
  const std::string log(reinterpret_cast<const char*>(refused.body.data()), refused.body.size());
  if (!kNvidia) {
    EXPECT_NE(log.find("build with PTX as well"), std::string::npos) << log;
  }
  for (size_t at = 0; at < good.size(); at += 3) {
    std::string spoilt = good;
    spoilt[at] = static_cast<char>(~spoilt[at]);
    EXPECT_NE(load(spoilt).status, CUDA_SUCCESS) << at;
    EXPECT_NE(load(good.substr(0, at)).status, CUDA_SUCCESS) << at;
  }
  EXPECT_EQ(alloc(64).status, CUDA_SUCCESS) << "the session goes on";
}

TEST_F(WorkerProcess, WhatCudaRefusesIsRefusedAsCudaDoes) {
  start();
  make_context();
  make_module();
  uint64_t d = alloc(4096).as<uint64_t>();
  auto status = [&](std::vector<std::byte> body) {
    return b->wait(b->post(SLUICE_CALL_LAUNCH, body, context)).status;
  };
  EXPECT_EQ(status(launch_body(add, 0, 64, d, 1, 1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(status(launch_body(add, 1, 0, d, 1, 1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(status(launch_body(add, 1, 5000, d, 1, 1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(status(launch_body(add, 0xffffffff, 64, d, 1, 1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(status(launch_body(add + 1, 1, 64, d, 1, 1)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(status(launch_body(add, 1, 64, d, 1, 1, 12345)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(status(launch_body(module, 1, 64, d, 1, 1)), CUDA_ERROR_INVALID_HANDLE);
  auto short_params = launch_body(add, 1, 64, d, 1, 1);
  reinterpret_cast<sluice_launch*>(short_params.data())->param_bytes = 8;
  short_params.resize(sizeof(sluice_launch) + 8);
  EXPECT_EQ(status(short_params), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_device(d + 4000, kStaging, 97), context).status,
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_device(0x7000, kStaging, 8), context).status,
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_device(reinterpret_cast<uint64_t>(&status), kStaging, 8),
                    context)
                .status,
            CUDA_ERROR_INVALID_VALUE);
  sluice_copy rows = to_device(d, kStaging, 16);
  rows.height = ~0ull;
  rows.dst_pitch = rows.src_pitch = 64;
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, rows, context).status, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_device(d, kStaging, 8), 0).status,
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_device(d, kStaging, 8), context + 1).status,
            CUDA_ERROR_INVALID_CONTEXT);
  // Nobody waits: the error comes by itself.
  b->post(SLUICE_CALL_LAUNCH, launch_body(add, 0, 64, d, 1, 1), context, SLUICE_RECORD_NO_REPLY);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(b->async_errors, std::vector<int>{CUDA_ERROR_INVALID_VALUE});
}

// Cooperative launches and clusters run the original; what the driver does not have comes as its
// error.
TEST_F(WorkerProcess, LaunchesWithAttributesRunTheOriginal) {
  start();
  make_context();
  make_module();
  const uint32_t kN = 64 * kGrid;
  uint64_t d = alloc(kN * 4).as<uint64_t>();
  zero(d, kN * 4);
  const auto status = [&](uint32_t grid, uint64_t flags) {
    auto body = launch_body(add, grid, 64, d, kN, 1);
    sluice_launch l;
    std::memcpy(&l, body.data(), sizeof l);
    l.flags = flags;
    std::memcpy(body.data(), &l, sizeof l);
    return b->wait(b->post(SLUICE_CALL_LAUNCH, body, context)).status;
  };
  EXPECT_EQ(status(4, SLUICE_LAUNCHED_COOPERATIVE), CUDA_SUCCESS);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(words(d, 1024)[255], advance(0, 1, kRounds));
  EXPECT_EQ(b->report->header.opaque_launches, 1u);
  EXPECT_TRUE(b->async_errors.empty());
  // A grid that is evictable otherwise.
  EXPECT_EQ(status(kGrid, SLUICE_LAUNCHED_COOPERATIVE), CUDA_SUCCESS)
      << "queued; the error comes later";
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(b->async_errors, std::vector<int>{CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE});
  EXPECT_EQ(status(kGrid, SLUICE_LAUNCHED_CLUSTER(2, 1, 1)), CUDA_SUCCESS);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(b->async_errors.size(), 1u);
  EXPECT_EQ(status(kGrid, SLUICE_LAUNCHED_CLUSTER(32, 1, 1)), CUDA_SUCCESS);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(b->async_errors.size(), 2u);
  EXPECT_EQ(b->async_errors.back(), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(b->report->header.opaque_launches, 4u);
  EXPECT_EQ(b->report->header.whole_launches, 0u);
  EXPECT_EQ(status(kGrid, SLUICE_LAUNCHED_AT_ONCE), CUDA_SUCCESS);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(b->report->header.opaque_launches, 5u);
  EXPECT_EQ(b->report->header.whole_launches, 1u) << "its kernel could be evicted";
  for (uint64_t flags : {uint64_t{4}, uint64_t{0x8000}, SLUICE_LAUNCHED_CLUSTER(2, 0, 1),
                         SLUICE_LAUNCHED_CLUSTER(0, 1, 1), SLUICE_LAUNCHED_CLUSTER(1, 1, 0)}) {
    EXPECT_EQ(status(4, flags), CUDA_ERROR_INVALID_VALUE) << flags;
  }
}

TEST_F(WorkerProcess, WhatKernelsPrintComesBeforeTheAnswer) {
  start();
  make_context();
  const std::string line(100, 'x');
  const std::string ptx = R"(.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 one[8] = {98, 32, 37, 100, 10, 0, 0, 0};
.global .align 1 .b8 long[104] = {)" +
                          [&] {
                            std::string bytes;
                            for (char c : line) bytes += std::to_string(static_cast<int>(c)) + ", ";
                            return bytes + "10, 0, 0, 0";
                          }() +
                          R"(};
.visible .entry prints(.param .u64 at, .param .u32 n, .param .u32 k, .param .u32 r)
{
  .local .align 8 .b8 room[8];
  .reg .b32 %r<4>; .reg .b64 %d<5>; .reg .pred %p<2>;
  ld.param.u32 %r2, [k];
  mov.u32 %r1, %ctaid.x;
  mov.u64 %d1, room; cvta.local.u64 %d2, %d1;
  st.local.u32 [%d1], %r1;
  setp.eq.u32 %p1, %r2, 0;
  mov.u64 %d3, one;
  @%p1 bra plain;
  mov.u64 %d3, long;
plain:
  cvta.global.u64 %d4, %d3;
  { .param .b64 f; st.param.b64 [f], %d4; .param .b64 a; st.param.b64 [a], %d2; .param .b32 v;
    call.uni (v), vprintf, (f, a); }
  ret;
}
)";
  Answer a = load(ptx);
  ASSERT_EQ(a.status, CUDA_SUCCESS)
      << std::string(reinterpret_cast<const char*>(a.body.data()), a.body.size());
  module = a.as<uint64_t>();
  add = function("prints", 0);
  launch(1, 1, 0, 0, 0);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(b->printed, "b 0\n");
  launch(1, 1, 0, 0, 0);
  launch(1, 1, 0, 0, 0);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(b->printed, "b 0\nb 0\nb 0\n");
  // More than is kept: the kernel ends all the same, and what is lost is said.
  b->printed.clear();
  launch(12000, 1, 0, 0, 1);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_GT(b->printed.size(), size_t{1} << 20);
  EXPECT_EQ(b->printed.compare(0, 101, line + "\n"), 0);
  if (!kNvidia) {
    EXPECT_NE(b->printed.find(std::to_string(12000 * 101 - (1 << 20)) +
                              " bytes that kernels printed are lost"),
              std::string::npos);
  }
}

TEST_F(WorkerProcess, WhatAssertionsSayComesBeforeTheirError) {
  start();
  make_context();
  const Answer a = load(R"(.version 7.0
.target sm_70
.address_size 64
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n,
.param .b64 s);
.global .align 1 .b8 text[2] = {116, 0};
.visible .entry fails(.param .u64 at, .param .u32 n, .param .u32 k, .param .u32 r)
{
  .reg .b64 %d<3>;
  mov.u64 %d1, text; cvta.global.u64 %d2, %d1;
  { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;
    st.param.b64 [m], %d2; st.param.b64 [f], %d2; st.param.b32 [l], 7; st.param.b64 [n], %d2;
    st.param.b64 [s], 1; call.uni __assertfail, (m, f, l, n, s); }
  ret;
}
)");
  ASSERT_EQ(a.status, CUDA_SUCCESS);
  module = a.as<uint64_t>();
  add = function("fails", 0);
  launch(1, 1, 0, 0, 0);
  EXPECT_EQ(sync().status, CUDA_ERROR_ASSERT);
  EXPECT_EQ(b->printed, "");
  EXPECT_NE(b->complained.find("t:7: t: block: [0,0,0], thread: [0,0,0] Assertion `t` failed.\n"),
            std::string::npos)
      << b->complained;
}

TEST_F(WorkerProcess, ExtentsAreAllocatedUsedAndFreed) {
  start();
  make_context();
  uint64_t d = alloc(1 << 20).as<uint64_t>();
  Answer a = b->call(SLUICE_CALL_EXTENT_ALLOC, sluice_extent{3 << 20}, context);
  ASSERT_EQ(a.status, 0);
  sluice_bulk e = a.as<sluice_bulk>();
  EXPECT_EQ(e.bytes, 4u << 20);
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_device(d, e.offset, 1 << 20), context).status, 0);
  EXPECT_EQ(b->call(SLUICE_CALL_EXTENT_ALLOC, sluice_extent{1ull << 40}, context).status,
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(b->call(SLUICE_CALL_EXTENT_FREE, sluice_bulk{e.offset, 2 << 20}, context).status,
            CUDA_ERROR_INVALID_VALUE);
  // Another size, within it, around it, of nobody, of all, the staging buffer's, beyond any region.
  const uint64_t offset = e.offset, bytes = e.bytes, most = UINT64_MAX;
  for (const sluice_bulk& other :
       {sluice_bulk{offset, 2 << 20}, sluice_bulk{offset, 0}, sluice_bulk{offset, bytes + 1},
        sluice_bulk{offset, most}, sluice_bulk{offset, most - offset + 1},
        sluice_bulk{offset + (2 << 20), 2 << 20},
        sluice_bulk{offset - (2 << 20), bytes + (2 << 20)}, sluice_bulk{offset + 1, bytes},
        sluice_bulk{0, 0}, sluice_bulk{0, most}, sluice_bulk{most, 2},
        sluice_bulk{most - (2 << 20) + 1, 2 << 20},
        sluice_bulk{kStaging, WorkerBench::kStagingBytes}})
    EXPECT_EQ(b->call(SLUICE_CALL_EXTENT_FREE, other, context).status, CUDA_ERROR_INVALID_VALUE)
        << other.offset << " " << other.bytes;
  for (const uint64_t size : {uint64_t{0}, most, most - (2 << 20) + 2})
    EXPECT_NE(b->call(SLUICE_CALL_EXTENT_ALLOC, sluice_extent{size}, context).status, 0) << size;
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_device(d, e.offset, 1 << 20), context).status, 0);
  EXPECT_EQ(b->call(SLUICE_CALL_EXTENT_FREE, e, context).status, 0);
  EXPECT_EQ(b->call(SLUICE_CALL_EXTENT_FREE, e, context).status, CUDA_ERROR_INVALID_VALUE);
  b->post(SLUICE_CALL_COPY, to_device(d, e.offset, 16), context);
  expect_violation("bulk range");
}

// A wait that has a number may have the GPU write it; the answer comes all the same.
TEST_F(WorkerProcess, TheGpuWritesEndWords) {
  start();
  make_context();
  make_module();
  const uint64_t d = alloc(4096).as<uint64_t>();
  const uint64_t at = sluice_end_word_offset(kStaging, WorkerBench::kStagingBytes);
  const auto& written = *reinterpret_cast<const uint32_t*>(b->bulk(at));
  const uint32_t what[] = {SLUICE_SYNC_STREAM, SLUICE_SYNC_CONTEXT};
  uint32_t number = 0, seen = 0, last = 0;
  // A launch may have ended before the wait comes; then there is no word. It may come behind the
  // answer, too.
  while (number < 2000 && seen < 10) {
    ++number;
    launch(1, 64, d, 64, 1);
    const uint64_t id =
        b->post(SLUICE_CALL_SYNCHRONIZE, sluice_synchronize{what[number % 2], number, 0}, context);
    EXPECT_EQ(b->wait(id).status, CUDA_SUCCESS);
    const uint32_t word = load_shared(written);
    ASSERT_LE(word, number);
    if (word != last) ++seen;
    last = word;
  }
  EXPECT_EQ(seen, 10u);
  // Not where nothing is queued, and no word has any other effect.
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  ::usleep(10'000);
  const uint32_t before = load_shared(written);
  EXPECT_EQ(b->call(SLUICE_CALL_SYNCHRONIZE, sluice_synchronize{SLUICE_SYNC_CONTEXT, 0xfffffffe, 0},
                    context)
                .status,
            CUDA_SUCCESS);
  EXPECT_EQ(load_shared(written), before);
}

TEST_F(WorkerProcess, HostFunctionsAndQueries) {
  start();
  make_context();
  uint64_t d = alloc(4096).as<uint64_t>();
  uint64_t fn =
      b->post(SLUICE_CALL_HOST_FUNC, sluice_synchronize{SLUICE_SYNC_STREAM, 0, 0}, context);
  b->post(SLUICE_CALL_COPY, to_device(d, kStaging, 64, 0), context, SLUICE_RECORD_NO_REPLY);
  EXPECT_EQ(b->wait(fn).status, CUDA_SUCCESS);
  auto query = [&] {
    return b->call(SLUICE_CALL_QUERY, sluice_synchronize{SLUICE_SYNC_STREAM, 0, 0}, context).status;
  };
  EXPECT_EQ(query(), CUDA_ERROR_NOT_READY);
  b->post(SLUICE_CALL_HOST_FUNC_DONE, fn, context, SLUICE_RECORD_NO_REPLY);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(query(), CUDA_SUCCESS);
}

TEST_F(WorkerProcess, WithoutSluicedAQuietProgramIsTakenForEnded) {
  WorkerBench::Options o;
  o.environment.push_back("SLUICE_WORKER_ORPHAN_MS=100");
  start(std::move(o));
  make_context();
  b->hang_up();
  EXPECT_EQ(b->wait_exit(), 0);
  EXPECT_TRUE(b->ended());
  EXPECT_NE(std::string(b->slot->reason).find("sluiced is gone"), std::string::npos)
      << b->slot->reason;
}

TEST_F(WorkerProcess, EndIsObeyed) {
  start();
  make_context();
  b->end(CUDA_ERROR_LAUNCH_TIMEOUT, "it did not leave");
  EXPECT_EQ(b->wait_exit(), 0);
  EXPECT_TRUE(b->ended());
  EXPECT_EQ(b->slot->error, CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_STREQ(b->slot->reason, "it did not leave");
}

}  // namespace
}  // namespace sluice::test
