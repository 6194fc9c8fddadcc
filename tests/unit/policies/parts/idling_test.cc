// SPDX-License-Identifier: Apache-2.0
// Idling: how long the whole GPU may wait for one that pauses.
#include "policies/parts/idling.h"

#include <gtest/gtest.h>

#include "tests/unit/policies/policy_units.h"

namespace sluice::policy {
namespace {

constexpr double kGivenAwayNs = 200e3;  // what a hand-over costs
constexpr uint64_t kPauseNs = 100 * kUs;

TEST(Idling, AllOfItIsLessThanAHundredthOfTheTime) {
  Idling idling;
  uint64_t now = kSecond, idle_ns = 0;
  const auto pause = [&] {
    while (idling.may(now, kPauseNs, kGivenAwayNs)) {
      now += kPauseNs, idle_ns += kPauseNs;
      idling.stop(now);
    }
  };
  pause();
  EXPECT_GT(idle_ns, 3 * kPauseNs) << "some is saved up";
  EXPECT_LE(idle_ns, 17 * kPauseNs) << "eight hand-overs";
  const uint64_t from = now, before = idle_ns;
  for (; now < from + 10 * kSecond; now += kMs) pause();
  EXPECT_NEAR(static_cast<double>(idle_ns - before), 0.009 * static_cast<double>(now - from), 1e6);
}

TEST(Idling, NothingIsPaidForWhatIsNotBegun) {
  Idling idling;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(idling.affords(kSecond, kPauseNs, kGivenAwayNs));
  idling.stop(2 * kSecond);
  EXPECT_TRUE(idling.affords(2 * kSecond, kPauseNs, kGivenAwayNs));
}

TEST(Idling, ItLastsAsLongAsItDoesAndIsPaidForAtItsEnd) {
  Idling idling;
  ASSERT_TRUE(idling.may(kSecond, kPauseNs, kGivenAwayNs));
  EXPECT_TRUE(idling.may(2 * kSecond, kSecond, kGivenAwayNs)) << "it has begun";
  idling.stop(2 * kSecond);
  EXPECT_FALSE(idling.may(2 * kSecond, kPauseNs, kGivenAwayNs)) << "a second is owed";
  EXPECT_FALSE(idling.affords(100 * kSecond, kPauseNs, kGivenAwayNs));
  EXPECT_TRUE(idling.affords(200 * kSecond, kPauseNs, kGivenAwayNs));
}

TEST(Idling, NoPauseLongerThanWhatIsSavedUp) {
  Idling idling;
  EXPECT_FALSE(
      idling.affords(1000 * kSecond, static_cast<uint64_t>(8 * kGivenAwayNs) + 1, kGivenAwayNs));
  EXPECT_TRUE(
      idling.affords(1000 * kSecond, static_cast<uint64_t>(8 * kGivenAwayNs), kGivenAwayNs));
}

}  // namespace
}  // namespace sluice::policy
