// SPDX-License-Identifier: Apache-2.0
// ChangeCost: a mean of what changes of a set of SMs took, between one and four times what the
// machine declares.
#include "policies/parts/change_cost.h"

#include <gtest/gtest.h>

#include "tests/unit/policies/policy_units.h"

namespace sluice::policy {
namespace {

TEST(ChangeCost, IsAMeanOfWhatWasMeasured) {
  ChangeCost cost(60 * kUs);
  EXPECT_EQ(cost.ns(), 60e3);
  cost.learn(140 * kUs);
  EXPECT_EQ(cost.ns(), 70e3);
  for (int i = 0; i < 200; ++i) cost.learn(140 * kUs);
  EXPECT_NEAR(cost.ns(), 140e3, 1);
}

// Drivers measure until launches have left, and not until they work again.
TEST(ChangeCost, IsNeverLessThanDeclared) {
  ChangeCost cost(60 * kUs);
  for (int i = 0; i < 200; ++i) cost.learn(0);
  EXPECT_EQ(cost.ns(), 60e3);
}

TEST(ChangeCost, ALaunchThatWouldNotLeaveSaysNothingOfTheNext) {
  ChangeCost cost(60 * kUs);
  for (int i = 0; i < 200; ++i) cost.learn(kSecond);
  EXPECT_NEAR(cost.ns(), 240e3, 1);
  ChangeCost free(0);
  free.learn(kSecond);
  EXPECT_EQ(free.ns(), 0) << "the machine says that changes cost nothing";
}

}  // namespace
}  // namespace sluice::policy
