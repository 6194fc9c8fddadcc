// SPDX-License-Identifier: Apache-2.0
// SrtCredits: what a credit grows with and pays for, what is missed, and the sure part of it.
#include "policies/wfq/srt_credit.h"

#include <gtest/gtest.h>

#include "tests/unit/policies/policy_units.h"

namespace sluice::policy {
namespace {

class SrtCreditsTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kSms = 2;
  static constexpr double kMost = 40e6, kMostSure = 10e6;  // SM-ns
  static constexpr VgpuShare kShare = {.weight = 100}, kHeavy = {.weight = 300};

  void add(VgpuId v, const VgpuShare& share = kShare, double most = 0) {
    credits.add(now, v, share, most);
    credits.turn_busy(v);
  }
  // `ns` later, with `part` of the time.
  void earn(uint64_t ns, VgpuId v, const VgpuShare& share, double part, bool busy = false,
            double most = kMost) {
    credits.earn(now += ns, v, share, part, busy, most, kMostSure);
  }
  SrtCredits credits{kSms};
  uint64_t now = kSecond;
};

TEST_F(SrtCreditsTest, BeginsWithAllAndPaysForUse) {
  add(0, kShare, kMost);
  EXPECT_EQ(credits[0], kMost);
  EXPECT_EQ(credits.sure(0), 0);
  credits.pay(0, 0, 50e6);
  EXPECT_EQ(credits[0], kMost - 50e6);
  EXPECT_EQ(credits.sure(0), -50e6);
  credits.forgive(0);
  EXPECT_EQ(credits[0], 0);
  EXPECT_EQ(credits.sure(0), -50e6);
  credits.pay(0, 0, -3e6);
  credits.forgive(0);
  EXPECT_EQ(credits[0], 3e6) << "a credit is kept";
}

TEST_F(SrtCreditsTest, ACreditIsThePartOfTheTimeAndNoMoreThanTheMost) {
  add(0);
  earn(10 * kMs, 0, kShare, 0.25);
  EXPECT_DOUBLE_EQ(credits[0], 0.25 * kSms * 10e6);
  earn(kSecond, 0, kShare, 0.25);
  EXPECT_DOUBLE_EQ(credits[0], kMost);
}

// What a higher level uses is nobody's to earn below it.
TEST_F(SrtCreditsTest, TheTimeIsWhatHigherLevelsLeave) {
  constexpr VgpuShare above = {.weight = 100, .priority = 1};
  add(0), add(1, above);
  credits.pay(1, 1, 8e6);
  earn(10 * kMs, 0, kShare, 1);
  EXPECT_DOUBLE_EQ(credits[0], kSms * 10e6 - 8e6);
  credits.pay(0, 0, 12e6);
  earn(kMs, 0, kShare, 1);
  EXPECT_DOUBLE_EQ(credits[0], kSms * 1e6) << "only once";
  now -= kMs;
  earn(0, 1, above, 1);
  EXPECT_DOUBLE_EQ(credits[1], kSms * 10e6 - 8e6) << "less what it has used itself";
  credits.pay(0, 0, 5e6);  // a lower level takes nothing
  earn(10 * kMs, 1, above, 1);
  EXPECT_DOUBLE_EQ(credits[1], 2 * kSms * 10e6 - 8e6);
  // More than all of the time, by late reports: nothing is left, and nothing is taken.
  credits.pay(1, 1, 90e6);
  const double before = credits[0];
  earn(kMs, 0, kShare, 1);
  EXPECT_DOUBLE_EQ(credits[0], before);
}

TEST_F(SrtCreditsTest, WhatIsMissedWhileThereIsWorkIsNeverCut) {
  add(0);
  const double most = 4e6;  // becomes small, as many are backlogged
  earn(kSecond, 0, kShare, 0.5, /*busy=*/false, most);
  EXPECT_FALSE(credits.has_waited(0, most)) << "it had no work";
  uint64_t ms = 0;
  while (!credits.has_waited(0, most) && ms < 1000) earn(kMs, 0, kShare, 0.5, true, most), ++ms;
  EXPECT_NEAR(static_cast<double>(ms), 16, 1);  // kPatience is 4
  EXPECT_FALSE(credits.has_waited(0, 2 * most));
  credits.pay(0, 0, 3e6);  // one turn
  EXPECT_FALSE(credits.has_waited(0, most));
  // Use beyond what was missed saves nothing up.
  credits.pay(0, 0, 500e6);
  earn(16 * kMs, 0, kShare, 0.5, true, most);
  EXPECT_TRUE(credits.has_waited(0, most));
}

// By the weights of all that are awake.
TEST_F(SrtCreditsTest, SureCreditsTogetherAreNoMoreThanTheTime) {
  add(0), add(1, kHeavy), add(2, {.weight = 5000, .priority = 3});
  for (const VgpuId v : {0, 1})
    credits.earn(now + kMs, v, v ? kHeavy : kShare, 1, true, kMost, kMost);
  EXPECT_DOUBLE_EQ(credits.sure(0), 0.25 * kSms * 1e6);
  EXPECT_DOUBLE_EQ(credits.sure(1), 0.75 * kSms * 1e6);
  credits.remove(1);
  earn(2 * kMs, 0, kShare, 0.1);
  EXPECT_DOUBLE_EQ(credits.sure(0), 1.25 * kSms * 1e6);
  earn(kSecond, 0, kShare, 1);
  EXPECT_DOUBLE_EQ(credits.sure(0), kMostSure);
}

// Its neighbours have not been busy for a second: a host may have sixty of them.
TEST_F(SrtCreditsTest, WhoSleepsTakesNothingOfASureShare) {
  add(0), add(1, kHeavy);
  earn(kMs, 0, kShare, 0, true);
  EXPECT_DOUBLE_EQ(credits.sure(0), 0.25 * kSms * 1e6);
  credits.turn_idle(now, 1);
  earn(kMs, 0, kShare, 0, true);
  EXPECT_DOUBLE_EQ(credits.sure(0), 0.5 * kSms * 1e6) << "a pause is no sleep";
  earn(2 * kSecond, 0, kShare, 0, true);
  credits.pay(0, 0, 2 * kMostSure);
  EXPECT_DOUBLE_EQ(credits.sure_in_ns(0, 0), kMostSure / kSms) << "alone from now on";
  // Asleep it earns as if it were awake, and no more than the most.
  earn(0, 1, kHeavy, 0);
  EXPECT_DOUBLE_EQ(credits.sure(1), kMostSure);
  credits.pay(1, 0, kMostSure);
  EXPECT_DOUBLE_EQ(credits.sure_in_ns(1, 3e6), 3e6 / kSms * 4 / 3);
  earn(kMs, 1, kHeavy, 0);
  EXPECT_DOUBLE_EQ(credits.sure(1), 0.75 * kSms * 1e6);
  credits.turn_busy(1);
  EXPECT_DOUBLE_EQ(credits.sure_in_ns(0, 0), 4 * kMostSure / kSms);
  credits.turn_busy(1);
  credits.change(1, kShare);
  EXPECT_DOUBLE_EQ(credits.sure_in_ns(0, 0), 2 * kMostSure / kSms) << "counted once";
  // Whoever has never had work does not count either, and leaves no trace.
  credits.add(now, 2, kHeavy, 0);
  EXPECT_DOUBLE_EQ(credits.sure_in_ns(0, 0), 2 * kMostSure / kSms);
  credits.change(2, kShare);
  credits.remove(2), credits.remove(1);
  EXPECT_DOUBLE_EQ(credits.sure_in_ns(0, 0), kMostSure / kSms);
}

// Who had a minute of the GPU alone uses little from then on, and has a sure share soon.
TEST_F(SrtCreditsTest, UseBeyondTheSureShareCountsAsFarAsTheMost) {
  add(0);
  credits.pay(0, 0, 60e9 * kSms);
  earn(0, 0, kShare, 1);
  EXPECT_DOUBLE_EQ(credits.sure(0), -kMostSure);
  EXPECT_DOUBLE_EQ(credits.sure_in_ns(0, 4e6), (kMostSure + 4e6) / kSms);
  earn(static_cast<uint64_t>(credits.sure_in_ns(0, 4e6)), 0, kShare, 1);
  EXPECT_DOUBLE_EQ(credits.sure(0), 4e6);
}

TEST_F(SrtCreditsTest, TheTimeToASureCreditIsByWeight) {
  add(0), add(1, kHeavy);
  EXPECT_DOUBLE_EQ(credits.sure_in_ns(0, 3e6), 3e6 / kSms * 4);
  EXPECT_DOUBLE_EQ(credits.sure_in_ns(1, 3e6), 3e6 / kSms * 4 / 3);
}

TEST_F(SrtCreditsTest, AChangedShareIsThatOfItsNewLevel) {
  constexpr VgpuShare above = {.weight = 300, .priority = 2};
  add(0), add(1);
  EXPECT_FALSE(credits.is_below_others(0));
  earn(0, 1, kShare, 0);
  credits.change(1, above);
  EXPECT_TRUE(credits.is_below_others(0));
  EXPECT_TRUE(credits.is_below_others(1));
  EXPECT_FALSE(credits.is_below_others(2));
  earn(kMs, 0, kShare, 0);
  EXPECT_DOUBLE_EQ(credits.sure(0), kSms * 1e6) << "alone at its level";
  // What higher levels used before it went there is not taken from it again.
  credits.pay(0, 0, 1e6), credits.pay(1, 2, 7e6);
  credits.change(0, above);
  const double before = credits[0];
  earn(kMs, 0, above, 1);
  EXPECT_DOUBLE_EQ(credits[0], before + kSms * 1e6);
  // Nor what they used before it came back.
  credits.pay(1, 2, 9e6);
  credits.change(0, kShare);
  const double then = credits[0];
  earn(kMs, 0, kShare, 1);
  EXPECT_DOUBLE_EQ(credits[0], then + kSms * 1e6);
  credits.change(0, above);
  credits.remove(0), credits.remove(1);
  EXPECT_FALSE(credits.is_below_others(0));
}

// One that is made anew under the number of another begins as any.
TEST_F(SrtCreditsTest, ANewOneHasNothingOfTheOneBefore) {
  constexpr VgpuShare above = {.weight = 100, .priority = 1};
  add(0), add(1, above);
  credits.pay(0, 0, 90e6), credits.pay(1, 1, 90e6);
  credits.remove(0);
  now += kMs;
  add(0, kShare, 5e6);
  EXPECT_EQ(credits[0], 5e6);
  EXPECT_EQ(credits.sure(0), 0);
  earn(kMs, 0, kShare, 1);
  EXPECT_DOUBLE_EQ(credits[0], 5e6 + kSms * 1e6);
}

}  // namespace
}  // namespace sluice::policy
