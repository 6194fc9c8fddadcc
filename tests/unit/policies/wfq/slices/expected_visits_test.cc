// SPDX-License-Identifier: Apache-2.0
// ExpectedVisits: how long slices may be for the sake of who visited lately.
#include "policies/wfq/slices/expected_visits.h"

#include "tests/unit/policies/wfq/slices/sliced_gpu_test.h"

namespace sluice::policy::slices {
namespace {

class ExpectedVisitsTest : public SlicedGpuTest {
 protected:
  using SlicedGpuTest::SlicedGpuTest;
  uint64_t longest(VgpuId v) const { return expected.longest_slice_ns(now, v); }
  ExpectedVisits expected{gpu};
  const VgpuId stays = add();
  const uint64_t ceiling = gpu.lengths.ceiling_ns();
};

TEST_F(ExpectedVisitsTest, ByTheClassOfTheVisitor) {
  EXPECT_EQ(longest(stays), ceiling) << "nobody has come";
  expected.note(now, add(kBatch));
  EXPECT_EQ(longest(stays), ceiling);
  expected.note(now, add());
  EXPECT_EQ(longest(stays), kMs);
  expected.note(now, add(kLow));
  EXPECT_EQ(longest(stays), 100 * kUs);
}

TEST_F(ExpectedVisitsTest, ForASecond) {
  expected.note(now, add(kLow));
  now += kSecond - 1;
  EXPECT_EQ(longest(stays), 100 * kUs);
  now += 1;
  EXPECT_EQ(longest(stays), ceiling);
}

TEST_F(ExpectedVisitsTest, OneOfAHigherPriorityCountsAsOneOfClassLow) {
  for (const LatencyClass latency : {LatencyClass::kNormal, LatencyClass::kBatch}) {
    const VgpuId above = add({.priority = 1, .latency = latency});
    expected.note(now, above);
    EXPECT_EQ(longest(stays), 100 * kUs);
    now += 2 * kSecond;
    expected.note(now, stays);
    EXPECT_NE(longest(above), 100 * kUs) << "not the other way round";
    now += 2 * kSecond;
  }
}

// The last one is remembered with the last other: nobody expects itself.
TEST_F(ExpectedVisitsTest, NobodyExpectsItself) {
  const VgpuId a = add(kLow), b = add(kLow);
  expected.note(now, a);
  EXPECT_EQ(longest(a), ceiling);
  expected.note(now, b);
  EXPECT_EQ(longest(a), 100 * kUs);
  EXPECT_EQ(longest(b), 100 * kUs);
  expected.note(now, b);
  EXPECT_EQ(longest(b), 100 * kUs) << "a came before";
}

TEST_F(ExpectedVisitsTest, WhoStaysIsNotExpected) {
  const VgpuId a = add(kLow), b = add(kLow);
  expected.note(now, a), expected.note(now, b);
  gpu[b].stays = true;
  EXPECT_EQ(longest(a), ceiling);
  EXPECT_EQ(longest(stays), 100 * kUs);
  gpu[a].stays = true;
  EXPECT_EQ(longest(stays), ceiling);
}

TEST_F(ExpectedVisitsTest, WhoIsOfAnotherClassNowIsForgotten) {
  const VgpuId a = add(kLow), b = add(kLow);
  expected.note(now, a), expected.note(now, b);
  expected.forget(b);
  EXPECT_EQ(longest(stays), 100 * kUs) << "a has come, too";
  EXPECT_EQ(longest(b), 100 * kUs);
  EXPECT_EQ(longest(a), ceiling);
  expected.forget(a);
  EXPECT_EQ(longest(stays), ceiling);
  expected.note(now, a), expected.note(now, b);
  expected.forget(a);  // the one before the last
  EXPECT_EQ(longest(b), ceiling);
  EXPECT_EQ(longest(a), 100 * kUs);
}

// As long ago as it was then: forgetting the last one makes the other no newer.
TEST_F(ExpectedVisitsTest, ForgettingOneMakesNoOtherNewer) {
  const VgpuId a = add(kLow), b = add(kLow);
  expected.note(now, a);
  now += kSecond / 2;
  expected.note(now, b);
  expected.forget(b);
  now += kSecond / 2;
  EXPECT_EQ(longest(stays), ceiling);
}

class ExpectedVisitsOnOtherMachine : public ExpectedVisitsTest {
 protected:
  ExpectedVisitsOnOtherMachine() : ExpectedVisitsTest(config(/*free_alone=*/false)) {}
};

TEST_F(ExpectedVisitsOnOtherMachine, NobodysSlicesAreShortWhereThatCosts) {
  expected.note(now, add(kLow));
  EXPECT_EQ(longest(stays), ceiling);
}

}  // namespace
}  // namespace sluice::policy::slices
