// SPDX-License-Identifier: Apache-2.0
// The accounting objects of policies/accounting/.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "policies/accounting/clock_estimator.h"
#include "policies/accounting/latency_histogram.h"
#include "policies/accounting/phase_planner.h"
#include "policies/accounting/register_source.h"
#include "policies/accounting/share_meter.h"

namespace sluice::accounting {
namespace {

TEST(LatencyHistogram, QuantilesAreRightToASixteenth) {
  LatencyHistogram h;
  EXPECT_EQ(h.quantile_ns(0.5), 0u);
  for (uint64_t i = 1; i <= 100'000; ++i) h.add(i * 10);
  EXPECT_EQ(h.count(), 100'000u);
  EXPECT_EQ(h.max_ns(), 1'000'000u);
  for (double q : {0.01, 0.5, 0.9, 0.99, 1.0})
    EXPECT_NEAR(static_cast<double>(h.quantile_ns(q)), q * 1e6, q * 1e6 / 16) << q;
  h.add(~0ull);  // beyond the last bucket: counted, and max says how long it was
  EXPECT_EQ(h.count(), 100'001u);
  EXPECT_EQ(h.max_ns(), ~0ull);
}

TEST(LatencyHistogram, EverySampleFallsBelowItsBound) {
  for (uint64_t ns = 0; ns < (1ull << 39); ns = ns * 3 / 2 + 1) {
    LatencyHistogram h;
    h.add(ns);
    h.add(~0ull);  // so that max does not hide the bucket's bound
    const uint64_t bound = h.quantile_ns(0.5);
    EXPECT_GE(bound, ns);
    EXPECT_LE(bound, ns + ns / 16 + 1);
  }
}

TEST(LatencyHistogram, Merges) {
  LatencyHistogram a, b;
  a.add(10), b.add(1000), b.add(1001);
  a.merge(b);
  EXPECT_EQ(a.count(), 3u);
  EXPECT_EQ(a.max_ns(), 1001u);
  EXPECT_EQ(a.quantile_ns(0.3), 10u);
}

TEST(ShareMeter, CountsOnlyContendedIntervals) {
  ShareMeter m;
  m.add(0, 0, 200), m.add(0, 1, 100);
  m.set_busy(0, 0, true);
  m.set_holder(0, 0);
  m.set_busy(1000, 1, true);  // contended from here
  m.set_holder(1600, ShareMeter::kNobody);
  m.set_holder(1700, 1);
  m.set_busy(2000, 0, false);  // to here
  m.set_holder(2500, ShareMeter::kNobody);
  EXPECT_EQ(m.all_contended_ns(3000), 1000u);
  const auto a = m.totals(3000, 0), b = m.totals(3000, 1);
  EXPECT_EQ(a.all_gpu_ns, 600u);
  EXPECT_EQ(b.all_gpu_ns, 300u);
  EXPECT_EQ(a.own_contended_ns, 1000u);
  EXPECT_EQ(a.own_gpu_ns, 600u);
  EXPECT_EQ(a.own_rivals_gpu_ns, 300u);
  EXPECT_EQ(a.own_entitled_ns, 600u);  // two thirds of 900
  EXPECT_DOUBLE_EQ(a.share_got(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(b.share_asked(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(ShareMeter::Totals{}.share_got(), 0.0);
}

TEST(ShareMeter, OwedFollowsWhoIsThereAndTheWeights) {
  ShareMeter m;
  for (uint32_t i = 0; i < 3; ++i) m.add(0, i, 100);
  m.set_busy(0, 0, true), m.set_busy(0, 1, true);
  m.set_holder(0, 0);
  m.set_busy(600, 2, true);  // 0 and 1 were owed 300 each
  m.set_share(900, 0, 200);  // all 100 each more
  m.set_holder(1300, 2);     // 0: 200, 1 and 2: 100 each
  m.set_holder(1300, 2);
  EXPECT_EQ(m.totals(1300, 0).own_entitled_ns, 300u + 100 + 200);
  EXPECT_EQ(m.totals(1300, 2).own_entitled_ns, 200u);
  EXPECT_EQ(m.totals(1300, 0).own_gpu_ns, 1300u);
  EXPECT_EQ(m.totals(1300, 1).own_rivals_gpu_ns, 1300u);
  EXPECT_EQ(m.all_contended_ns(1300), 700u);
  m.remove(1400, 2);
  m.add(1500, 2, 7);  // the id is used again and starts from nothing
  EXPECT_EQ(m.totals(1500, 2).own_contended_ns, 0u);
}

// Group 1 has the weight 300 beside member 0's 100, group 2 in it 200 beside member 1's 100.
TEST(ShareMeter, OwedFollowsTheGroups) {
  ShareMeter m;
  m.set_group(0, 1, 300);
  m.set_group(0, 2, 200, 1);
  m.add(0, 0, 100), m.add(0, 1, 100, 1), m.add(0, 2, 10, 2), m.add(0, 3, 30, 2);
  const auto owed = [&](uint64_t now) {
    std::vector<uint64_t> all;
    for (uint32_t i = 0; i < 4; ++i) all.push_back(m.totals(now, i).own_entitled_ns);
    return all;
  };
  using Owed = std::vector<uint64_t>;
  for (uint32_t i = 0; i < 4; ++i) m.set_busy(0, i, true);
  m.set_holder(0, 0);
  EXPECT_EQ(owed(800), (Owed{200, 200, 100, 300}));
  m.set_busy(800, 3, false);  // its sibling has its part
  EXPECT_EQ(owed(1600), (Owed{400, 400, 500, 300}));
  m.set_busy(1600, 2, false);  // and then the group's
  EXPECT_EQ(owed(2000), (Owed{500, 700, 500, 300}));
  m.set_busy(2000, 1, false), m.set_busy(3000, 3, true);  // nobody in group 1 for a while
  EXPECT_EQ(owed(3400), (Owed{600, 700, 500, 600}));
  m.set_group(3400, 2, 100);     // out of group 1, with its busy member
  m.set_busy(3400, 1, true);     // 100, 300 and 100 at the root
  m.set_group(3900, 1, 200, 2);  // into it: 100 and 100; in group 2 200 beside 30
  EXPECT_EQ(owed(3900), (Owed{700, 1000, 500, 700}));
  EXPECT_EQ(owed(4360), (Owed{930, 1200, 500, 730}));
  m.set_group(4360, 2, 100, 1);  // its parent would be within it: the root
  m.set_share(4360, 1, 100);     // 0: 100, 1: 100, and group 2: 100
  m.set_share(4360, 0, 100, 7);  // there is none: the root
  EXPECT_EQ(owed(4660), (Owed{1030, 1300, 500, 830}));
}

// The running sums against a plain sum over all intervals.
TEST(ShareMeter, AgreesWithPlainSums) {
  std::mt19937_64 r(5);
  ShareMeter m;
  constexpr uint32_t n = 8, groups = 5;
  double owed[n] = {}, gpu[n] = {}, rivals[n] = {}, contended[n] = {};
  bool busy[n] = {};
  uint32_t weight[n], in[n] = {}, holder = ShareMeter::kNobody;
  uint32_t group_weight[groups], parent[groups] = {};
  const auto within = [&](uint32_t g, uint32_t above) {
    while (g != 0 && g != above) g = parent[g];
    return g == above;
  };
  const auto any_in = [&](uint32_t g) {
    for (uint32_t i = 0; i < n; ++i)
      if (busy[i] && within(in[i], g)) return true;
    return false;
  };
  // The part of the GPU of something of this weight in `g`.
  const std::function<double(uint32_t, uint32_t)> part = [&](uint32_t own, uint32_t g) {
    uint32_t weights = 0;
    for (uint32_t i = 0; i < n; ++i)
      if (busy[i] && in[i] == g) weights += weight[i];
    for (uint32_t k = 1; k < groups; ++k)
      if (parent[k] == g && any_in(k)) weights += group_weight[k];
    return (g == 0 ? 1.0 : part(group_weight[g], parent[g])) * own / weights;
  };
  for (uint32_t k = 1; k < groups; ++k) m.set_group(0, k, group_weight[k] = 100);
  for (uint32_t i = 0; i < n; ++i) m.add(0, i, weight[i] = 100 + 50 * i);
  uint64_t now = 0;
  for (int step = 0; step < 5000; ++step) {
    const uint64_t dt = r() % 1000;
    const auto count = std::count(busy, busy + n, true);
    for (uint32_t i = 0; i < n; ++i) {
      if (!busy[i] || count < 2) continue;
      contended[i] += static_cast<double>(dt);
      if (holder == ShareMeter::kNobody) continue;
      (holder == i ? gpu[i] : rivals[i]) += static_cast<double>(dt);
      owed[i] += static_cast<double>(dt) * part(weight[i], in[i]);
    }
    now += dt;
    const uint32_t i = r() % n, k = 1 + r() % (groups - 1);
    switch (r() % 4) {
      case 0:
        m.set_busy(now, i, busy[i] = !busy[i]);
        break;
      case 1:
        m.set_holder(now, holder = r() % 5 ? i : ShareMeter::kNobody);
        break;
      case 2:
        m.set_share(now, i, weight[i] = 1 + r() % 1000, in[i] = r() % groups);
        break;
      default:
        const uint32_t above = r() % groups;
        m.set_group(now, k, group_weight[k] = 1 + r() % 1000, above);
        parent[k] = within(above, k) ? 0 : above;
        break;
    }
  }
  for (uint32_t i = 0; i < n; ++i) {
    const auto t = m.totals(now, i);
    EXPECT_EQ(static_cast<double>(t.own_contended_ns), contended[i]);
    EXPECT_EQ(static_cast<double>(t.own_gpu_ns), gpu[i]);
    EXPECT_EQ(static_cast<double>(t.own_rivals_gpu_ns), rivals[i]);
    EXPECT_NEAR(static_cast<double>(t.own_entitled_ns), owed[i],
                5000);  // one rounding per interval
  }
}

TEST(ClockEstimator, ContendedTimeIsChargedWhateverIsSaid) {
  ClockEstimator c;
  c.on_granted(1000, true);
  c.on_report(1500, false);
  EXPECT_EQ(c.take_used(2000), 1000u);
  c.on_left(2600);
  EXPECT_EQ(c.take_used(9000), 600u);
  EXPECT_EQ(c.total_ns(9000), 1600u);
  EXPECT_EQ(c.error_ns(9000), 0u);
}

TEST(ClockEstimator, UncontendedIdleTimeIsNotCountedAndTheDoubtIs) {
  ClockEstimator c;
  c.on_granted(0, false);
  c.on_report(1000, false);
  c.on_report(5000, true);
  EXPECT_EQ(c.total_ns(6000), 2000u);
  EXPECT_EQ(c.error_ns(6000), 6000u);
  c.on_contended(6000, true);
  c.on_left(7000);
  EXPECT_EQ(c.total_ns(8000), 3000u);
  EXPECT_EQ(c.error_ns(8000), 6000u);
}

uint32_t running(uint32_t tsgid) { return SLUICE_STATUS0(tsgid, SLUICE_CTX_VALID, 0, 1); }

TEST(RegisterSource, TimeBetweenSwitchesBelongsToWhoWasThere) {
  RegisterSource s;
  s.assign(7, 0), s.assign(9, 1);
  s.begin_phase();
  s.sample(100, running(7));
  s.sample(200, running(7));
  s.sample(300, running(9));
  s.sample(600, SLUICE_STATUS0(9, SLUICE_CTX_SWITCH, 11, 1));
  s.sample(650, running(11));                                 // nobody's
  s.sample(700, SLUICE_STATUS0(11, SLUICE_CTX_VALID, 0, 0));  // there, but idle
  s.sample(800, SLUICE_STATUS0(0, SLUICE_CTX_INVALID, 0, 0));
  s.sample(900, running(7));
  s.end_phase(0);
  EXPECT_EQ(s.used_ns(0), 200u);
  EXPECT_EQ(s.used_ns(1), 300u);
  EXPECT_EQ(s.error_ns(1), 100u + 300u);
  EXPECT_EQ(s.used_ns(17), 0u);
}

TEST(RegisterSource, PausesScaleAndAPhaseWithoutASwitchCountsWhole) {
  RegisterSource s;
  s.assign(4095, 2);
  s.assign(4096, 3);  // not a channel group: ignored
  s.begin_phase();
  for (uint64_t t = 0; t <= 1000; t += 10) s.sample(t, running(4095));
  s.end_phase(5000);
  EXPECT_EQ(s.used_ns(2), 6000u);
  EXPECT_EQ(s.error_ns(2), 5000u);  // of the first pause nothing is known
  s.begin_phase();
  s.sample(7000, running(4095));
  s.end_phase(5000);  // one sample says nothing
  EXPECT_EQ(s.used_ns(2), 6000u);
}

// Two tenants that alternate, sampled as the paper does: the load is right to a point, also of a
// program in step with the mean period, because lengths are drawn at random.
TEST(RegisterSource, MeasuresLoadsThroughRandomPhases) {
  RegisterSource s;
  s.assign(1, 0), s.assign(2, 1);
  PhasePlanner planner({.seed = 3});
  const uint64_t period = 6'000'000 * 2 / 4;  // in step with two tenants' 2 + 10 ms
  const auto word = [&](uint64_t t) { return running(t % period < period * 7 / 10 ? 1 : 2); };
  uint64_t now = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto l = planner.next(2);
    s.begin_phase();
    for (uint64_t t = now; t <= now + l.poll_ns; t += 5'000) s.sample(t, word(t));
    s.end_phase(l.pause_ns);
    now += l.poll_ns + l.pause_ns;
  }
  const double a = static_cast<double>(s.used_ns(0)), b = static_cast<double>(s.used_ns(1));
  EXPECT_NEAR(a / (a + b), 0.7, 0.01);
  EXPECT_NEAR((a + b) / static_cast<double>(now), 1.0, 0.01);
}

TEST(PhasePlanner, MeansAndSpread) {
  PhasePlanner p({.seed = 9});
  double poll = 0, pause = 0;
  for (int i = 0; i < 10'000; ++i) {
    const auto l = p.next(3);
    EXPECT_GE(l.poll_ns, 1'500'000u);
    EXPECT_LE(l.poll_ns, 4'500'000u);
    poll += static_cast<double>(l.poll_ns), pause += static_cast<double>(l.pause_ns);
  }
  EXPECT_NEAR(poll / 1e4, 3e6, 3e4);
  EXPECT_NEAR(pause / 1e4, 15e6, 15e4);
}

}  // namespace
}  // namespace sluice::accounting
