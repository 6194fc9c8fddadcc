// SPDX-License-Identifier: Apache-2.0
// Habit: what bursts and gaps are learnt, and what a vGPU is said to do by them.
#include "policies/wfq/slices/habit.h"

#include "tests/unit/policies/wfq/slices/sliced_gpu_test.h"

namespace sluice::policy::slices {
namespace {

class HabitTest : public SlicedGpuTest {
 protected:
  const SliceLengths& lengths() const { return gpu.lengths; }
  SliceLengths on_other_machine() const { return SliceLengths(other_); }
  // A burst of `ns` that was over as soon, and then a gap.
  void burst(uint64_t ns, uint64_t gap_ns) {
    if (habit.waited_ns) habit.note_gap(now);
    habit.came_ns = now;
    now += ns;
    habit.note_use(now, static_cast<double>(ns));
    habit.busy_ns = ns;
    habit.note_burst(lengths());
    habit.waited_ns = now;
    now += gap_ns;
  }
  Habit habit;

 private:
  const Config other_ = config(/*free_alone=*/false);
};

TEST_F(HabitTest, AFadingSumForgets) {
  FadingSum sum;
  sum.add(now, 100);
  EXPECT_DOUBLE_EQ(sum.at(now), 100);
  now += static_cast<uint64_t>(FadingSum::kLatelyNs);
  EXPECT_NEAR(sum.at(now), 36.8, 0.1);
  sum.add(now, 50);
  EXPECT_NEAR(sum.at(now), 86.8, 0.1);
  sum.clear();
  EXPECT_EQ(sum.at(now), 0);
}

// Of a constant use, and of a constant number of times.
TEST_F(HabitTest, PartsOfTheTimeLately) {
  for (int i = 0; i < 2000; ++i) {
    habit.came_ns = now;
    habit.came_lately.add(now, 1);
    now += kMs / 2;
    habit.note_use(now, 250e3);
    habit.note_busy(now);
    now += kMs / 2;
  }
  EXPECT_NEAR(habit.part_used(now), 0.25, 0.01);
  EXPECT_NEAR(habit.part_busy(now, false), 0.5, 0.01);
  EXPECT_NEAR(habit.comes_a_second(now), 1000, 10);
  habit.came_ns = now - 30 * kMs;
  EXPECT_NEAR(habit.part_busy(now, true), 0.6, 0.01) << "a tenth since it came last";
  habit.came_ns = now - kSecond;
  EXPECT_EQ(habit.part_busy(now, true), 1);
  for (int i = 0; i < 10; ++i) habit.note_busy(now);
  EXPECT_EQ(habit.part_busy(now, false), 1) << "and one long time counts as long as is remembered";
}

TEST_F(HabitTest, BurstsAndGapsAreMeans) {
  burst(kMs, 3 * kMs);
  EXPECT_EQ(habit.burst_ns, 1e6);
  EXPECT_EQ(habit.gap_ns, 0) << "not known before it is back";
  burst(2 * kMs, 7 * kMs);
  EXPECT_EQ(habit.burst_ns, 1.25e6);
  EXPECT_EQ(habit.gap_ns, 3e6);
  burst(2 * kMs, 0);
  EXPECT_EQ(habit.gap_ns, 4e6);
  Habit never;
  never.note_gap(now);
  EXPECT_EQ(never.gap_ns, 0) << "it did not wait before it came first";
  now += 10 * kSecond;
  habit.note_gap(now);
  EXPECT_EQ(habit.gap_ns, 28e6) << "a long one counts as 100 ms";
}

// The log tells late, of several bursts at once.
TEST_F(HabitTest, UseThatIsToldLateIsDividedAmongTheBurstsSince) {
  for (int i = 0; i < 3; ++i) habit.note_burst(lengths());
  EXPECT_EQ(habit.burst_ns, 0);
  habit.note_use(now, 8e6);
  habit.note_burst(lengths());
  EXPECT_EQ(habit.burst_ns, 2e6);
  EXPECT_EQ(habit.bursts, 0u);
  EXPECT_EQ(habit.used_ns, 0);
}

TEST_F(HabitTest, ABurstOfMuchLessTimeIsAnotherPrograms) {
  burst(20 * kMs, kMs);
  habit.busy_ns = 4 * kMs;
  habit.note_burst(lengths());
  EXPECT_EQ(habit.burst_ns, 0);
  EXPECT_EQ(habit.part_used(now), 0);
  habit = {};
  burst(20 * kMs, kMs);
  habit.busy_ns = 6 * kMs;
  habit.note_burst(lengths());
  EXPECT_EQ(habit.burst_ns, 20e6);
  habit.busy_ns = kMs;
  habit.note_burst(on_other_machine());  // where a vGPU that waits for its turn is not asked
  EXPECT_EQ(habit.burst_ns, 20e6);
}

TEST_F(HabitTest, WhatItsWorkerSaysOfATimeAloneIsTaken) {
  burst(20 * kMs, kMs);
  habit.note_use(now, 1e6);
  habit.bursts = 2;
  habit.take({.burst_ns = kMs, .gap_ns = 2 * kMs, .waited_ns = now});
  EXPECT_EQ(habit.burst_ns, 1e6);
  EXPECT_EQ(habit.gap_ns, 2e6);
  EXPECT_EQ(habit.waited_ns, now);
  EXPECT_EQ(habit.busy_ns, kMs);
  EXPECT_EQ(habit.used_ns, 0);
  EXPECT_EQ(habit.bursts, 0u);
  habit.take({.burst_ns = kMs, .gap_ns = 1000 * kSecond});
  EXPECT_EQ(habit.gap_ns, 100e6);
}

TEST_F(HabitTest, WhatItUsedAloneWasNoBurst) {
  habit.came_ns = 1;
  habit.note_use(now, 500e6);
  habit.bursts = 3;
  habit.forget_burst(now);
  EXPECT_EQ(habit.bursts, 0u);
  habit.note_burst(lengths());
  EXPECT_EQ(habit.burst_ns, 0);
  EXPECT_EQ(habit.came_ns, now);
}

TEST_F(HabitTest, AVisitIsShorterThanHalfOfASlice) {
  habit.burst_ns = kMeanNs / 2.0 - 1;
  EXPECT_TRUE(habit.visits(now, false, lengths()));
  habit.burst_ns = kMeanNs / 2.0;
  EXPECT_FALSE(habit.visits(now, false, lengths()));
}

TEST_F(HabitTest, AVisitorThatStaysIsNone) {
  habit.burst_ns = 100e3;
  habit.came_ns = now - 4 * (kMeanNs + kHandoverNs);
  EXPECT_TRUE(habit.visits(now, true, lengths()));
  EXPECT_FALSE(habit.visits(now + 1, true, lengths()));
  EXPECT_TRUE(habit.visits(now + 1, false, lengths())) << "it is not there";
  EXPECT_TRUE(habit.visits(now + 1, true, on_other_machine()));
}

// Before the log tells what it used: it was gone soon.
TEST_F(HabitTest, AVisitorIsKnownBeforeItsUseIsTold) {
  EXPECT_FALSE(habit.visits(now, false, lengths())) << "nothing is known of it";
  habit.busy_ns = kMeanNs;
  EXPECT_TRUE(habit.visits(now, false, lengths()));
  EXPECT_FALSE(habit.visits(now, false, on_other_machine()));
  habit.busy_ns = kMeanNs * 5 / 4 + kHandoverNs;  // a long slice of another, and a switch
  EXPECT_TRUE(habit.visits(now, false, lengths()));
  habit.busy_ns = 2 * kMeanNs;
  EXPECT_FALSE(habit.visits(now, false, lengths()));
}

TEST_F(HabitTest, OneThatPausesHasBurstsShorterThanItsQuantumAndNotTooShort) {
  habit.waited_ns = now - kMs;
  habit.burst_ns = 3e6;
  EXPECT_TRUE(habit.pauses(now, 4e6, lengths()));
  EXPECT_FALSE(habit.pauses(now, 3e6, lengths()));
  habit.burst_ns = kHandoverNs / 6.0;
  EXPECT_TRUE(habit.pauses(now, 4e6, lengths()));
  habit.burst_ns = kHandoverNs / 10.0;
  EXPECT_FALSE(habit.pauses(now, 4e6, lengths())) << "the others would stop for next to nothing";
  habit.burst_ns = 3e6;
  now += kSecond;
  EXPECT_FALSE(habit.pauses(now, 4e6, lengths())) << "not lately";
  habit.waited_ns = 0;
  EXPECT_FALSE(habit.pauses(kMs, 4e6, lengths())) << "never";
}

TEST_F(HabitTest, OneThatChatsWaitsShortlyAfterShortLaunches) {
  habit.waited_ns = now;
  habit.burst_ns = 1e6, habit.gap_ns = 100e3;
  EXPECT_TRUE(habit.chats(now, lengths()));
  EXPECT_FALSE(habit.chats(now + kSecond, lengths()));
  habit.burst_ns = 0;
  EXPECT_FALSE(habit.chats(now, lengths()));
  habit.burst_ns = kMeanNs / 2.0 - 1;
  EXPECT_TRUE(habit.chats(now, lengths()));
  habit.burst_ns = kMeanNs / 2.0;
  EXPECT_FALSE(habit.chats(now, lengths()));
  habit.burst_ns = 1e6, habit.gap_ns = 2.0 * kHandoverNs;
  EXPECT_FALSE(habit.chats(now, lengths()));
}

TEST_F(HabitTest, OneThatReturnsWaitsShortlyAfterLongLaunches) {
  habit.burst_ns = kMeanNs / 2.0, habit.gap_ns = 2.0 * kHandoverNs - 1;
  EXPECT_TRUE(habit.returns(lengths()));
  EXPECT_FALSE(habit.returns_soon(lengths())) << "its gate was closed when it went";
  habit.idled_open = true;
  EXPECT_TRUE(habit.returns_soon(lengths()));
  EXPECT_FALSE(habit.returns_soon(on_other_machine()));
  habit.gap_ns += 1;
  EXPECT_FALSE(habit.returns(lengths()));
  habit.gap_ns = 0;
  EXPECT_FALSE(habit.returns(lengths())) << "its gaps are not known";
  habit.burst_ns -= 1, habit.gap_ns = 1;
  EXPECT_FALSE(habit.returns(lengths()));
}

TEST_F(HabitTest, OneNeedsTurnsWhoseLaunchesAreSomeSlicesLong) {
  habit.waited_ns = now;
  habit.burst_ns = 2.0 * kMeanNs, habit.gap_ns = 20e3;
  EXPECT_TRUE(habit.needs_turns(now, lengths()));
  EXPECT_FALSE(habit.needs_turns(now + kSecond, lengths()));
  habit.burst_ns = 8.0 * kMeanNs;
  EXPECT_FALSE(habit.needs_turns(now, lengths())) << "others would wait for the rest of one";
  habit.burst_ns = kMeanNs / 4.0;
  EXPECT_FALSE(habit.needs_turns(now, lengths()));
}

TEST_F(HabitTest, AShortWaitIsLessThanHalfASwitchAndLittleOfTheTime) {
  habit.idled_open = true;
  habit.burst_ns = 5e6, habit.gap_ns = kHandoverNs / 2.0 - 1;
  EXPECT_TRUE(habit.wait_is_short(lengths()));
  EXPECT_FALSE(habit.wait_is_short(on_other_machine()));
  habit.gap_ns += 1;
  EXPECT_FALSE(habit.wait_is_short(lengths()));
  habit.gap_ns = 70e3, habit.burst_ns = 940e3;
  EXPECT_TRUE(habit.wait_is_short(lengths())) << "less than 7 % of the time";
  habit.burst_ns = 920e3;
  EXPECT_FALSE(habit.wait_is_short(lengths())) << "more";
  habit.gap_ns = 0;
  EXPECT_FALSE(habit.wait_is_short(lengths())) << "it is not known";
  habit.gap_ns = 10e3, habit.idled_open = false;
  EXPECT_FALSE(habit.wait_is_short(lengths())) << "its gate was closed";
}

TEST_F(HabitTest, ATurnByGatesIsFilledByWorkAndNotByLongLaunches) {
  habit.burst_ns = 2.0 * kHandoverNs, habit.gap_ns = habit.burst_ns - 1;
  EXPECT_TRUE(habit.fills_its_turn(lengths()));
  habit.gap_ns += 1;
  EXPECT_FALSE(habit.fills_its_turn(lengths()));
  habit.gap_ns = 1, habit.burst_ns = 4.0 * kHandoverNs;
  EXPECT_FALSE(habit.fills_its_turn(lengths()));
}

TEST_F(HabitTest, WhoWouldNotUseHalfOfItsPartAsksLittle) {
  habit.burst_ns = 1e6, habit.gap_ns = 3.1e6;
  EXPECT_TRUE(habit.asks_less_than_half(0.5));
  habit.gap_ns = 2.9e6;
  EXPECT_FALSE(habit.asks_less_than_half(0.5));
  habit.gap_ns = 0;
  EXPECT_FALSE(habit.asks_less_than_half(1)) << "its gaps are not known";
}

// To claim work and to have none would gate others.
TEST_F(HabitTest, WhoComesOftenAndUsesNothingComesForNothing) {
  habit.used_at_ns = now;
  for (int i = 0; i < 100; ++i) habit.note_burst(lengths());
  EXPECT_FALSE(habit.comes_for_nothing(now + 50 * kMs)) << "the log is late";
  EXPECT_TRUE(habit.comes_for_nothing(now + 200 * kMs));
  habit.note_use(now + 200 * kMs, 1e3);
  EXPECT_FALSE(habit.comes_for_nothing(now + 200 * kMs));
  Habit seldom;
  for (int i = 0; i < 15; ++i) seldom.note_burst(lengths());
  EXPECT_FALSE(seldom.comes_for_nothing(now));
  seldom.note_burst(lengths());
  EXPECT_TRUE(seldom.comes_for_nothing(now));
}

}  // namespace
}  // namespace sluice::policy::slices
