// SPDX-License-Identifier: Apache-2.0
// Waiting: the orders of those that wait, and who goes first of equals.
#include "policies/wfq/waiting.h"

#include <gtest/gtest.h>

namespace sluice::policy {
namespace {

class WaitingTest : public ::testing::Test {
 protected:
  WaitingTest() {
    for (VgpuId v = 0; v < work.size(); ++v) waiting.add(v, 0);
  }
  template <class Heap>
  static std::vector<VgpuId> order(Heap heap) {
    std::vector<VgpuId> all;
    for (; !heap.empty(); heap.remove(all.back())) all.push_back(heap.top());
    return all;
  }
  std::vector<KnownWork> work{4};
  Waiting waiting{work, /*sm_count=*/1};
};
using Order = std::vector<VgpuId>;

TEST_F(WaitingTest, TheEarliestRankIsFirst) {
  auto& by_rank = waiting.levels[0].by_rank;
  for (const VgpuId v : {0, 1, 2}) waiting.rank[v] = 10 * (v ^ 1), by_rank.push(v);
  EXPECT_EQ(order(by_rank), (Order{1, 0, 2}));
}

// Or an eviction that took no time would be undone.
TEST_F(WaitingTest, OfEqualRanksTheOneThatRanLastIsLast) {
  auto& by_rank = waiting.levels[0].by_rank;
  for (const VgpuId v : {0, 2, 1}) waiting.begin_turn(v);
  for (const VgpuId v : {0, 1, 2, 3}) by_rank.push(v);
  EXPECT_EQ(order(by_rank), (Order{3, 0, 2, 1})) << "3 had no turn at all";
}

TEST_F(WaitingTest, TheShortestIsFirstAndWhoSaysNothingLast) {
  for (const VgpuId v : {0, 1, 2}) work[v].rest = 100 - v;
  waiting.begin_turn(1), waiting.begin_turn(0);
  for (auto* heap : {&waiting.levels[0].bursts, &waiting.levels[0].short_ones}) {
    for (const VgpuId v : {3, 0, 1, 2}) heap->push(v);
    EXPECT_EQ(order(*heap), (Order{2, 1, 0, 3}));
  }
  auto& other = waiting.levels[1].short_ones;
  work[1].rest = work[0].rest = work[2].rest;
  for (const VgpuId v : {0, 1, 2}) other.push(v);
  EXPECT_EQ(order(other), (Order{2, 1, 0})) << "of equals the one that ran last is last";
}

// Or of some with much the same work the longest would wait until its turn is overdue.
TEST_F(WaitingTest, WhoHasWaitedForLongerGoesBeforeALittleLessWork) {
  for (const VgpuId v : {0, 1, 2}) work[v].rest = 1000 + 10 * v;
  waiting.since_ns = {Waiting::kStretch * 20 + 2, Waiting::kStretch * 10 + 1, 0, 0};
  auto& short_ones = waiting.levels[0].short_ones;
  for (const VgpuId v : {0, 1, 2}) short_ones.push(v);
  EXPECT_EQ(order(short_ones), (Order{2, 1, 0}));
  waiting.since_ns = {Waiting::kStretch * 20 - 2, Waiting::kStretch * 10 - 1, 0, 0};
  auto& others = waiting.levels[1].short_ones;
  for (const VgpuId v : {0, 1, 2}) others.push(v);
  EXPECT_EQ(order(others), (Order{0, 1, 2}));
}

TEST_F(WaitingTest, WhoStopsWaitingIsInNoOrder) {
  Waiting::Level& level = waiting.levels[2];
  for (const VgpuId v : {0, 1}) {
    level.by_rank.push(v), level.bursts.push(v), level.short_ones.push(v);
    waiting.covered_at_ns[v] = v;
    waiting.uncovered.push(v);
  }
  level.by_rank.push(3);  // in no other
  waiting.remove(2, 0), waiting.remove(2, 3);
  EXPECT_EQ(order(level.by_rank), (Order{1}));
  EXPECT_EQ(order(level.bursts), (Order{1}));
  EXPECT_EQ(order(level.short_ones), (Order{1}));
  EXPECT_EQ(order(waiting.uncovered), (Order{1}));
}

TEST_F(WaitingTest, WhoIsMadeAnewHadNoTurn) {
  waiting.begin_turn(1);
  waiting.add(1, 77);
  EXPECT_EQ(waiting.due[1], 77);
  EXPECT_EQ(waiting.turn_of[1], 0u);
}

TEST_F(WaitingTest, DueTimesAreSetBackWithV) {
  waiting.due[0] = 100, waiting.rank[0] = 90;
  waiting.rebase(0, 60);
  EXPECT_EQ(waiting.due[0], 40);
  EXPECT_EQ(waiting.rank[0], 30);
  for (int i = 0; i < 20; ++i) waiting.rebase(0, FairClock::kRebaseAt);
  EXPECT_EQ(waiting.due[0], -FairClock::kRebaseAt) << "however often that happens";
  EXPECT_EQ(waiting.rank[0], -FairClock::kRebaseAt);
}

}  // namespace
}  // namespace sluice::policy
