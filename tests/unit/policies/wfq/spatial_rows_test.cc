// SPDX-License-Identifier: Apache-2.0
// What wfq in space keeps of SMs and holders: who had an SM, rows, and whose turns are over.
#include "policies/wfq/spatial_rows.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/policies/policy_units.h"

namespace sluice::policy::wfq_spatial {
namespace {

TEST(SpatialHolders, EachHolderOfAnSmIsRememberedOnce) {
  Holders holders(2);
  EXPECT_EQ(holders.last_ns(0, 1), 0u);
  holders.note(0, 1, 10), holders.note(0, 2, 20), holders.note(0, 1, 30);
  EXPECT_EQ(holders.last_ns(0, 1), 30u);
  EXPECT_EQ(holders.last_ns(0, 2), 20u);
  EXPECT_EQ(holders.last_ns(1, 1), 0u) << "another SM";
}

TEST(SpatialHolders, TheOneThatHadItLongestAgoIsForgotten) {
  Holders holders(1);
  for (VgpuId v = 0; v < 6; ++v) holders.note(0, v, 10 + v);
  holders.note(0, 0, 20);
  holders.note(0, 6, 30);
  EXPECT_EQ(holders.last_ns(0, 1), 0u);
  EXPECT_EQ(holders.last_ns(0, 0), 20u);
  EXPECT_EQ(holders.last_ns(0, 2), 12u);
  EXPECT_EQ(holders.last_ns(0, 6), 30u);
}

TEST(SpatialWanted, AnUrgentOneWaitsForTheLeastTurnOnly) {
  const Row row{.oldest_ns = 100, .turn_ns = 50};
  Wanted wanted{};
  wanted.now_ns = 149, wanted.least_ns = 20;
  EXPECT_FALSE(wanted.ripe(row));
  wanted.now_ns = 150;
  EXPECT_TRUE(wanted.ripe(row));
  wanted.urgent = true, wanted.now_ns = 120;
  EXPECT_TRUE(wanted.ripe(row));
  wanted.now_ns = 119;
  EXPECT_FALSE(wanted.ripe(row));
}

TEST(SpatialRows, TheLastRowTakesThePlaceOfTheOneThatGoes) {
  Rows rows;
  for (const VgpuId v : {7, 8, 9}) EXPECT_EQ(rows.add(v), v - 7);
  EXPECT_EQ(rows.drop(0), 9u);
  EXPECT_EQ(rows[0].vgpu, 9u);
  EXPECT_EQ(rows.drop(1), kNoVgpu) << "it was the last";
  EXPECT_EQ(rows.size(), 1u);
}

TEST(SpatialRows, WhoIsBelowALevel) {
  Rows rows;
  EXPECT_TRUE(rows.all_idle()) << "nobody";
  EXPECT_FALSE(rows.any_below(kPriorityLevels - 1));
  rows.add(1), rows.add(2);
  EXPECT_TRUE(rows.any_below(0)) << "idle";
  rows.set_level(rows[0], 0), rows.set_level(rows[1], 4);
  EXPECT_FALSE(rows.all_idle());
  EXPECT_FALSE(rows.any_below(0));
  EXPECT_TRUE(rows.any_below(1));
  rows.drop(0);
  EXPECT_FALSE(rows.any_below(4));
  EXPECT_TRUE(rows.any_below(5));
  rows.set_level(rows[0], kIdle);
  EXPECT_TRUE(rows.all_idle());
}

class SpatialTurns : public ::testing::Test {
 protected:
  std::vector<VgpuId> over() const {
    std::vector<VgpuId> over = turns.over();
    std::sort(over.begin(), over.end());
    return over;
  }
  std::vector<VgpuId> going_on(uint64_t until_ns = ~0ull) const {
    std::vector<VgpuId> all;
    turns.going_on([&](VgpuId v, uint64_t end_ns) {
      if (end_ns <= until_ns) all.push_back(v);
      return end_ns <= until_ns;
    });
    std::sort(all.begin(), all.end());
    return all;
  }
  Turns turns;
};
using Some = std::vector<VgpuId>;

TEST_F(SpatialTurns, ATurnIsOverAtItsEnd) {
  for (const VgpuId v : {0, 1, 2}) turns.set(v, 10 * (v + 1));
  turns.pass(9);
  EXPECT_TRUE(over().empty());
  turns.pass(20);
  EXPECT_EQ(over(), (Some{0, 1}));
  EXPECT_TRUE(turns.is_over(1));
  EXPECT_FALSE(turns.is_over(2));
  EXPECT_EQ(going_on(), (Some{2}));
  EXPECT_EQ(going_on(29), (Some{}));
}

TEST_F(SpatialTurns, OneThatIsSetAnewGoesOn) {
  turns.set(0, 10), turns.set(1, 10);
  turns.pass(10);
  turns.set(0, 10);  // the same
  EXPECT_EQ(over(), (Some{0, 1}));
  turns.set(0, 30);
  EXPECT_EQ(over(), (Some{1}));
  turns.set(0, 20);  // a shorter one, while it goes on
  turns.pass(20);
  EXPECT_EQ(over(), (Some{0, 1}));
}

TEST_F(SpatialTurns, OneThatIsRemovedHasNone) {
  for (const VgpuId v : {0, 1, 2}) turns.set(v, 10 * (v + 1));
  turns.pass(20);
  turns.remove(0), turns.remove(2), turns.remove(77);
  EXPECT_EQ(over(), (Some{1}));
  EXPECT_FALSE(turns.is_over(0));
  turns.pass(100);
  EXPECT_EQ(over(), (Some{1}));
}

TEST_F(SpatialTurns, AllCanBeRenewed) {
  Rows rows;
  for (const VgpuId v : {0, 1, 2}) rows.add(v), turns.set(v, 10);
  turns.set(2, 100);
  turns.pass(10);
  turns.renew(rows, [](const Row& row) { return 30 - 10 * uint64_t{row.vgpu}; });
  EXPECT_TRUE(over().empty());
  EXPECT_EQ(going_on(), (Some{0, 1, 2}));
  turns.pass(20);
  EXPECT_EQ(over(), (Some{1, 2}));
}

// Against a table.
TEST_F(SpatialTurns, ManyChangesInAnyOrder) {
  std::mt19937 random(5);
  std::vector<uint64_t> ends(12, 0);  // 0: none
  for (uint64_t now = 1; now < 5'000; ++now) {
    const VgpuId v = random() % ends.size();
    if (random() % 4 == 0)
      turns.remove(v), ends[v] = 0;
    else
      turns.set(v, ends[v] = now + random() % 20);
    turns.pass(now);
    Some want_over, want_on;
    for (VgpuId i = 0; i < ends.size(); ++i) {
      if (ends[i]) (ends[i] <= now ? want_over : want_on).push_back(i);
    }
    ASSERT_EQ(over(), want_over) << now;
    ASSERT_EQ(going_on(), want_on) << now;
  }
}

}  // namespace
}  // namespace sluice::policy::wfq_spatial
