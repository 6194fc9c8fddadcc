// SPDX-License-Identifier: Apache-2.0
// The rules of wfq one vGPU at a time (policies/wfq/whole.h), each by itself: what the function of
// its name says in a state that a few events have made.
#include <initializer_list>
#include <string>

#include "policies/wfq/whole.h"
#include "tests/unit/policies/policy_units.h"
#include "tests/unit/policies/whole_driver.h"

namespace sluice::policy {
namespace {

class Rules final : public WfqWhole {
 public:
  explicit Rules(const Config& config) : WfqWhole(config) {}
  std::string_view name() const override { return "wfq"; }
  using WfqWhole::bursts, WfqWhole::bursts_before, WfqWhole::covered, WfqWhole::correct;
  using WfqWhole::clock_, WfqWhole::credits_, WfqWhole::holder_, WfqWhole::work_;
  using WfqWhole::finish, WfqWhole::linger, WfqWhole::next_due, WfqWhole::quantum;
  using WfqWhole::is_short, WfqWhole::longest_burst_ns;
  using WfqWhole::Next, WfqWhole::eligible, WfqWhole::next, WfqWhole::preempts;
  using WfqWhole::preempt_after_ns, WfqWhole::shorter, WfqWhole::turn_is_overdue;
};

constexpr VgpuShare kLow = {.latency = LatencyClass::kLow},
                    kBatch = {.latency = LatencyClass::kBatch};
// By the defaults, which these tests go by: a hand-over costs 200 us, the least quantum is 5 ms.
constexpr uint64_t kHandoverNs = 200 * kUs, kLeastNs = 5 * kMs;

class WholeRules : public ::testing::Test, protected WholeDriver {
 protected:
  WholeRules() : WholeRules(Config{}) {}
  explicit WholeRules(const Config& config)
      : WholeDriver(std::make_unique<Rules>(config), config),
        rules(static_cast<Rules&>(*WholeDriver::policy)) {}

  void add_all(std::initializer_list<VgpuShare> shares) {
    for (const VgpuShare& share : shares) add(count++, share);
  }
  // All that v has queued takes so long.
  void tell(VgpuId v, uint64_t ns) {
    const Launch l{.vgpu = v, .predicted_sm_ns = ns, .run_predicted_sm_ns = ns};
    call([&] { policy->on_launch_queued(now, l, out); });
  }
  void arrive_with(VgpuId v, uint64_t ns) { tell(v, ns), arrive(v); }
  // v has used so much; no time passes.
  void use(VgpuId v, uint64_t ns) { policy->on_usage(now, v, {.sm_ns = ns}); }
  // v, the holder, has a turn of `ns` and another one begins.
  void take_turn(uint64_t ns) {
    pass(ns);
    if (evicted == kNoVgpu) wake();
    ASSERT_NE(evicted, kNoVgpu);
    left(evicted);
  }
  // v has used what its sure share came to.
  void lose_sure_share(VgpuId v) {
    tell(v, 0);
    use(v, static_cast<uint64_t>(rules.credits_.sure(v)) + kMs);
  }
  void wake() {
    call([&] { policy->on_wake(now, out); });
  }
  // v, alone on the GPU, works for `work_ns` and then pauses for `gap_ns`, again and again.
  void pause_often(VgpuId v, uint64_t work_ns, uint64_t gap_ns) {
    for (int i = 0; i < 30; ++i) {
      arrive(v), pass(work_ns), idle(v);
      now += gap_ns;
    }
    left(v);
  }
  bool is(const Rules::Next& n, VgpuId v, bool before_its_turn) {
    return n.vgpu == v && n.before_its_turn == before_its_turn;
  }
  const Rules::Next short_one{1, /*before_its_turn=*/true};

  Rules& rules;
  VgpuId count = 0;
};

// ---- next() ------------------------------------------------------------------------------------

TEST_F(WholeRules, NextIsTheEarliestRank) {
  add_all({{}, {}, {}});
  EXPECT_EQ(rules.next(now).vgpu, kNoVgpu);
  for (const VgpuId v : {0, 1, 2}) arrive(v);
  EXPECT_TRUE(is(rules.next(now), 1, false));
  use(1, 40 * kMs);
  EXPECT_TRUE(is(rules.next(now), 2, false));
}

TEST_F(WholeRules, NextIsOfTheHighestPriority) {
  add_all({{}, {}, {.priority = 1}});
  for (const VgpuId v : {2, 0, 1}) arrive(v);
  EXPECT_TRUE(is(rules.next(now), 0, false)) << "2 has the GPU";
  left(2);
  EXPECT_EQ(holder, 2u);
  use(2, kSecond);
  left(2);
  EXPECT_EQ(holder, 2u) << "whatever it has used";
}

TEST_F(WholeRules, AnEligibleShortOneGoesBeforeTurnsThatAreNotOverdue) {
  for (const bool overdue : {false, true}) {
    WholeDriver d(std::make_unique<Rules>(Config{}), Config{});
    auto& r = static_cast<Rules&>(*d.policy);
    for (const VgpuId v : {0, 1, 2}) d.add(v, VgpuShare{});
    d.arrive(0), d.arrive(1);
    if (overdue) d.policy->on_usage(d.now, 0, {.sm_ns = 100 * kMs});
    const Launch l{.vgpu = 2, .run_predicted_sm_ns = kMs};
    d.call([&] { r.on_launch_queued(d.now, l, d.out); });
    d.arrive(2);
    EXPECT_EQ(r.turn_is_overdue(1), overdue);
    EXPECT_TRUE(is(r.next(d.now), overdue ? 1 : 2, !overdue));
  }
}

TEST_F(WholeRules, OfShortOnesTheShortestGoesFirst) {
  add_all({{}, {}, {}, {}});
  arrive(0), arrive(1), arrive_with(2, 3 * kMs), arrive_with(3, 2 * kMs);
  EXPECT_TRUE(is(rules.next(now), 3, true));
}

TEST_F(WholeRules, AShortOneThatIsTooFarAheadWaitsLikeOthers) {
  add_all({{}, {}, {}});
  arrive(0), arrive(1), arrive_with(2, 4 * kMs);
  use(2, 30 * kMs);
  EXPECT_TRUE(is(rules.next(now), 1, false));
}

// By patience: its lag is less than a quantum all the time.
TEST_F(WholeRules, WhoHasMissedItsShareForLongIsOverdue) {
  add_all({{}, {}});
  arrive(0), arrive(1);
  uint64_t ms = 0;
  for (; !rules.turn_is_overdue(1) && ms < 200; ++ms) now += kMs, tell(1, 0);
  EXPECT_NEAR(static_cast<double>(ms), 4 * 5 * 2, 2) << "of a half, four times short_ns()";
}

// Or a light one would take minutes to miss what a heavy one does.
TEST_F(WholeRules, PatienceIsByEntitlement) {
  add_all({{.weight = 10'000}, {.weight = 100}});
  arrive(0), arrive(1);
  uint64_t ms = 0;
  for (; !rules.turn_is_overdue(1) && ms < 200; ++ms) now += kMs, tell(1, 0);
  EXPECT_LT(ms, 60u);
}

// ---- bursts() ----------------------------------------------------------------------------------

class WholeBursts : public WholeRules {
 protected:
  // 0 has the GPU, of which it has used so much; 1 waits; 2 is of class low and comes with credit.
  void begin(uint64_t used_ns = 0) {
    add_all({{}, {}, kLow});
    now += 100 * kMs;
    arrive(0), arrive(1);
    use(0, used_ns);
    lose_sure_share(2);  // which is less than its credit
    arrive_with(2, 50 * kMs);
  }
};

TEST_F(WholeBursts, ABurstGoesBeforeShorterWorkAndEndsATurn) {
  begin();
  EXPECT_TRUE(rules.bursts(2));
  EXPECT_EQ(evicted, 0u);
  EXPECT_EQ(out.back().value, 1u) << "before the turn is over";
  tell(1, kMs);
  EXPECT_TRUE(is(rules.next(now), 2, true));
  left(0);
  EXPECT_EQ(holder, 2u);
}

TEST_F(WholeBursts, OnlyOfClassLowAndWithCredit) {
  add_all({{}, {}, kLow, kBatch});
  now += 100 * kMs;
  for (const VgpuId v : {0, 1, 3}) arrive(v);
  EXPECT_FALSE(rules.bursts(1));
  EXPECT_FALSE(rules.bursts(3));
  arrive(2);
  EXPECT_TRUE(rules.bursts(2));
  add(4, kLow);  // or one that is made anew would come with a burst each time
  arrive(4);
  EXPECT_FALSE(rules.bursts(4));
}

TEST_F(WholeBursts, ABurstEndsWithItsCredit) {
  begin();
  use(2, 200 * kMs);
  EXPECT_FALSE(rules.bursts(2));
  tell(2, 50 * kMs);
  now += kSecond;  // has credit again, and has been backlogged since
  tell(2, 50 * kMs);
  EXPECT_GT(rules.credits_[2], 0);
  EXPECT_FALSE(rules.bursts(2));
}

// Or who had the GPU for itself would have none afterwards.
TEST_F(WholeBursts, WhatItHadAloneIsFree) {
  add_all({{}, kLow});
  arrive(1);
  use(1, kSecond);
  idle(1), left(1);
  arrive(0);
  now += 20 * kMs;
  arrive(1);
  EXPECT_TRUE(rules.bursts(1));
}

TEST_F(WholeBursts, WhatItHadBesideOthersIsNot) {
  add_all({{}, kLow});
  arrive(0), arrive(1);
  use(1, kSecond);
  idle(1);
  now += 20 * kMs;
  arrive(1);
  EXPECT_FALSE(rules.bursts(1));
}

TEST_F(WholeBursts, ItGoesBeforeATurnThatIsOverdue) {
  begin(60 * kMs);  // 1 is behind by half of that
  EXPECT_TRUE(rules.turn_is_overdue(1));
  EXPECT_FALSE(rules.covered(2));
  EXPECT_TRUE(rules.bursts_before(2, 1));
  EXPECT_TRUE(is(rules.next(now), 2, true));
}

TEST_F(WholeBursts, ButNotWhenThatIsBehindByAWholeBurstMore) {
  begin(120 * kMs);
  EXPECT_FALSE(rules.bursts_before(2, 1));
  EXPECT_TRUE(is(rules.next(now), 1, false));
}

TEST_F(WholeBursts, AmongTheirClassTheyKeepTheOrder) {
  add_all({{}, kLow, kLow});
  arrive(0);
  now += 100 * kMs;
  arrive(1), arrive(2);
  EXPECT_FALSE(rules.bursts_before(2, 1));
  EXPECT_TRUE(rules.bursts_before(2, 0));
}

TEST_F(WholeBursts, ABurstIsOfTwoLatencyTargetsByShareAndOfOneAtMost) {
  add_all({kLow, {}, {.weight = 600}});
  EXPECT_EQ(rules.longest_burst_ns(0), 40 * kMs) << "alone";
  arrive(1), arrive(2);
  EXPECT_EQ(rules.longest_burst_ns(0), 10 * kMs) << "an eighth of two";
}

// ---- covered(), watch() ------------------------------------------------------------------------

TEST_F(WholeRules, OneWhoseSureShareCoversItGoesBeforeAndEndsOverdueTurns) {
  add_all({{}, {}, {}});
  arrive(0), arrive(1);
  now += 100 * kMs;
  use(0, 100 * kMs);
  take_turn(0);  // 1 is overdue, and begins
  ASSERT_EQ(holder, 1u);
  arrive_with(2, 9 * kMs);  // longer than a short one's
  EXPECT_TRUE(rules.covered(2));
  EXPECT_EQ(evicted, 1u);
}

TEST_F(WholeRules, OfThoseThatAreCoveredOneOfHalfTheLengthGoesBeforeAnOverdueTurn) {
  for (const bool second : {false, true}) {
    WholeDriver d(std::make_unique<Rules>(Config{}), Config{});
    auto& r = static_cast<Rules&>(*d.policy);
    for (VgpuId v = 0; v < 5; ++v) d.add(v, VgpuShare{});
    d.now += 100 * kMs;
    d.arrive(0), d.arrive(1);
    d.policy->on_usage(d.now, 0, {.sm_ns = 200 * kMs});
    // The shortest, 4, has had its sure share.
    for (const auto& [v, ns] : {std::pair{4, 1}, {2, second ? 2 : 4}, {3, second ? 4 : 2}}) {
      const Launch l{.vgpu = static_cast<VgpuId>(v), .run_predicted_sm_ns = ns * kMs};
      d.call([&] { r.on_launch_queued(d.now, l, d.out); });
      if (v == 4) d.policy->on_usage(d.now, 4, {.sm_ns = 20 * kMs});
      d.arrive(l.vgpu);
    }
    EXPECT_TRUE(r.turn_is_overdue(1));
    EXPECT_FALSE(r.covered(4));
    EXPECT_TRUE(is(r.next(d.now), second ? 2 : 3, true));
  }
}

TEST_F(WholeRules, WithoutASureShareNobodyEndsAnOverdueTurn) {
  add_all({{}, {}, {}});
  arrive(0), arrive(1);
  now += 100 * kMs;
  use(0, 100 * kMs);
  take_turn(0);
  ASSERT_EQ(holder, 1u);
  lose_sure_share(2);
  arrive_with(2, kMs);
  EXPECT_FALSE(rules.covered(2));
  EXPECT_EQ(evicted, kNoVgpu);
}

TEST_F(WholeRules, ASureShareCoversNoLongerWorkThanTwoLeastTurns) {
  add_all({{}, {}});
  arrive(0);
  now += kSecond;
  arrive_with(1, 2 * kLeastNs + 1);
  EXPECT_FALSE(rules.covered(1));
  tell(1, 2 * kLeastNs);
  EXPECT_TRUE(rules.covered(1));
  tell(1, 0);
  EXPECT_FALSE(rules.covered(1)) << "nothing is known";
}

TEST_F(WholeRules, WhatItHasUsedSinceItCameCounts) {
  add_all({{}, {}});
  now += kSecond;
  arrive_with(1, 9 * kMs), arrive(0);
  pass(2 * kMs);
  tell(1, 9 * kMs);
  EXPECT_FALSE(rules.covered(1)) << "11 ms since it came";
}

TEST_F(WholeRules, OneThatASureShareCoversLaterIsCheckedThen) {
  add_all({{}, {}});
  arrive(0);
  const uint64_t came_ns = now;
  arrive_with(1, 8 * kMs);
  EXPECT_NEAR(static_cast<double>(wake_ns - came_ns), 16e6, 10) << "it earns half of the time";
  EXPECT_LT(wake_ns, came_ns + rules.quantum(0));
  pass(wake_ns - now);
  EXPECT_EQ(evicted, 0u);
}

TEST_F(WholeRules, SoIsAShortOneThatIsTooFarAhead) {
  add_all({{}, {}});
  arrive(0);
  use(1, 4 * kMs);
  arrive_with(1, 4 * kMs);
  EXPECT_FALSE(rules.eligible(1));
  EXPECT_NEAR(static_cast<double>(wake_ns - now), 16e6, 10);
}

// ---- rank() ------------------------------------------------------------------------------------

class WholeRanks : public WholeRules {
 protected:
  // Of class batch none is short. 2 and 3 are known to pause, 1 is not; all are due at once.
  void begin(uint32_t weight_of_2 = 100) {
    const VgpuShare heavy{.weight = weight_of_2, .latency = LatencyClass::kBatch};
    add_all({kBatch, kBatch, heavy, kBatch});
    for (const VgpuId v : {2, 3}) arrive(v), idle(v), left(v), now += kMs;
    use(0, kSecond), use(1, kSecond);  // no sure share of these
    arrive(0);
  }
};

TEST_F(WholeRanks, OneThatPausesIsRankedByItsFluidEnd) {
  begin();
  for (const VgpuId v : {1, 2, 3}) arrive(v);
  EXPECT_EQ(rules.next(now).vgpu, 1u) << "nothing is known of any";
  tell(3, 2 * kMs);
  EXPECT_EQ(rules.next(now).vgpu, 3u);
  tell(2, 3 * kMs);
  EXPECT_EQ(rules.next(now).vgpu, 3u) << "it would end sooner";
  tell(2, kMs);
  EXPECT_EQ(rules.next(now).vgpu, 2u);
}

TEST_F(WholeRanks, NoMoreThanAQuantumOfItCounts) {
  begin();
  use(1, 50 * kMs), arrive(1);
  arrive_with(3, 100 * kSecond);
  EXPECT_EQ(rules.next(now).vgpu, 3u);
}

TEST_F(WholeRanks, AFluidEndIsByWeight) {
  begin(1000);
  arrive_with(2, 10 * kMs), arrive_with(3, 2 * kMs);
  EXPECT_EQ(rules.next(now).vgpu, 2u);
}

// By previous due times all that began at once would have a turn each before a heavy one had its.
TEST_F(WholeRanks, OneThatAlwaysHasWorkKeepsItsPlaceOnceItHadATurn) {
  add_all({kBatch, kBatch, kBatch});
  for (const VgpuId v : {0, 1, 2}) arrive(v);
  tell(2, 2 * kMs);
  EXPECT_EQ(rules.next(now).vgpu, 2u) << "it had no turn yet";
  left(0);
  ASSERT_EQ(holder, 2u);
  left(2);  // all are due at once again, 2 ran after 0
  ASSERT_EQ(holder, 1u);
  tell(2, 2 * kMs);
  EXPECT_EQ(rules.next(now).vgpu, 0u);
}

// ---- next_due(), quantum(), correct() ----------------------------------------------------------

TEST_F(WholeRules, TheNextTurnIsDueAQuantumLaterUnlessThatIsFarFromWhatWasUsed) {
  add_all({{}, {}});
  arrive(0), arrive(1);
  const int64_t due = rules.clock_[0].vtime;
  const uint64_t quantum_ns = rules.quantum(0);
  const auto quantum = static_cast<int64_t>(quantum_ns) * FairClock::kScale / 100;
  use(0, quantum_ns - quantum_ns / 3);
  EXPECT_NEAR(static_cast<double>(rules.next_due() - due), static_cast<double>(quantum), 100);
  use(0, 2 * quantum_ns / 3);
  EXPECT_NEAR(static_cast<double>(rules.next_due() - due), static_cast<double>(quantum), 100);
  use(0, quantum_ns / 3);
  EXPECT_EQ(rules.next_due(), rules.clock_[0].vtime);
}

TEST_F(WholeRules, AQuantumIsByEntitlementAndClass) {
  add_all({{}, {.weight = 300}, kLow, kBatch, kBatch});
  for (const VgpuId v : {0, 1}) arrive(v);
  const uint64_t normal_ns = rules.quantum(0);
  EXPECT_NEAR(static_cast<double>(normal_ns), 10e6, 1e6) << "a quarter of the latency target";
  EXPECT_NEAR(static_cast<double>(rules.quantum(1)), 20e6, 2e6);
  EXPECT_EQ(rules.quantum(2), kLeastNs) << "a quarter, but no less than the least";
  EXPECT_EQ(rules.quantum(3), 30 * kMs) << "four times as long, but no more than the most";
  for (const VgpuId v : {2, 3, 4}) arrive(v);
  const uint64_t each_ns = rules.quantum(0);
  EXPECT_EQ(rules.quantum(4), 4 * each_ns);
  EXPECT_EQ(rules.quantum(2), kLeastNs);
}

TEST_F(WholeRules, AnOverrunIsTakenOffTheNextTurnAndAShortfallAdded) {
  for (const int off_ms : {5, -5}) {
    WholeDriver d(std::make_unique<Rules>(Config{}), Config{});
    auto& r = static_cast<Rules&>(*d.policy);
    for (const VgpuId v : {0, 1}) d.add(v, VgpuShare{}), d.arrive(v);
    const uint64_t quantum_ns = r.quantum(0);
    EXPECT_EQ(r.correct(quantum_ns), quantum_ns);
    const int64_t used_ns = static_cast<int64_t>(quantum_ns) + off_ms * static_cast<int64_t>(kMs);
    d.policy->on_usage(d.now, 0, {.sm_ns = static_cast<uint64_t>(used_ns)});
    d.left(0);
    ASSERT_EQ(d.holder, 1u);
    d.policy->on_usage(d.now, 1, {.sm_ns = quantum_ns});
    d.left(1);
    ASSERT_EQ(d.holder, 0u);
    const double next_ns = static_cast<double>(r.correct(quantum_ns));
    EXPECT_NEAR(next_ns - static_cast<double>(quantum_ns), -off_ms * 1e6, 1e4);
    // Half of a turn at most, however short turns become.
    EXPECT_EQ(r.correct(4 * kMs), off_ms > 0 ? 2 * kMs : 6 * kMs);
  }
}

// ---- eligible() --------------------------------------------------------------------------------

TEST_F(WholeRules, AnEligibleOneLeadsByItsLengthAtMostWhenItIsDone) {
  add_all({{}, {}});
  arrive(0), arrive_with(1, kLeastNs);
  EXPECT_TRUE(rules.eligible(1));
  tell(1, kLeastNs + kUs);
  EXPECT_FALSE(rules.eligible(1));
  tell(1, 2 * kMs);
  use(1, 6 * kMs);  // leads by half of that
  EXPECT_TRUE(rules.eligible(1));
  use(1, kMs / 2);
  EXPECT_FALSE(rules.eligible(1));
}

TEST_F(WholeRules, AllEligibleOnesTogetherLeadByALatencyTargetAtMost) {
  for (int i = 0; i < 20; ++i) add_all({{}});
  for (VgpuId v = 0; v < 20; ++v) arrive(v);
  tell(7, 2 * kMs);  // a twentieth of 40 ms
  EXPECT_TRUE(rules.eligible(7));
  tell(7, 2 * kMs + kUs);
  EXPECT_FALSE(rules.eligible(7));
}

TEST_F(WholeRules, OneOfClassLowIsEligibleBelowItsShareWhateverItHasToDo) {
  add_all({{}, kLow});
  arrive(0), arrive_with(1, kSecond);
  EXPECT_TRUE(rules.eligible(1));
  EXPECT_TRUE(rules.is_short(1)) << "when it comes";
  use(1, kMs);
  EXPECT_FALSE(rules.eligible(1));
}

// ---- preempts(), shorter(), finish() -----------------------------------------------------------

TEST_F(WholeRules, AShortOneEndsATurn) {
  add_all({{}, {}});
  arrive(0), arrive_with(1, 0);
  EXPECT_TRUE(rules.preempts(now, short_one, kLeastNs));
  EXPECT_FALSE(rules.preempts(now, {1, false}, kLeastNs)) << "it has its turn later";
  EXPECT_FALSE(rules.preempts(now, short_one, kHandoverNs)) << "the turn is no longer than that";
}

class WholePreempts : public WholeRules {
 protected:
  // 1 has paused; 0, which has the GPU, has used so much of it when 1 is back.
  bool ends_a_turn(const VgpuShare& share, uint64_t used_ns) {
    add_all({{}, share});
    arrive(1), idle(1), left(1);
    now += kMs;
    arrive(0);
    use(0, used_ns);
    arrive_with(1, 8 * kMs);
    return rules.preempts(now, {1, /*before_its_turn=*/false}, kLeastNs);
  }
};

TEST_F(WholePreempts, OneThatCameBackAndRanksFirst) { EXPECT_TRUE(ends_a_turn({}, 0)); }
TEST_F(WholePreempts, NotOneThatRanksLater) { EXPECT_FALSE(ends_a_turn({}, 20 * kMs)); }
TEST_F(WholePreempts, NotOneOfClassBatch) { EXPECT_FALSE(ends_a_turn(kBatch, 0)); }

TEST_F(WholeRules, AnOverdueTurnIsEndedOnlyByACoveredOne) {
  add_all({{}, {}, {}});
  arrive(0), arrive(1);
  now += 100 * kMs;
  use(0, 100 * kMs);
  take_turn(0);
  ASSERT_EQ(holder, 1u);
  lose_sure_share(2);
  arrive_with(2, kMs);
  EXPECT_FALSE(rules.preempts(now, {2, true}, kLeastNs));
  now += 100 * kMs;
  tell(2, kMs);
  EXPECT_TRUE(rules.preempts(now, {2, true}, kLeastNs));
}

TEST_F(WholeRules, AShortHolderIsEndedOnlyForAShorterOne) {
  add_all({{}, {}});
  arrive_with(0, 4 * kMs), arrive_with(1, 4 * kMs - kHandoverNs);
  EXPECT_FALSE(rules.shorter(short_one)) << "it saves no hand-over";
  EXPECT_FALSE(rules.preempts(now, short_one, kLeastNs));
  tell(1, 4 * kMs - kHandoverNs - 1);
  EXPECT_TRUE(rules.shorter(short_one));
  EXPECT_TRUE(rules.preempts(now, short_one, kLeastNs));
  EXPECT_FALSE(rules.shorter({1, false}));
}

TEST_F(WholeRules, OneWithNextToNothingToDoWaitsForAHandOversLength) {
  add_all({{}, {}});
  arrive(0), arrive_with(1, 2 * kHandoverNs);
  EXPECT_EQ(rules.preempt_after_ns(short_one), 0u);
  tell(1, 2 * kHandoverNs - 1);
  EXPECT_EQ(rules.preempt_after_ns(short_one), kHandoverNs);
}

// Each of them costs a hand-over: some at once, then no more than handover_loss.
TEST_F(WholeRules, PreemptionsHaveABudget) {
  add_all({{}, {}});
  arrive(0);
  int early = 0;
  for (int i = 0; i < 100; ++i) {
    arrive_with(1, kMs);
    if (evicted == kNoVgpu) break;
    ++early;
    left(0), pass(kMs), use(0, kMs), idle(1), left(1);
    ASSERT_EQ(holder, 0u);
  }
  EXPECT_GE(early, 2);
  EXPECT_LT(early, 20);
  EXPECT_FALSE(rules.preempts(now, short_one, kLeastNs));
  EXPECT_TRUE(rules.preempts(now + kSecond, short_one, kLeastNs));
}

TEST_F(WholeRules, WhatEndsSoonerThanItCouldBeEvictedEnds) {
  add_all({{}, {}});
  arrive_with(0, kMs);
  EXPECT_EQ(rules.finish(), 0u);
  pass(kMs - kHandoverNs);
  EXPECT_EQ(rules.finish(), kHandoverNs);
  pass(kHandoverNs);
  EXPECT_EQ(rules.finish(), 0u) << "it has said nothing more";
}

// ---- linger() ----------------------------------------------------------------------------------

class WholeLingers : public WholeRules {
 protected:
  // 0 holds the GPU, and is known to work for `work_ns` and then to pause for `gap_ns`; 1 waits.
  void begin(uint64_t work_ns, uint64_t gap_ns, const VgpuShare& other = {}) {
    add_all({{}, other});
    pause_often(0, work_ns, gap_ns);
    arrive(0), arrive(1);
    ASSERT_EQ(holder, 0u);
  }
};

TEST_F(WholeLingers, AShortPauseOfOneThatWorksForLongerKeepsTheGpu) {
  begin(100 * kUs, 50 * kUs);
  EXPECT_TRUE(rules.linger(now, 0));
  idle(0);
  EXPECT_EQ(evicted, kNoVgpu);
  EXPECT_GE(wake_ns, now + 50 * kUs);
  EXPECT_LE(wake_ns, now + kHandoverNs);
  // It pays for that like for use.
  const uint64_t before = rules.clock_[0].used_sm_ns;
  now += 60 * kUs;
  arrive(0);
  EXPECT_EQ(rules.clock_[0].used_sm_ns, before + 60 * kUs);
  EXPECT_EQ(holder, 0u);
}

TEST_F(WholeLingers, WhoIsNotBackInTimeLosesIt) {
  begin(100 * kUs, 50 * kUs);
  idle(0);
  pass(wake_ns - now);
  EXPECT_EQ(evicted, 0u);
}

TEST_F(WholeLingers, APauseLongerThanAHandOverDoesNot) {
  begin(kMs, kHandoverNs + 10 * kUs);
  EXPECT_FALSE(rules.linger(now, 0));
  idle(0);
  EXPECT_EQ(evicted, 0u);
}

TEST_F(WholeLingers, NorOneThatIsNotKnown) {
  add_all({{}, {}});
  arrive(0), arrive(1);
  EXPECT_FALSE(rules.linger(now, 0));
}

TEST_F(WholeLingers, NobodyLingersForNobody) {
  begin(100 * kUs, 50 * kUs);
  idle(1);
  EXPECT_FALSE(rules.linger(now, 0));
}

// Where one pauses for longer than it works, all pauses together have a budget.
TEST_F(WholeLingers, WhoPausesForLongerSharesWhatIdlingMayCost) {
  begin(20 * kUs, 50 * kUs);
  int kept = 0;
  for (; kept < 1000 && rules.linger(now, 0); ++kept) {
    idle(0);
    now += 50 * kUs;
    arrive(0);
    use(1, 50 * kUs);
  }
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 100);
}

TEST_F(WholeLingers, WhoWorksForAsLongPaysAndMayForItsWholeTurn) {
  begin(50 * kUs, 50 * kUs);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(rules.linger(now, 0)) << i;
    pass(50 * kUs), idle(0);
    ASSERT_EQ(evicted, kNoVgpu) << i;
    now += 50 * kUs;
    arrive(0);
  }
}

TEST_F(WholeLingers, NorBeforeOneThatIsDueBefore) {
  begin(100 * kUs, 50 * kUs);
  use(0, 10 * kMs);
  EXPECT_TRUE(rules.linger(now, 0));
  call([&] { policy->on_vgpu_changed(now, 0, {.weight = 101}, out); });  // due as of now
  EXPECT_FALSE(rules.linger(now, 0));
}

TEST_F(WholeLingers, AHolderOfALowerPriorityDoesNotAndOneOfAHigherDoes) {
  begin(100 * kUs, 50 * kUs, {.priority = 0});
  call([&] { policy->on_vgpu_changed(now, 0, {.priority = 2}, out); });
  use(0, kSecond);
  EXPECT_TRUE(rules.linger(now, 0)) << "whatever it has used";
  call([&] { policy->on_vgpu_changed(now, 1, {.priority = 3}, out); });
  EXPECT_FALSE(rules.linger(now, 0));
}

TEST_F(WholeLingers, NobodyKeepsTheGpuForLongerThanItsTurn) {
  begin(100 * kUs, 50 * kUs);
  use(0, kMs);
  now += rules.quantum(0) + kMs;
  use(0, rules.quantum(0));
  EXPECT_FALSE(rules.linger(now, 0));
}

TEST_F(WholeLingers, NorBeforeAShortOne) {
  begin(100 * kUs, 50 * kUs);
  add(2, VgpuShare{});
  use(0, 9 * kMs);
  tell(2, kMs);
  EXPECT_TRUE(rules.linger(now, 0));
  arrive(2);
  ASSERT_TRUE(rules.next(now).before_its_turn);
  EXPECT_FALSE(rules.linger(now, 0));
}

// ---- hold_back() -------------------------------------------------------------------------------

TEST_F(WholeRules, WhoLeftLateWaitsUntilTheOthersHaveUsedAsMuch) {
  add_all({{}, {}});
  arrive(0), arrive(1);
  take_turn(rules.quantum(0));
  ASSERT_EQ(holder, 1u);
  take_turn(rules.quantum(1));
  ASSERT_EQ(holder, 0u);
  pass(rules.quantum(0) + kMs);
  ASSERT_EQ(evicted, 0u);
  pass(100 * kMs);  // its launch cannot leave
  left(0);
  ASSERT_EQ(holder, 1u);
  for (int i = 0; i < 9; ++i) pass(10 * kMs), wake();
  EXPECT_EQ(rules.next(now).vgpu, kNoVgpu) << "0 waits in no order";
  EXPECT_EQ(evicted, kNoVgpu);
  pass(20 * kMs), wake();
  EXPECT_EQ(rules.next(now).vgpu, 0u);
}

TEST_F(WholeRules, FiveHandOversLateIsInTime) {
  for (const uint64_t late_ns : {kMs, kMs + 1}) {
    WholeDriver d(std::make_unique<Rules>(Config{}), Config{});
    for (const VgpuId v : {0, 1}) d.add(v, VgpuShare{}), d.arrive(v);
    while (d.evicted == kNoVgpu) d.pass(kMs);
    d.pass(late_ns);
    d.left(0);
    ASSERT_EQ(d.holder, 1u);
    EXPECT_EQ(static_cast<Rules&>(*d.policy).next(d.now).vgpu, late_ns > kMs ? kNoVgpu : 0u);
  }
}

TEST_F(WholeRules, WhoLeftLateWaitsForPausesOfThoseThatWaited) {
  for (const uint64_t late_ns : {uint64_t{0}, 100 * kMs}) {
    WholeDriver d(std::make_unique<Rules>(Config{}), Config{});
    for (const VgpuId v : {0, 1}) d.add(v, VgpuShare{});
    for (int i = 0; i < 3; ++i) d.arrive(1), d.pass(kMs), d.idle(1), d.left(1), d.now += kMs;
    d.arrive(0), d.arrive(1);
    while (d.evicted == kNoVgpu) d.pass(kMs);
    d.pass(late_ns);
    d.left(0);
    ASSERT_EQ(d.holder, 1u);
    d.pass(kMs), d.idle(1);
    if (d.evicted == 1) d.left(1);
    EXPECT_EQ(d.holder, late_ns ? kNoVgpu : 0u) << late_ns;
  }
}

// All of them together are no longer than the overrun.
TEST_F(WholeRules, WhoLeftLateDoesNotWaitForPausesWithoutEnd) {
  add_all({{}, {}});
  for (int i = 0; i < 3; ++i) arrive(1), pass(kMs), idle(1), left(1), now += 2 * kMs;
  arrive(0), arrive(1);
  while (evicted == kNoVgpu) pass(kMs);
  pass(100 * kMs);
  left(0);
  int pauses = 0;
  for (; holder != 0 && pauses < 500; ++pauses) {
    pass(10 * kUs), idle(1);
    if (evicted == 1) left(1);
    if (holder == kNoVgpu) pass(2 * kMs);
    if (holder == kNoVgpu) arrive(1);
  }
  EXPECT_NEAR(pauses, 50, 5);
}

// ---- what others ask ---------------------------------------------------------------------------

TEST_F(WholeRules, OneThatASureShareWouldLetGoFirstComesUnasked) {
  const auto comes = [](const VgpuShare& share, uint32_t priority_of_other, uint64_t work_ns) {
    WholeDriver d(std::make_unique<Rules>(Config{}), Config{});
    d.add(0, VgpuShare{.priority = priority_of_other}), d.add(1, share);
    for (int i = 0; i < 10; ++i)
      d.arrive(1), d.pass(work_ns), d.idle(1), d.left(1), d.now += kSecond;
    d.arrive(1), d.idle(1), d.left(1);  // so its credit is as of now
    return d.policy->comes_unasked(1);
  };
  EXPECT_TRUE(comes({}, 0, kMs));
  EXPECT_TRUE(comes(kLow, 0, kMs));
  EXPECT_FALSE(comes(kBatch, 0, kMs));
  EXPECT_FALSE(comes({}, 1, kMs)) << "below another";
  EXPECT_FALSE(comes({}, 0, 50 * kMs)) << "more than a sure share is";
  EXPECT_FALSE(comes({}, 0, 0)) << "nothing is known of it";
}

TEST_F(WholeRules, AWaitIsBoundByADrainAndATurnOfEachOther) {
  EXPECT_EQ(rules.wait_bound_ns(0), kHandoverNs);
  EXPECT_EQ(rules.wait_bound_ns(3), 4 * kHandoverNs + 3 * kLeastNs);
}

}  // namespace
}  // namespace sluice::policy
