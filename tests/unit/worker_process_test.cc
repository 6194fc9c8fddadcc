// A real sluice-worker on the software GPU: calls, launches under eviction, quotas, and everything
// that a hostile or broken program can put into its ring.
#include <gtest/gtest.h>
#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "kernels/passes/rewrite.h"
#include "tests/support/worker_bench.h"

namespace sluice::test {
namespace {

using namespace calls;

// `rounds` times out[i] = out[i] * 3 + k, one thread per element; many small blocks.
constexpr char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 p_out, .param .u32 p_n, .param .u32 p_k, .param .u32 p_rounds)
{
	.reg .pred %p<3>;
	.reg .b32 %r<10>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [p_out];
	ld.param.u32 %r1, [p_n];
	ld.param.u32 %r8, [p_k];
	ld.param.u32 %r9, [p_rounds];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.u32 %r5, %r2, %r3, %r4;
	setp.ge.u32 %p1, %r5, %r1;
	@%p1 bra DONE;
	cvta.to.global.u64 %rd2, %rd1;
	mul.wide.u32 %rd3, %r5, 4;
	add.u64 %rd4, %rd2, %rd3;
	ld.global.u32 %r6, [%rd4];
AGAIN:
	mul.lo.u32 %r6, %r6, 3;
	add.u32 %r6, %r6, %r8;
	sub.u32 %r9, %r9, 1;
	setp.ne.u32 %p2, %r9, 0;
	@%p2 bra AGAIN;
	st.global.u32 [%rd4], %r6;
DONE:
	ret;
}
.visible .entry wild(.param .u64 p_out)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<3>;
	mov.u64 %rd1, 64;
	mov.u32 %r1, 1;
	st.global.u32 [%rd1], %r1;
	ret;
}
.visible .global .align 4 .u32 counter = 7;
)";

// SLUICE_TEST_LIBRARY=libcuda.so.1 runs the same tests on an NVIDIA GPU (by hand; SLUICE_TEST_WORKER
// then says where the worker is).
const char* from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}
const bool kNvidia = std::getenv("SLUICE_TEST_LIBRARY") != nullptr;
// A grid several times as large as what is resident, of launches long enough to be evicted within.
const uint32_t kGrid = kNvidia ? 20000 : 400;
const uint32_t kRounds = kNvidia ? 20000 : 1;

// What `rounds` rounds with `k` make of a value: a map v -> v * factor + adds.
uint32_t advance(uint32_t v, uint32_t k, uint32_t rounds) {
  uint32_t factor = 1, adds = 0, f = 3, a = k;
  for (; rounds; rounds >>= 1, a = a * f + a, f *= f) {
    if (rounds & 1) {
      adds = adds * f + a;
      factor *= f;
    }
  }
  return v * factor + adds;
}

class WorkerProcess : public testing::Test {
 protected:
  void start(WorkerBench::Options options = {}) {
    options.environment.push_back("SLUICE_SOFT_MEMORY=256M");
    options.nvidia = kNvidia;
    b = std::make_unique<WorkerBench>(
        from_environment("SLUICE_TEST_WORKER", SLUICE_TEST_WORKER),
        from_environment("SLUICE_TEST_LIBRARY", SLUICE_TEST_SOFTCUDA), std::move(options));
    ASSERT_EQ(b->ready.code, 0) << b->ready.text;
  }
  std::vector<std::byte> bytes(std::initializer_list<std::vector<std::byte>> parts) {
    std::vector<std::byte> all;
    for (const auto& p : parts) all.insert(all.end(), p.begin(), p.end());
    return all;
  }
  template <class T>
  std::vector<std::byte> raw(T v) {
    std::vector<std::byte> out(sizeof v);
    std::memcpy(out.data(), &v, sizeof v);
    return out;
  }
  Answer generic(uint16_t opcode, std::initializer_list<std::vector<std::byte>> parts,
                 uint64_t ctx = 0) {
    auto body = bytes(parts);
    return b->wait(b->post(opcode, body, ctx));
  }
  void make_context() {
    Answer a = generic(kOpcode_cuDevicePrimaryCtxRetain, {raw<uint8_t>(1), raw<int>(0)});
    ASSERT_EQ(a.status, CUDA_SUCCESS);
    context = a.as<uint64_t>();
  }
  Answer alloc(uint64_t n) {
    return generic(kOpcode_cuMemAlloc_v2, {raw<uint8_t>(1), raw<uint64_t>(n)}, context);
  }
  Answer load(const std::string& text) {
    sluice_module_load m{};
    m.inline_bytes = static_cast<uint32_t>(text.size());
    m.log_bytes = 1024;
    std::vector<std::byte> t(text.size());
    std::memcpy(t.data(), text.data(), t.size());
    auto body = bytes({raw(m), t});
    return b->wait(b->post(SLUICE_CALL_MODULE_LOAD, body, context));
  }
  void make_module() {
    auto rewritten = passes::rewrite_module(std::string(kPtx));
    ASSERT_TRUE(rewritten.ok());
    for (const auto& k : rewritten->kernels) {
      if (k.name == "add") {
        ASSERT_TRUE(k.evictable) << k.reason;
        report = k;
      }
    }
    Answer a = load(rewritten->text);
    ASSERT_EQ(a.status, CUDA_SUCCESS)
        << std::string(reinterpret_cast<const char*>(a.body.data()), a.body.size());
    module = a.as<uint64_t>();
    add = function("add", SLUICE_FUNCTION_EVICTABLE,
                   static_cast<uint32_t>(report.param_offset_of_block));
  }
  uint64_t function(const std::string& name, uint32_t flags, uint32_t offset) {
    sluice_function_get g{};
    g.module = module;
    g.flags = flags;
    g.name_bytes = static_cast<uint32_t>(name.size());
    g.params_offset = offset;
    std::vector<std::byte> t(name.size());
    std::memcpy(t.data(), name.data(), t.size());
    auto body = bytes({raw(g), t});
    Answer a = b->wait(b->post(SLUICE_CALL_FUNCTION_GET, body, context));
    EXPECT_EQ(a.status, CUDA_SUCCESS);
    return a.as<sluice_function_reply>().handle;
  }
  std::vector<std::byte> launch_body(uint64_t fn, uint32_t grid, uint32_t block, uint64_t out,
                                     uint32_t n, uint32_t k, uint64_t stream = 0,
                                     uint32_t rounds = kRounds) {
    sluice_launch l{};
    l.function = fn;
    l.stream = stream;
    l.grid[0] = grid;
    l.grid[1] = l.grid[2] = 1;
    l.block[0] = block;
    l.block[1] = l.block[2] = 1;
    l.param_bytes = 20;
    return bytes({raw(l), raw(out), raw(n), raw(k), raw(rounds)});
  }
  void launch(uint32_t grid, uint32_t block, uint64_t out, uint32_t n, uint32_t k,
              uint64_t stream = 0) {
    b->post(SLUICE_CALL_LAUNCH, launch_body(add, grid, block, out, n, k, stream), context,
            SLUICE_RECORD_NO_REPLY);
  }
  Answer sync(uint64_t ms = 60000) {
    return b->wait(b->post(SLUICE_CALL_SYNCHRONIZE, sluice_synchronize{SLUICE_SYNC_CONTEXT, 0, 0},
                           context),
                   ms);
  }
  sluice_copy to_device(uint64_t dst, uint64_t offset, uint64_t n, uint32_t wait = 1) {
    sluice_copy c{};
    c.dst = dst;
    c.src = offset;
    c.width = n;
    c.height = 1;
    c.dst_kind = SLUICE_COPY_DEVICE;
    c.src_kind = SLUICE_COPY_BULK;
    c.wait = wait;
    return c;
  }
  sluice_copy to_host(uint64_t offset, uint64_t src, uint64_t n, uint32_t wait = 1) {
    sluice_copy c{};
    c.dst = offset;
    c.src = src;
    c.width = n;
    c.height = 1;
    c.dst_kind = SLUICE_COPY_BULK;
    c.src_kind = SLUICE_COPY_DEVICE;
    c.wait = wait;
    return c;
  }
  // The session has ended with a reason that both sides can read, and the worker has exited cleanly.
  void expect_violation(const char* part) {
    EXPECT_EQ(b->wait_exit(), 0);
    EXPECT_TRUE(b->ended());
    EXPECT_NE(b->slot->error, 0);
    EXPECT_NE(std::string(b->slot->reason).find(part), std::string::npos) << b->slot->reason;
    for (int i = 0; i < 200 && !b->has_ended_message; ++i) ::usleep(10000);
    EXPECT_TRUE(b->has_ended_message);
  }

  std::unique_ptr<WorkerBench> b;
  uint64_t context = 0, module = 0, add = 0;
  passes::KernelReport report;
};

constexpr uint64_t kStaging = WorkerBench::kStaging;

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
  EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_host(kStaging + (2 << 20), d, 1 << 20), context).status, 0);
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

TEST_F(WorkerProcess, ChainsOfLaunchesSurviveEvictions) {
  start();
  make_context();
  make_module();
  const uint32_t kN = 64 * kGrid;
  uint64_t d = alloc(kN * 4).as<uint64_t>();
  auto* data = reinterpret_cast<uint32_t*>(b->bulk(kStaging));
  std::vector<uint32_t> expected(kN);
  for (uint32_t i = 0; i < kN; ++i) data[i] = expected[i] = i;
  // Each step depends on the one before: order and exactly-once both show in the result.
  b->post(SLUICE_CALL_COPY, to_device(d, kStaging, kN * 4, 0), context, SLUICE_RECORD_NO_REPLY);
  constexpr int kLaunches = 60;
  for (int k = 0; k < kLaunches; ++k) {
    launch(kGrid, 64, d, kN, static_cast<uint32_t>(k));
    if (k % 20 == 10) {  // a copy between launches
      b->post(SLUICE_CALL_COPY, to_host(kStaging + (8 << 20), d, kN * 4, 0), context,
              SLUICE_RECORD_NO_REPLY);
      b->post(SLUICE_CALL_COPY, to_device(d, kStaging + (8 << 20), kN * 4, 0), context,
              SLUICE_RECORD_NO_REPLY);
    }
  }
  uint64_t done = b->post(SLUICE_CALL_SYNCHRONIZE,
                          sluice_synchronize{SLUICE_SYNC_CONTEXT, 0, 0}, context);
  int evictions = 0;
  std::vector<uint64_t> latencies_us;
  while (__atomic_load_n(&b->report->header.launches_done, __ATOMIC_RELAXED) < kLaunches &&
         evictions < 400) {
    ::usleep(500 + evictions * 13 % 2000);
    const uint64_t from = monotonic_ns();
    b->take_back();
    ASSERT_TRUE(b->wait_left());
    latencies_us.push_back((monotonic_ns() - from) / 1000);
    ++evictions;
    b->grant();
  }
  Answer a = b->wait(done, 120000);
  for (int k = 0; k < kLaunches; ++k) {
    for (auto& v : expected) v = advance(v, static_cast<uint32_t>(k), kRounds);
  }
  std::sort(latencies_us.begin(), latencies_us.end());
  // For people; nothing is asserted on time.
  std::printf("%zu evictions, %lu launches put back; until left: median %lu us, longest %lu us\n",
              latencies_us.size(), b->report->header.evictions,
              latencies_us.empty() ? 0 : latencies_us[latencies_us.size() / 2],
              latencies_us.empty() ? 0 : latencies_us.back());
  ASSERT_EQ(a.status, CUDA_SUCCESS);
  ASSERT_EQ(b->call(SLUICE_CALL_COPY, to_host(kStaging, d, kN * 4), context).status, 0);
  EXPECT_EQ(std::memcmp(data, expected.data(), kN * 4), 0);
  EXPECT_GT(b->report->header.evictions, 0u);
  EXPECT_GT(b->report->header.relaunches, 0u);
  EXPECT_EQ(b->report->header.opaque_launches, 0u);
  EXPECT_EQ(b->report->header.demand, 0u);
  EXPECT_EQ(b->report->header.in_flight, 0u);
  EXPECT_TRUE(b->async_errors.empty());
}

TEST_F(WorkerProcess, SmallGridsAreOpaqueAndRight) {
  start();
  make_context();
  make_module();
  uint64_t d = alloc(4096).as<uint64_t>();
  std::memset(b->bulk(kStaging), 0, 4096);
  b->call(SLUICE_CALL_COPY, to_device(d, kStaging, 4096), context);
  for (uint32_t k = 0; k < 5; ++k) launch(4, 64, d, 256, k);
  ASSERT_EQ(sync().status, CUDA_SUCCESS);
  b->call(SLUICE_CALL_COPY, to_host(kStaging, d, 4096), context);
  uint32_t expected = 0;
  for (uint32_t k = 0; k < 5; ++k) expected = advance(expected, k, kRounds);
  EXPECT_EQ(reinterpret_cast<uint32_t*>(b->bulk(kStaging))[255], expected);
  EXPECT_EQ(b->report->header.opaque_launches, 5u);
}

TEST_F(WorkerProcess, EventsOrderStreams) {
  start();
  make_context();
  make_module();
  const uint32_t kN = 64 * kGrid;
  uint64_t d = alloc(kN * 4).as<uint64_t>();
  std::memset(b->bulk(kStaging), 0, kN * 4);
  b->call(SLUICE_CALL_COPY, to_device(d, kStaging, kN * 4), context);
  uint64_t streams[2], event;
  for (auto& s : streams)
    s = generic(kOpcode_cuStreamCreate, {raw<uint8_t>(1), raw<uint32_t>(1)}, context).as<uint64_t>();
  event = generic(kOpcode_cuEventCreate, {raw<uint8_t>(1), raw<uint32_t>(0)}, context).as<uint64_t>();
  uint32_t expected = 0;
  for (uint32_t k = 0; k < 20; ++k) {
    launch(kGrid, 64, d, kN, k, streams[k % 2]);
    expected = advance(expected, k, kRounds);
    b->post(SLUICE_CALL_EVENT_RECORD, sluice_stream_event{streams[k % 2], event, 0}, context,
            SLUICE_RECORD_NO_REPLY);
    b->post(SLUICE_CALL_STREAM_WAIT, sluice_stream_event{streams[1 - k % 2], event, 0}, context,
            SLUICE_RECORD_NO_REPLY);
    if (k % 4 == 1) {
      b->take_back();
      ASSERT_TRUE(b->wait_left());
      b->grant();
    }
  }
  Answer a = b->call(SLUICE_CALL_SYNCHRONIZE, sluice_synchronize{SLUICE_SYNC_EVENT, 0, event}, context);
  EXPECT_EQ(a.status, CUDA_SUCCESS);
  b->call(SLUICE_CALL_COPY, to_host(kStaging, d, kN * 4), context);
  for (uint32_t i : {0u, kN / 2, kN - 1})
    EXPECT_EQ(reinterpret_cast<uint32_t*>(b->bulk(kStaging))[i], expected);
}

TEST_F(WorkerProcess, AClosedGateHoldsLaunchesAndAStaleMediatorOpensIt) {
  WorkerBench::Options o;
  o.open = false;
  start(o);
  make_context();
  make_module();
  uint64_t d = alloc(64 * kGrid * 4).as<uint64_t>();
  launch(kGrid, 64, d, 64 * kGrid, 1);
  EXPECT_EQ(sync(500).status, -1) << "it ran through a closed gate";
  EXPECT_EQ(b->report->header.demand, 1u);
  b->stop_beating();  // from here on sluiced is dead
  for (int i = 0; i < 600 && b->report->header.demand != 0; ++i) ::usleep(20000);
  EXPECT_EQ(b->report->header.demand, 0u);
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

TEST_F(WorkerProcess, AFaultSticksAndEndsDemand) {
  start();
  make_context();
  make_module();
  uint64_t d = alloc(4096).as<uint64_t>();
  uint64_t wild = function("wild", 0, 0);
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
  EXPECT_EQ(load("\x7f" "ELF garbage").status, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load("").status, CUDA_ERROR_INVALID_IMAGE);
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
                    context).status, CUDA_ERROR_INVALID_VALUE);
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
  EXPECT_EQ(b->call(SLUICE_CALL_EXTENT_FREE, e, context).status, 0);
  b->post(SLUICE_CALL_COPY, to_device(d, e.offset, 16), context);
  expect_violation("bulk range");
}

TEST_F(WorkerProcess, HostFunctionsAndQueries) {
  start();
  make_context();
  uint64_t d = alloc(4096).as<uint64_t>();
  uint64_t fn = b->post(SLUICE_CALL_HOST_FUNC, sluice_synchronize{SLUICE_SYNC_STREAM, 0, 0}, context);
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

TEST_F(WorkerProcess, EndIsObeyed) {
  start();
  make_context();
  b->end(CUDA_ERROR_LAUNCH_TIMEOUT, "it did not leave");
  EXPECT_EQ(b->wait_exit(), 0);
  EXPECT_TRUE(b->ended());
  EXPECT_EQ(b->slot->error, CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_STREQ(b->slot->reason, "it did not leave");
}

// --- what breaks the protocol ends the session with a reason, and nothing else ---

TEST_F(WorkerProcess, UnknownOpcode) {
  start();
  b->post(0x7777, uint64_t{0});
  expect_violation("unknown opcode");
}
TEST_F(WorkerProcess, UnknownGenericOpcode) {
  start();
  b->post(0x0fff, uint64_t{0});
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
      {SLUICE_CALL_HOST_FUNC_DONE, 8},
      {kOpcode_cuMemFree_v2, 8},
      {kOpcode_cuStreamDestroy_v2, 8},
      {kOpcode_cuEventDestroy_v2, 8},
      {kOpcode_cuModuleUnload, 8},
      {kOpcode_cuCtxDestroy_v2, 8},
      {kOpcode_cuMemFreeAsync, 16}};
  int lived = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    start();
    make_context();
    make_module();
    const uint64_t d = alloc(4096).as<uint64_t>();
    const uint64_t stream =
        generic(kOpcode_cuStreamCreate, {raw<uint8_t>(1), raw<uint32_t>(1)}, context).as<uint64_t>();
    const uint64_t event =
        generic(kOpcode_cuEventCreate, {raw<uint8_t>(1), raw<uint32_t>(0)}, context).as<uint64_t>();
    const uint64_t values[] = {0,      1,     2,     4,       16,  64,         d,    d + 8, context,
                               module, add,   event, stream,  512, kStaging,   4096, 0,     1,
                               ~0ull,  1ull << 32 | 1,        0x4000000040ull, 1ull << 63};
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
