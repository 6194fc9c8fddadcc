// SPDX-License-Identifier: Apache-2.0
// SlicedGpu: who is backlogged and gated, who sits out a round, who asks for more than a visitor
// may.
#include "policies/wfq/slices/gpu.h"

#include "tests/unit/policies/wfq/slices/sliced_gpu_test.h"

namespace sluice::policy::slices {
namespace {

class SlicedGpuRules : public SlicedGpuTest {
 protected:
  void use_lately(VgpuId v, double part) {
    gpu[v].habit.used_lately.clear();
    gpu[v].habit.used_lately.add(now, part * FadingSum::kLatelyNs);
  }
  void be_busy_lately(VgpuId v, double part) {
    gpu[v].habit.busy_lately.add(now, part * FadingSum::kLatelyNs);
  }
};

TEST_F(SlicedGpuRules, WhoGoesLeavesNoGap) {
  for (int i = 0; i < 4; ++i) add_busy();
  go(1), go(3), go(0);
  EXPECT_EQ(gpu.busy, (std::vector<VgpuId>{2}));
  come(1);
  go(2);
  EXPECT_EQ(gpu.busy, (std::vector<VgpuId>{1}));
}

TEST_F(SlicedGpuRules, GatesAreCounted) {
  const VgpuId v = add_busy(), w = add_busy();
  gpu.gate(now, v, true);
  gpu[v].used_gated_ns = 7;
  gpu.gate(now + kMs, v, true);
  EXPECT_EQ(gpu[v].gated_at_ns, now) << "it was gated already";
  EXPECT_EQ(gpu[v].used_gated_ns, 7);
  gpu.gate(now, w, true);
  EXPECT_EQ(gpu.gated, 2u);
  gpu.gate(now + 2 * kMs, v, false);
  EXPECT_EQ(gpu.gated, 1u);
  EXPECT_EQ(gpu[v].gated_at_ns, now + 2 * kMs);
  EXPECT_EQ(gpu[v].used_gated_ns, 0);
}

TEST_F(SlicedGpuRules, TheTopIsOfTheHighestPriorityThatHasWork) {
  add_busy();
  const VgpuId a = add_busy({.weight = 30, .priority = 2}), b = add_busy({.priority = 2});
  add({.priority = 3});  // no work
  charge(a, 3 * kMs);
  gpu.find_top();
  EXPECT_EQ(gpu.top_priority, 2u);
  EXPECT_EQ(gpu.top, (std::vector<VgpuId>{a, b}));
  EXPECT_EQ(gpu.weight_of_top, 130);
  EXPECT_NEAR(gpu[a].lead_ns, 3e6 * 100 / 130, 100);
  EXPECT_NEAR(gpu[b].lead_ns, -3e6 * 100 / 130, 100);
  go(a), go(b);
  gpu.find_top();
  EXPECT_EQ(gpu.top, (std::vector<VgpuId>{0}));
  const VgpuId highest = add_busy({.priority = kPriorityLevels - 1});
  gpu.find_top();
  EXPECT_EQ(gpu.top, (std::vector<VgpuId>{highest}));
}

TEST_F(SlicedGpuRules, AnOpenGateKeepsItsSlice) {
  const VgpuId v = add_busy();
  EXPECT_EQ(gpu.kept_slice_ns(v), 0) << "it has none";
  gpu[v].slice_ns = 3 * kMs, gpu[v].wanted_ns = 2 * kMs;
  EXPECT_EQ(gpu.kept_slice_ns(v), 3e6);
  gpu.gate(now, v, true);
  EXPECT_EQ(gpu.kept_slice_ns(v), 0);
  gpu[v].is_awaited = true;
  EXPECT_EQ(gpu.kept_slice_ns(v), 2e6) << "others wait until it has left";
}

TEST_F(SlicedGpuRules, BesideTurnsOfThoseThatStayAVisitorKeepsNothing) {
  const VgpuId v = add_busy();
  gpu[v].slice_ns = 3 * kMs;
  gpu.stay_turns = true;
  EXPECT_EQ(gpu.kept_slice_ns(v), 0);
  gpu[v].stays = true;
  EXPECT_EQ(gpu.kept_slice_ns(v), 3e6);
}

// Or all would be ahead where one that pauses lags.
TEST_F(SlicedGpuRules, TheRestIsComparedWithItself) {
  const VgpuId a = add_busy({.weight = 300}), b = add_busy();
  gpu[a].lead_ns = 9e6, gpu[b].lead_ns = 3e6;
  gpu.lead_of_rest = 12e6, gpu.weight_of_rest = 400;
  EXPECT_EQ(gpu.lead_among_rest(a), 0);
  EXPECT_EQ(gpu.lead_among_rest(b), 0);
}

// A quantum is 5.2 ms, and so is the shortest turn's 3/4 of it: 3.95 ms with its switch.
TEST_F(SlicedGpuRules, WhoIsFurtherAheadThanHalfATurnFromItsQuantumSitsOut) {
  const VgpuId v = add_busy();
  add_busy();
  begin_round();
  const double quantum = gpu.quantum_ns(v),
               turn = static_cast<double>(gpu.slice_for(v, 1e18)) + kHandoverNs;
  ASSERT_LT(turn, quantum);
  EXPECT_FALSE(gpu.sits_out(v, quantum - turn / 2 - 1e3));
  EXPECT_TRUE(gpu.sits_out(v, quantum - turn / 2 + 1e3));
  gpu.gate(now, v, true);  // what it had begun would run on in floor slices: half a turn behind
  EXPECT_TRUE(gpu.sits_out(v, quantum - 3 * turn / 2 + 1e3));
  EXPECT_FALSE(gpu.sits_out(v, quantum - 3 * turn / 2 - 1e3));
}

// Its shortest turn is more than it is entitled to.
TEST_F(SlicedGpuRules, BelowTheFloorOneIsOpenAgainAsSoonAsItIsGated) {
  const VgpuId v = add_busy({.weight = 1});
  add_busy({.weight = 1000});
  begin_round();
  const double quantum = gpu.quantum_ns(v), turn = 200e3 + kHandoverNs;
  ASSERT_LT(quantum, turn);
  for (const bool gated : {false, true}) {
    gpu.gate(now, v, gated);
    EXPECT_FALSE(gpu.sits_out(v, quantum - turn / 2 - 1e3)) << gated;
    EXPECT_TRUE(gpu.sits_out(v, quantum - turn / 2 + 1e3)) << gated;
  }
}

TEST_F(SlicedGpuRules, WhoHasItsShareAsTheLogTells) {
  const VgpuId v = add_busy();
  add_busy({.weight = 300});
  begin_round();
  use_lately(v, 0.24);
  EXPECT_FALSE(gpu.has_its_share(now, v));
  EXPECT_TRUE(gpu.has_its_share(now, v, 0.5));
  use_lately(v, 0.26);
  EXPECT_TRUE(gpu.has_its_share(now, v));
}

class SlicedGpuAsks : public SlicedGpuRules {
 protected:
  SlicedGpuAsks() {
    for (int i = 0; i < 4; ++i) add_busy();
    begin_round();
    gpu[0].habit.came_ns = now;
  }
  bool asks_much() const { return gpu.asks_much(now, 0); }
};

TEST_F(SlicedGpuAsks, WhoHasItsShareDoes) {
  use_lately(0, 0.24);
  EXPECT_FALSE(asks_much());
  use_lately(0, 0.26);
  EXPECT_TRUE(asks_much());
}

TEST_F(SlicedGpuAsks, AsDoesWhoHasWorkAllTheTimeAndUsesAPartOfItsShare) {
  be_busy_lately(0, 0.95);
  use_lately(0, 0.05);
  EXPECT_FALSE(asks_much());
  use_lately(0, 0.08);
  EXPECT_TRUE(asks_much());
  gpu[0].habit.busy_lately.clear();
  be_busy_lately(0, 0.85);
  EXPECT_FALSE(asks_much());
}

TEST_F(SlicedGpuAsks, AsDoesWhoComesTooOften) {
  gpu[0].habit.came_lately.add(now, 600 * 0.3);
  EXPECT_FALSE(asks_much());
  gpu[0].habit.came_lately.add(now, 150 * 0.3);
  EXPECT_TRUE(asks_much());
}

// Or it would be a visitor by turns.
TEST_F(SlicedGpuAsks, WhoStaysAlreadyAsksMuchWithLess) {
  use_lately(0, 0.15);
  EXPECT_FALSE(asks_much());
  gpu[0].stays = true;
  EXPECT_TRUE(asks_much());
  use_lately(0, 0.1);
  EXPECT_FALSE(asks_much());
  be_busy_lately(0, 0.6);
  EXPECT_FALSE(asks_much());
  be_busy_lately(0, 0.2);
  EXPECT_TRUE(asks_much());
  gpu[0].habit.busy_lately.clear();
  gpu[0].habit.came_lately.add(now, 400 * 0.3);
  EXPECT_FALSE(asks_much());
  gpu[0].habit.came_lately.add(now, 200 * 0.3);
  EXPECT_TRUE(asks_much());
}

TEST_F(SlicedGpuAsks, NobodyDoesWhereNobodyElseWouldHaveTurns) {
  go(2), go(3);
  begin_round();
  use_lately(0, 0.9);
  EXPECT_FALSE(asks_much());
}

TEST_F(SlicedGpuRules, OneThatPausesComesBetweenWhenItLagsByHalfOfABurst) {
  const VgpuId v = add_busy();
  const VgpuId other = add_busy();
  begin_round();
  has_habit(v, 3e6, 1e6);
  charge(other, 2 * kMs + 900 * kUs);
  EXPECT_FALSE(gpu.comes_between(now, v));
  charge(other, 200 * kUs);
  EXPECT_TRUE(gpu.comes_between(now, v));
  has_habit(v, 30e6, 1e6);
  EXPECT_FALSE(gpu.comes_between(now, v)) << "no pause: it fills its quantum";
}

TEST_F(SlicedGpuRules, ARiderIsOfTheHighestPriority) {
  const VgpuId v = add_busy();
  begin_round();
  gpu[v].rides_until_ns = now + 1;
  EXPECT_TRUE(gpu.rides(now, v));
  EXPECT_FALSE(gpu.rides(now + 1, v));
  add_busy({.priority = 1});
  begin_round();
  EXPECT_FALSE(gpu.rides(now, v));
}

TEST_F(SlicedGpuRules, OneReturnsSoonThatHasASlice) {
  const VgpuId v = add_busy();
  has_habit(v, kMeanNs, 20e3);
  EXPECT_FALSE(gpu.returns_soon(v));
  gpu[v].slice_ns = 0;
  EXPECT_FALSE(gpu.returns_soon(v));
  gpu[v].slice_ns = kMs;
  EXPECT_TRUE(gpu.returns_soon(v));
}

// More would gate all others for as long.
TEST_F(SlicedGpuRules, ACreditOverAGapIsTwoMeanSlicesAtMost) {
  const VgpuId v = add_busy(), other = add_busy();
  charge(other, 100 * kMs);
  go(v);
  come(v);
  EXPECT_NEAR(gpu.lead_of(v), -10e6, 1e3);
}

TEST_F(SlicedGpuRules, WhoIsMadeAnewIsNotKnown) {
  const VgpuId v = add_busy();
  has_habit(v, 3e6, 1e6);
  gpu[v].stays = true;
  go(v);
  gpu.clock.remove(v);
  gpu.add(v, {});
  EXPECT_FALSE(gpu[v].stays);
  EXPECT_EQ(gpu.habit(v).burst_ns, 0);
  EXPECT_FALSE(gpu.has_slice(v));
}

}  // namespace
}  // namespace sluice::policy::slices
