// SPDX-License-Identifier: Apache-2.0
// The stream engine's rules one by one: what is queued, what is held, what a fault ends.
#include "mediator/worker/streams/free_bulk.h"
#include "tests/unit/worker/engine/stream_engine_bench.h"

namespace sluice::worker {
namespace {

TEST(StreamEngine, LaunchesAreQueuedEagerly) {
  Runner r({{kLegacy}, {{P::kLaunch, 0, 2}, {P::kLaunch, 0, 2}, {P::kLaunch, 0, 2}}});
  r.submit_all();
  EXPECT_EQ(r.b.driver.launches_queued, 3);
  EXPECT_EQ(r.b.report.in_flight, 3u);
  EXPECT_EQ(r.b.report.demand, 3u);
  r.finish();
  r.check();
}

// Whether the engine has the GPU write a word for a wait for the stream.
bool word(Runner& r, int stream, uint32_t value) {
  return r.b.engine.write_end_word(r.streams[stream], 64, value, r.b.now);
}
bool word_of_context(Runner& r, uint32_t value) {
  return r.b.engine.write_end_word_of_context(1, 64, value, r.b.now);
}

TEST(StreamEngine, TheGpuWritesWordsWhereTheDriversQueueIsAll) {
  Runner r({{kLegacy, kNonBlocking, kNonBlocking},
            {{P::kOpaque, 1, 1}, {P::kLaunch, 1, 1}, {P::kCopy, 2, 1}}});
  EXPECT_FALSE(word(r, 1, 1)) << "nothing is queued";
  EXPECT_FALSE(word_of_context(r, 1));
  r.submit_one();
  EXPECT_TRUE(word(r, 1, 2));
  EXPECT_TRUE(word_of_context(r, 3));
  r.submit_one();
  EXPECT_FALSE(word(r, 1, 4)) << "the launch may be evicted";
  r.submit_one();
  EXPECT_TRUE(word(r, 2, 5));
  EXPECT_FALSE(word_of_context(r, 6)) << "two streams are busy";
  const std::vector<std::pair<StreamId, uint32_t>> written{
      {r.streams[1], 2}, {r.streams[1], 3}, {r.streams[2], 5}};
  EXPECT_EQ(r.b.driver.words, written);
  r.finish();
  r.check();
}

TEST(StreamEngine, NoWordForWhatIsHeldOrFails) {
  Runner held({{kNonBlocking}, {{P::kOpaque, 0, 1}, {P::kCopy, 0, 1}}});
  held.b.take();
  held.submit_all();
  EXPECT_FALSE(word(held, 0, 1)) << "the gate is closed";
  held.b.grant();
  held.finish();
  held.check();

  Runner across({{kLegacy, kBlocking}, {{P::kOpaque, 1, 1}, {P::kCopy, 0, 1}}});
  across.submit_all();
  EXPECT_FALSE(word(across, 0, 1)) << "it waits for the other stream";
  across.finish();
  across.check();

  Runner failing({{kNonBlocking}, {{P::kOpaque, 0, 1}, {P::kOpaque, 0, 1}}});
  failing.b.driver.refuse[1] = CUDA_ERROR_INVALID_VALUE;
  failing.submit_all();
  EXPECT_FALSE(word(failing, 0, 1)) << "the program is to hear of the error first";
  failing.finish();
  EXPECT_EQ(failing.b.driver.async_errors.size(), 1u);
}

TEST(StreamEngine, BehindAWordAPollFindsAllComplete) {
  Runner r({{kNonBlocking}, {{P::kOpaque, 0, 1}, {P::kCopy, 0, 1}, {P::kCopy, 0, 1}}});
  r.submit_all();
  EXPECT_TRUE(word(r, 0, 1));
  while (r.device_step()) {
  }
  r.b.poll();
  EXPECT_TRUE(r.b.engine.idle(r.streams[0]));
  r.check();
}

TEST(StreamEngine, CopyIsHeldUntilLaunchesAreDoneAndLaunchesFollowIt) {
  Runner r({{kLegacy}, {{P::kLaunch, 0, 1}, {P::kCopy, 0}, {P::kLaunch, 0, 1}}});
  r.submit_all();
  EXPECT_EQ(r.b.driver.launches_queued, 1);
  while (r.device_step()) {
  }
  r.b.poll();
  EXPECT_EQ(r.b.driver.launches_queued, 2) << "the launch goes in behind the queued copy";
  r.finish();
  r.check();
}

TEST(StreamEngine, DepthIsBounded) {
  EngineLimits limits;
  limits.stream_depth = 5;
  Program p{{kLegacy}, {}};
  for (int i = 0; i < 30; ++i) p.steps.push_back({P::kLaunch, 0, 1});
  Runner r(p, limits);
  r.submit_all();
  EXPECT_EQ(r.b.report.in_flight, 5u);
  r.finish();
  r.check();
}

TEST(StreamEngine, OneOpaqueLaunchAtATimeWhileContended) {
  Runner r({{kLegacy, kNonBlocking}, {{P::kOpaque, 0, 2}, {P::kOpaque, 0, 1}, {P::kOpaque, 1, 1}}});
  r.b.host.grant |= SLUICE_GRANT_CONTENDED;
  r.submit_all();
  EXPECT_EQ(r.b.report.in_flight, 1u);
  r.finish();
  r.check();
}

// While another pauses for a moment nobody waits, and all of them would be in its way.
TEST(StreamEngineRules, FewOpaqueLaunchesFollowWhileOthersHaveJustHadTheGpu) {
  Bench b;
  const StreamId s = b.engine.add_stream(1, kNonBlocking);
  b.take();
  for (int i = 0; i < 20; ++i)
    b.engine.submit(s, OpKind::kOpaque, std::make_shared<FakeWork>(i, 1), 0, b.now);
  b.now += 2 * SliceQueue::kCalmNs;  // nobody has looked at the closed gate meanwhile
  b.grant();
  b.poll();
  ASSERT_FALSE(b.gate.contended());
  EXPECT_EQ(b.report.in_flight, 2u);
  b.now += SliceQueue::kCalmNs;
  b.poll();
  EXPECT_EQ(b.report.in_flight, 20u) << "nobody has come for a while";
}

// Else who only copies and fills would have the GPU without ever asking for it.
TEST(StreamEngine, BulkWaitsForAGrantAsLaunchesDo) {
  Runner r({{kLegacy, kNonBlocking}, {{P::kCopy, 0}, {P::kBulk, 0}, {P::kBulk, 1}}});
  r.b.take();
  r.submit_all();
  EXPECT_EQ(r.b.report.in_flight, 0u);
  EXPECT_EQ(r.b.report.demand, 2u) << "not the copy, which went at once";
  r.b.grant();
  r.b.host.grant |= SLUICE_GRANT_CONTENDED;
  r.b.poll();
  EXPECT_EQ(r.b.report.in_flight, 1u) << "one at a time while others wait";
  r.finish();
  r.check();
}

// Of a vGPU that stands by: known to be short, and short; no kernel that waits to be evicted.
TEST(StreamEngine, WhoStandsByLaunchesWhatIsShortAndSaysSo) {
  struct Case {
    P what;
    uint64_t expected_ns;
    bool goes;
  };
  for (const Case& c :
       {Case{P::kOpaque, SLUICE_STANDBY_NS, true}, Case{P::kOpaque, SLUICE_STANDBY_NS + 1, false},
        Case{P::kOpaque, 0, false}, Case{P::kLaunch, 1000, false}, Case{P::kBulk, 1000, false}}) {
    Runner r({{kLegacy}, {{c.what, 0, 1}}});
    r.expected_ns = c.expected_ns;
    r.b.host.grant |= SLUICE_GRANT_CONTENDED | SLUICE_GRANT_STANDBY;
    r.b.now = 77;
    r.submit_all();
    EXPECT_EQ(r.b.rings, 1);
    EXPECT_EQ(r.b.report.demand, 1u);
    EXPECT_EQ(r.b.report.in_flight, c.goes ? 1u : 0u);
    EXPECT_EQ(r.b.report.in_flight_ns, c.goes ? 77u : 0u);
    EXPECT_EQ(r.b.engine.held_by_gate(), !c.goes);
    r.b.host.grant &= ~uint64_t{SLUICE_GRANT_STANDBY};  // it has the turn, under the same grant
    if (!c.goes) r.b.poll();
    r.b.now = 100;
    r.finish();
    r.check();
    EXPECT_EQ(r.b.report.flight_ns, 23u) << "from its beginning to its end";
  }
}

TEST(StreamEngine, WhatGoesWithoutAGrantIsBounded) {
  FreeBulk free;
  constexpr uint64_t kSecond = 1'000'000'000;
  uint64_t now = 7 * kSecond, bytes = 0, small = 0;
  while (free.take(now, 1 << 20)) bytes += 1 << 20;
  EXPECT_EQ(bytes, FreeBulk::kBytes);
  now += 60 * kSecond;
  for (const uint64_t end = now + 10 * kSecond; now < end; now += 10'000)
    small += free.take(now, 4);
  EXPECT_LE(small * FreeBulk::kLeastBytes, FreeBulk::kBytes + 10 * FreeBulk::kBytesPerSecond);
  EXPECT_GT(small, 2'500u) << "what programs do now and then goes";
  EXPECT_FALSE(free.take(now + 3600 * kSecond, FreeBulk::kBytes + 1));
}

TEST(StreamEngine, RingsWhenDemandMeetsAClosedGateAndWhenItIsOver) {
  Runner r({{kLegacy}, {{P::kLaunch, 0, 1}}});
  r.b.take();
  r.submit_all();
  EXPECT_GE(r.b.rings, 1);
  EXPECT_EQ(r.b.report.demand, 1u);
  EXPECT_EQ(r.b.report.in_flight, 0u);
  EXPECT_TRUE(r.b.engine.held_by_gate());
  r.b.grant();
  r.b.host.grant |= SLUICE_GRANT_CONTENDED;
  int rings = r.b.rings;
  r.finish();
  EXPECT_GT(r.b.rings, rings) << "idle while somebody waits: sluiced has to hear of it";
  r.check();
}

TEST(StreamEngine, StaleHeartbeatOpensTheGate) {
  Runner r({{kLegacy}, {{P::kCopy, 0}}});
  r.b.take();
  r.b.now = kStaleHeartbeatNs - 1;
  Grant grant;
  EXPECT_FALSE(r.b.gate.enter(r.b.now, &grant));
  r.b.now = kStaleHeartbeatNs + 1;
  ASSERT_TRUE(r.b.gate.enter(r.b.now, &grant));
  EXPECT_GT(grant.generation, static_cast<uint32_t>(r.b.signal.evict)) << "it would leave at once";
  r.b.gate.leave(r.b.now, true, grant);
  r.b.host.heartbeat_ns = r.b.now;
  EXPECT_FALSE(r.b.gate.enter(r.b.now, &grant));
  r.submit_all();
  r.finish();
}

TEST(StreamEngine, FaultCompletesEverythingAndSticks) {
  Runner r(
      {{kLegacy, kBlocking},
       {{P::kLaunch, 0, 2}, {P::kCopy, 0}, {P::kLaunch, 1, 2}, {P::kRecord, 1, 1}, {P::kSync, 1}}});
  r.submit_all();
  r.device_step();
  r.b.driver.broken = CUDA_ERROR_ILLEGAL_ADDRESS;
  r.b.poll();
  EXPECT_EQ(r.b.engine.error(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(r.b.driver.completed[1001], CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(r.b.driver.completed[1004], CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(r.events[1]->complete);
  EXPECT_EQ(r.b.report.demand, 0u);
  EXPECT_EQ(r.b.report.in_flight, 0u);
  r.b.engine.submit(r.streams[0], OpKind::kWork, std::make_shared<FakeWork>(9, 1), 77, r.b.now);
  EXPECT_EQ(r.b.driver.completed[77], CUDA_ERROR_ILLEGAL_ADDRESS);
  r.b.driver.queues.clear();
}

TEST(StreamEngine, ARefusedOperationFailsAloneAndTheStreamGoesOn) {
  Runner r(
      {{kLegacy}, {{P::kCopy, 0}, {P::kLaunch, 0, 2}, {P::kOpaque, 0, 1}, {P::kLaunch, 0, 1}}});
  r.b.driver.refuse[2] = CUDA_ERROR_INVALID_VALUE;
  r.submit_all();
  r.finish();
  EXPECT_EQ(r.b.driver.async_errors, std::vector<CUresult>{CUDA_ERROR_INVALID_VALUE});
  EXPECT_EQ(r.b.driver.effects.size(), 4u);
  EXPECT_EQ(r.b.report.in_flight, 0u);
  EXPECT_EQ(r.b.engine.error(), CUDA_SUCCESS);
}

TEST(StreamEngine, HostFunctionHoldsWhatFollows) {
  Bench b;
  StreamId s = b.engine.add_stream(1, kLegacy);
  b.engine.submit(s, OpKind::kLaunch, std::make_shared<FakeWork>(0, 1), 0, b.now);
  b.engine.submit(s, OpKind::kHostFunc, nullptr, 5, b.now);
  b.engine.submit(s, OpKind::kLaunch, std::make_shared<FakeWork>(1, 1), 0, b.now);
  EXPECT_TRUE(b.driver.host_funcs.empty());
  EXPECT_FALSE(b.engine.host_func_done(5, b.now)) << "not reached yet";
  while (b.driver.step(s)) b.poll();
  b.poll();
  EXPECT_EQ(b.driver.host_funcs, std::vector<uint64_t>{5});
  EXPECT_TRUE(b.engine.waits_for_program());
  EXPECT_EQ(b.driver.launches_queued, 1);
  EXPECT_FALSE(b.engine.host_func_done(6, b.now));
  EXPECT_TRUE(b.engine.host_func_done(5, b.now));
  EXPECT_EQ(b.driver.launches_queued, 2);
  while (b.driver.step(s)) b.poll();
  b.poll();
  EXPECT_EQ(b.engine.queued(), 0u);
}

TEST(StreamEngine, NoLaunchIsQueuedBehindAValueWait) {
  Bench b;
  StreamId s = b.engine.add_stream(1, kNonBlocking);
  b.engine.submit(s, OpKind::kValueWait, std::make_shared<FakeWork>(0, 1), 0, b.now);
  b.engine.submit(s, OpKind::kLaunch, std::make_shared<FakeWork>(1, 1), 0, b.now);
  EXPECT_EQ(b.driver.launches_queued, 0);
  EXPECT_EQ(b.report.in_flight, 0u);
  b.driver.value = true;
  while (b.driver.step(s)) {
  }
  b.poll();
  EXPECT_EQ(b.driver.launches_queued, 1);
  while (b.driver.step(s)) b.poll();
  b.poll();
  EXPECT_EQ(b.engine.queued(), 0u);
}

TEST(StreamEngine, ContextSynchroniseWaitsForAllItsStreamsAndNoOther) {
  Bench b;
  StreamId a = b.engine.add_stream(1, kLegacy);
  StreamId c = b.engine.add_stream(1, kNonBlocking);
  StreamId other = b.engine.add_stream(2, kLegacy);
  b.engine.submit(a, OpKind::kLaunch, std::make_shared<FakeWork>(0, 1), 0, b.now);
  b.engine.submit(c, OpKind::kLaunch, std::make_shared<FakeWork>(1, 1), 0, b.now);
  b.engine.submit(other, OpKind::kLaunch, std::make_shared<FakeWork>(2, 1), 0, b.now);
  b.engine.notify_context(1, 9, b.now);
  while (b.driver.step(a)) b.poll();
  EXPECT_FALSE(b.driver.completed.count(9));
  EXPECT_FALSE(b.engine.idle(c));
  while (b.driver.step(c)) b.poll();
  b.poll();
  EXPECT_TRUE(b.driver.completed.count(9));
  EXPECT_TRUE(b.engine.idle(c));
  EXPECT_FALSE(b.engine.idle(other));
  b.engine.notify_context(1, 10, b.now);
  EXPECT_TRUE(b.driver.completed.count(10)) << "nothing queued: at once";
  b.engine.remove_stream(other);
  EXPECT_FALSE(b.driver.drained_streams.count(other));
  while (b.driver.step(other)) b.poll();
  b.poll();
  EXPECT_TRUE(b.driver.drained_streams.count(other));
}

// A clone that forges its control block makes the session fail; meanwhile another kernel of the
// session runs. It has not left.
struct FailedSession : testing::Test {
  // Two streams of two contexts: a kernel that runs in the first, a launch that never gets anywhere
  // in the second.
  void SetUp() override {
    running = b.engine.add_stream(1, kNonBlocking);
    futile = b.engine.add_stream(2, kNonBlocking);
    b.engine.submit(running, OpKind::kOpaque, spin, 1, b.now);
    b.engine.submit(futile, OpKind::kLaunch, std::make_shared<FakeWork>(1, 4), 2, b.now);
    for (int i = 0; i < 20 && b.engine.error() == CUDA_SUCCESS; ++i) {
      end_all_in(futile);
      b.poll();
    }
    ASSERT_EQ(b.engine.error(), CUDA_ERROR_LAUNCH_FAILED);
  }
  // The device ends whatever is there without running a task.
  void end_all_in(StreamId stream) {
    auto& q = b.driver.queues[stream];
    while (!q.empty()) {
      if (q.front().kind == FakeDriver::Item::kMarker) b.driver.reached.insert(q.front().marker);
      q.pop_front();
    }
  }
  void expect_it_has_not_left() {
    EXPECT_GT(b.report.in_flight, 0u);
    EXPECT_LT(b.report.left_generation, b.generation);
    EXPECT_FALSE(b.has_left());
    EXPECT_TRUE(b.engine.in_flight()) << "it is looked after";
  }
  static EngineLimits few() {
    EngineLimits limits;
    limits.futile_launches = 3;
    return limits;
  }
  Bench b{few()};
  StreamId running = 0, futile = 0;
  std::shared_ptr<FakeWork> spin = std::make_shared<FakeWork>(0, 1'000'000);
};

TEST_F(FailedSession, HasNotLeftWhileAKernelOfItRuns) {
  EXPECT_EQ(b.driver.completed[1], CUDA_ERROR_LAUNCH_FAILED) << "the program hears of it at once";
  EXPECT_EQ(b.report.demand, 0u);
  b.take();
  for (int i = 0; i < 5; ++i) b.poll();
  expect_it_has_not_left();
  b.driver.queues[running].clear();
  b.poll();
  EXPECT_EQ(b.report.in_flight, 0u);
  EXPECT_EQ(b.report.left_generation, b.generation);
  EXPECT_FALSE(b.engine.in_flight());
}

TEST_F(FailedSession, HasLeftWhenTheContextIsGone) {
  b.engine.remove_stream(running);
  EXPECT_FALSE(b.driver.drained_streams.count(running));
  b.engine.context_ends(1);
  EXPECT_TRUE(b.driver.drained_streams.count(running));
  b.take();
  b.poll();
  b.engine.context_gone(2, b.now);
  expect_it_has_not_left();
  b.engine.context_gone(1, b.now);
  EXPECT_TRUE(b.has_left());
  EXPECT_FALSE(b.engine.in_flight());
}

TEST_F(FailedSession, AStreamThatWasRemovedGoesWhenItsKernelHasEnded) {
  b.engine.remove_stream(running);
  b.poll();
  EXPECT_FALSE(b.driver.drained_streams.count(running));
  b.driver.queues[running].clear();
  b.poll();
  EXPECT_TRUE(b.driver.drained_streams.count(running));
  EXPECT_EQ(b.report.in_flight, 0u);
}

TEST(StreamEngine, ALaunchThatNeverGetsAnywhereFails) {
  EngineLimits limits;
  limits.futile_launches = 3;
  Bench b(limits);
  StreamId s = b.engine.add_stream(1, kLegacy);
  auto work = std::make_shared<FakeWork>(0, 4);
  b.engine.submit(s, OpKind::kLaunch, work, 0, b.now);
  for (int i = 0; i < 20 && b.engine.error() == CUDA_SUCCESS; ++i) {
    // The device ends each physical launch without running a task.
    auto& q = b.driver.queues[s];
    while (!q.empty()) {
      if (q.front().kind == FakeDriver::Item::kMarker) b.driver.reached.insert(q.front().marker);
      q.pop_front();
    }
    b.poll();
  }
  EXPECT_EQ(b.engine.error(), CUDA_ERROR_LAUNCH_FAILED);
}

TEST(StreamEngineRules, OriginalsThatAreKnownToHaveEndedTogetherAreToldTogether) {
  EngineLimits learnt;  // so that nothing but the depth holds a launch back
  learnt.opaque_contended_ns = 1;
  Runner r({{kNonBlocking}, {{P::kOpaque, 0, 1}, {P::kOpaque, 0, 1}, {P::kOpaque, 0, 1}}}, learnt);
  r.submit_all();
  r.b.poll();
  std::vector<std::vector<int>> told;
  for (int round = 0; round < 10; ++round) {
    while (r.b.driver.step(r.streams[0])) {
    }
    r.b.poll();
    for (const auto& [stream, ids] : std::exchange(r.b.driver.ended, {})) {
      EXPECT_EQ(stream, r.streams[0]);
      told.push_back(ids);
    }
  }
  // One marker is behind the first two, the next behind the third.
  EXPECT_EQ(told, (std::vector<std::vector<int>>{{0, 1}, {2}}));
}

// Or the end of what an older grant let in would be known only with that of what a newer one did,
// which may wait behind others' launches.
TEST(StreamEngineRules, AMarkerIsBetweenWhatTwoGrantsLetIn) {
  EngineLimits learnt;  // as above
  learnt.opaque_contended_ns = 1;
  Bench b(learnt);
  const StreamId s = b.engine.add_stream(1, kNonBlocking);
  const auto submit = [&] {
    b.engine.submit(s, OpKind::kOpaque, std::make_shared<FakeWork>(0, 1), 0, b.now);
  };
  for (int i = 0; i < 3; ++i) submit();
  b.grant();
  for (int i = 0; i < 3; ++i) submit();
  int launches = 0, unmarked = 0;
  for (const FakeDriver::Item& item : b.driver.queues[s]) {
    if (item.kind == FakeDriver::Item::kMarker) {
      unmarked = 0;
    } else if (launches++ == 3) {
      EXPECT_EQ(unmarked, 0) << "the first of the second grant";
    } else {
      ++unmarked;
    }
  }
  EXPECT_EQ(launches, 6);
}

}  // namespace
}  // namespace sluice::worker
