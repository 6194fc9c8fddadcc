// SPDX-License-Identifier: Apache-2.0
// PreemptBudget: a few preemptions at once, and no more of the time than handover_loss.
#include "policies/wfq/preempt_budget.h"

#include <gtest/gtest.h>

#include "tests/unit/policies/policy_units.h"

namespace sluice::policy {
namespace {

constexpr double kLoss = 0.04, kCostNs = 200e3;
constexpr uint64_t kEachNs = 5 * kMs;  // a hand-over is 4 % of that

int spend_all(PreemptBudget& budget, uint64_t now_ns, double handover_ns = kCostNs) {
  int spent = 0;
  for (; spent < 100 && budget.affords(now_ns, handover_ns); ++spent) budget.spend();
  return spent;
}

TEST(PreemptBudget, SomeAtOnceAndThenAsTimePasses) {
  PreemptBudget budget(kLoss);
  const int at_once = spend_all(budget, kSecond);
  EXPECT_GT(at_once, 1);
  EXPECT_LT(at_once, 10);
  EXPECT_EQ(spend_all(budget, kSecond + kEachNs - 1000), 0);
  EXPECT_EQ(spend_all(budget, kSecond + kEachNs), 1);
  // As many as at once are saved up, however long nobody asks.
  EXPECT_EQ(spend_all(budget, 100 * kSecond), at_once);
}

TEST(PreemptBudget, OverALongTimeTheyCostNoMoreThanTheLoss) {
  PreemptBudget budget(kLoss);
  int spent = 0;
  for (uint64_t now = kSecond; now < 11 * kSecond; now += 100 * kUs)
    spent += spend_all(budget, now);
  EXPECT_NEAR(spent, 10 * kSecond / kEachNs, 5);
}

TEST(PreemptBudget, WhatAHandOverCostsDecidesHowMany) {
  PreemptBudget budget(kLoss);
  spend_all(budget, kSecond);
  EXPECT_FALSE(budget.affords(kSecond + kEachNs, 2 * kCostNs));
  EXPECT_TRUE(budget.affords(kSecond + 2 * kEachNs, kCostNs));  // one half and one whole
}

TEST(PreemptBudget, WhoMayLoseNothingHasOnlyTheFirst) {
  PreemptBudget budget(0);
  EXPECT_GT(spend_all(budget, kSecond), 0);
  EXPECT_FALSE(budget.affords(1000 * kSecond, kCostNs));
}

TEST(PreemptBudget, HandOversThatCostNothingAreNoDivisionByNothing) {
  PreemptBudget budget(kLoss);
  spend_all(budget, kSecond, 0);
  EXPECT_FALSE(budget.affords(kSecond, 0));
  EXPECT_TRUE(budget.affords(kSecond + kUs, 0));
}

}  // namespace
}  // namespace sluice::policy
