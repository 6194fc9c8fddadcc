// SPDX-License-Identifier: Apache-2.0
// PauseBudget: how long all gates may stay shut for one that may be back.
#include "policies/wfq/slices/pause_budget.h"

#include <gtest/gtest.h>

#include "tests/unit/policies/policy_units.h"

namespace sluice::policy::slices {
namespace {

constexpr double kHandoverNs = 200e3;

// Pauses of a hand-over's length, one after the other.
int pauses_from(PauseBudget& budget, uint64_t& now) {
  int pauses = 0;
  for (; pauses < 100 && budget.begin(now, /*paid=*/false, kHandoverNs); ++pauses) {
    now += static_cast<uint64_t>(kHandoverNs);
    budget.end(now);
  }
  return pauses;
}

TEST(PauseBudget, AllPausesTogetherAreAHundredthOfTheTime) {
  PauseBudget budget;
  uint64_t now = kSecond, paused_ns = 0;
  pauses_from(budget, now);
  const uint64_t from = now;
  while (now < from + 10 * kSecond) {
    const uint64_t before = now;
    pauses_from(budget, now);
    paused_ns += now - before;
    now += kMs;
  }
  EXPECT_NEAR(static_cast<double>(paused_ns), 0.01 * static_cast<double>(now - from), 1e6);
}

TEST(PauseBudget, SomeOfThatIsSavedUp) {
  PauseBudget budget;
  uint64_t now = 1000 * kSecond;
  const int saved = pauses_from(budget, now);
  EXPECT_GT(saved, 2);
  EXPECT_LT(saved, 20);
}

TEST(PauseBudget, AtFirstThereIsNothing) {
  PauseBudget budget;
  EXPECT_FALSE(budget.begin(10 * kMs, false, kHandoverNs));
  EXPECT_FALSE(budget.end(10 * kMs));
  EXPECT_TRUE(budget.begin(21 * kMs, false, kHandoverNs));
  EXPECT_TRUE(budget.end(21 * kMs));
  EXPECT_FALSE(budget.end(21 * kMs)) << "it has ended";
}

// One that pays for the pause needs no budget, and leaves it as it is.
TEST(PauseBudget, APauseThatIsPaidForIsFree) {
  PauseBudget budget;
  EXPECT_TRUE(budget.begin(kMs, /*paid=*/true, kHandoverNs));
  EXPECT_TRUE(budget.end(20 * kSecond));
  EXPECT_TRUE(budget.begin(20 * kSecond, false, kHandoverNs));
}

TEST(PauseBudget, APauseThatGoesOnEndsWhereTheNextIsRefused) {
  PauseBudget budget;
  EXPECT_TRUE(budget.begin(kMs, true, kHandoverNs));
  EXPECT_FALSE(budget.begin(2 * kMs, false, kHandoverNs)) << "there is no budget for it";
  EXPECT_FALSE(budget.end(3 * kMs));
}

// The time before was paid for, or what came after the refusal was no pause.
TEST(PauseBudget, APauseIsChargedFromItsOwnStart) {
  PauseBudget budget;
  EXPECT_TRUE(budget.begin(20 * kMs, true, kHandoverNs));
  EXPECT_TRUE(budget.begin(40 * kMs, false, kHandoverNs));
  EXPECT_TRUE(budget.end(40 * kMs + 200 * kUs));
  EXPECT_TRUE(budget.begin(41 * kMs, true, kHandoverNs));
  EXPECT_FALSE(budget.begin(41 * kMs, false, 300e3)) << "a fifth of that was saved up, and more";
  EXPECT_FALSE(budget.end(kSecond));
  EXPECT_TRUE(budget.begin(kSecond, false, kHandoverNs));
}

// However often it begins anew.
TEST(PauseBudget, AllOfAPauseIsChargedThatBeginsAgain) {
  PauseBudget budget;
  uint64_t now = 40 * kMs;  // for 400 us
  for (int i = 0; i < 4; ++i, now += 100 * kUs)
    EXPECT_EQ(budget.begin(now, false, kHandoverNs), i < 3) << i;
}

TEST(PauseBudget, OneThatIsPaidForFromSomeTimeOnCostsNothingMore) {
  PauseBudget budget;
  EXPECT_TRUE(budget.begin(20 * kMs, false, kHandoverNs));
  EXPECT_TRUE(budget.begin(20 * kMs, true, kHandoverNs));
  EXPECT_TRUE(budget.end(kSecond));
  EXPECT_TRUE(budget.begin(kSecond, false, kHandoverNs));
}

}  // namespace
}  // namespace sluice::policy::slices
