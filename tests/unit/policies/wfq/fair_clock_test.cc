// SPDX-License-Identifier: Apache-2.0
// Virtual times: exact division by weights, and reports that come together.
#include <gtest/gtest.h>

#include <vector>

#include "policies/wfq/fair_clock.h"

namespace sluice::policy {
namespace {

TEST(FairClock, DividesByAnyWeightExactly) {
  for (uint32_t w = 1; w <= kMaxWeight; ++w) {
    const WeightDivisor by(w);
    const uint64_t most = FairClock::kMaxUsage * FairClock::kScale, last = most / w * w;
    for (const uint64_t x :
         {uint64_t{0}, uint64_t{w} - 1, uint64_t{w}, last / 3 / w * w - 1, last - 1, last, most})
      ASSERT_EQ(by.divide(x), x / w) << x << " / " << w;
  }
}

// Several reports at once, in two levels and of one without work, and one that moves a level's
// virtual times back.
TEST(FairClock, ReportsTogetherCountAsOneByOne) {
  FairClock one({}), all({});
  for (FairClock* c : {&one, &all})
    for (VgpuId v = 0; v < 5; ++v) {
      c->add(v, {.weight = 1 + 37 * v, .priority = v % 2});
      if (v != 3) c->turn_busy(v);
    }
  bool moved = false;
  for (uint64_t i = 0; i < 5'000; ++i) {
    std::vector<VgpuUsage> reports;
    for (uint64_t j = 0; j < 5; ++j) {
      const auto v = static_cast<VgpuId>((i + j) % 5);
      // By weight, more or less: far ahead of its level nobody comes.
      reports.push_back({v,
                         {.sm_ns = (1 + 37 * v) * (5'000'000'000'000 + i * i * 79 + j * 1047) >>
                                   (v == 3 ? 20 : 0)}});
    }
    for (const VgpuUsage& r : reports) one.charge(r.vgpu, r.usage.sm_ns);
    all.charge(reports, [&](uint32_t, int64_t back) { moved |= back > 0; });
    for (VgpuId v = 0; v < 5; ++v) {
      ASSERT_EQ(one[v].used_sm_ns, all[v].used_sm_ns) << i;
      if (moved) continue;  // when in a batch that is done is not defined
      ASSERT_EQ(one[v].vtime, all[v].vtime) << i;
      ASSERT_EQ(one.lead_sm_ns(v), all.lead_sm_ns(v)) << i;
      ASSERT_EQ(all.leads(v), all.lead_sm_ns(v) > 0) << i;
    }
  }
  EXPECT_TRUE(moved);
  for (VgpuId v = 0; v < 5; ++v) EXPECT_LT(all[v].vtime, 2 * FairClock::kRebaseAt);
}

// The only one with work gets another weight: it is no less owed what the other, away, had more.
TEST(FairClock, ANewWeightEndsNoDebt) {
  FairClock clock({});
  for (const VgpuId v : {0u, 1u}) clock.add(v, {.weight = 100}), clock.turn_busy(v);
  clock.charge(0, 5'000'000);
  clock.turn_idle(0);
  const int64_t before = clock.lead_sm_ns(1);
  EXPECT_LT(before, 0);
  for (const uint32_t weight : {7u, 900u, 100u}) clock.change(1, {.weight = weight});
  EXPECT_NEAR(static_cast<double>(clock.lead_sm_ns(1)), static_cast<double>(before), 1000);
  EXPECT_EQ(clock[0].state, FairClock::State::kInDebt);
}

// A debt of 5 ms became one of half a second where nobody else was backlogged.
TEST(FairClock, NewSettingsWhileNobodyHasWorkAddToNoDebt) {
  for (const FairClock::Debt debt : {FairClock::Debt::kCounts, FairClock::Debt::kLeaves}) {
    FairClock clock({}, FairClock::Credit::kStays, debt);
    for (const VgpuId v : {0u, 1u}) clock.add(v, {.weight = 100}), clock.turn_busy(v);
    clock.charge(0, 5'000'000);
    const int64_t lead = clock.lead_sm_ns(0);
    clock.turn_idle(0), clock.turn_idle(1);
    clock.change(0, {.weight = 100, .priority = 1});
    clock.change(0, {.weight = 100});
    clock.change(0, {.weight = 100, .min_permille = 200});
    clock.turn_busy(1), clock.turn_busy(0);
    EXPECT_LE(clock.lead_sm_ns(0), lead + 1);
    EXPECT_GE(clock.lead_sm_ns(0), 0);
  }
}

// One that is behind pauses for a moment: V does not rise, nobody's debt ends, and back it is owed
// what it was. (The debt of 1 ended, and 0 lost as much.)
TEST(FairClock, APauseOfNoLengthTakesNoCredit) {
  constexpr uint64_t kMsOfGpu = 1'000'000;  // of one SM
  FairClock clock({});
  for (const VgpuId v : {0u, 1u, 2u}) clock.add(v, {.weight = 100}), clock.turn_busy(v);
  clock.charge(1, 6 * kMsOfGpu);
  clock.charge(2, 9 * kMsOfGpu);
  clock.turn_idle(1);
  EXPECT_EQ(clock[1].state, FairClock::State::kInDebt);
  const int64_t before = clock.lead_sm_ns(0);
  EXPECT_LT(before, 0);
  clock.turn_idle(0);
  EXPECT_EQ(clock[1].state, FairClock::State::kInDebt);
  clock.turn_busy(0);
  EXPECT_NEAR(static_cast<double>(clock.lead_sm_ns(0)), static_cast<double>(before), 1000);
}

// Nor does a pause earn anything, as long as it may be.
TEST(FairClock, APauseEarnsNothing) {
  constexpr uint64_t kTenthOfMs = 100'000;  // of one SM
  for (const int tenths : {1, 2, 3, 30}) {
    FairClock clock({});
    for (const VgpuId v : {0u, 1u}) clock.add(v, {.weight = 100}), clock.turn_busy(v);
    clock.charge(1, 10 * kTenthOfMs);
    const int64_t before = clock.lead_sm_ns(0);
    clock.turn_idle(0);
    for (int i = 0; i < tenths; ++i) clock.charge(1, kTenthOfMs);
    clock.turn_busy(0);
    EXPECT_GE(clock.lead_sm_ns(0), before - 1000) << tenths;
  }
}

}  // namespace
}  // namespace sluice::policy
