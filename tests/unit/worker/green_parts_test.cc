// SPDX-License-Identifier: Apache-2.0
// The parts of GreenContexts that need no driver.
#include <gtest/gtest.h>

#include "mediator/worker/launch/sms/bounded_wait.h"
#include "mediator/worker/launch/sms/sm_groups.h"

namespace sluice::worker {
namespace {

TEST(SmGroups, WholeGroupsAreAUnion) {
  const SmGroups groups = SmGroups::of(8, 4, 32);
  EXPECT_TRUE(groups.is_union(SmSet(0, 8)));
  EXPECT_TRUE(groups.is_union(SmSet(8, 32)));
  EXPECT_TRUE(groups.is_union(SmSet(0, 8) | SmSet(24, 32)));
}

TEST(SmGroups, APieceOfAGroupIsNone) {
  const SmGroups groups = SmGroups::of(8, 4, 32);
  EXPECT_FALSE(groups.is_union(SmSet(0, 7)));
  EXPECT_FALSE(groups.is_union(SmSet(4, 12)));
  EXPECT_FALSE(groups.is_union(SmSet(0, 8) | SmSet(9, 16)));
}

// 36 SMs: the last four are in no group.
TEST(SmGroups, SmsOfNoGroupAreInNoUnion) {
  const SmGroups groups = SmGroups::of(8, 4, 36);
  EXPECT_TRUE(groups.is_union(SmSet(0, 32)));
  EXPECT_FALSE(groups.is_union(SmSet(0, 36)));
  EXPECT_FALSE(groups.is_union(SmSet(32, 36)));
}

// The driver counts a last group that the GPU has a part of.
TEST(SmGroups, AGroupThatTheGpuHasAPartOfIsInNoUnion) {
  const SmGroups groups = SmGroups::of(8, 5, 36);
  EXPECT_EQ(groups.all, SmSet(0, 36));
  EXPECT_TRUE(groups.is_union(SmSet(0, 32)));
  EXPECT_FALSE(groups.is_union(SmSet(32, 36)));
}

TEST(BoundedWait, EndsAtItsBound) {
  BoundedWait wait(100);
  EXPECT_TRUE(wait.asked(1000));
  EXPECT_TRUE(wait.asked(1099));
  EXPECT_FALSE(wait.asked(1100));
  EXPECT_FALSE(wait.asked(1150));
}

TEST(BoundedWait, BeginsAnewWhenItWasOver) {
  BoundedWait wait(100);
  EXPECT_TRUE(wait.asked(1000));
  EXPECT_FALSE(wait.asked(1100));
  wait.over();
  EXPECT_TRUE(wait.asked(1110));
}

TEST(BoundedWait, BeginsAnewWhenNobodyAskedForLong) {
  BoundedWait wait(100);
  EXPECT_TRUE(wait.asked(1000));
  EXPECT_FALSE(wait.asked(1100));
  EXPECT_FALSE(wait.asked(1200));
  EXPECT_TRUE(wait.asked(1301));
}

}  // namespace
}  // namespace sluice::worker
