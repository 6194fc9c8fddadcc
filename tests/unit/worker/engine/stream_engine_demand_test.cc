// SPDX-License-Identifier: Apache-2.0
// Demand: launches that wait for the program are not reported, so that a vGPU whose program
// withholds an answer holds no GPU; all others are, and those too once the program has answered.
#include "tests/support/rounds.h"
#include "tests/unit/worker/engine/stream_engine_bench.h"

namespace sluice::worker {
namespace {

class Demand : public testing::Test {
 protected:
  void launch(StreamId s, OpKind kind = OpKind::kLaunch) {
    b.engine.submit(s, kind, std::make_shared<FakeWork>(next_++, 1), 0, b.now);
  }
  void host_func(StreamId s, uint64_t token) {
    b.engine.submit(s, OpKind::kHostFunc, nullptr, token, b.now);
  }
  void value_wait(StreamId s) {
    b.engine.submit(s, OpKind::kValueWait, std::make_shared<FakeWork>(next_++, 1), 0, b.now);
  }
  std::shared_ptr<EventRecord> record(StreamId s) {
    return b.engine.submit_record(s, std::make_shared<FakeWork>(next_++, 1), b.now);
  }
  // All that the GPU can do without the program.
  void run(std::initializer_list<StreamId> streams) {
    for (bool any = true; any;) {
      any = false;
      b.poll();
      for (StreamId s : streams) any |= b.driver.step(s);
    }
    b.poll();
  }

  Bench b;

 private:
  int next_ = 0;
};

TEST_F(Demand, LaunchesBehindAnUnansweredHostFunctionAreNone) {
  const StreamId s = b.engine.add_stream(1, kNonBlocking);
  host_func(s, 5);
  launch(s);
  launch(s, OpKind::kOpaque);
  ASSERT_EQ(b.driver.host_funcs, std::vector<uint64_t>{5});
  EXPECT_EQ(b.report.demand, 0u);
  EXPECT_TRUE(b.engine.host_func_done(5, b.now));
  EXPECT_EQ(b.report.demand, 2u);
  run({s});
  EXPECT_EQ(b.report.demand, 0u);
  EXPECT_EQ(b.engine.queued(), 0u);
}

TEST_F(Demand, LaunchesBeforeAHostFunctionCountUntilTheyAreDone) {
  const StreamId s = b.engine.add_stream(1, kNonBlocking);
  b.host.grant |= SLUICE_GRANT_CONTENDED;
  launch(s);
  host_func(s, 5);
  launch(s);
  EXPECT_EQ(b.report.demand, 1u);
  const int rings = b.rings;
  run({s});
  EXPECT_EQ(b.report.demand, 0u);
  EXPECT_GT(b.rings, rings) << "idle while somebody waits: sluiced has to hear of it";
}

TEST_F(Demand, ItComesBackThroughAClosedGate) {
  const StreamId s = b.engine.add_stream(1, kNonBlocking);
  host_func(s, 5);
  launch(s);
  b.take();
  const int rings = b.rings;
  EXPECT_TRUE(b.engine.host_func_done(5, b.now));
  EXPECT_EQ(b.report.demand, 1u);
  EXPECT_GT(b.rings, rings) << "sluiced has to hear of the demand";
  b.grant();
  run({s});
  EXPECT_EQ(b.engine.queued(), 0u);
}

TEST_F(Demand, OtherStreamsGoOn) {
  const StreamId s = b.engine.add_stream(1, kNonBlocking), t = b.engine.add_stream(1, kNonBlocking);
  host_func(s, 5);
  launch(s);
  launch(t);
  launch(t);
  EXPECT_EQ(b.report.demand, 2u);
  run({s, t});
  EXPECT_EQ(b.report.demand, 0u);
}

TEST_F(Demand, BehindAnEventThatAHostFunctionHoldsBack) {
  const StreamId s = b.engine.add_stream(1, kNonBlocking), t = b.engine.add_stream(1, kNonBlocking),
                 u = b.engine.add_stream(2, kNonBlocking);
  host_func(s, 5);
  const auto first = record(s);
  b.engine.submit_wait(t, first, b.now);
  const auto second = record(t);
  launch(t);
  b.engine.submit_wait(u, second, b.now);  // in another context, at two removes
  launch(u);
  EXPECT_EQ(b.report.demand, 0u);
  EXPECT_TRUE(b.engine.host_func_done(5, b.now));
  EXPECT_EQ(b.report.demand, 2u);
  run({s, t, u});
  EXPECT_EQ(b.engine.queued(), 0u);
}

TEST_F(Demand, BehindAnEventThatTheGpuBringsAboutTheyCount) {
  const StreamId s = b.engine.add_stream(1, kNonBlocking), t = b.engine.add_stream(1, kNonBlocking);
  launch(s);
  const auto before = record(s);
  host_func(s, 5);
  b.engine.submit_wait(t, before, b.now);
  launch(t);
  EXPECT_EQ(b.report.demand, 2u);
  run({s, t});
  EXPECT_EQ(b.report.demand, 0u);
}

TEST_F(Demand, BehindAValueThatNobodyWrites) {
  const StreamId s = b.engine.add_stream(1, kNonBlocking), t = b.engine.add_stream(1, kNonBlocking);
  value_wait(s);
  launch(s);
  const auto after = record(s);
  b.engine.submit_wait(t, after, b.now);
  launch(t);
  EXPECT_EQ(b.report.demand, 0u);
  b.driver.value = true;
  run({s, t});
  EXPECT_EQ(b.engine.queued(), 0u);
  EXPECT_EQ(b.engine.counters().launches_done, 2u);
}

TEST_F(Demand, TheLegacyStreamsOrderStallsToo) {
  const StreamId legacy = b.engine.add_stream(1, kLegacy), s = b.engine.add_stream(1, kBlocking),
                 free = b.engine.add_stream(1, kNonBlocking),
                 other = b.engine.add_stream(2, kBlocking);
  host_func(s, 5);
  launch(legacy);
  const StreamId late = b.engine.add_stream(1, kBlocking);
  launch(late);  // behind the legacy stream's launch
  EXPECT_EQ(b.report.demand, 0u);
  launch(free);
  launch(other);
  EXPECT_EQ(b.report.demand, 2u);
  EXPECT_TRUE(b.engine.host_func_done(5, b.now));
  run({legacy, s, free, other, late});
  EXPECT_EQ(b.engine.queued(), 0u);
  EXPECT_EQ(b.report.demand, 0u);
}

TEST_F(Demand, AFaultEndsIt) {
  const StreamId s = b.engine.add_stream(1, kNonBlocking);
  launch(s);
  host_func(s, 5);
  launch(s);
  b.engine.fail(CUDA_ERROR_LAUNCH_FAILED, b.now);
  EXPECT_EQ(b.report.demand, 0u);
  EXPECT_EQ(b.engine.runnable(), 0u);
  b.driver.queues.clear();
}

// Whatever the order, demand is the launches that are not stalled, and work is conserved: while it
// is not 0 the GPU alone gets on, and when it is 0 it cannot.
TEST_F(Demand, RandomProgramsGetOnExactlyWhileThereIsDemand) {
  for (uint32_t seed = 0; seed < rounds(400u); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    Bench r;
    std::vector<StreamId> streams{r.engine.add_stream(1, kLegacy)};
    for (int i = 0; i < 4; ++i)
      streams.push_back(r.engine.add_stream(1 + rng() % 2, rng() % 2 ? kBlocking : kNonBlocking));
    std::vector<std::shared_ptr<EventRecord>> records;
    uint64_t token = 1;
    int id = 0;
    std::set<uint64_t> unanswered;
    const auto run_all = [&] {
      for (bool any = true; any;) {
        any = false;
        r.poll();
        for (StreamId s : streams) any |= r.driver.step(s);
      }
      r.poll();
    };
    for (int step = 0; step < 60; ++step) {
      const StreamId s = streams[rng() % streams.size()];
      switch (rng() % 8) {
        case 0:
          unanswered.insert(token);
          r.engine.submit(s, OpKind::kHostFunc, nullptr, token++, r.now);
          break;
        case 1:
          records.push_back(r.engine.submit_record(s, std::make_shared<FakeWork>(id++, 1), r.now));
          break;
        case 2:
          if (!records.empty()) r.engine.submit_wait(s, records[rng() % records.size()], r.now);
          break;
        case 3:
          for (uint64_t t : std::set<uint64_t>(unanswered))
            if (rng() % 2 && r.engine.host_func_done(t, r.now)) unanswered.erase(t);
          break;
        default:
          r.engine.submit(s, OpKind::kLaunch, std::make_shared<FakeWork>(id++, 1), 0, r.now);
      }
      r.poll();
      ASSERT_EQ(r.report.demand, r.engine.runnable());
      const uint64_t done = r.engine.counters().launches_done;
      const uint32_t demand = r.report.demand;
      if (rng() % 4 != 0) continue;
      run_all();
      EXPECT_EQ(r.engine.counters().launches_done - done, demand);
      EXPECT_EQ(r.report.demand, 0u);
    }
    for (bool any = true; any;) {
      run_all();
      any = false;
      for (uint64_t t : std::set<uint64_t>(unanswered))
        if (r.engine.host_func_done(t, r.now)) any = unanswered.erase(t) != 0;
    }
    run_all();
    EXPECT_EQ(r.engine.queued(), 0u);
    EXPECT_EQ(r.report.demand, 0u);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace sluice::worker
