// SPDX-License-Identifier: Apache-2.0
// OneByOne: when the rest has turns one by one, and whose gate opens next.
#include "policies/wfq/slices/one_by_one.h"

#include "tests/unit/policies/wfq/slices/sliced_gpu_test.h"

namespace sluice::policy::slices {
namespace {

class OneByOneTest : public SlicedGpuTest {
 protected:
  using SlicedGpuTest::SlicedGpuTest;
  // 0 pauses, with bursts of 2 ms; 1, 2 and 3 do not.
  void SetUp() override {
    for (int i = 0; i < 4; ++i) add_busy();
    has_habit(0, 2e6, 100e3);
  }
  void lag(VgpuId v, uint64_t ns) {
    for (const VgpuId other : {0, 1, 2, 3})
      if (other != v) charge(other, ns);
  }
  bool applies() {
    const double round = begin_round();
    return one_by_one.applies(now, round, gpu.weight_of_top);
  }
  OneByOne one_by_one{gpu};
};

TEST_F(OneByOneTest, WhileOneThatPausesLagsByHalfOfABurst) {
  lag(0, kMs);
  EXPECT_FALSE(applies()) << "3/4 ms";
  EXPECT_FALSE(one_by_one.active());
  lag(0, kMs);
  EXPECT_TRUE(applies());
  EXPECT_TRUE(one_by_one.active());
  EXPECT_EQ(gpu.rest, (Open{1, 2, 3}));
  gpu[0].habit.burst_ns = 50e6;  // it fills its quantum
  EXPECT_FALSE(applies());
  EXPECT_EQ(gpu.rest, (Open{0, 1, 2, 3}));
}

TEST_F(OneByOneTest, NotForTheRestOfOne) {
  go(3);
  lag(0, 8 * kMs);
  EXPECT_TRUE(applies());
  go(2);
  EXPECT_FALSE(applies());
}

// A slice is corrected by what its owner leads in the middle of its turn, and so is the order.
TEST_F(OneByOneTest, LeadsAreThoseInTheMiddleOfATurn) {
  add_busy({.weight = 300});
  lag(0, 8 * kMs);
  charge(3, 500 * kUs), charge(4, kMs);
  ASSERT_TRUE(applies());
  one_by_one.begin_round(now);
  EXPECT_EQ(gpu[0].wanted_ns, gpu.slice_for(0, gpu[0].lead_ns)) << "who pauses has its slice";
  for (const VgpuId v : {3, 4}) {
    const double lead_ns = gpu.lead_among_rest(v);
    const uint64_t slice_ns = gpu.slice_for(v, lead_ns + gpu.quantum_ns(v) / 2);
    const double turn_ns = static_cast<double>(slice_ns) + kHandoverNs;
    EXPECT_NEAR(gpu[v].lead_in_turn, (lead_ns + turn_ns / 2) / gpu.share(v).weight, 1e-3) << v;
    EXPECT_EQ(gpu[v].wanted_ns == slice_ns, v == 3)
        << v << ", of which 4 has its turn, a shorter one";
  }
}

TEST_F(OneByOneTest, TheFurthestBehindOfTheRestIsOpenAndWhoPauses) {
  lag(0, 8 * kMs);
  charge(1, 2 * kMs), charge(3, 3 * kMs);
  ASSERT_TRUE(applies());
  const double ends_ns = one_by_one.begin_round(now);
  EXPECT_EQ(open(), (Open{0, 2}));
  // A turn of that one, and a burst with its switch.
  EXPECT_NEAR(ends_ns, gpu[2].left_ns + 2e6 + kHandoverNs, 1);
  EXPECT_NEAR(gpu[2].left_ns, static_cast<double>(gpu[2].wanted_ns) + kHandoverNs, 1);
}

TEST_F(OneByOneTest, FurthestIsByWeight) {
  add_busy({.weight = 300});
  lag(0, 8 * kMs);
  charge(2, 2 * kMs), charge(4, 20 * kMs);
  ASSERT_TRUE(applies());
  one_by_one.begin_round(now);
  EXPECT_EQ(open(), (Open{0, 4}));
}

// As the hardware does: whoever goes on is before all others.
TEST_F(OneByOneTest, ATurnGoesOnUntilItIsOver) {
  lag(0, 8 * kMs);
  ASSERT_TRUE(applies());
  one_by_one.begin_round(now);
  ASSERT_EQ(open(), (Open{0, 1}));
  charge(1, 500 * kUs), gpu[1].left_ns -= 500e3;
  ASSERT_TRUE(applies());
  one_by_one.begin_round(now);
  EXPECT_EQ(open(), (Open{0, 1})) << "though the others are further behind now";
  charge(1, gpu.quantum_ns(1)), gpu[1].left_ns = 0.1 * gpu.quantum_ns(1);
  ASSERT_TRUE(applies());
  one_by_one.begin_round(now);
  EXPECT_EQ(open(), (Open{0, 2})) << "what is left is no turn of its own";
}

// As short as those that pause want it, and no shorter than their bursts make worth while.
TEST_F(OneByOneTest, ATurnBetweenShortBurstsIsShort) {
  lag(0, 8 * kMs);
  ASSERT_TRUE(applies());
  one_by_one.begin_round(now);
  EXPECT_NEAR(gpu[1].left_ns, 0.75 * 2e6 + kHandoverNs, 1e3);
  gpu[1].left_ns = 0;
  gpu[0].habit.burst_ns = 4e6;
  ASSERT_TRUE(applies());
  one_by_one.begin_round(now);
  EXPECT_NEAR(gpu[1].left_ns, 0.75 * 4e6 + kHandoverNs, 1e3);
  gpu[1].left_ns = 0;
  gpu[0].habit.burst_ns = 2e6;
  ASSERT_TRUE(applies());
  EXPECT_NEAR(one_by_one.begin_round(now), 0.75 * 2e6 + 2e6 + 2 * kHandoverNs, 1e3);
}

TEST_F(OneByOneTest, TheRestIsFoundAnewInEachRound) {
  lag(0, 8 * kMs);
  charge(1, 4 * kMs);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(applies());
    EXPECT_EQ(gpu.rest, (Open{1, 2, 3}));
    EXPECT_EQ(gpu.weight_of_rest, 300);
    EXPECT_NEAR(gpu.lead_of_rest, gpu[1].lead_ns + gpu[2].lead_ns + gpu[3].lead_ns, 1);
  }
}

TEST_F(OneByOneTest, OneThatPausesAndIsAheadIsGated) {
  add_busy();
  has_habit(4, 2e6, 100e3);
  lag(0, 8 * kMs);
  ASSERT_TRUE(applies());
  charge(4, static_cast<uint64_t>((0.9e6 - gpu[4].lead_ns) * 5 / 4));
  ASSERT_TRUE(applies());
  one_by_one.begin_round(now);
  EXPECT_FALSE(gpu[0].gated || gpu[4].gated);
  charge(4, 250 * kUs);  // it leads by 0.9 + 0.2 ms then
  ASSERT_TRUE(applies());
  one_by_one.begin_round(now);
  EXPECT_FALSE(gpu[0].gated);
  EXPECT_TRUE(gpu[4].gated) << "by more than half of a burst";
}

// A kernel that no gate stops, and that is too far ahead, has no more than its share in a longer
// cycle: as many of the others as fit into it have turns.
TEST_F(OneByOneTest, BesideARiderThatIsTooFarAheadMoreOfTheRestHaveTurns) {
  const VgpuId rider = add_busy({.weight = 10});
  lag(0, 8 * kMs);
  gpu[rider].rides_until_ns = now + kSecond;
  const auto opened = [&] {
    EXPECT_TRUE(applies());
    one_by_one.begin_round(now);
    for (const VgpuId v : {1, 2, 3}) gpu[v].left_ns = 0;
    return open();
  };
  const double quantum_ns = (begin_round(), gpu.quantum_ns(rider));
  charge(rider, 800 * kUs + static_cast<uint64_t>(1.6 * quantum_ns));  // the others had 8 ms
  EXPECT_EQ(opened(), (Open{0, 1})) << "it leads the rest by less than two of its turns";
  charge(rider, static_cast<uint64_t>(quantum_ns));
  EXPECT_EQ(opened(), (Open{0, 1, 2})) << "its shortest turn is its share of 16 ms";
  gpu[rider].rides_until_ns = now;
  EXPECT_EQ(opened(), (Open{0, 1})) << "its kernel has ended";
}

// Who is ahead by more than what a turn would leave it has none, though there is time for one.
TEST_F(OneByOneTest, NobodyHasATurnThatIsNotDue) {
  const VgpuId rider = add_busy({.weight = 10});
  lag(0, 8 * kMs);
  charge(3, 40 * kMs), charge(rider, 3 * kMs);
  gpu[rider].rides_until_ns = now + kSecond;
  const auto has_turn = [&] {
    EXPECT_TRUE(applies());
    one_by_one.begin_round(now);
    for (const VgpuId v : {1, 2, 3}) gpu[v].left_ns = 0;
    return !gpu[2].gated;
  };
  charge(rider, static_cast<uint64_t>((begin_round(), 3 * gpu.quantum_ns(rider))));
  ASSERT_TRUE(has_turn());
  for (int i = 0; i < 2000 && has_turn(); ++i) charge(2, 20 * kUs);
  const double turn_ns = static_cast<double>(gpu[2].wanted_ns) + kHandoverNs;
  EXPECT_NEAR(gpu.lead_among_rest(2) + turn_ns / 2, gpu.quantum_ns(2), 20e3);
}

TEST_F(OneByOneTest, NotWhereARidersCycleIsLongerThanARound) {
  const VgpuId rider = add_busy({.weight = 1});
  lag(0, 8 * kMs);
  charge(rider, kMs);
  EXPECT_TRUE(applies());
  gpu[rider].rides_until_ns = now + kSecond;
  EXPECT_FALSE(applies());
}

class OneByOneWithoutLeads : public OneByOneTest {
 protected:
  static Config no_leads() {
    Config c = config();
    c.max_lead_turns = 0;
    return c;
  }
  OneByOneWithoutLeads() : OneByOneTest(no_leads()) {}
};

TEST_F(OneByOneWithoutLeads, NobodyIsPutAheadWhereThatIsConfigured) {
  lag(0, 8 * kMs);
  EXPECT_FALSE(applies());
}

}  // namespace
}  // namespace sluice::policy::slices
