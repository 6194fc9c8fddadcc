// SPDX-License-Identifier: Apache-2.0
// TurnLength: the bounds of a turn, how many of them a second holds, and what a measured hand-over
// changes of it.
#include "policies/wfq/turn_length.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/policies/policy_units.h"

namespace sluice::policy {
namespace {

double ms_of(const TurnLength& length, double part) {
  return static_cast<double>(length.of(part)) / kMs;
}

TEST(TurnLength, TheLeastPaysForAHandOver) {
  Config c;  // hand-overs of 200 us, a loss of 4 %
  EXPECT_EQ(TurnLength(c).least_quantum(), 5 * kMs);
  c.machine.handover_ns = 10 * kUs;
  EXPECT_EQ(TurnLength(c).least_quantum(), c.min_quantum_ns);
  c.machine.handover_ns = kSecond;
  EXPECT_EQ(TurnLength(c).least_quantum(), c.max_quantum_ns);
}

// With turns of nothing a policy would be asked again at the same time for ever.
TEST(TurnLength, NoConfigurationMakesTurnsOfNothing) {
  for (const double loss : {0.0, 0.04}) {
    Config c;
    c.handover_loss = loss;
    c.min_quantum_ns = c.max_quantum_ns = c.latency_target_ns = c.machine.handover_ns = 0;
    TurnLength length(c);
    length.learn(0);
    EXPECT_EQ(length.least_quantum(), TurnLength::kTickNs);
    for (const double part : {0.0, 1e-9, 0.5, 1.0}) EXPECT_EQ(length.of(part), TurnLength::kTickNs);
  }
}

TEST(TurnLength, CheapIsLongEnoughForHandOversOfAHundredth) {
  const TurnLength length{Config{}};
  EXPECT_NEAR(ms_of(length, 0.5), 20, 1);  // 200 us of it
  // No longer than the latency target allows: eight of 5 ms are 40.
  EXPECT_NEAR(ms_of(length, 1.0 / 8), 5.2, 0.2);
  Config c;
  c.machine.handover_ns = 10 * kUs;
  EXPECT_NEAR(ms_of(TurnLength(c), 0.5), 5, 0.1) << "two turns are a hundredth of a second";
}

// Any second holds as many turns of each.
TEST(TurnLength, EvenIsAWholeNumberOfTurnsInASecond) {
  const TurnLength length{Config{}};
  for (int n = 2; n <= 48; ++n) {
    const double turns = 1000.0 / n / ms_of(length, 1.0 / n);
    EXPECT_NEAR(turns, std::round(turns), 1e-3) << n;
    EXPECT_GE(turns, 2.999) << n;
  }
}

TEST(TurnLength, LightHasFewShorterTurnsWhereHandOversPayForThem) {
  Config c;
  c.latency_target_ns = 4 * kSecond;  // who is entitled to 30 ms of a second would have one of 20
  TurnLength length(c);
  for (int i = 0; i < 20; ++i) length.learn(200 * kUs);
  EXPECT_NEAR(ms_of(length, 0.03), 10, 0.01);  // three
  EXPECT_NEAR(ms_of(length, 0.012), 6, 0.01);  // two: three would be shorter than the least
  EXPECT_NEAR(ms_of(length, 0.003), 3, 0.01);  // less than the least, and one in a second
  EXPECT_NEAR(ms_of(length, 0.0001), 0.8, 0.01) << "four hand-overs' length";
}

// Too long a turn would cost it a second for each part of a second that it was entitled to.
TEST(TurnLength, LightHasThreeWhileTheCostIsAGuess) {
  Config c;
  TurnLength length(c);
  EXPECT_NEAR(ms_of(length, 0.012), 4, 0.01);
  EXPECT_NEAR(ms_of(length, 0.0001), 1, 0.01) << "min_quantum_ns";
  for (int i = 0; i < 15; ++i) length.learn(200 * kUs);
  EXPECT_NEAR(ms_of(length, 0.012), 4, 0.01);
  length.learn(200 * kUs);  // now it is known
  EXPECT_NEAR(ms_of(length, 0.012), 5.2, 0.01);
}

TEST(TurnLength, WithoutALossLightTurnsAreAsLongAsOthers) {
  Config c;
  c.handover_loss = 0;
  EXPECT_NEAR(ms_of(TurnLength(c), 0.0001), 1.2, 0.01);
}

// Where hand-overs may cost half of the time, other turns are shorter than four of them.
TEST(TurnLength, LightIsNoLongerThanOthers) {
  Config c;
  c.handover_loss = 0.5;
  c.min_quantum_ns = 0;
  TurnLength length(c);
  for (int i = 0; i < 20; ++i) length.learn(200 * kUs);
  EXPECT_NEAR(ms_of(length, 0.0001), 0.6, 0.01);
}

TEST(TurnLength, TheLongestIsConfigured) {
  Config c;
  c.max_quantum_ns = 12 * kMs;
  EXPECT_EQ(TurnLength(c).of(0.5), 12 * kMs);
}

TEST(TurnLength, AHandOverTakesNoLongerThanTheMachineIsKnownFor) {
  Config c;
  TurnLength length(c);
  for (int i = 0; i < 200; ++i) length.learn(kSecond);  // a launch that cannot leave
  EXPECT_LE(length.handover_ns(), 200e3);
  EXPECT_EQ(length.least_quantum(), 5 * kMs);
  c.machine.handover_ns = 1000;  // nothing leaves as soon as that
  TurnLength quick(c);
  for (int i = 0; i < 200; ++i) quick.learn(kSecond);
  EXPECT_NEAR(quick.handover_ns(), 100e3, 1);
}

TEST(TurnLength, AMeanOfHandOversIsLearnt) {
  TurnLength length{Config{}};
  length.learn(120 * kUs);
  EXPECT_NEAR(length.handover_ns(), 190e3, 1);
  for (int i = 0; i < 200; ++i) length.learn(40 * kUs);
  EXPECT_NEAR(length.handover_ns(), 40e3, 1);
  EXPECT_NEAR(static_cast<double>(length.least_quantum()), 1e6, 1);
}

// A number of turns in a second that changed with each hand-over would make them uneven.
TEST(TurnLength, TurnsFollowOnlyWhatLasts) {
  TurnLength length{Config{}};
  const uint64_t before = length.of(0.5);
  for (int i = 0; i < 100; ++i) length.learn((i % 2 ? 170 : 190) * kUs);
  EXPECT_EQ(length.of(0.5), before);
  for (int i = 0; i < 200; ++i) length.learn(60 * kUs);
  EXPECT_LT(length.of(0.5), before / 2);
  for (int i = 0; i < 300; ++i) length.learn(200 * kUs);
  EXPECT_GT(length.of(0.5), before / 2);
}

}  // namespace
}  // namespace sluice::policy
