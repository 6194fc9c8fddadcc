// SPDX-License-Identifier: Apache-2.0
// From whom wfq in space takes an SM: who is furthest ahead of who wants one, and when somebody
// will be.
#include "policies/wfq/spatial_ahead.h"

#include <gtest/gtest.h>

#include "tests/unit/policies/policy_units.h"

namespace sluice::policy::wfq_spatial {
namespace {

struct AheadOnly : Ahead {
  explicit AheadOnly(const Config& config) : Ahead(config) {}
  using Ahead::clock_, Ahead::drop_holder, Ahead::forget_order, Ahead::furthest_ahead;
  using Ahead::frame_, Ahead::holders_, Ahead::lead, Ahead::oldest, Ahead::own_, Ahead::per_weight;
  using Ahead::rate_, Ahead::rate_of, Ahead::sm_, Ahead::turns_, Ahead::when_ahead;
  using Ahead::write_row;
};

class SpatialAhead : public ::testing::Test {
 protected:
  static Config config_of(uint64_t change_ns = 0) {
    Config c;
    c.machine.sm_count = 16;
    c.machine.change_ns = change_ns;
    return c;
  }
  explicit SpatialAhead(const Config& config = config_of()) : a(config) {}
  // A busy vGPU that holds so many SMs since now.
  VgpuId add(uint32_t sms, const VgpuShare& share = {}) {
    const auto v = static_cast<VgpuId>(a.clock_.size());
    a.clock_.add(v, share);
    a.clock_.turn_busy(v);
    Own& o = a.own_.emplace_back();
    o.per_weight = a.per_weight(v);
    o.changed_ns = now;
    for (; o.held < sms; ++o.held) {
      a.sm_[next_sm].since_ns = now;
      o.sms.push_back(static_cast<uint16_t>(next_sm++));
    }
    a.rate_ = a.rate_of(0);
    if (sms) o.place = a.holders_.add(v);
    write_all();
    return v;
  }
  void write_all() {
    for (VgpuId v = 0; v < a.own_.size(); ++v)
      if (a.own_[v].place != kNowhere) a.write_row(v);
  }
  void use(VgpuId v, uint64_t sm_ns) { a.clock_.charge(v, sm_ns); }
  // `by` wants an SM, with which its virtual time would be the key.
  Wanted wanted(VgpuId by, int64_t key, bool urgent = false) const {
    return {
        .by = by, .level = 0, .key = key, .now_ns = now, .urgent = urgent, .least_ns = 200 * kUs};
  }
  VgpuId furthest(const Wanted& w) { return a.furthest_ahead(w).first; }

  AheadOnly a;
  uint64_t now = kSecond;
  uint32_t next_sm = 0;
};

TEST_F(SpatialAhead, WhoIsAheadMostAndHadItsTurnIsAsked) {
  const VgpuId one = add(2), two = add(2), three = add(2), by = add(0);
  use(two, 9 * kMs), use(three, 5 * kMs), use(one, kMs);
  const Wanted at_once = wanted(by, 0);
  EXPECT_EQ(furthest(at_once), kNoVgpu) << "no turn is over";
  now += 4 * kMs;
  for (int question = 0; question < 3; ++question) {
    const auto [v, lead] = a.furthest_ahead(wanted(by, 0));
    EXPECT_EQ(v, two) << question;
    EXPECT_EQ(lead, a.lead(a.holders_[a.own_[two].place])) << question;
  }
}

TEST_F(SpatialAhead, NobodyWhoIsNotAheadIsAsked) {
  add(2);
  const VgpuId by = add(0);
  now += 4 * kMs;
  const int64_t lead = a.lead(a.holders_[0]);
  for (int question = 0; question < 2; ++question) {
    EXPECT_EQ(furthest(wanted(by, lead)), kNoVgpu) << question;
    EXPECT_EQ(furthest(wanted(by, lead - 1)), 0u);
  }
  EXPECT_EQ(furthest(wanted(by, lead, /*urgent=*/true)), kNoVgpu);
}

// Nobody takes from itself. Who asks may be ahead by its own rows, as what leaves it takes long.
TEST_F(SpatialAhead, WhoAsksMayBeAskedByTheNext) {
  const VgpuId one = add(2), two = add(2);
  use(one, 9 * kMs), use(two, 5 * kMs);
  now += 4 * kMs;
  EXPECT_EQ(furthest(wanted(one, 0)), two);
  EXPECT_EQ(furthest(wanted(one, 0)), two) << "in order from now on";
  EXPECT_EQ(furthest(wanted(two, 0)), one);
}

TEST_F(SpatialAhead, NobodyOfAnotherLevelNorItself) {
  const VgpuId above = add(2, {.priority = 1}), one = add(2), idle = add(2);
  use(above, 50 * kMs), use(idle, 50 * kMs);
  a.clock_.turn_idle(idle);
  write_all();
  now += 4 * kMs;
  for (const VgpuId by : {one, VgpuId{99}}) {
    a.forget_order();
    for (int question = 0; question < 3; ++question)
      EXPECT_EQ(furthest(wanted(by, -1'000'000)), by == one ? kNoVgpu : one) << question;
  }
}

// Within a decision they are kept in order; one that has changed since is put in anew.
TEST_F(SpatialAhead, WhoLosesAnSmIsNotAsFarAheadAsBefore) {
  const VgpuId one = add(4), two = add(4), by = add(0);
  use(one, 2 * kMs), use(two, kMs);
  now += 4 * kMs;
  EXPECT_EQ(furthest(wanted(by, 0)), one);
  EXPECT_EQ(furthest(wanted(by, 0)), one);
  Own& o = a.own_[one];
  --o.held, o.sms.pop_back();
  a.write_row(one);
  EXPECT_EQ(furthest(wanted(by, 0)), two);
  Own& p = a.own_[two];
  while (p.held > 0) --p.held, p.sms.pop_back();
  a.drop_holder(two);
  EXPECT_EQ(furthest(wanted(by, 0)), one) << "the other one has gone";
  a.forget_order();
  use(one, 9 * kMs);
  EXPECT_EQ(furthest(wanted(by, 0)), one);
}

TEST_F(SpatialAhead, OfEqualOnesTheFirst) {
  const VgpuId one = add(2);
  add(2);
  const VgpuId by = add(0);
  now += 4 * kMs;
  for (int question = 0; question < 2; ++question)
    EXPECT_EQ(furthest(wanted(by, 0)), one) << question;
}

TEST_F(SpatialAhead, AnUrgentOneNeedNotWaitForATurnsEnd) {
  const VgpuId one = add(2), by = add(0);
  EXPECT_EQ(furthest(wanted(by, 0, true)), kNoVgpu);
  now += 200 * kUs;
  EXPECT_EQ(furthest(wanted(by, 0, true)), one);
  EXPECT_EQ(furthest(wanted(by, 0)), kNoVgpu);
}

TEST_F(SpatialAhead, AskedAgainWhenATurnIsOver) {
  add(2);
  const VgpuId by = add(0);
  for (const bool urgent : {false, true}) {
    a.turns_.pass(now);
    EXPECT_EQ(a.when_ahead(wanted(by, 0, urgent), kNever), now + (urgent ? 200 * kUs : 4 * kMs));
  }
  EXPECT_EQ(a.when_ahead(wanted(by, 0), now + kMs), now + kMs) << "sooner for another reason";
}

TEST_F(SpatialAhead, AskedAgainWhenSomebodyWillBeAhead) {
  const VgpuId one = add(2), by = add(0);
  now += 5 * kMs;
  a.turns_.pass(now);
  const int64_t lead = a.lead(a.holders_[0]);
  // It holds two SMs: ahead by the virtual time of 6 SM-ms in 3 ms.
  const auto key = lead + static_cast<int64_t>(6e6 * a.own_[one].per_weight);
  EXPECT_NEAR(static_cast<double>(a.when_ahead(wanted(by, key), kNever) - now), 3e6, 2);
  EXPECT_NEAR(static_cast<double>(a.when_ahead(wanted(by, key, true), kNever) - now), 3e6, 2);
}

TEST_F(SpatialAhead, NobodyIsWaitedForWhoIsAheadAndHadItsTurn) {
  add(2);
  const VgpuId by = add(0);
  now += 5 * kMs;
  a.turns_.pass(now);
  EXPECT_EQ(a.when_ahead(wanted(by, 0), kNever), kNever) << "it can be asked at once";
  EXPECT_EQ(a.when_ahead(wanted(0, 1ll << 50), kNever), kNever) << "nor itself";
}

TEST_F(SpatialAhead, ARowIsWhatAnExchangeHasToKnow) {
  const VgpuId v = add(3, {.weight = 200});
  a.own_[v].leaving = 1, a.own_[v].drain_ns = 100e3;
  a.sm_[1].since_ns = now - kMs;
  a.clock_.turn_idle(v);
  a.write_row(v);
  const Row& row = a.holders_[0];
  EXPECT_EQ(row.level, kIdle);
  EXPECT_EQ(row.held, 3u);
  EXPECT_EQ(row.oldest_ns, now - kMs);
  EXPECT_EQ(row.drain, static_cast<int64_t>(100e3 * a.own_[v].per_weight));
  EXPECT_DOUBLE_EQ(row.ns_per_lead, 1 / (4 * a.own_[v].per_weight)) << "those that leave, too";
}

TEST_F(SpatialAhead, WhoHoldsNothingMoreHasNoRow) {
  const VgpuId one = add(1), two = add(1);
  a.drop_holder(one);
  EXPECT_EQ(a.holders_.size(), 2u) << "it holds one";
  a.own_[one].held = 0;
  a.drop_holder(one), a.drop_holder(one);
  EXPECT_EQ(a.holders_.size(), 1u);
  EXPECT_EQ(a.own_[one].place, kNowhere);
  EXPECT_EQ(a.own_[two].place, 0u);
}

class SteadyAhead : public SpatialAhead {
 protected:
  SteadyAhead() : SpatialAhead(config_of(/*change_ns=*/60 * kUs)) {}
};

// Sets are what is to last.
TEST_F(SteadyAhead, TheOldestIsSinceTheSetChanged) {
  const VgpuId v = add(2);
  a.sm_[0].since_ns = now - kMs;
  EXPECT_EQ(a.oldest(v), now);
  a.own_[v].sms.clear();
  EXPECT_EQ(a.oldest(v), kNever);
}

}  // namespace
}  // namespace sluice::policy::wfq_spatial
