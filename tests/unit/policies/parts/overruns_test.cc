// SPDX-License-Identifier: Apache-2.0
// Overruns: how much longer than announced the next job of a vGPU is expected to be.
#include "policies/parts/overruns.h"

#include <gtest/gtest.h>

#include "tests/unit/policies/policy_units.h"

namespace sluice::policy {
namespace {

constexpr uint64_t kMostSmNs = 10 * kMs;

void job(Overruns& overruns, uint64_t claimed, uint64_t used) {
  overruns.chosen(claimed);
  overruns.end(used, kMostSmNs);
}

TEST(Overruns, ANewJobIsExpectedToExceedItsWordAsTheLastOneDid) {
  Overruns overruns;
  EXPECT_EQ(overruns.least_sm_ns(0), 0u);
  job(overruns, kMs, 4 * kMs);
  EXPECT_EQ(overruns.least_sm_ns(0), 3 * kMs);
  EXPECT_EQ(overruns.least_sm_ns(2 * kMs), kMs);
  EXPECT_EQ(overruns.least_sm_ns(5 * kMs), 0u) << "it has used as much";
}

TEST(Overruns, HalfAsMuchAfterEachThatKeepsItsWord) {
  Overruns overruns;
  job(overruns, 0, 8 * kMs);
  for (const uint64_t left : {4, 2, 1}) {
    job(overruns, 5 * kMs, 5 * kMs);
    EXPECT_EQ(overruns.least_sm_ns(0), left * kMs);
  }
  job(overruns, kMs, 7 * kMs);
  EXPECT_EQ(overruns.least_sm_ns(0), 6 * kMs) << "at once";
}

// By the least that it was chosen for: true as soon as it runs is too late.
TEST(Overruns, WhatItWasChosenForCounts) {
  Overruns overruns;
  overruns.chosen(kMs);
  job(overruns, 6 * kMs, 6 * kMs);
  EXPECT_EQ(overruns.least_sm_ns(0), 5 * kMs);
  job(overruns, 6 * kMs, 6 * kMs);
  EXPECT_EQ(overruns.least_sm_ns(0), 2'500 * kUs) << "of that job only";
}

TEST(Overruns, OneThatWasNeverChosenHasGivenNoWord) {
  Overruns overruns;
  overruns.end(6 * kMs, kMostSmNs);
  EXPECT_EQ(overruns.least_sm_ns(0), 0u);
}

// A stream that is refilled all the time outlives its announcements, too.
TEST(Overruns, WhatIsRememberedHasABound) {
  Overruns overruns;
  job(overruns, 0, kSecond);
  EXPECT_EQ(overruns.least_sm_ns(0), kMostSmNs);
}

}  // namespace
}  // namespace sluice::policy
