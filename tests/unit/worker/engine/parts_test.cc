// SPDX-License-Identifier: Apache-2.0
// The worker under grants of a part of the GPU: what the gate reads and says, what the engine does
// when older generations are called back, and how many blocks a launch on some SMs gets.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "mediator/worker/launch/sms/sm_part.h"
#include "mediator/worker/streams/engine.h"
#include "mediator/worker/streams/gate.h"

namespace sluice::worker {
namespace {

struct Pages {
  sluice_host_page host{};
  sluice_signal_page signal{};
  sluice_report_header report{};
  int rings = 0;
  uint64_t now = 1;
  Gate gate{&host, &signal, &report, 0, [this] { ++rings; }};

  void grant(uint32_t generation, const SmSet& sms, uint64_t flags = 0) {
    for (uint32_t i = 0; i < SmSet::kWords; ++i) host.sms[generation & 1][i] = sms.word(i);
    host.grant = generation | SLUICE_GRANT_OPEN | SLUICE_GRANT_PART | flags;
  }
  void recall(uint32_t generation, const SmSet& sms) {
    grant(generation, sms, SLUICE_GRANT_RECALL);
    signal.evict = SLUICE_EVICT_ALL_SMS(generation - 1);
  }
  Grant enter(bool confinable = true) {
    Grant g;
    EXPECT_TRUE(gate.enter(now, &g));
    if (!confinable) gate.runs_anywhere(g);
    return g;
  }
};

TEST(GateInSpace, ALaunchGetsTheSetOfItsGeneration) {
  Pages p;
  p.grant(1, SmSet(2, 5));
  const Grant first = p.enter();
  EXPECT_TRUE(first.part);
  EXPECT_EQ(first.sms, SmSet(2, 5));
  SmSet high;
  high.add(0);
  high.add(255);
  p.recall(2, high);
  EXPECT_EQ(p.enter().sms, high);
  p.host.grant = 3 | SLUICE_GRANT_OPEN;
  EXPECT_FALSE(p.enter().part) << "without the flag it is the whole GPU, whatever the page holds";
}

TEST(GateInSpace, LeftIsSaidWhenTheOlderHaveLeftAndOnce) {
  Pages p;
  p.grant(1, SmSet(0, 4));
  const Grant a = p.enter(), b = p.enter();
  p.recall(2, SmSet(0, 2));
  EXPECT_TRUE(p.gate.calling_back());
  const Grant c = p.enter();
  EXPECT_EQ(c.generation, 2u);
  p.gate.leave(p.now, true, a);
  EXPECT_EQ(p.report.left_generation, 0u) << "one of generation 1 is still there";
  EXPECT_EQ(p.rings, 0);
  p.gate.leave(p.now, true, b);
  EXPECT_EQ(p.report.left_generation, 1u);
  EXPECT_EQ(p.report.in_flight, 1u);
  EXPECT_EQ(p.rings, 1);
  EXPECT_FALSE(p.gate.calling_back());
  p.gate.leave(p.now, true, c);
  EXPECT_EQ(p.report.left_generation, 1u) << "its own generation may go on";
  EXPECT_EQ(p.rings, 1);
}

// sluiced may have read in_flight between this launch's two steps, and waits.
TEST(GateInSpace, EnteringUnderARecallSaysThatTheOlderHaveLeft) {
  Pages p;
  p.grant(1, SmSet(0, 4));
  p.gate.leave(p.now, true, p.enter());
  p.recall(2, SmSet(0, 2));
  (void)p.enter();
  EXPECT_EQ(p.report.left_generation, 1u);
  EXPECT_EQ(p.rings, 1);
}

TEST(GateInSpace, AClosedGateIsLeftAsEver) {
  Pages p;
  p.grant(1, SmSet(0, 4));
  const Grant a = p.enter();
  p.recall(2, SmSet(0, 2));
  const Grant b = p.enter();
  p.host.grant = 2;
  p.gate.leave(p.now, true, b);
  EXPECT_EQ(p.report.left_generation, 0u);
  p.gate.leave(p.now, true, a);
  EXPECT_EQ(p.report.left_generation, 2u);
}

TEST(GateInSpace, WhatNoSetBindsIsCountedAndRung) {
  Pages p;
  p.grant(1, SmSet(0, 2));
  const Grant a = p.enter(false);
  EXPECT_EQ(p.report.unconfined, 1u);
  EXPECT_EQ(p.rings, 1);
  const Grant b = p.enter(false);
  EXPECT_EQ(p.report.unconfined, 2u);
  EXPECT_EQ(p.rings, 1) << "only the first and the last";
  p.gate.leave(p.now, false, a);
  p.gate.leave(p.now, false, b);
  EXPECT_EQ(p.report.unconfined, 0u);
  EXPECT_EQ(p.rings, 2);
  // Under the whole GPU there is nothing to say.
  p.host.grant = 2 | SLUICE_GRANT_OPEN;
  (void)p.enter(false);
  EXPECT_EQ(p.report.unconfined, 0u);
  p.grant(3, SmSet(0, 2));
  (void)p.enter(false);
  p.gate.reset(p.now);
  EXPECT_EQ(p.report.unconfined, 0u) << "after a fault nothing runs";
  EXPECT_EQ(p.report.in_flight, 0u);
}

// The report is written, never read back: what a kernel forges there changes nothing.
TEST(GateInSpace, AForgedReportIsOverwritten) {
  Pages p;
  p.grant(1, SmSet(0, 2));
  const Grant a = p.enter(false);
  p.report.in_flight = 77;
  p.report.unconfined = 99;
  p.report.left_generation = 5;
  p.recall(2, SmSet(0, 1));
  p.gate.leave(p.now, false, a);
  EXPECT_EQ(p.report.in_flight, 0u);
  EXPECT_EQ(p.report.unconfined, 0u);
  EXPECT_EQ(p.report.left_generation, 1u);
}

TEST(GateInSpace, WhatIsKeptHasLeft) {
  Pages p;
  p.grant(1, SmSet(0, 4));
  const Grant a = p.enter();
  p.recall(2, SmSet(0, 2));
  Grant to;
  EXPECT_FALSE(p.gate.keeping(&to)) << "the grant does not say that it may stay";
  p.grant(2, SmSet(0, 2), SLUICE_GRANT_RECALL | SLUICE_GRANT_KEEP);
  ASSERT_TRUE(p.gate.keeping(&to));
  EXPECT_EQ(to.sms, SmSet(0, 2));
  EXPECT_TRUE(p.gate.calling_back());
  EXPECT_EQ(p.report.left_generation, 0u);
  p.gate.kept(2, p.now);
  EXPECT_EQ(p.report.left_generation, 1u);
  EXPECT_EQ(p.rings, 1);
  EXPECT_FALSE(p.gate.calling_back()) << "nobody waits for it any more";
  EXPECT_FALSE(p.gate.keeping(&to));
  // It is still in flight: with the gate closed it has to leave like all others.
  p.host.grant = 2;
  const uint32_t before = p.report.left_generation;
  EXPECT_EQ(before, 1u);
  p.gate.leave(p.now, true, a);
  EXPECT_EQ(p.report.left_generation, 2u);
}

TEST(GateInSpace, WhatCannotStayAsksOnceForEachChange) {
  Pages p;
  p.grant(1, SmSet(0, 4));
  (void)p.enter();
  p.grant(2, SmSet(0, 2), SLUICE_GRANT_RECALL | SLUICE_GRANT_KEEP);
  Grant to;
  ASSERT_TRUE(p.gate.keeping(&to));
  p.gate.call_back_whole(2);
  EXPECT_EQ(p.report.recall, 1u);
  EXPECT_EQ(p.rings, 1);
  EXPECT_FALSE(p.gate.keeping(&to));
  EXPECT_TRUE(p.gate.calling_back());
  EXPECT_EQ(p.report.left_generation, 0u);
}

// ---- the engine ---------------------------------------------------------------------------------

struct CountedWork : Work {
  int left = 3;  // tasks
};

// One stream; launches run a task for each run_one() and leave when the evict word says so.
struct OneStreamDriver : EngineDriver {
  explicit OneStreamDriver(Pages& pages) : p(pages) {}
  Confinement confine(StreamId, OpKind, Work&, const Grant&, uint64_t) override {
    return confinement;
  }
  bool wait_for_hardware(StreamId, const Grant& grant, uint64_t) override {
    return soon && grant.part;
  }
  CUresult launch(StreamId, Work& work, const Grant& grant, const Work*, bool, uint64_t) override {
    launched.push_back(grant);
    running.push_back(static_cast<CountedWork*>(&work));
    return CUDA_SUCCESS;
  }
  CUresult issue(StreamId, OpKind, Work&, uint64_t) override { return CUDA_SUCCESS; }
  CUresult mark(StreamId, uint64_t* marker) override {
    *marker = ++marks;
    waiting[marks] = running.size() + ended;
    return CUDA_SUCCESS;
  }
  CUresult query(uint64_t marker) override {
    return ended >= waiting.at(marker) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }
  LaunchEnd launch_end(Work& work) override {
    if (static_cast<CountedWork&>(work).left == 0) return LaunchEnd::kDone;
    if (nowhere) return LaunchEnd::kNoRoom;
    return LaunchEnd::kLeft;
  }
  void complete(uint64_t, CUresult status) override { completed.push_back(status); }
  void reached_host_func(uint64_t) override {}
  void async_error(CUresult) override {}
  void drained(StreamId) override {}

  CUresult narrow(std::span<const Running> of, const SmSet& lost, bool* left) override {
    asked_to_leave.push_back(lost);
    EXPECT_EQ(of.size(), running.size());
    *left = has_left;
    return can_stay ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult grow(StreamId, Work& work, const Grant& grant, uint64_t) override {
    if (!can_grow) return CUDA_ERROR_NOT_SUPPORTED;
    second.push_back(grant);
    // The stream's wait for the second grid: here a launch of nothing behind the first.
    launched.push_back(grant);
    running.push_back(static_cast<CountedWork*>(&work));
    return CUDA_SUCCESS;
  }

  void run_one() {
    if (running.empty()) return;
    CountedWork& w = *running.front();
    const bool evicted = p.signal.evict == SLUICE_EVICT_ALL_SMS(p.signal.evict) &&
                         static_cast<uint32_t>(p.signal.evict) >= launched[ended].generation;
    if (w.left != 0 && !evicted && !nowhere && --w.left != 0) return;
    running.erase(running.begin());
    ++ended;
  }
  Pages& p;
  Confinement confinement = Confinement::kBlocks;
  bool soon = false;  // the hardware will confine launches
  bool can_stay = false, can_grow = false, has_left = false;
  std::vector<SmSet> asked_to_leave;
  std::vector<Grant> second;
  bool nowhere = false;  // its blocks find no room on its SMs
  std::vector<Grant> launched;
  std::vector<CountedWork*> running;
  std::map<uint64_t, size_t> waiting;
  size_t ended = 0;
  uint64_t marks = 0;
  std::vector<CUresult> completed;
};

TEST(EngineInSpace, WhatIsCalledBackGoesOnOnTheNewSmsAtOnce) {
  Pages p;
  OneStreamDriver driver(p);
  StreamEngine engine(driver, p.gate);
  p.grant(1, SmSet(0, 4));
  const StreamId s = engine.add_stream(1, StreamKind::kNonBlocking);
  auto work = std::make_shared<CountedWork>();
  engine.submit(s, OpKind::kLaunch, work, 0, p.now);
  engine.notify_stream(s, 7, p.now);
  driver.run_one();
  p.recall(2, SmSet(1, 2));
  driver.run_one();  // leaves
  engine.poll(p.now);
  ASSERT_EQ(driver.launched.size(), 2u);
  EXPECT_EQ(driver.launched[1].generation, 2u);
  EXPECT_EQ(driver.launched[1].sms, SmSet(1, 2));
  EXPECT_EQ(p.report.left_generation, 1u);
  for (int i = 0; i < 4; ++i) driver.run_one(), engine.poll(p.now);
  EXPECT_EQ(work->left, 0);
  EXPECT_EQ(driver.completed, std::vector<CUresult>{CUDA_SUCCESS});
  EXPECT_EQ(p.report.in_flight, 0u);
}

struct StayingLaunch {
  explicit StayingLaunch(Confinement confinement = Confinement::kBlocks) {
    driver.confinement = confinement;
    p.grant(1, SmSet(0, 4));
    stream = engine.add_stream(1, StreamKind::kNonBlocking);
    engine.submit(stream, OpKind::kLaunch, work, 0, p.now);
    engine.notify_stream(stream, 7, p.now);
    engine.poll(p.now);
  }
  void change(const SmSet& to, uint64_t evict) {
    p.grant(++generation, to, SLUICE_GRANT_RECALL | SLUICE_GRANT_KEEP);
    if (evict) p.signal.evict = evict;
    engine.poll(p.now);
  }
  void finish() {
    for (int i = 0; i < 8; ++i) driver.run_one(), engine.poll(p.now);
    EXPECT_EQ(work->left, 0);
    EXPECT_EQ(driver.completed, std::vector<CUresult>{CUDA_SUCCESS});
    EXPECT_EQ(p.report.in_flight, 0u);
    EXPECT_FALSE(engine.in_flight());
  }
  Pages p;
  OneStreamDriver driver{p};
  StreamEngine engine{driver, p.gate};
  std::shared_ptr<CountedWork> work = std::make_shared<CountedWork>();
  StreamId stream = 0;
  uint32_t generation = 1;
};

TEST(EngineInSpace, ALaunchStaysWhileItLosesSms) {
  StayingLaunch t;
  EXPECT_EQ(t.p.report.keeps, SLUICE_KEEPS_SHRINK | SLUICE_KEEPS_GROW);
  t.driver.can_stay = true;
  t.change(SmSet(0, 2), SLUICE_EVICT_WORD(1, 2, 4));
  EXPECT_EQ(t.driver.asked_to_leave.back(), SmSet(2, 4));
  EXPECT_EQ(t.p.report.left_generation, 0u) << "its blocks are still on them";
  t.driver.has_left = true;
  t.engine.poll(t.p.now);
  EXPECT_EQ(t.p.report.left_generation, 1u);
  EXPECT_EQ(t.p.report.in_flight, 1u);
  EXPECT_EQ(t.driver.launched.size(), 1u) << "it was issued once";
  EXPECT_EQ(t.engine.counters().narrowed, 1u);
  // What was lost is not asked for again with the next change.
  t.change(SmSet(0, 1), SLUICE_EVICT_WORD(2, 1, 4));
  EXPECT_EQ(t.driver.asked_to_leave.back(), SmSet(1, 2));
  EXPECT_EQ(t.p.report.left_generation, 2u);
  t.finish();
  EXPECT_EQ(t.engine.counters().relaunches, 0u);
}

TEST(EngineInSpace, ALaunchGoesOnOnSmsThatWereWon) {
  StayingLaunch t;
  t.driver.can_grow = true;
  t.change(SmSet(0, 6), 0);
  ASSERT_EQ(t.driver.second.size(), 1u);
  EXPECT_EQ(t.driver.second[0].sms, SmSet(0, 6));
  EXPECT_EQ(t.p.report.left_generation, 1u);
  EXPECT_EQ(t.p.report.in_flight, 2u);
  EXPECT_TRUE(t.driver.asked_to_leave.empty());
  EXPECT_EQ(t.p.report.keeps, 0u) << "with a second grid it is called back whole";
  t.change(SmSet(0, 3), SLUICE_EVICT_WORD(2, 3, 6));
  EXPECT_EQ(t.p.report.recall, 2u);
  EXPECT_EQ(t.p.report.left_generation, 1u);
  t.p.signal.evict = SLUICE_EVICT_ALL_SMS(2);
  for (int i = 0; i < 3; ++i) t.driver.run_one(), t.engine.poll(t.p.now);
  EXPECT_EQ(t.p.report.left_generation, 2u);
  EXPECT_EQ(t.engine.counters().relaunches, 1u);
  t.finish();
}

TEST(EngineInSpace, OneThatHasOthersBehindItDoesNotGrow) {
  StayingLaunch t;
  t.driver.can_stay = t.driver.can_grow = t.driver.has_left = true;
  t.engine.submit(t.stream, OpKind::kLaunch, std::make_shared<CountedWork>(), 0, t.p.now);
  t.engine.poll(t.p.now);
  EXPECT_EQ(t.p.report.keeps, SLUICE_KEEPS_SHRINK);
  t.change(SmSet(0, 3), SLUICE_EVICT_WORD(1, 3, 4));
  EXPECT_EQ(t.p.report.left_generation, 1u) << "but both can leave SMs";
  t.change(SmSet(0, 4), 0);
  EXPECT_EQ(t.p.report.recall, 2u);
  EXPECT_TRUE(t.driver.second.empty());
  t.p.signal.evict = SLUICE_EVICT_ALL_SMS(2);
  for (int i = 0; i < 12; ++i) t.driver.run_one(), t.engine.poll(t.p.now);
  EXPECT_EQ(t.p.report.left_generation, 2u);
  EXPECT_EQ(t.p.report.in_flight, 0u);
}

TEST(EngineInSpace, ADriverThatCannotSaysSo) {
  StayingLaunch t;
  t.change(SmSet(0, 2), SLUICE_EVICT_WORD(1, 2, 4));
  EXPECT_EQ(t.p.report.recall, 1u);
  t.p.signal.evict = SLUICE_EVICT_ALL_SMS(1);
  for (int i = 0; i < 2; ++i) t.driver.run_one(), t.engine.poll(t.p.now);
  EXPECT_EQ(t.p.report.left_generation, 1u);
  t.finish();
}

// A stream of a green context has its SMs until what is in it has ended.
TEST(EngineInSpace, WhatTheHardwareConfinesIsCalledBackWhole) {
  StayingLaunch t(Confinement::kHardware);
  EXPECT_EQ(t.p.report.keeps, 0u);
  EXPECT_EQ(t.p.report.unconfined, 0u);
  t.driver.can_stay = t.driver.can_grow = t.driver.has_left = true;
  t.change(SmSet(0, 2), SLUICE_EVICT_WORD(1, 2, 4));
  EXPECT_EQ(t.p.report.recall, 1u);
  t.p.signal.evict = SLUICE_EVICT_ALL_SMS(1);
  for (int i = 0; i < 2; ++i) t.driver.run_one(), t.engine.poll(t.p.now);
  EXPECT_EQ(t.p.report.left_generation, 1u);
  EXPECT_EQ(t.driver.launched.back().sms, SmSet(0, 2));
  t.finish();
}

TEST(EngineInSpace, WhatNothingConfinesIsReportedAsLongAsItRuns) {
  StayingLaunch t(Confinement::kNone);
  EXPECT_EQ(t.p.report.unconfined, 1u);
  t.driver.confinement = Confinement::kHardware;
  t.p.recall(2, SmSet(0, 2));
  t.driver.run_one(), t.engine.poll(t.p.now);
  EXPECT_EQ(t.driver.launched.size(), 2u);
  EXPECT_EQ(t.p.report.unconfined, 0u) << "the next time it is confined";
  t.finish();
}

TEST(EngineInSpace, LaunchesWaitForTheHardwareThatWillSoonConfineThem) {
  StayingLaunch t;
  t.driver.soon = true;
  for (int i = 0; i < 4; ++i)
    t.engine.submit(t.stream, OpKind::kLaunch, std::make_shared<CountedWork>(), 0, t.p.now);
  for (int i = 0; i < 5; ++i) t.driver.run_one(), t.engine.poll(t.p.now);
  EXPECT_EQ(t.driver.launched.size(), 1u);
  EXPECT_EQ(t.p.report.in_flight, 0u) << "so that nobody who takes the SMs back waits for them";
  EXPECT_EQ(t.p.report.demand, 4u);
  EXPECT_TRUE(t.engine.in_flight()) << "somebody has to look again";
  t.driver.soon = false;
  t.engine.poll(t.p.now);
  EXPECT_EQ(t.driver.launched.size(), 5u);
  for (int i = 0; i < 12; ++i) t.driver.run_one(), t.engine.poll(t.p.now);
  t.finish();
}

// The gate closes between sluiced's change and the worker's look: the launch leaves like every
// other.
TEST(EngineInSpace, AGateThatClosesMeanwhileIsObeyed) {
  StayingLaunch t;
  t.driver.can_grow = true;
  t.p.grant(2, SmSet(0, 6), SLUICE_GRANT_RECALL | SLUICE_GRANT_KEEP);
  t.p.host.grant = 2 | SLUICE_GRANT_CONTENDED;
  t.p.signal.evict = SLUICE_EVICT_ALL_SMS(2);
  t.driver.run_one();
  t.engine.poll(t.p.now);
  EXPECT_TRUE(t.driver.second.empty());
  EXPECT_EQ(t.p.report.left_generation, 2u);
  t.p.grant(3, SmSet(0, 1));
  t.engine.poll(t.p.now);
  t.finish();
}

// However often its SMs are full, a launch does not fail; it is tried ever less often.
TEST(EngineInSpace, ALaunchThatFindsNoRoomOnItsSmsIsTriedAgain) {
  Pages p;
  OneStreamDriver driver(p);
  const EngineLimits limits;
  StreamEngine engine(driver, p.gate, limits);
  p.grant(1, SmSet(0, 1));
  const StreamId s = engine.add_stream(1, StreamKind::kNonBlocking);
  engine.submit(s, OpKind::kLaunch, std::make_shared<CountedWork>(), 0, p.now);
  engine.notify_stream(s, 7, p.now);
  driver.nowhere = true;
  driver.run_one();
  engine.poll(p.now);
  EXPECT_EQ(driver.launched.size(), 1u) << "not before its time";
  EXPECT_TRUE(engine.in_flight()) << "somebody has to look again";
  EXPECT_EQ(p.report.in_flight, 0u) << "nothing is on the GPU meanwhile";
  p.now += limits.retry_first_ns;
  engine.poll(p.now);
  EXPECT_EQ(driver.launched.size(), 2u);
  const size_t tries = 3 * limits.futile_launches;
  while (driver.launched.size() < tries) {
    driver.run_one();
    p.now += limits.retry_most_ns;
    engine.poll(p.now);
  }
  EXPECT_EQ(engine.error(), CUDA_SUCCESS);
  driver.nowhere = false;
  for (int i = 0; i < 4; ++i) driver.run_one(), engine.poll(p.now);
  EXPECT_EQ(driver.completed, std::vector<CUresult>{CUDA_SUCCESS});
  EXPECT_FALSE(engine.in_flight());
}

// ---- blocks -------------------------------------------------------------------------------------

TEST(Parts, BlocksForSomeSms) {
  // A third of an H200's SMs, eight blocks on each, tasks enough.
  const Part p = plan_part(SmSet(88, 132), 132, 8, 100'000, 1'000'000);
  EXPECT_EQ(p.lo, 88u);
  EXPECT_EQ(p.hi, 132u);
  EXPECT_EQ(p.quota, 8u);
  EXPECT_EQ(p.workers, 44u * 8);
  EXPECT_EQ(p.blocks, 132u * 8) << "as many as the GPU holds";
  EXPECT_TRUE(p.barred.empty());
  EXPECT_GE(1u << p.tail_shift, 2 * p.workers);
}

TEST(Parts, SmsThatDoNotHangTogetherAreARangeLessOthers) {
  const Part p = plan_part(SmSet(0, 2) | SmSet(5, 6), 8, 2, 1000, 1000);
  EXPECT_EQ(p.lo, 0u);
  EXPECT_EQ(p.hi, 6u);
  EXPECT_EQ(p.barred, SmSet(2, 5));
  EXPECT_EQ(p.workers, 6u);
}

TEST(Parts, FewTasksAreSpreadOverTheSms) {
  const Part p = plan_part(SmSet(0, 4), 132, 16, 3, 10'000);
  EXPECT_EQ(p.workers, 3u);
  EXPECT_EQ(p.quota, 1u);
  EXPECT_EQ(p.blocks, 132u * kOverLaunch) << "enough that one comes to each SM";
}

TEST(Parts, NeverMoreBlocksThanTheListHasSlots) {
  const Part p = plan_part(SmSet(0, 1), 132, 32, 1'000'000, 3000);
  EXPECT_EQ(p.blocks, 3000u);
}

TEST(SmSets, RangesAndWords) {
  SmSet s(60, 70);
  s.add(255);
  EXPECT_EQ(s.count(), 11u);
  EXPECT_EQ(s.next_range().lo, 60u);
  EXPECT_EQ(s.next_range().hi, 70u);
  EXPECT_EQ(s.next_range(70).lo, 255u);
  EXPECT_EQ(s.next_range(70).hi, 256u);
  EXPECT_EQ(s.next_range(256).lo, s.next_range(256).hi);
  EXPECT_FALSE(s.contains(256));
  EXPECT_EQ(SmSet(250, 999).count(), 6u) << "cut at the most that there can be";
  EXPECT_TRUE(s.meets(SmSet(69, 80)));
  EXPECT_FALSE(s.meets(SmSet(70, 80)));
  EXPECT_TRUE(s.contains_all(SmSet(61, 62)));
}

}  // namespace
}  // namespace sluice::worker
