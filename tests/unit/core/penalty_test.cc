// SPDX-License-Identifier: Apache-2.0
// The back-off in virtual time: whatever a vGPU tries, its faults cost its neighbours at most 2 %
// of any minute, and who crashes now and then barely waits.
#include "mediator/core/penalty.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <random>
#include <vector>

namespace sluice::core {
namespace {

constexpr uint64_t kMs = 1'000'000, kS = 1'000 * kMs, kMinute = 60 * kS;
constexpr uint64_t kUnmapped = 150 * kMs, kMisaligned = 78 * kMs;

// Stalls as they happened, and the most of them in any window.
class Stalls {
 public:
  void add(uint64_t at_ns, uint64_t ns) { all_.push_back({at_ns, ns}); }
  uint64_t most_in(uint64_t window_ns) const {
    uint64_t most = 0, sum = 0;
    for (size_t first = 0, last = 0; last < all_.size(); ++last) {
      sum += all_[last].ns;
      while (all_[last].at_ns - all_[first].at_ns > window_ns) sum -= all_[first++].ns;
      most = std::max(most, sum);
    }
    return most;
  }
  size_t count() const { return all_.size(); }

 private:
  struct Stall {
    uint64_t at_ns, ns;
  };
  std::vector<Stall> all_;
};

// A vGPU whose guest opens as many sessions as it may, of `slots`, and does with them what
// `next_cost` says: how long the next fault stops the GPU; 0: wait a second, and ask again. The
// host's side is as in VgpuServer: it asks before it opens, and ends all sessions of who is barred.
Stalls attack(uint64_t hours, unsigned slots,
              const std::function<uint64_t(uint64_t now)>& next_cost, uint64_t think_ns = 5 * kMs) {
  Penalty p(kUnmapped);
  Stalls stalls;
  unsigned open = 0;
  for (uint64_t now = kS; now < hours * 60 * kMinute;) {
    if (p.opens_at_ns(now) <= now) open = slots;
    if (open == 0) {
      now = p.opens_at_ns(now);
      continue;
    }
    const uint64_t cost = next_cost(now);
    if (cost == 0) {
      now += kS;
      continue;
    }
    now += think_ns + cost;
    stalls.add(now, cost);
    --open;
    if (p.on_offence(now, Offence::kFault, cost, true) == Penalty::State::kBarred) open = 0;
  }
  return stalls;
}

TEST(Penalty, FaultsAsFastAsAllowedCostAtMostTwoPercentOfAnyMinute) {
  for (const unsigned slots : {1u, 2u, 16u, 64u})
    for (const uint64_t cost : {kUnmapped, kMisaligned, uint64_t{10 * kMs}, uint64_t{kMs}}) {
      const Stalls s = attack(3, slots, [&](uint64_t) { return cost; });
      EXPECT_GT(s.count(), 100u) << "it is slowed, not locked out";
      EXPECT_LE(s.most_in(kMinute), kMinute / 50) << slots << " slots, " << cost / kMs << " ms";
      EXPECT_LE(s.most_in(60 * kMinute), 60 * kMinute / 250)
          << "0.25 % in the long run, and the burst";
    }
}

TEST(Penalty, MixedKindsAndPausesDoNotHelp) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    uint64_t quiet_until = 0;
    const Stalls s = attack(2, 1 + seed % 16, [&](uint64_t now) -> uint64_t {
      if (now < quiet_until) return 0;
      if (random() % 8 == 0) {
        quiet_until = now + random() % 200 * kS;
        return 0;
      }
      return random() % 3 == 0   ? kUnmapped
             : random() % 2 == 0 ? kMisaligned
                                 : kMs + random() % (150 * kMs);
    });
    EXPECT_LE(s.most_in(kMinute), kMinute / 50) << "seed " << seed;
  }
}

// Saves up: all sessions ready, nothing done until all debt is gone, then everything at once.
TEST(Penalty, ABurstAfterEachQuietTimeStaysBelowTheBound) {
  for (const uint64_t quiet_s : {1u, 60u, 200u, 420u, 500u}) {
    uint64_t next = 0;
    unsigned burst = 0;
    const Stalls s = attack(4, 64, [&](uint64_t now) -> uint64_t {
      if (now < next) return 0;
      if (++burst % 16 == 0) next = now + quiet_s * kS;
      return kUnmapped;
    });
    EXPECT_LE(s.most_in(kMinute), kMinute / 50) << quiet_s;
  }
}

TEST(Penalty, WaitsGrowToAMinuteAndAreForgotten) {
  Penalty p(kUnmapped);
  uint64_t now = kS, last_wait = 0;
  for (int i = 0; i < 30; ++i) {
    p.on_offence(now, Offence::kFault, kUnmapped, true);
    const uint64_t wait = p.opens_at_ns(now) - now;
    EXPECT_GE(wait, last_wait) << "fault " << i;
    EXPECT_LE(wait, kMinute);
    if (i == 0) {
      EXPECT_LE(wait, 5 * kS) << "one crash is not much noticed";
    }
    if (i > 0) {
      EXPECT_GE(wait, 7 * kS);
    }
    last_wait = wait;
    now += wait;
  }
  EXPECT_GE(last_wait, 59 * kS);
  now += 8 * kMinute;
  EXPECT_EQ(p.debt_ns(now), 0u);
  EXPECT_EQ(p.state(now), Penalty::State::kClear);
  p.on_offence(now, Offence::kFault, kUnmapped, true);
  EXPECT_LE(p.opens_at_ns(now) - now, 5 * kS);
  EXPECT_EQ(p.faults(), 31u);
  EXPECT_EQ(p.fault_stall_ns(), 31 * kUnmapped);
}

TEST(Penalty, TrapsAndAssertsCostNothing) {
  Penalty p(kUnmapped);
  for (uint64_t i = 0; i < 1000; ++i)
    EXPECT_EQ(p.on_offence(kS + i * kMs, Offence::kFault, 0, true), Penalty::State::kClear);
  EXPECT_EQ(p.debt_ns(2 * kS), 0u);
}

// Of the first seconds, too: one offence, and 3 % of the time since.
TEST(Penalty, NoWindowFromTheFirstOffenceOnCostsMoreThanOneAndThreePercent) {
  for (const uint64_t cost : {kUnmapped, kMisaligned, uint64_t{10 * kMs}}) {
    const Stalls s = attack(1, 1, [&](uint64_t) { return cost; });
    for (const uint64_t window : {2 * kS, 10 * kS, kMinute})
      EXPECT_LE(s.most_in(window), cost + window / 33) << cost / kMs << " ms, " << window / kS;
  }
}

TEST(Penalty, WhoIsAloneOwesNothing) {
  Penalty p(kUnmapped);
  for (uint64_t i = 0; i < 100; ++i) p.on_offence(kS + i * kMs, Offence::kFault, kUnmapped, false);
  EXPECT_EQ(p.state(2 * kS), Penalty::State::kClear);
  EXPECT_EQ(p.faults(), 100u) << "counted all the same";
}

// States: the table of the header.
TEST(Penalty, States) {
  Penalty p(kUnmapped);
  uint64_t now = kS;
  EXPECT_EQ(p.state(now), Penalty::State::kClear);
  EXPECT_EQ(p.on_offence(now, Offence::kFault, kUnmapped, true), Penalty::State::kWaiting);
  now = p.opens_at_ns(now);
  EXPECT_EQ(p.state(now), Penalty::State::kClear);
  EXPECT_EQ(p.state(now - 1), Penalty::State::kWaiting);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(p.on_offence(now, Offence::kFault, kUnmapped, true), Penalty::State::kWaiting);
  EXPECT_EQ(p.on_offence(now, Offence::kFault, kUnmapped, true), Penalty::State::kBarred);
  now = p.opens_at_ns(now);
  EXPECT_EQ(p.state(now), Penalty::State::kClear);
  EXPECT_EQ(p.on_offence(now, Offence::kFault, kUnmapped, true), Penalty::State::kBarred)
      << "one a minute";
}

// Who spins through its deadline, again and again: the first pause is the whole deadline, those
// after it are not.
TEST(Penalty, SpinsAreShortAfterTheFirstAndStayBelowTwoPercentOfFiveMinutes) {
  constexpr uint64_t kFull = 2 * kS, kLeast = 100 * kMs;
  for (const uint64_t patience_s : {0u, 1u, 10u, 60u, 90u, 120u, 179u, 181u, 400u})
    for (const unsigned slots : {1u, 16u}) {
      Penalty p(kUnmapped);
      Stalls s;
      unsigned open = 0;
      uint64_t last = 0;
      for (uint64_t now = kS; now < 4 * 60 * kMinute;) {
        if (p.opens_at_ns(now) <= now) open = slots;
        const uint64_t next =
            std::max(open ? now : p.opens_at_ns(now), last ? last + patience_s * kS : now);
        if (next > now || open == 0) {
          now = std::max(next, now + 1);
          continue;
        }
        const uint64_t cost = p.deadline_ns(now, kFull, kLeast);
        EXPECT_TRUE(cost == kFull || last != 0);
        now += cost;
        s.add(now, cost);
        last = now;
        --open;
        if (p.on_offence(now, Offence::kDidNotLeave, cost, true) == Penalty::State::kBarred)
          open = 0;
      }
      EXPECT_LE(s.most_in(5 * kMinute), 5 * kMinute / 50)
          << patience_s << " s, " << slots << " slots";
      EXPECT_LE(s.most_in(kMinute), kFull + kMinute / 50)
          << patience_s << " s, " << slots << " slots";
    }
}

TEST(Penalty, ForcedEndsWithoutAStallAreSlowedOnlyWhenTheyAreMany) {
  Penalty p(kUnmapped);
  uint64_t now = kS;
  for (int i = 0; i < 30; ++i, now += 10 * kMs) p.on_offence(now, Offence::kForcedEnd, 0, true);
  EXPECT_LE(p.opens_at_ns(now) - now, 2 * kS);
  for (int i = 0; i < 1000; ++i) p.on_offence(now, Offence::kForcedEnd, 0, true);
  EXPECT_EQ(p.state(now), Penalty::State::kBarred);
  EXPECT_EQ(p.forced_ends(), 1030u);
}

// A neighbour whose programs come and go counts in the gaps, too.
TEST(Neighbours, AFaultMayBeAnothersForASecondAfterThatOneWasEnded) {
  constexpr uint64_t kAt = 5 * Neighbours::kAftermath;
  Neighbours n;
  EXPECT_FALSE(n.may_be_hit(1, 0));
  n.did_not_leave(0, kAt);
  EXPECT_FALSE(n.may_be_hit(0, kAt)) << "its own";
  EXPECT_TRUE(n.may_be_hit(1, kAt));
  EXPECT_TRUE(n.may_be_hit(7, kAt + Neighbours::kAftermath - 1));
  EXPECT_FALSE(n.may_be_hit(1, kAt + Neighbours::kAftermath));
  n.did_not_leave(3, kAt);
  n.forget(3);
  n.forget(0);
  EXPECT_FALSE(n.may_be_hit(1, kAt));
}

TEST(Neighbours, CountForAMinuteAfterTheirLastSession) {
  Neighbours n;
  EXPECT_FALSE(n.others(0, kS));
  n.opened(0);
  EXPECT_FALSE(n.others(0, kS)) << "itself";
  EXPECT_TRUE(n.others(3, kS));
  n.opened(3);
  EXPECT_TRUE(n.others(0, kS));
  n.closed(3, 2 * kS);
  EXPECT_TRUE(n.others(0, 3 * kS));
  EXPECT_FALSE(n.others(0, 2 * kS + Penalty::kAlone));
  n.opened(3);
  n.forget(3);
  EXPECT_FALSE(n.others(0, 3 * kS)) << "deleted";
}

}  // namespace
}  // namespace sluice::core
