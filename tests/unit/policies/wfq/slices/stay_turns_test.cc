// SPDX-License-Identifier: Apache-2.0
// StayTurns: when those that stay have turns by their gates, and the states of a turn.
#include "policies/wfq/slices/stay_turns.h"

#include "tests/unit/policies/wfq/slices/sliced_gpu_test.h"

namespace sluice::policy::slices {
namespace {

constexpr uint64_t kTurnNs = 5 * kMs;  // a mean slice

class StayTurnsTest : public SlicedGpuTest {
 protected:
  using SlicedGpuTest::SlicedGpuTest;
  VgpuId add_staying(const VgpuShare& share = {}) {
    const VgpuId v = add_busy(share);
    stay(v);
    return v;
  }
  void stay(VgpuId v) {
    gpu[v].habit.came_ns = now - kSecond;
    gpu[v].slice_ns = kMs;
  }
  VgpuId add_visiting(const VgpuShare& share = {}) {
    const VgpuId v = add_busy(share);
    has_habit(v, 500e3, 50e6);
    return v;
  }
  bool applies() {
    begin_round();
    return turns.applies(now);
  }
  double begin_turns() {
    EXPECT_TRUE(applies());
    return turns.begin_round(now);
  }
  // All gates close, what the holder had begun leaves, and the next turn begins.
  void hand_over(VgpuId from) {
    EXPECT_NEAR(begin_turns(), 100e6, 1);
    EXPECT_TRUE(turns.on_left(from));
    begin_turns();
  }
  ExpectedVisits expected{gpu};
  StayTurns turns{gpu, expected};
};

// ---- when there are such turns -----------------------------------------------------------------

TEST_F(StayTurnsTest, BesideAVisitorTwoThatStayHaveTurns) {
  add_staying(), add_staying();
  EXPECT_FALSE(applies()) << "nobody visits them";
  const VgpuId visitor = add_visiting();
  EXPECT_TRUE(applies());
  EXPECT_TRUE(gpu.stay_turns);
  EXPECT_TRUE(gpu[0].stays && gpu[1].stays && !gpu[visitor].stays);
  go(visitor);
  EXPECT_FALSE(applies());
  EXPECT_FALSE(turns.active() || gpu.stay_turns);
}

TEST_F(StayTurnsTest, WhereAVisitorIsExpectedToo) {
  add_staying(), add_staying();
  const VgpuId visitor = add();
  expected.note(now, visitor);
  EXPECT_TRUE(applies());
  now += 2 * kSecond;
  stay(0), stay(1);
  EXPECT_FALSE(applies());
}

TEST_F(StayTurnsTest, AVisitorOfClassBatchWaits) {
  add_staying(), add_staying(), add_visiting({.latency = LatencyClass::kBatch});
  EXPECT_FALSE(applies());
}

TEST_F(StayTurnsTest, OneThatStaysAloneHasNoTurns) {
  add_staying(), add_visiting();
  EXPECT_FALSE(applies());
}

TEST_F(StayTurnsTest, NotAmongACrowdOfVisitorsNorSoonAfterwards) {
  add_staying(), add_staying();
  for (int i = 0; i < 5; ++i) add_visiting();
  EXPECT_TRUE(applies());
  const VgpuId sixth = add_visiting();
  EXPECT_FALSE(applies());
  go(sixth);
  now += 190 * kMs;
  for (VgpuId v = 2; v < sixth; ++v) gpu[v].habit.came_ns = now, has_habit(v, 500e3, 50e6);
  EXPECT_FALSE(applies());
  now += 10 * kMs;
  EXPECT_TRUE(applies());
}

// The hardware goes on at each of their pauses, so no slice gives them more than one launch.
TEST_F(StayTurnsTest, WhereTwoOfThreeWaitAfterLongLaunches) {
  for (int i = 0; i < 3; ++i) add_staying(), has_habit(i, 2.0 * kMeanNs, 20e3);
  EXPECT_TRUE(applies());
  go(2);
  EXPECT_TRUE(applies()) << "the holder, which waits, may be the third";
}

TEST_F(StayTurnsTest, NotWhereOneOfThreeOrTwoOfTwoDo) {
  for (int i = 0; i < 2; ++i) add_staying(), has_habit(i, 2.0 * kMeanNs, 20e3);
  EXPECT_FALSE(applies());
  add_staying();
  EXPECT_TRUE(applies());
  StayTurns others{gpu, expected};
  gpu[1].habit.gap_ns = 0;
  EXPECT_FALSE(others.applies(now));
}

TEST_F(StayTurnsTest, NotWhereARiderIsAhead) {
  add_staying(), add_staying(), add_visiting();
  gpu[1].rides_until_ns = now + kSecond;
  EXPECT_TRUE(applies());
  charge(1, 14 * kMs);  // leads by two thirds of that
  EXPECT_TRUE(applies());
  charge(1, 2 * kMs);
  EXPECT_FALSE(applies());
  gpu[1].rides_until_ns = now;
  EXPECT_TRUE(applies()) << "its kernel has ended";
}

// Its worker says that it visits; the log says otherwise.
TEST_F(StayTurnsTest, WhoHasItsShareStaysWhateverItsWorkerSays) {
  add_staying(), add_visiting();
  const VgpuId liar = add_visiting();
  EXPECT_FALSE(applies());
  gpu[liar].habit.used_lately.add(now, 0.5 * FadingSum::kLatelyNs);
  EXPECT_TRUE(applies());
  EXPECT_TRUE(gpu[liar].stays);
}

TEST_F(StayTurnsTest, OneThatWaitsForItsVisitIsAVisitorUntilItUsesMore) {
  add_staying(), add_staying();
  const VgpuId visitor = add_visiting();
  gpu[visitor].habit.came_ns = now - kSecond;  // it waits all that time
  EXPECT_TRUE(applies());
  EXPECT_FALSE(gpu[visitor].stays);
  gpu[visitor].habit.used_ns = 3e6;  // more than its bursts since then can be
  applies();
  EXPECT_TRUE(gpu[visitor].stays);
}

// Of several visits the log, which is late, tells the use at once.
TEST_F(StayTurnsTest, OneWhoseUseIsToldLateIsAVisitorUntilItIsMoreThanItsVisitsCanBe) {
  add_staying(), add_staying();
  Habit& habit = gpu[add_busy()].habit;
  habit.came_ns = now - kSecond, habit.used_at_ns = now;
  habit.bursts = 2;
  habit.used_ns = 7e6;  // three of half a slice, the one that it waits for among them
  EXPECT_TRUE(applies());
  EXPECT_FALSE(gpu[2].stays);
  habit.used_ns = 8e6;
  applies();
  EXPECT_TRUE(gpu[2].stays);
  habit.used_ns = 0, habit.bursts = 100, habit.used_at_ns = now - kSecond;
  applies();
  EXPECT_TRUE(gpu[2].stays) << "it comes for nothing, and has been there for long";
}

TEST_F(StayTurnsTest, ABurstOfClassLowIsNoStay) {
  add_staying(), add_staying();
  gpu[1].in_burst = true, gpu[1].credit_ns = 1e6;
  EXPECT_FALSE(applies());
  EXPECT_FALSE(gpu[1].stays);
}

class StayTurnsOnOtherMachine : public StayTurnsTest {
 protected:
  StayTurnsOnOtherMachine() : StayTurnsTest(config(/*free_alone=*/false)) {}
};

TEST_F(StayTurnsOnOtherMachine, NotWhereShortSlicesCost) {
  add_staying(), add_staying(), add_visiting();
  EXPECT_FALSE(applies());
  EXPECT_FALSE(turns.begin_with(now, 2));
}

// ---- one that comes in the middle of a round ---------------------------------------------------

TEST_F(StayTurnsTest, AVisitorThatComesBeginsThem) {
  add_staying(), add_staying();
  EXPECT_FALSE(applies());
  const VgpuId visitor = add_visiting();
  EXPECT_TRUE(turns.begin_with(now, visitor));
  applies();
  EXPECT_FALSE(turns.begin_with(now, visitor)) << "there are such turns already";
}

TEST_F(StayTurnsTest, NotOneOfALowerPriorityNorWhereOthersHaveGone) {
  add_staying({.priority = 1}), add_staying({.priority = 1});
  EXPECT_FALSE(applies());
  EXPECT_FALSE(turns.begin_with(now, add_visiting()));
  const VgpuId visitor = add_visiting({.priority = 1});
  go(1);  // still in the round's top
  EXPECT_FALSE(turns.begin_with(now, visitor));
}

// ---- the states of a turn ----------------------------------------------------------------------

TEST_F(StayTurnsTest, TheFurthestBehindByWeightBegins) {
  add_staying(), add_staying({.weight = 300}), add_staying(), add_visiting();
  charge(0, 4 * kMs), charge(1, 9 * kMs), charge(2, 5 * kMs), charge(3, 3 * kMs);
  EXPECT_NEAR(begin_turns(), kTurnNs, 1);
  EXPECT_EQ(open(), (Open{1, 3}));
  EXPECT_TRUE(turns.runs(1) && turns.holder_is_there());
  EXPECT_FALSE(turns.runs(0));
}

TEST_F(StayTurnsTest, AnEndedTurnIsLeftBeforeTheNextBegins) {
  add_staying(), add_staying(), add_visiting();
  begin_turns();
  ASSERT_EQ(open(), (Open{0, 2}));
  now += kTurnNs, charge(0, kTurnNs);
  begin_turns();
  EXPECT_EQ(open(), (Open{2})) << "what it had begun leaves";
  EXPECT_TRUE(gpu[0].is_awaited);
  EXPECT_FALSE(turns.runs(0));
  EXPECT_FALSE(turns.on_left(1)) << "nobody waits for that one";
  gpu[0].rides_until_ns = now + kSecond;
  EXPECT_TRUE(turns.on_left(0));
  EXPECT_FALSE(gpu.rides(now, 0));
  begin_turns();
  EXPECT_EQ(open(), (Open{1, 2}));
  EXPECT_FALSE(gpu[0].is_awaited);
  EXPECT_FALSE(turns.on_left(1)) << "its turn goes on";
}

TEST_F(StayTurnsTest, OneThatIsWaitedForEndsNoTurnsByGoingOn) {
  add_staying(), add_staying(), add_visiting();
  begin_turns();
  ASSERT_TRUE(turns.runs(0));
  now += kTurnNs, charge(0, kTurnNs);
  begin_turns();
  charge(0, 30 * kMs);
  gpu[0].rides_until_ns = now + kSecond;
  EXPECT_TRUE(applies());
  turns.on_left(0);
  begin_turns();
  gpu[0].rides_until_ns = now + kSecond;
  EXPECT_FALSE(applies()) << "it had left";
}

TEST_F(StayTurnsTest, OneThatNeverLeavesIsWaitedForWithinABound) {
  add_staying(), add_staying(), add_visiting();
  begin_turns();
  now += kTurnNs, charge(0, kTurnNs);
  const double wait_ns = begin_turns();
  EXPECT_NEAR(wait_ns, 100e6, 1);
  now += static_cast<uint64_t>(wait_ns) - kMs;
  has_habit(2, 500e3, 50e6), gpu[2].habit.came_ns = now;
  EXPECT_NEAR(begin_turns(), 1e6, 1);
  EXPECT_EQ(open(), (Open{2}));
  now += kMs;
  begin_turns();
  EXPECT_EQ(open(), (Open{1, 2}));
}

TEST_F(StayTurnsTest, WhoIsStillFurthestBehindGoesOn) {
  add_staying({.weight = 1000}), add_staying(), add_visiting();
  begin_turns();
  ASSERT_TRUE(turns.runs(0));
  now += kTurnNs, charge(0, kTurnNs);
  charge(1, 4 * kMs);
  EXPECT_NEAR(begin_turns(), kTurnNs, 1);
  EXPECT_TRUE(turns.runs(0));
}

// The log tells late who has used the GPU: without that the same one would have turn after turn.
TEST_F(StayTurnsTest, ATurnThatTheLogHasNotToldCounts) {
  add_staying(), add_staying(), add_visiting();
  begin_turns();
  ASSERT_TRUE(turns.runs(0));
  now += kTurnNs;  // nothing is told of it
  hand_over(0);
  EXPECT_TRUE(turns.runs(1));
  // It never tells: after a while that is true.
  now += 100 * kMs;
  charge(1, kTurnNs), gpu[1].left_ns = 0;
  gpu[2].habit.came_ns = now, has_habit(2, 500e3, 50e6);
  hand_over(1);
  EXPECT_TRUE(turns.runs(0));
}

// As long as since its end, which may be later than planned.
TEST_F(StayTurnsTest, ATurnCountsSinceItsEnd) {
  for (int i = 0; i < 3; ++i) add_staying();
  const VgpuId visitor = add_visiting();
  charge(2, 4 * kMs);
  begin_turns();
  ASSERT_TRUE(turns.runs(0));
  now += kTurnNs + 5 * kMs;
  hand_over(0);
  ASSERT_TRUE(turns.runs(1));
  now += 12 * kMs;
  charge(1, 12 * kMs), gpu[visitor].habit.came_ns = now;
  hand_over(1);
  EXPECT_TRUE(turns.runs(2)) << "0 would lag by 4 ms without its turn, of which nothing is told";
}

TEST_F(StayTurnsTest, TurnsThatBeginAnewKnowNoHolder) {
  add_staying(), add_staying();
  const VgpuId visitor = add_visiting();
  begin_turns();
  ASSERT_TRUE(turns.runs(0));
  go(visitor);
  ASSERT_FALSE(applies());
  now += kSecond;
  stay(0), stay(1), come(visitor), has_habit(visitor, 500e3, 50e6);
  begin_turns();
  ASSERT_TRUE(turns.runs(0));
  EXPECT_NEAR(gpu[0].left_ns, static_cast<double>(kTurnNs), 1) << "no more than this turn";
}

TEST_F(StayTurnsTest, AHolderWithoutWorkGivesItsTurnAway) {
  add_staying(), add_staying(), add_visiting();
  begin_turns();
  go(0);
  now += kMs;
  const VgpuId third = add_staying();
  charge(third, kMs), charge(1, 2 * kMs), charge(2, 2 * kMs);
  EXPECT_NEAR(begin_turns(), kTurnNs, 1) << "at once: there is nothing that has to leave";
  EXPECT_TRUE(turns.runs(third));
  EXPECT_NEAR(gpu[0].left_ns, 1e6, 1) << "what it had of it";
}

TEST_F(StayTurnsTest, AVisitorWaitsOnlyWhenItIsASliceAhead) {
  add_staying(), add_staying(), add_visiting();
  begin_turns();
  EXPECT_FALSE(turns.has_to_wait(2));
  charge(2, 7 * kMs);  // leads by two thirds of that
  begin_turns();
  EXPECT_FALSE(turns.has_to_wait(2));
  charge(2, kMs);
  begin_turns();
  EXPECT_TRUE(turns.has_to_wait(2));
  EXPECT_TRUE(gpu[2].gated);
  gpu[2].in_burst = true, gpu[2].credit_ns = 1e6;
  EXPECT_FALSE(turns.has_to_wait(2)) << "a burst does not";
}

TEST_F(StayTurnsTest, WithoutSuchTurnsNobodyWaits) {
  add_staying(), add_staying();
  gpu[0].stays = true;
  EXPECT_FALSE(turns.has_to_wait(0));
}

TEST_F(StayTurnsTest, ASliceIsAsShortAsAnExpectedVisitorWants) {
  add_staying(), add_staying(), add_visiting();
  begin_turns();
  EXPECT_EQ(turns.slice_ns(now, 0), kMeanNs);
  EXPECT_EQ(gpu[0].wanted_ns, kMeanNs);
  expected.note(now, 2);
  EXPECT_EQ(turns.slice_ns(now, 0), kMs);
  EXPECT_EQ(turns.slice_ns(now, 2), kMeanNs) << "the visitor's own";
}

}  // namespace
}  // namespace sluice::policy::slices
