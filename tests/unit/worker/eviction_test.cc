// SPDX-License-Identifier: Apache-2.0
// A real sluice-worker on the software GPU: launches under eviction and at a closed gate.
#include <algorithm>
#include <random>
#include <tuple>

#include "tests/unit/worker/eviction.h"

namespace sluice::test {
namespace {

TEST_F(WorkerEviction, ChainsOfLaunchesSurviveEvictions) { chain_under_evictions({}, 60); }

// Every way for the evict word to reach the blocks, adaptive and with FLEP's amortising factor.
class WorkerSignals : public WorkerEviction,
                      public testing::WithParamInterface<std::tuple<wp::Signal, uint32_t>> {};

TEST_P(WorkerSignals, ChainsOfLaunchesSurviveEvictions) {
  WorkerBench::Options o;
  std::tie(o.signal, o.fixed_chunk) = GetParam();
  chain_under_evictions(std::move(o), 20);
}

INSTANTIATE_TEST_SUITE_P(All, WorkerSignals,
                         testing::Combine(testing::Values(wp::Signal::kHost, wp::Signal::kProxy,
                                                          wp::Signal::kWrite, wp::Signal::kCopy),
                                          testing::Values(0u, 1u, 10u)),
                         [](const auto& test) {
                           std::string name(
                               wp::kSignalNames[static_cast<size_t>(std::get<0>(test.param))]);
                           std::erase(name, '-');
                           return name + std::to_string(std::get<1>(test.param));
                         });

TEST_F(WorkerEviction, AContextMadeAfterAnEvictionHearsOfTheNext) {
  for (wp::Signal signal : {wp::Signal::kWrite, wp::Signal::kCopy}) {
    WorkerBench::Options o;
    o.signal = signal;
    start(o);
    for (int i = 0; i < 3; ++i) {  // generations that nothing was launched under
      b->take_back();
      ASSERT_TRUE(b->wait_left());
      b->grant();
    }
    make_context();
    make_module();
    const uint32_t kN = 64 * kGrid;
    uint64_t d = alloc(kN * 4).as<uint64_t>();
    zero(d, kN * 4);
    uint32_t expected = 0, k = 0;
    // Several launches at a time and ever other pauses, so that on any machine some store meets one
    // that runs.
    for (uint32_t round = 0; round < 300 && b->report->header.evictions == 0; ++round) {
      for (const uint32_t end = k + 6; k < end; ++k) {
        launch(kGrid, 64, d, kN, k);
        expected = advance(expected, k, kRounds);
      }
      ::usleep(round % 16 * 100);
      b->take_back();
      ASSERT_TRUE(b->wait_left());
      b->grant();
    }
    ASSERT_EQ(sync().status, CUDA_SUCCESS);
    EXPECT_GT(b->report->header.evictions, 0u);
    const uint32_t* got = words(d, kN * 4);
    for (uint32_t i : {0u, kN / 2, kN - 1}) EXPECT_EQ(got[i], expected);
  }
}

// Chains in many streams of two contexts, in random order, all evicted at once, again and again.
// Where a stream waits for another's event, its next launch continues the other's numbers.
TEST_F(WorkerEviction, ManyStreamsAreEvictedAtOnce) {
  for (wp::Signal signal : {wp::Signal::kHost, wp::Signal::kProxy, wp::Signal::kWrite}) {
    SCOPED_TRACE(wp::kSignalNames[static_cast<size_t>(signal)]);
    WorkerBench::Options o;
    o.signal = signal;
    start(o);
    std::mt19937 random(static_cast<unsigned>(signal) + 1);
    const uint32_t kN = 64 * kGrid / 4;
    constexpr int kStreams = 6;
    struct Context {
      uint64_t handle, module, add, streams[kStreams], event, data[kStreams];
      uint32_t expected[kStreams];
    } contexts[2];
    for (int c = 0; c < 2; ++c) {
      Context& x = contexts[c];
      if (c == 0) {
        make_context();
      } else {
        Answer a =
            generic(kOpcode_cuCtxCreate_v2, {raw<uint8_t>(1), raw<uint32_t>(0), raw<int>(0)});
        ASSERT_EQ(a.status, CUDA_SUCCESS);
        context = a.as<uint64_t>();
      }
      make_module();
      x = {context, module, add, {}, 0, {}, {}};
      x.event = generic(kOpcode_cuEventCreate, {raw<uint8_t>(1), raw<uint32_t>(2)}, context)
                    .as<uint64_t>();
      std::memset(b->bulk(kStaging), 0, kN * 4);
      for (int s = 0; s < kStreams; ++s) {
        // Two of them CUDA's own, one blocking, the rest not.
        x.streams[s] = s < 2 ? static_cast<uint64_t>(2 * s)
                             : generic(kOpcode_cuStreamCreate,
                                       {raw<uint8_t>(1), raw<uint32_t>(s == 2 ? 0 : 1)}, context)
                                   .as<uint64_t>();
        x.data[s] = alloc(kN * 4).as<uint64_t>();
        x.expected[s] = 0;
        ASSERT_EQ(b->call(SLUICE_CALL_COPY, to_device(x.data[s], kStaging, kN * 4), context).status,
                  0);
      }
    }
    constexpr int kLaunches = 120;
    for (uint32_t k = 0; k < kLaunches; ++k) {
      Context& x = contexts[random() % 2];
      const auto s = random() % kStreams;
      auto d = s;
      if (random() % 4 == 0) {  // goes on where another stream has got to, and that one after it
        d = random() % kStreams;
        const auto hand_over = [&](uint64_t from, uint64_t to) {
          b->post(SLUICE_CALL_EVENT_RECORD, sluice_stream_event{from, x.event, 0}, x.handle,
                  SLUICE_RECORD_NO_REPLY);
          b->post(SLUICE_CALL_STREAM_WAIT, sluice_stream_event{to, x.event, 0}, x.handle,
                  SLUICE_RECORD_NO_REPLY);
        };
        hand_over(x.streams[d], x.streams[s]);
        b->post(SLUICE_CALL_LAUNCH,
                launch_body(x.add, kGrid / 4, 64, x.data[d], kN, k, x.streams[s]), x.handle,
                SLUICE_RECORD_NO_REPLY);
        hand_over(x.streams[s], x.streams[d]);
      } else {
        b->post(SLUICE_CALL_LAUNCH,
                launch_body(x.add, kGrid / 4, 64, x.data[d], kN, k, x.streams[s]), x.handle,
                SLUICE_RECORD_NO_REPLY);
      }
      x.expected[d] = advance(x.expected[d], k, kRounds);
      if (k % 10 == 9) {
        ::usleep(static_cast<unsigned>(random() % 3000));
        b->take_back();
        ASSERT_TRUE(b->wait_left());
        b->grant();
      }
    }
    for (int i = 0; i < 100 && b->report->header.demand != 0; ++i) {
      ::usleep(static_cast<unsigned>(random() % 3000));
      b->take_back();
      ASSERT_TRUE(b->wait_left());
      b->grant();
    }
    for (Context& x : contexts) {
      context = x.handle;
      ASSERT_EQ(sync().status, CUDA_SUCCESS);
      for (int s = 0; s < kStreams; ++s) {
        const uint32_t* values = words(x.data[s], kN * 4);
        EXPECT_EQ(std::count(values, values + kN, x.expected[s]), kN) << "stream " << s;
      }
    }
    EXPECT_GT(b->report->header.evictions, 0u);
    EXPECT_EQ(b->report->header.launches_done, static_cast<uint64_t>(kLaunches));
    EXPECT_TRUE(b->async_errors.empty());
  }
}

// A clone that its loop's registers keep from fitting with so large blocks at all: in its clamped
// form it is evictable (mediator/worker/launch/plan/register_clamp.h).
TEST_F(WorkerEviction, AClampedCloneIsEvictedAndGoesOn) {
  if (kNvidia) GTEST_SKIP() << "the software GPU's estimate of registers";
  start();
  make_context();
  constexpr int kLive = 48;
  std::string text =
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".visible .entry add(.param .u64 p_out, .param .u32 p_n, .param .u32 p_k, .param .u32 "
      "p_rounds)\n"
      "{\n.reg .b64 %rd<4>;\n.reg .b32 %r<60>;\nld.param.u64 %rd1, [p_out];\n"
      "mov.u32 %r57, %ctaid.x;\nmov.u32 %r58, %ntid.x;\nmov.u32 %r59, %tid.x;\n"
      "mad.lo.u32 %r57, %r57, %r58, %r59;\nmul.wide.u32 %rd2, %r57, 4;\nadd.u64 %rd1, %rd1, "
      "%rd2;\n";
  for (int i = 1; i <= kLive; ++i)
    text += "ld.volatile.global.u32 %r" + std::to_string(i) + ", [%rd1];\n";
  for (int i = 2; i <= kLive; ++i) text += "add.u32 %r1, %r1, %r" + std::to_string(i) + ";\n";
  text += "st.global.u32 [%rd1], %r1;\nret;\n}\n";
  auto rewritten = passes::rewrite_module(text);
  ASSERT_TRUE(rewritten.ok());
  ASSERT_TRUE(rewritten->kernels[0].evictable) << rewritten->kernels[0].reason;
  Answer a = load(rewritten->text);
  ASSERT_EQ(a.status, CUDA_SUCCESS);
  module = a.as<uint64_t>();
  add = function("add", SLUICE_FUNCTION_EVICTABLE);
  constexpr uint32_t kBlocks = 40, kN = kBlocks * 1024;
  uint64_t d = alloc(kN * 4).as<uint64_t>();
  auto* values = reinterpret_cast<uint32_t*>(b->bulk(kStaging));
  std::fill_n(values, kN, 1u);
  b->call(SLUICE_CALL_COPY, to_device(d, kStaging, kN * 4), context);
  uint32_t expected = 1;
  for (int i = 0; i < 200 && b->report->header.evictions < 5; ++i) {
    launch(kBlocks, 1024, d, kN, 0);
    expected *= kLive;
    ::usleep(2000);
    b->take_back();
    ASSERT_TRUE(b->wait_left());
    b->grant();
  }
  ASSERT_EQ(sync().status, CUDA_SUCCESS);
  b->call(SLUICE_CALL_COPY, to_host(kStaging, d, kN * 4), context);
  EXPECT_EQ(std::count(values, values + kN, expected), kN);
  EXPECT_EQ(b->report->header.opaque_launches, 0u);
  EXPECT_GT(b->report->header.evictions, 0u);
}

// Parameters do not lie as PTX has them where one is aligned as a tensor map: neither the program's
// nor the clone's own.
TEST_F(WorkerEviction, AKernelWithATensorMapsAlignmentIsEvictedAndGoesOn) {
  WorkerBench::Options o;
  if (kNvidia) o.signal = wp::Signal::kProxy;
  start(std::move(o));
  make_context();
  auto rewritten = passes::rewrite_module(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry add(.param .align 64 .b8 p_map[128], .param .u64 p_out, .param .u32 p_rounds)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p_out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd1, %rd1, %rd2;
  ld.param.u32 %r4, [p_rounds];
wait:
  ld.volatile.global.u32 %r5, [%rd1];
  sub.u32 %r4, %r4, 1;
  setp.ne.u32 %p1, %r4, 0;
  @%p1 bra wait;
  ld.param.u32 %r6, [p_map+124];
  add.u32 %r5, %r5, %r6;
  st.global.u32 [%rd1], %r5;
  ret;
}
)");
  ASSERT_TRUE(rewritten.ok());
  ASSERT_TRUE(rewritten->kernels[0].evictable) << rewritten->kernels[0].reason;
  Answer a = load(rewritten->text);
  ASSERT_EQ(a.status, CUDA_SUCCESS);
  module = a.as<uint64_t>();
  add = function("add", SLUICE_FUNCTION_EVICTABLE);
  const uint32_t kBlocks = kNvidia ? 40000 : 4000, kN = kBlocks * 64;
  const uint64_t d = alloc(kN * 4).as<uint64_t>();
  zero(d, kN * 4);
  // As the worker has said: the map at 48.
  struct {
    sluice_launch l{};
    uint32_t before[12] = {}, map[32] = {};
    uint64_t out = 0;
    uint32_t rounds = kNvidia ? 2000 : 40;
  } body;
  body.l.function = add;
  for (int i = 0; i < 3; ++i) body.l.grid[i] = body.l.block[i] = 1;
  body.l.grid[0] = kBlocks;
  body.l.block[0] = 64;
  body.l.param_bytes = 188;
  body.map[31] = 7;
  body.out = d;
  std::vector<std::byte> sent(sizeof body.l + body.l.param_bytes);
  std::memcpy(sent.data(), &body, sent.size());
  uint32_t expected = 0;
  for (int i = 0; i < 200 && b->report->header.evictions < 5; ++i) {
    b->post(SLUICE_CALL_LAUNCH, sent, context, SLUICE_RECORD_NO_REPLY);
    expected += 7;
    ::usleep(1000);
    b->take_back();
    ASSERT_TRUE(b->wait_left());
    b->grant();
  }
  ASSERT_EQ(sync().status, CUDA_SUCCESS);
  const uint32_t* values = words(d, kN * 4);
  EXPECT_EQ(std::count(values, values + kN, expected), kN);
  EXPECT_EQ(b->report->header.opaque_launches, 0u);
  EXPECT_GT(b->report->header.evictions, 0u);
}

// Where others have turns all the time no launch of it may ever be left alone.
TEST_F(WorkerEviction, UnderTurnsAPieceOfALaunchSaysHowLongItsKernelTakes) {
  const uint32_t kBlocks = 64 * kGrid, kN = 64 * kBlocks;
  uint32_t expected = 0;
  bool evicted = false;
  for (int attempt = 0; attempt < 50 && !evicted; ++attempt) {
    start({.turn_whole_us = 100'000'000});
    make_context();
    make_module();
    const uint64_t d = alloc(kN * 4).as<uint64_t>();
    zero(d, kN * 4);
    launch(kBlocks, 64, d, kN, 0);
    for (int i = 0; i < 2000 && b->report->header.in_flight == 0; ++i) ::usleep(100);
    ::usleep(static_cast<unsigned>(attempt % 10 * 500));
    b->take_back();
    ASSERT_TRUE(b->wait_left());
    b->grant();
    ASSERT_EQ(sync().status, CUDA_SUCCESS);
    evicted = b->report->header.evictions != 0;
    EXPECT_EQ(b->report->header.whole_launches, 0u) << "nothing was known of it";
    launch(kBlocks, 64, d, kN, 1);
    ASSERT_EQ(sync().status, CUDA_SUCCESS);
    EXPECT_EQ(b->report->header.whole_launches, 1u);
    expected = advance(advance(0, 0, kRounds), 1, kRounds);
    const uint32_t* values = words(d, kN * 4);
    EXPECT_EQ(std::count(values, values + kN, expected), kN);
  }
  EXPECT_TRUE(evicted);
}

// A launch of it would go before a neighbour's that came first, at one level, for ever: the
// neighbour's session was ended for not leaving.
TEST_F(WorkerProcess, UnderTurnsStreamsOfAGuestHaveNoPrioritiesOfTheirOwn) {
  for (const bool turns : {true, false}) {
    start({.turn_whole_us = turns ? 1000u : 0u});
    make_context();
    for (const int wanted : {0, -1, -2}) {
      const Answer made =
          generic(kOpcode_cuStreamCreateWithPriority,
                  {raw<uint8_t>(1), raw<unsigned>(CU_STREAM_NON_BLOCKING), raw(wanted)}, context);
      ASSERT_EQ(made.status, CUDA_SUCCESS);
      const Answer has = generic(kOpcode_cuStreamGetPriority,
                                 {raw(made.as<uint64_t>()), raw<uint8_t>(1)}, context);
      ASSERT_EQ(has.status, CUDA_SUCCESS);
      EXPECT_EQ(has.as<int>(), turns ? 0 : wanted);
    }
  }
}

TEST_F(WorkerProcess, SmallGridsAreOpaqueAndRight) {
  start();
  make_context();
  make_module();
  uint64_t d = alloc(4096).as<uint64_t>();
  zero(d, 4096);
  for (uint32_t k = 0; k < 5; ++k) launch(4, 64, d, 256, k);
  ASSERT_EQ(sync().status, CUDA_SUCCESS);
  uint32_t expected = 0;
  for (uint32_t k = 0; k < 5; ++k) expected = advance(expected, k, kRounds);
  EXPECT_EQ(words(d, 4096)[255], expected);
  EXPECT_EQ(b->report->header.opaque_launches, 5u);
  EXPECT_EQ(b->report->header.whole_launches, 5u) << "the kernel has clones";
}

TEST_F(WorkerProcess, WhatIsEvictableInOneRowOnlyIsOpaqueInMore) {
  start();
  make_context();
  make_module(SLUICE_FUNCTION_IN_ORDER | SLUICE_FUNCTION_ONE_ROW);
  const uint64_t d = alloc(4096).as<uint64_t>();
  for (uint32_t rows : {1u, 2u}) {
    std::vector<std::byte> body = launch_body(add, kGrid, 64, d, 0, 0);
    sluice_launch l;
    std::memcpy(&l, body.data(), sizeof l);
    l.grid[1] = rows;
    std::memcpy(body.data(), &l, sizeof l);
    b->post(SLUICE_CALL_LAUNCH, body, context, SLUICE_RECORD_NO_REPLY);
    ASSERT_EQ(sync().status, CUDA_SUCCESS);
    EXPECT_EQ(b->report->header.opaque_launches, rows - 1);
    EXPECT_EQ(b->report->header.whole_launches, 0u);
  }
}

TEST_F(WorkerProcess, EventsOrderStreams) {
  start();
  make_context();
  make_module();
  const uint32_t kN = 64 * kGrid;
  uint64_t d = alloc(kN * 4).as<uint64_t>();
  zero(d, kN * 4);
  uint64_t streams[2], event;
  for (auto& s : streams)
    s = generic(kOpcode_cuStreamCreate, {raw<uint8_t>(1), raw<uint32_t>(1)}, context)
            .as<uint64_t>();
  event =
      generic(kOpcode_cuEventCreate, {raw<uint8_t>(1), raw<uint32_t>(0)}, context).as<uint64_t>();
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
  Answer a =
      b->call(SLUICE_CALL_SYNCHRONIZE, sluice_synchronize{SLUICE_SYNC_EVENT, 0, event}, context);
  EXPECT_EQ(a.status, CUDA_SUCCESS);
  const uint32_t* got = words(d, kN * 4);
  for (uint32_t i : {0u, kN / 2, kN - 1}) EXPECT_EQ(got[i], expected);
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

}  // namespace
}  // namespace sluice::test
