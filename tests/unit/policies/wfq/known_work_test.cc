// SPDX-License-Identifier: Apache-2.0
// KnownWork: reports replace or add, use takes away, and no guest's number overflows.
#include "policies/wfq/known_work.h"

#include <gtest/gtest.h>

#include "tests/unit/policies/policy_units.h"

namespace sluice::policy {
namespace {

constexpr uint64_t kAnything = ~0ull;  // what a guest may say

TEST(KnownWork, WhatIsSaidOfAllThatIsQueuedReplacesWhatWasKnown) {
  KnownWork work;
  work.report({.predicted_sm_ns = 7 * kMs, .run_predicted_sm_ns = 5 * kMs});
  EXPECT_EQ(work.rest, 5 * kMs);
  work.report({.run_predicted_sm_ns = 2 * kMs});
  EXPECT_EQ(work.rest, 2 * kMs);
  work.report({.predicted_sm_ns = 7 * kMs});  // of all, nothing is known
  EXPECT_EQ(work.rest, 0u);
}

TEST(KnownWork, LaunchesAddUp) {
  KnownWork work;
  work.report({.id = 1, .predicted_sm_ns = 3 * kMs});
  work.report({.id = 2, .predicted_sm_ns = 4 * kMs});
  EXPECT_EQ(work.rest, 7 * kMs);
}

// The run that a launch belongs to has what is known of the others in it.
TEST(KnownWork, ARunIsCountedOnce) {
  KnownWork work;
  work.report({.id = 1, .predicted_sm_ns = kMs, .run_predicted_sm_ns = 10 * kMs});
  work.report({.id = 2, .predicted_sm_ns = kMs, .run_predicted_sm_ns = 9 * kMs});
  EXPECT_EQ(work.rest, 10 * kMs);
  work.report({.id = 3, .predicted_sm_ns = kMs, .run_predicted_sm_ns = 12 * kMs});
  EXPECT_EQ(work.rest, 12 * kMs);
}

TEST(KnownWork, UseEndsWhatIsKnownAndIsRemembered) {
  KnownWork work;
  work.report({.run_predicted_sm_ns = 5 * kMs});
  work.use(3 * kMs);
  EXPECT_EQ(work.rest, 2 * kMs);
  EXPECT_EQ(work.total, 5 * kMs);
  work.use(4 * kMs);  // it said too little
  EXPECT_EQ(work.rest, 0u);
  EXPECT_EQ(work.used, 7 * kMs);
  work.report({.run_predicted_sm_ns = kMs});
  EXPECT_EQ(work.total, 8 * kMs);
}

TEST(KnownWork, NoNumberOverflows) {
  for (const LaunchId id : {0, 1}) {
    KnownWork work;
    work.report({.id = id, .predicted_sm_ns = kMs, .run_predicted_sm_ns = kAnything});
    EXPECT_EQ(work.rest, FairClock::kMaxUsage);
    for (int i = 0; i < 2; ++i) work.use(kAnything);
    EXPECT_EQ(work.rest, 0u);
    EXPECT_EQ(work.used, FairClock::kMaxUsage);
    work.report({.id = id, .run_predicted_sm_ns = kAnything});
    EXPECT_EQ(work.total, 2 * FairClock::kMaxUsage);
  }
  KnownWork work;
  for (int i = 0; i < 3; ++i) work.report({.id = 1, .predicted_sm_ns = FairClock::kMaxUsage});
  EXPECT_EQ(work.rest, FairClock::kMaxUsage);
}

}  // namespace
}  // namespace sluice::policy
