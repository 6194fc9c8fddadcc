// SPDX-License-Identifier: Apache-2.0
// The figures of wfq in space: how long a frame is, what room and surplus a vGPU has, which are
// short or of class low, how far ahead each is, and when a turn ends.
#include "policies/wfq/spatial_figures.h"

#include <gtest/gtest.h>

#include "tests/unit/policies/policy_units.h"

namespace sluice::policy::wfq_spatial {
namespace {

struct AllFigures : Figures {
  explicit AllFigures(const Config& config) : Figures(config) {}
  using Figures::ahead, Figures::ahead_if_given, Figures::change_, Figures::clock_;
  using Figures::entitled_sms, Figures::frame_, Figures::frame_ns, Figures::is_low;
  using Figures::is_short, Figures::known, Figures::learn_handover, Figures::least_turn_ns;
  using Figures::lightest_, Figures::look_at_width, Figures::own_, Figures::per_weight;
  using Figures::rate_, Figures::rate_of, Figures::room_of, Figures::set_known, Figures::sms_;
  using Figures::surplus_of, Figures::turn_end;
};

class SpatialFigures : public ::testing::Test {
 protected:
  static Config config_of(uint64_t change_ns = 0) {
    Config c;
    c.machine.sm_count = 16;
    c.machine.spatial = true;
    c.machine.handover_ns = 200 * kUs;
    c.machine.change_ns = change_ns;
    return c;
  }
  explicit SpatialFigures(const Config& config = config_of()) : f(config) {}
  VgpuId add(const VgpuShare& share = {}) {
    const auto v = static_cast<VgpuId>(f.clock_.size());
    f.clock_.add(v, share);
    f.clock_.turn_busy(v);
    f.own_.emplace_back();
    f.own_[v].per_weight = f.per_weight(v);
    f.rate_ = f.rate_of(0);
    return v;
  }
  AllFigures f;
};

// ---- frames ------------------------------------------------------------------------------------

TEST_F(SpatialFigures, AFrameIsLongEnoughForTheHandOversInIt) {
  EXPECT_EQ(f.frame_ns(0), 4 * kMs);
  for (int i = 0; i < 32; ++i) add();
  EXPECT_EQ(f.frame_ns(0), 10 * kMs) << "two on each SM: 400 us are 4 % of that";
  for (int i = 0; i < 200; ++i) add();
  EXPECT_EQ(f.frame_ns(0), 30 * kMs) << "max_quantum_ns";
}

TEST_F(SpatialFigures, AFrameIsNoLongerThanTheLatencyTargetIfHandOversAllowIt) {
  Config c = config_of();
  c.latency_target_ns = 2 * kMs;
  EXPECT_EQ(AllFigures(c).frame_ns(0), 2 * kMs);
  c.latency_target_ns = 0;
  EXPECT_EQ(AllFigures(c).frame_ns(0), 10 * kUs) << "timers are no denser";
  c = config_of();
  c.max_quantum_ns = kMs;
  EXPECT_EQ(AllFigures(c).frame_ns(0), 4 * kMs);
  c.handover_loss = 0;
  AllFigures g(c);
  for (VgpuId v = 0; v < 64; ++v) g.clock_.add(v, {}), g.clock_.turn_busy(v);
  EXPECT_EQ(g.frame_ns(0), 4 * kMs) << "nothing pays";
}

// All that rests on the frame would have to be reckoned anew each time.
TEST_F(SpatialFigures, AFrameFollowsOnlyWhatHandOversLastinglyCost) {
  for (int i = 0; i < 64; ++i) add();
  const uint64_t before = f.frame_ns(0);
  f.learn_handover(400 * kUs);
  EXPECT_EQ(f.least_turn_ns(), 225 * kUs) << "the least turn does at once";
  EXPECT_EQ(f.frame_ns(0), before);
  for (int i = 0; i < 50; ++i) f.learn_handover(20 * kUs);
  EXPECT_LT(f.frame_ns(0), before / 2);
  for (int i = 0; i < 50; ++i) f.learn_handover(kSecond);
  EXPECT_NEAR(static_cast<double>(f.least_turn_ns()), 1.2e6, 5e3) << "4 % of the longest quantum";
}

class SteadyFigures : public SpatialFigures {
 protected:
  SteadyFigures() : SpatialFigures(config_of(/*change_ns=*/60 * kUs)) {}
  VgpuId add(const VgpuShare& share = {}) {
    const VgpuId v = SpatialFigures::add(share);
    f.lightest_[0].push(v);
    return v;
  }
};

TEST_F(SteadyFigures, AFrameLastsUntilChangesCostNextToNothing) {
  EXPECT_EQ(f.frame_ns(0), 40 * kMs) << "two changes are 0.3 % of that";
  EXPECT_EQ(f.least_turn_ns(), 120 * kUs);
  for (int i = 0; i < 100; ++i) f.change_.learn(kSecond);
  EXPECT_EQ(f.frame_ns(0), 100 * kMs) << "and no longer than that";
}

// The vGPU with the smallest share would be off by more.
TEST_F(SteadyFigures, AFrameIsShorterForTheSakeOfTheLightest) {
  add(), add({.weight = 300}), add({.weight = 300});
  EXPECT_NEAR(static_cast<double>(f.frame_ns(0)), 9e6 * 16 / 7, 10);
  add({.weight = 1});
  EXPECT_EQ(f.frame_ns(0), 3 * kMs) << "two changes are handover_loss of that";
}

// ---- SMs ---------------------------------------------------------------------------------------

TEST_F(SpatialFigures, EntitlementIsByWeight) {
  const VgpuId a = add({.weight = 300}), b = add();
  EXPECT_EQ(f.entitled_sms(a), 12);
  EXPECT_EQ(f.entitled_sms(b), 4);
  EXPECT_EQ(f.rate_of(3), 16) << "nobody is busy there";
}

TEST_F(SpatialFigures, RoomIsWhatItsLaunchesCanUse) {
  const VgpuId v = add();
  EXPECT_EQ(f.room_of(v), 16u) << "nothing is known of them";
  f.own_[v].held = 5, f.own_[v].coming = 2;
  EXPECT_EQ(f.room_of(v), 9u);
  f.own_[v].launches = {{1, 10}}, f.own_[v].width = 10;
  EXPECT_EQ(f.room_of(v), 3u);
  f.own_[v].width = 6;
  EXPECT_EQ(f.room_of(v), 0u);
  f.own_[v].width = 1'000'000;
  EXPECT_EQ(f.room_of(v), 9u);
  f.own_[v].held = f.own_[v].coming = 0;
  f.own_[v].width = 0;
  EXPECT_EQ(f.room_of(v), 1u) << "one at least";
}

// Or launches of microseconds that can use few and many by turns would lose them all the time.
TEST_F(SpatialFigures, SurplusIsWhatItsLaunchesCannotUseAndThatLasts) {
  const VgpuId v = add();
  Own& o = f.own_[v];
  o.held = 8, o.width = 3, o.launches = {{1, 3}};
  uint64_t now = kSecond;
  f.look_at_width(now, {.vgpu = v});
  EXPECT_EQ(f.surplus_of(v), 0u);
  f.look_at_width(now += 4 * kMs - 1, {.vgpu = v});
  EXPECT_EQ(f.surplus_of(v), 0u);
  f.look_at_width(now += 1, {.vgpu = v});
  EXPECT_EQ(f.surplus_of(v), 5u);
  o.width = 8;  // it can use them in between
  f.look_at_width(now, {.vgpu = v});
  EXPECT_EQ(f.surplus_of(v), 0u);
  o.width = 0;
  f.look_at_width(now, {.vgpu = v});
  EXPECT_EQ(f.surplus_of(v), 0u) << "from now on";
  f.look_at_width(now += 4 * kMs, {.vgpu = v});
  EXPECT_EQ(f.surplus_of(v), 7u) << "one is never";
  o.launches.clear();
  EXPECT_EQ(f.surplus_of(v), 0u);
}

TEST_F(SpatialFigures, ALongNarrowLaunchHasASurplusAtOnce) {
  const VgpuId v = add();
  f.own_[v].held = 8, f.own_[v].width = 2, f.own_[v].launches = {{1, 2}};
  f.look_at_width(kSecond, {.vgpu = v, .predicted_sm_ns = 8 * kMs - 1});
  EXPECT_EQ(f.surplus_of(v), 0u);
  f.look_at_width(kSecond, {.vgpu = v, .predicted_sm_ns = 8 * kMs});
  EXPECT_EQ(f.surplus_of(v), 6u);
}

// ---- short ones --------------------------------------------------------------------------------

// By a frame of 4 ms an eighth of 16 SMs is 8 SM-ms.
TEST_F(SpatialFigures, ShortWorkFitsIntoTheEntitlementOfAFrame) {
  add({.weight = 700});
  const VgpuId v = add();
  EXPECT_FALSE(f.is_short(v)) << "nothing is known";
  f.set_known(v, 8 * kMs);
  EXPECT_TRUE(f.is_short(v));
  f.set_known(v, 8 * kMs + 1);
  EXPECT_FALSE(f.is_short(v));
  f.set_known(v, 6 * kMs);
  f.clock_.charge(0, 700 * kMs);
  f.clock_.charge(v, 3 * kMs);
  EXPECT_EQ(f.known(v), 3 * kMs);
  EXPECT_TRUE(f.is_short(v));
  f.set_known(v, 5 * kMs + 1);
  EXPECT_FALSE(f.is_short(v)) << "what it has used since it came counts";
  f.own_[v].idle_at_sm_ns = f.clock_[v].used_sm_ns;
  EXPECT_TRUE(f.is_short(v)) << "it came after that";
}

TEST_F(SpatialFigures, WhoLeadsIsNotShortWhateverItSays) {
  add();
  const VgpuId v = add();
  f.set_known(v, kMs);
  f.clock_.charge(v, 100 * kUs);
  EXPECT_FALSE(f.is_short(v));
}

TEST_F(SpatialFigures, ClassLowCountsBelowItsShare) {
  const VgpuId other = add(), v = add({.latency = LatencyClass::kLow});
  EXPECT_TRUE(f.is_low(v));
  EXPECT_FALSE(f.is_low(other));
  f.clock_.charge(v, kMs);
  EXPECT_FALSE(f.is_low(v));
}

TEST_F(SteadyFigures, WhereChangesAreExpensiveNobodyIsShortOrLow) {
  const VgpuId v = add({.latency = LatencyClass::kLow});
  f.set_known(v, kMs);
  EXPECT_FALSE(f.is_short(v));
  EXPECT_FALSE(f.is_low(v));
}

// What is known is used up; a guest may say anything.
TEST_F(SpatialFigures, KnownWorkEndsAsItIsUsed) {
  const VgpuId v = add();
  f.set_known(v, 3 * kMs);
  f.clock_.charge(v, 2 * kMs);
  EXPECT_EQ(f.known(v), kMs);
  f.clock_.charge(v, 2 * kMs);
  EXPECT_EQ(f.known(v), 0u);
  f.set_known(v, FairClock::kMaxUsage);
  f.clock_.charge(v, kMs);
  EXPECT_EQ(f.known(v), FairClock::kMaxUsage - kMs);
}

// ---- the order ---------------------------------------------------------------------------------

TEST_F(SpatialFigures, AheadIsTheVirtualTimeOneFrameFromNow) {
  add({.weight = 700});
  const VgpuId v = add();
  f.own_[v].held = 2, f.own_[v].coming = 1;
  const auto virtual_of = [&](uint64_t sm_ns) {
    return static_cast<int64_t>(sm_ns * FairClock::kScale / 100);
  };
  EXPECT_EQ(f.ahead(v, 0), f.clock_[v].vtime);
  EXPECT_EQ(f.ahead(v, 2), f.clock_[v].vtime + virtual_of(2 * 4 * kMs));
  EXPECT_EQ(f.ahead_if_given(v), f.ahead(v, 3));
  f.set_known(v, 5 * kMs);  // short: its work ends before the frame does
  EXPECT_EQ(f.ahead(v, 1), f.clock_[v].vtime + virtual_of(4 * kMs));
  EXPECT_EQ(f.ahead(v, 2), f.clock_[v].vtime + virtual_of(5 * kMs));
}

class SpatialTurnEnds : public SpatialFigures {
 protected:
  // An eighth of the GPU, two SMs, or a 32nd, half of one.
  explicit SpatialTurnEnds(const Config& config = config_of()) : SpatialFigures(config) {
    add({.weight = 700}), add();
    row = {.vgpu = 1, .held = 2, .per_weight = f.own_[1].per_weight, .oldest_ns = kSecond};
  }
  uint64_t turn_ns() {
    const uint64_t end_ns = f.turn_end(row);
    EXPECT_EQ(end_ns, row.oldest_ns + row.turn_ns);
    return row.turn_ns;
  }
  Row row;
};

TEST_F(SpatialTurnEnds, AnSmIsHeldForAFrameOrTheEntitlementToIt) {
  EXPECT_EQ(turn_ns(), 4 * kMs);
  f.rate_ /= 4, row.held = 1;
  EXPECT_EQ(turn_ns(), 2 * kMs);
  f.rate_ /= 100;
  EXPECT_EQ(turn_ns(), 200 * kUs) << "a hand-over's length at least";
}

TEST_F(SpatialTurnEnds, WhatOneHasBeyondItsShareIsTakenSooner) {
  row.held = 3;
  EXPECT_EQ(turn_ns(), 4 * kMs) << "rounded up";
  row.held = 4;
  EXPECT_EQ(turn_ns(), 200 * kUs);
}

TEST_F(SpatialTurnEnds, WhoHasNoSmHasNoEnd) {
  row.oldest_ns = kNever;
  EXPECT_EQ(f.turn_end(row), kNever);
}

TEST_F(SpatialTurnEnds, BeyondIsWhatItWouldHaveWithoutOneAndWhatThatTakesToLeave) {
  row.drain = 77;
  turn_ns();
  const auto frame = static_cast<int64_t>(4 * kMs * FairClock::kScale / 100);
  EXPECT_EQ(row.beyond, frame + 77);
  row.held = 1;
  turn_ns();
  EXPECT_EQ(row.beyond, 77);
  row.held = 3;
  f.set_known(1, 5 * kMs);
  row.known_to_sm_ns = f.own_[1].known_to_sm_ns;
  turn_ns();
  EXPECT_EQ(row.beyond, static_cast<int64_t>(5 * kMs * FairClock::kScale / 100) + 77);
}

TEST_F(SpatialTurnEnds, WhoHasASurplusIsAheadOfAll) {
  Own& o = f.own_[1];
  o.held = 8, o.width = 2, o.launches = {{1, 2}}, o.narrow = true;
  turn_ns();
  EXPECT_EQ(row.beyond, kAheadOfAll);
}

}  // namespace
}  // namespace sluice::policy::wfq_spatial
