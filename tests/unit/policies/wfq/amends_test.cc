// SPDX-License-Identifier: Apache-2.0
// Amends: who is a creditor, how long a debtor waits and for whose pauses, and what is charged.
#include "policies/wfq/amends.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/policies/policy_units.h"

namespace sluice::policy {
namespace {

class AmendsTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kSms = 4;
  static constexpr VgpuId kDebtor = 0;

  // vGPUs from 0 on, all backlogged, without a lag.
  void add(uint32_t weight = 100, uint32_t priority = 0) {
    const auto v = static_cast<VgpuId>(clock.size());
    clock.add(v, {.weight = weight, .priority = priority});
    clock.turn_busy(v);
    amends.add(v);
  }
  bool overruns(VgpuId v, uint64_t ns) { return amends.overran(v, ns, ns * kSms); }
  bool waits() { return amends.waits(now, amends.debts().front()); }
  void use(VgpuId v, uint64_t ns) {
    amends.use(v, ns * kSms, [this](VgpuId who, uint64_t sm_ns) { charged[who] += sm_ns / kSms; });
  }
  void go_idle(VgpuId v) { clock.turn_idle(v), amends.became_idle(now, v); }
  void come_back(VgpuId v) { clock.turn_busy(v), amends.became_busy(now, v); }
  // A creditor pauses as often as it takes to be known for that.
  void pauses(VgpuId v, uint64_t ns) {
    for (int i = 0; i < 30; ++i) go_idle(v), now += ns, come_back(v);
  }
  // Nobody uses the GPU for `ns`.
  void stay_free(uint64_t ns) { now += ns, amends.pass_pause(amends.debts().front(), ns); }

  uint64_t now = kSecond;
  FairClock clock{{}};
  Amends amends{clock, kSms};
  std::map<VgpuId, uint64_t> charged;  // ns of the whole GPU
};

TEST_F(AmendsTest, WithoutACreditorAnOverrunIsChargedAsEver) {
  add(), add(), add(100, 1);
  go_idle(1);
  EXPECT_FALSE(overruns(kDebtor, 90 * kMs)) << "nobody of its priority waits";
  EXPECT_TRUE(amends.debts().empty());
  EXPECT_EQ(amends.end(kDebtor), 0u);
}

TEST_F(AmendsTest, ADebtorWaitsUntilACreditorHasUsedAsMuchAndIsChargedMeanwhile) {
  add(), add();
  EXPECT_TRUE(overruns(kDebtor, 100 * kMs));
  EXPECT_TRUE(waits());
  use(1, 60 * kMs);
  EXPECT_TRUE(waits());
  EXPECT_NEAR(static_cast<double>(charged[kDebtor]), 60e6, 10);
  use(1, 50 * kMs);
  EXPECT_FALSE(waits());
  EXPECT_NEAR(static_cast<double>(charged[kDebtor]), 100e6, 10) << "no more than it overran by";
}

TEST_F(AmendsTest, AsMuchIsByWeight) {
  add(100), add(300);
  overruns(kDebtor, 10 * kMs);
  use(1, 29 * kMs);
  EXPECT_TRUE(waits());
  use(1, 2 * kMs);
  EXPECT_FALSE(waits());
  EXPECT_NEAR(static_cast<double>(charged[kDebtor]), 10e6, 10);
}

// What several use counts together.
TEST_F(AmendsTest, AllCreditorsTogetherAreMadeUpTo) {
  add(), add(), add();
  overruns(kDebtor, 100 * kMs);
  waits();
  use(1, 100 * kMs), use(2, 90 * kMs);
  EXPECT_TRUE(waits());
  use(2, 20 * kMs);
  EXPECT_FALSE(waits());
}

TEST_F(AmendsTest, APauseOfACreditorDoesNotEndIt) {
  add(), add();
  pauses(1, 2 * kMs);
  overruns(kDebtor, 100 * kMs);
  use(1, 2 * kMs);
  go_idle(1);
  EXPECT_TRUE(waits());
  // With short launches it would have used the time: as much is added.
  stay_free(2 * kMs);
  come_back(1);
  use(1, 99 * kMs);
  EXPECT_TRUE(waits()) << "98 ms of the overrun, and 2 of a pause";
  use(1, 2 * kMs);
  EXPECT_FALSE(waits());
}

// One of its weight: the pauses are as long as the overrun at most.
TEST_F(AmendsTest, TheGpuIsFreeForNoLongerThanTheCreditorsPart) {
  add(), add();
  pauses(1, 2 * kMs);
  overruns(kDebtor, 100 * kMs);
  for (int i = 0; i < 49; ++i) stay_free(2 * kMs);
  go_idle(1);
  EXPECT_FALSE(waits()) << "what is left is no longer than its pauses";
  come_back(1);
  EXPECT_TRUE(waits());
  stay_free(2 * kMs);
  EXPECT_FALSE(waits());
}

TEST_F(AmendsTest, PausesAddAsMuchAsItOverranByAtMost) {
  add(100), add(300);  // free for 30 ms at most
  overruns(kDebtor, 10 * kMs);
  stay_free(15 * kMs), stay_free(5 * kMs);
  use(1, 59 * kMs);
  EXPECT_TRUE(waits());
  use(1, 2 * kMs);
  EXPECT_FALSE(waits()) << "three times 10 ms of the overrun and 10 of pauses";
}

// So one of 19 times its weight keeps 0.95, however little it works.
TEST_F(AmendsTest, BesideAHeavyOneThereIsABoundToo) {
  add(1), add(1000);
  overruns(kDebtor, kMs);
  stay_free(18 * kMs);
  EXPECT_TRUE(waits());
  stay_free(kMs);
  EXPECT_FALSE(waits());
}

TEST_F(AmendsTest, NobodyIsWaitedForWhosePausesAreLonger) {
  add(), add();
  pauses(1, 150 * kMs);
  overruns(kDebtor, 100 * kMs);
  EXPECT_TRUE(waits());
  go_idle(1);
  EXPECT_FALSE(waits());
}

TEST_F(AmendsTest, NobodyIsWaitedForWhosePauseIsLongerNow) {
  add(), add();
  pauses(1, 2 * kMs);
  overruns(kDebtor, 100 * kMs);
  go_idle(1);
  now += 99 * kMs;
  EXPECT_TRUE(waits());
  now += 2 * kMs;
  EXPECT_FALSE(waits());
}

TEST_F(AmendsTest, NobodyIsWaitedForWhoIsGone) {
  add(), add();
  pauses(1, 2 * kMs);
  overruns(kDebtor, 100 * kMs);
  go_idle(1);
  EXPECT_TRUE(waits());
  clock.remove(1);
  EXPECT_FALSE(waits());
}

// Who did not wait when it overran is no reason to keep the GPU free.
TEST_F(AmendsTest, OnlyThoseThatWaitedAreWaitedFor) {
  add(), add(), add();
  pauses(1, 2 * kMs), pauses(2, 2 * kMs);
  go_idle(2);
  overruns(kDebtor, 100 * kMs);
  go_idle(1);
  EXPECT_TRUE(waits());
  EXPECT_EQ(amends.debts().front().weights, 100);
  clock.remove(1);
  EXPECT_FALSE(waits());
  come_back(2);
  EXPECT_TRUE(waits()) << "it has work now";
}

TEST_F(AmendsTest, ThoseThatOverrunThemselvesTakeTurns) {
  add(), add();
  overruns(kDebtor, 60 * kMs);
  amends.end(kDebtor);
  EXPECT_FALSE(overruns(1, 100 * kMs)) << "60 of 100 ms: no creditor";
  EXPECT_TRUE(overruns(1, 130 * kMs));
  amends.end(1);
  amends.left_in_time(kDebtor);
  EXPECT_TRUE(overruns(1, 100 * kMs)) << "it has left in time since";
}

TEST_F(AmendsTest, ADebtorIsNoCreditor) {
  add(), add(), add();
  EXPECT_TRUE(overruns(kDebtor, 10 * kMs));
  EXPECT_TRUE(overruns(1, 100 * kMs));
  use(kDebtor, 50 * kMs);
  EXPECT_EQ(charged[1], 0u);
  EXPECT_EQ(charged[kDebtor], 0u);
  use(2, 4 * kMs);  // of both
  EXPECT_GT(charged[kDebtor], 0u);
  EXPECT_GT(charged[1], 0u);
}

// Its debt included.
TEST_F(AmendsTest, WhoHasHadMoreIsNoCreditor) {
  add(), add();
  clock.charge(kDebtor, 70 * kMs * kSms), clock.charge(1, 220 * kMs * kSms);
  EXPECT_FALSE(overruns(kDebtor, 100 * kMs));
  EXPECT_TRUE(overruns(kDebtor, 160 * kMs));
}

TEST_F(AmendsTest, BeingGrantedEndsItAndTheRestIsChargedThen) {
  add(), add();
  pauses(1, 2 * kMs);
  overruns(kDebtor, 100 * kMs);
  use(1, 30 * kMs);
  EXPECT_NEAR(static_cast<double>(amends.end(kDebtor)) / kSms, 70e6, 10);
  EXPECT_TRUE(amends.debts().empty());
  EXPECT_EQ(amends.end(kDebtor), 0u);
  // Who waited for that one is not waited for in the next, if it is away.
  add();
  go_idle(1);
  overruns(kDebtor, 100 * kMs);
  EXPECT_EQ(amends.debts().front().weights, 100);
  clock.turn_idle(2);
  EXPECT_FALSE(waits());
}

TEST_F(AmendsTest, ANewWeightLeavesTheTimeThatIsOwed) {
  add(100), add(100);
  overruns(kDebtor, 100 * kMs);
  clock.change(kDebtor, {.weight = 400});
  amends.changed(kDebtor, 100);
  EXPECT_NEAR(static_cast<double>(amends.end(kDebtor)) / kSms, 100e6, 10);
}

// One that is made anew under the number of another is not known for anything.
TEST_F(AmendsTest, ANewOneIsNotKnownForPausesOrOverruns) {
  add(), add();
  pauses(1, 500 * kMs);
  overruns(1, 100 * kMs), amends.end(1);
  amends.add(1);
  amends.became_busy(now, 1);  // no pause: it was never idle
  EXPECT_TRUE(overruns(kDebtor, 100 * kMs));
  go_idle(1);
  EXPECT_TRUE(waits());
}

}  // namespace
}  // namespace sluice::policy
