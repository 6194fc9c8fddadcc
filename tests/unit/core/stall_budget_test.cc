// SPDX-License-Identifier: Apache-2.0
// StallBudget in virtual time: however many sessions open contexts, a neighbour keeps 0.95, and who
// opens a few never waits.
#include "mediator/core/stall_budget.h"

#include <gtest/gtest.h>

namespace sluice::core {
namespace {

constexpr uint64_t kMillisecond = 1'000'000, kSecond = 1'000 * kMillisecond;

// What a flood of so many sessions costs others in so much time, each stall after the one before.
uint64_t flood(uint64_t cost_ns, uint64_t time_ns, bool obeys = true) {
  StallBudget budget;
  uint64_t stalled_ns = 0;
  for (uint64_t now = 0; now < time_ns;) {
    if (const uint64_t wait = obeys ? budget.wait_ns(now) : 0; wait != 0) {
      now += wait;
      continue;
    }
    budget.spend(now, cost_ns);
    stalled_ns += cost_ns;
    now += cost_ns;
  }
  return stalled_ns;
}

TEST(StallBudgetTest, ANeighbourOfAFloodKeepsItsShare) {
  for (uint64_t cost : {1, 10, 40, 100}) {
    for (uint64_t seconds : {15, 60, 600}) {
      const uint64_t stalled = flood(cost * kMillisecond, seconds * kSecond);
      EXPECT_LE(stalled, StallBudget::kFree + cost * kMillisecond +
                             StallBudget::kForgivenPerSecond * seconds)
          << cost << " ms, " << seconds << " s";
      EXPECT_GE(stalled, StallBudget::kFree) << "nobody is kept out";
      EXPECT_LE(static_cast<double>(stalled), 0.06 * static_cast<double>(seconds * kSecond));
    }
  }
  EXPECT_GT(flood(10 * kMillisecond, 15 * kSecond, false), 14 * kSecond)
      << "what it stands against";
}

TEST(StallBudgetTest, WhoOpensAFewNeverWaits) {
  StallBudget budget;
  uint64_t now = 5 * kSecond;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(budget.wait_ns(now), 0u) << i;
    budget.spend(now, 10 * kMillisecond);
  }
  // A program a second for ever.
  now += 60 * kSecond;
  for (int i = 0; i < 3600; ++i, now += kSecond) {
    EXPECT_EQ(budget.wait_ns(now), 0u) << i;
    budget.spend(now, 10 * kMillisecond);
  }
}

TEST(StallBudgetTest, TheWaitGrowsWithEachOne) {
  StallBudget budget;
  uint64_t before = 0;
  for (int i = 0; i < 10; ++i) {
    budget.spend(0, 100 * kMillisecond);
    if (i < 2) continue;
    EXPECT_GT(budget.wait_ns(0), before);
    before = budget.wait_ns(0);
    EXPECT_EQ(budget.wait_ns(before), 0u) << "and it is long enough";
  }
}

}  // namespace
}  // namespace sluice::core
