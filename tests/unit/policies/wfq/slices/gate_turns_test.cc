// SPDX-License-Identifier: Apache-2.0
// GateTurns: who has a turn by the gates, in which order, and for how long.
#include "policies/wfq/slices/gate_turns.h"

#include "tests/unit/policies/wfq/slices/sliced_gpu_test.h"

namespace sluice::policy::slices {
namespace {

constexpr double kEndsNs = 77e6;  // of a round without turns

class GateTurnsTest : public SlicedGpuTest {
 protected:
  // It waits for `gap_ns` after each of its short launches.
  VgpuId add_chatting(double burst_ns = 300e3, double gap_ns = 100e3, const VgpuShare& share = {}) {
    const VgpuId v = add_busy(share);
    has_habit(v, burst_ns, gap_ns);
    return v;
  }
  VgpuId add_staying(const VgpuShare& share = {}) {
    const VgpuId v = add_busy(share);
    gpu[v].habit.came_ns = now - kSecond;
    return v;
  }
  double begin_turns() {
    begin_round();
    for (const VgpuId v : gpu.top) {
      if (gpu.habit(v).waited_ns) gpu[v].habit.waited_ns = now - 10 * kUs;
      gpu.gate(now, v, false);
    }
    return turns.begin_round(now, kEndsNs);
  }
  GateTurns turns{gpu};
};

TEST_F(GateTurnsTest, TwoThatChatTakeTurns) {
  add_chatting(), add_chatting();
  double ends_ns = begin_turns();
  EXPECT_TRUE(turns.active());
  EXPECT_EQ(open(), (Open{0}));
  EXPECT_TRUE(turns.is_turn_of(now, 0));
  EXPECT_FALSE(turns.is_turn_of(now, 1));
  EXPECT_NEAR(ends_ns, gpu.quantum_ns(0), 0.1e6);
  now += kMs;
  EXPECT_NEAR(begin_turns(), ends_ns - 1e6, 1) << "it goes on";
  EXPECT_EQ(open(), (Open{0}));
  now += static_cast<uint64_t>(ends_ns) - kMs;
  EXPECT_FALSE(turns.is_turn_of(now, 0));
  ends_ns = begin_turns();
  EXPECT_EQ(open(), (Open{1}));
  now += static_cast<uint64_t>(ends_ns);
  begin_turns();
  EXPECT_EQ(open(), (Open{0}));
}

TEST_F(GateTurnsTest, NoneOfOneThatChatsAlone) {
  add_chatting();
  EXPECT_EQ(begin_turns(), kEndsNs);
  EXPECT_FALSE(turns.active());
  EXPECT_EQ(open(), (Open{0}));
  EXPECT_FALSE(turns.is_turn_of(now, 0));
}

TEST_F(GateTurnsTest, WhoIsAheadByMoreThanATurnIsPassedOver) {
  add_chatting(), add_chatting(), add_chatting();
  charge(0, 50 * kMs);
  uint64_t turns_of[3] = {};
  for (int i = 0; i < 9; ++i) {
    now += static_cast<uint64_t>(begin_turns());
    ++turns_of[open().front()];
    charge(open().front(), 5 * kMs);
  }
  EXPECT_LT(turns_of[0], 3u);
  EXPECT_GT(turns_of[1], 3u);
}

TEST_F(GateTurnsTest, AHolderThatWaitsKeepsItsTurnUntilItShouldBeBack) {
  add_chatting(), add_chatting(), add_chatting();
  begin_turns();
  ASSERT_TRUE(turns.is_turn_of(now, 0));
  go(0);
  begin_round();
  const double ends_ns = turns.begin_round(now, kEndsNs);
  EXPECT_NEAR(ends_ns, kHandoverNs, 1);
  EXPECT_TRUE(open().empty());
  now += static_cast<uint64_t>(ends_ns);
  begin_round();
  turns.begin_round(now, kEndsNs);
  EXPECT_EQ(open(), (Open{2})) << "it lost its turn";
}

TEST_F(GateTurnsTest, OneThatWaitsForAMomentIsGivenNoTurn) {
  add_chatting(), add_chatting(), add_chatting();
  now += static_cast<uint64_t>(begin_turns()) - 50 * kUs;
  go(1);
  now += 60 * kUs;
  begin_round();
  turns.begin_round(now, kEndsNs);
  EXPECT_EQ(open(), (Open{2})) << "it would have been its turn";
}

// Where one of them fills its turn, those that stay have one together, too.
TEST_F(GateTurnsTest, ThoseThatStayHaveATurnTogether) {
  add_chatting(), add_staying(), add_staying();
  for (int i = 0; i < 2; ++i) {
    const double one_ns = begin_turns();
    EXPECT_EQ(open(), (Open{0}));
    EXPECT_NEAR(one_ns, gpu.quantum_ns(0), 0.1e6);
    now += static_cast<uint64_t>(one_ns);
    const double all_ns = begin_turns();
    EXPECT_EQ(open(), (Open{1, 2}));
    EXPECT_NEAR(all_ns, 2 * gpu.quantum_ns(1), 1e3) << "as long as both of theirs";
    now += kMs;
    EXPECT_NEAR(begin_turns(), all_ns - 1e6, 1) << "it goes on";
    EXPECT_EQ(open(), (Open{1, 2}));
    now += static_cast<uint64_t>(all_ns);
  }
}

TEST_F(GateTurnsTest, ATurnOfThoseThatStayIsCorrectedByTheirLead) {
  add_chatting(), add_staying(), add_staying();
  now += static_cast<uint64_t>(begin_turns());
  charge(1, 4 * kMs);  // the two lead by a third of that
  EXPECT_NEAR(begin_turns(), 2 * gpu.quantum_ns(1) - 0.25 * 4e6 / 3, 1e3);
  EXPECT_EQ(open(), (Open{1, 2}));
  charge(0, kSecond);
  now += 100 * kMs;
  EXPECT_NEAR(begin_turns(), 1.25 * 2 * gpu.quantum_ns(1), 1e3) << "by a quarter at most";
}

TEST_F(GateTurnsTest, ATurnOfThoseThatStayIsNoShorterThanThreeQuarters) {
  add_chatting(), add_staying(), add_staying();
  has_habit(add_busy(), 1e6, 50e6);  // a visitor, behind all of them
  for (const VgpuId v : {0, 1, 2}) charge(v, kSecond);
  now += static_cast<uint64_t>(begin_turns());
  EXPECT_NEAR(begin_turns(), 0.75 * 2 * gpu.quantum_ns(1), 1e3);
  EXPECT_EQ(open(), (Open{1, 2, 3}));
}

TEST_F(GateTurnsTest, AndIsPassedOverIfTheyAreAhead) {
  add_chatting(), add_staying(), add_staying();
  begin_turns();
  ASSERT_EQ(open(), (Open{0}));
  charge(1, 100 * kMs);
  now += 10 * kMs;
  begin_turns();
  EXPECT_EQ(open(), (Open{0})) << "once more";
}

TEST_F(GateTurnsTest, NotBesideOneThatDoesNotFillItsTurn) {
  add_chatting(100e3, 300e3), add_staying();
  EXPECT_EQ(begin_turns(), kEndsNs);
  EXPECT_EQ(open(), (Open{0, 1}));
}

TEST_F(GateTurnsTest, NotOfManyThatStay) {
  add_chatting();
  for (int i = 0; i < 3; ++i) add_staying();
  begin_turns();
  EXPECT_TRUE(turns.active());
  add_staying();
  begin_turns();
  EXPECT_FALSE(turns.active()) << "one that chats is as well off between their slices";
}

TEST_F(GateTurnsTest, AVisitorIsInNoTurn) {
  add_chatting(), add_chatting();
  const VgpuId visitor = add_busy();
  has_habit(visitor, 1e6, 50e6);  // gaps much longer than a switch
  begin_turns();
  EXPECT_EQ(open(), (Open{0, visitor}));
}

TEST_F(GateTurnsTest, OneOfALowerPriorityIsInNoTurn) {
  add_chatting(), add_chatting(), add_chatting(300e3, 100e3, {.priority = 1});
  EXPECT_EQ(begin_turns(), kEndsNs);
  EXPECT_FALSE(turns.active());
}

TEST_F(GateTurnsTest, WhoIsAwayAndChatsNoMoreIsNoMember) {
  add_chatting(), add_chatting();
  begin_turns();
  go(0);
  gpu[0].habit.burst_ns = 20e6;
  EXPECT_EQ(begin_turns(), kEndsNs);
  EXPECT_FALSE(turns.active());
}

TEST_F(GateTurnsTest, NorIsWhoIsAwayAndOfALowerPriorityNow) {
  add_chatting(), add_chatting();
  begin_turns();
  go(0);
  add_chatting(300e3, 100e3, {.priority = 1});
  EXPECT_EQ(begin_turns(), kEndsNs);
  EXPECT_FALSE(turns.active());
}

// The one that was away longest had its turn longest ago.
TEST_F(GateTurnsTest, WhoIsLongAwayIsAMemberNoMore) {
  add_chatting(), add_chatting();
  begin_turns();
  go(0);
  now += 10 * kMs;
  EXPECT_EQ(begin_turns(), kEndsNs);
  EXPECT_FALSE(turns.active());
}

}  // namespace
}  // namespace sluice::policy::slices
