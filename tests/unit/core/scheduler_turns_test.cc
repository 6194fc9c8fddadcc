// SPDX-License-Identifier: Apache-2.0
// The scheduler where turns are priorities (mediator/core/sharing/strategies/turns.h), step by
// step.
#include <gtest/gtest.h>

#include "tests/unit/core/scheduler_host.h"

namespace sluice::core {
namespace {

SchedulerConfig turns(const char* policy = "rr") {
  SchedulerConfig c;
  c.policy = policy;
  c.policy_config.quantum_ns = 2 * kMs;
  c.turns_by_priority = true;
  return c;
}
bool open_gate(const Host& h, SessionId s) { return h.pages[s].grant & SLUICE_GRANT_OPEN; }
bool stands_by(const Host& h, SessionId s) { return h.pages[s].grant & SLUICE_GRANT_STANDBY; }
uint32_t level(const Host& h, SessionId s) { return SLUICE_GRANT_LEVEL(h.pages[s].grant); }
uint32_t granted(const Host& h, SessionId s) { return SLUICE_GRANT_GENERATION(h.pages[s].grant); }

// Two vGPUs with a session each, both backlogged; a has the turn.
struct TurnsTest : testing::Test {
  explicit TurnsTest(const char* policy = "rr")
      : h(turns(policy)), a(h.vgpu()), b(h.vgpu()), s(h.session(a)), t(h.session(b)) {}
  // `count` launches of so many us each; in_flight of them are.
  void work(SessionId x, uint32_t count, uint32_t in_flight, uint64_t us, uint32_t left = 0) {
    h.page(x).report.guest_hints =
        LaunchHints{.predicted = count, .remaining_ns = count * us * 1000, .longest_ns = us * 1000};
    h.report(x, count, in_flight, left);
  }
  void quietly(SessionId x, uint32_t count, uint32_t in_flight, uint64_t us) {
    h.quietly(x, count, in_flight);
    h.page(x).report.guest_hints =
        LaunchHints{.predicted = count, .remaining_ns = count * us * 1000, .longest_ns = us * 1000};
  }
  bool holds(VgpuId v) const { return h.scheduler->stats(h.now, v).holds; }
  // The clock's time.
  uint64_t charged(VgpuId v) const { return h.scheduler->stats(h.now, v).gpu_ns; }
  // Until v has the turn.
  void to(VgpuId v) {
    for (int i = 0; i < 10 && !holds(v); ++i) h.time(h.wake);
    ASSERT_TRUE(holds(v));
  }
  mutable Host h;
  VgpuId a, b;
  SessionId s, t;
};

// ---- turns -----------------------------------------------------------------------------------

// A launch that is left at the same level came first, so it is charged until it has left.
TEST_F(TurnsTest, LongLaunchesFollowOneAnotherAtTheLowestLevel) {
  work(s, 4, 1, 5000);
  EXPECT_TRUE(open_gate(h, s));
  work(t, 4, 0, 5000);
  EXPECT_FALSE(open_gate(h, t));
  to(b);
  EXPECT_TRUE(open_gate(h, t)) << "nobody waits until a has left";
  EXPECT_FALSE(open_gate(h, s));
  EXPECT_EQ(level(h, t), 0u);
  const uint64_t of_a = charged(a), of_b = charged(b);
  h.now += 1'500'000;
  work(s, 3, 0, 5000, granted(h, s));
  EXPECT_EQ(charged(a) - of_a, 1'500'000u);
  EXPECT_EQ(charged(b), of_b);
  h.now += 300'000;
  work(t, 4, 1, 5000);
  EXPECT_EQ(charged(a) - of_a, 1'500'000u);
  EXPECT_EQ(charged(b) - of_b, 300'000u);
}

// Those would come one by one, each behind one of b's, so b goes above them. In a's next turn b's
// are above, and b pays for them.
TEST_F(TurnsTest, WhoHasLeftSeveralLongLaunchesWaitsBelow) {
  work(s, 4, 3, 5000);
  work(t, 4, 0, 5000);
  to(b);
  EXPECT_EQ(level(h, t), 1u);
  const uint64_t of_a = charged(a), of_b = charged(b);
  quietly(t, 4, 1, 5000);
  to(a);
  EXPECT_EQ(charged(a), of_a);
  EXPECT_GE(charged(b) - of_b, 2 * kMs);
  EXPECT_EQ(level(h, s), 0u);
  EXPECT_TRUE(h.pages[s].grant & SLUICE_GRANT_RECALL) << "what it had left drains";
  const uint64_t after_b = charged(b);
  h.now += kMs;
  work(t, 3, 0, 5000, granted(h, t));
  EXPECT_EQ(charged(a), of_a);
  EXPECT_EQ(charged(b) - after_b, kMs);
}

// What fills a pause of the holder pays for it.
TEST_F(TurnsTest, WhoFillsAPausePaysForIt) {
  work(s, 4, 3, 5000);
  work(t, 4, 0, 5000);
  const SessionId u = h.session(h.vgpu());
  to(b);
  ASSERT_EQ(level(h, t), 1u);
  h.now += 100'000;
  work(u, 1, 0, 5000);
  const uint64_t of_a = charged(a), of_b = charged(b);
  h.quietly(t, 0, 0);
  h.scheduler->on_report(h.now, t, h.page(t).report, h.queue);
  h.drain();
  h.now += 40'000;
  h.time(h.now);
  EXPECT_GE(charged(a) + 1 - of_a, 40'000u);
  EXPECT_EQ(charged(b), of_b);
}

struct LengthsTest : TurnsTest {
  LengthsTest() : TurnsTest("wfq") {}
};

TEST_F(LengthsTest, ShortLaunchesFollowALongOneThatIsLeft) {
  work(s, 4, 1, 5000);
  work(t, 200, 0, 100);
  to(b);
  EXPECT_EQ(level(h, t), 0u);
  EXPECT_TRUE(open_gate(h, t));
  const uint64_t of_a = charged(a), of_b = charged(b);
  quietly(t, 200, 5, 100);
  h.now += kMs;
  h.time(h.now);
  EXPECT_EQ(charged(a) - of_a, kMs) << "it came first";
  EXPECT_EQ(charged(b), of_b);
}

// Alone in its turn, and soon gone.
TEST_F(TurnsTest, OneShortLaunchGoesAboveWhatOthersHaveLeft) {
  Host g(turns("wfq"));
  const VgpuId low = g.vgpu(), high = g.vgpu();
  const SessionId x = g.session(low), y = g.session(high);
  g.report(x, 2, 1);
  g.now += 50 * kMs;
  g.page(y).report.guest_hints =
      LaunchHints{.predicted = 1, .remaining_ns = 100'000, .longest_ns = 100'000};
  g.report(y, 1, 0);
  for (int i = 0; i < 10 && !open_gate(g, y); ++i) g.time(g.wake);
  EXPECT_GE(level(g, y), 1u);
}

// Both would take turns launch by launch, and nobody could tell who had what.
TEST_F(LengthsTest, ATurnWaitsUntilOthersHaveOneShortLaunchLeft) {
  work(s, 200, 5, 100);
  work(t, 200, 0, 100);
  to(b);
  EXPECT_FALSE(open_gate(h, t)) << "a has left five of 100 us, which are soon over";
  uint64_t of_a = charged(a), of_b = charged(b);
  h.now += 300'000;
  work(s, 197, 2, 100);
  EXPECT_FALSE(open_gate(h, t));
  work(s, 196, 1, 100);
  EXPECT_TRUE(open_gate(h, t)) << "the last one came first";
  EXPECT_EQ(level(h, t), 0u);
  EXPECT_EQ(charged(a) - of_a, 300'000u);
  EXPECT_EQ(charged(b), of_b);
  // The same the other way round.
  work(s, 195, 0, 100, granted(h, s));
  quietly(t, 200, 5, 100);
  to(a);
  EXPECT_EQ(h.scheduler->stats(h.now, b).evictions, 1u);
  EXPECT_FALSE(open_gate(h, s));
  EXPECT_FALSE(open_gate(h, t));
  of_a = charged(a), of_b = charged(b);
  h.now += 300'000;
  work(t, 195, 0, 100, granted(h, t));
  EXPECT_TRUE(open_gate(h, s));
  EXPECT_EQ(charged(a), of_a);
  EXPECT_EQ(charged(b) - of_b, 300'000u);
  // Its turn may be over before it has begun.
  work(s, 195, 5, 100, granted(h, s) - 1);
  to(b);
  ASSERT_FALSE(open_gate(h, t));
  h.report(t, 0, 0);
  EXPECT_TRUE(holds(a));
  EXPECT_FALSE(open_gate(h, t));
  EXPECT_TRUE(open_gate(h, s)) << "only its own are there";
}

// A worker that reports what it has left as short keeps the next turn waiting, pays for that
// time, and is ended at its deadline.
TEST_F(LengthsTest, WhoLiesThatItIsSoonGonePaysAndIsEnded) {
  work(s, 200, 5, 100);
  work(t, 200, 0, 100);
  to(b);
  ASSERT_FALSE(open_gate(h, t));
  const uint64_t of_a = charged(a), of_b = charged(b);
  std::string did;
  for (int i = 0; i < 20000 && did.find("end") == std::string::npos; ++i) {
    h.time(std::max(h.wake, h.now + 1));
    did = h.take();
  }
  EXPECT_NE(did.find("end" + std::to_string(s) + " "), std::string::npos) << did;
  EXPECT_GE(charged(a) - of_a, SchedulerConfig{}.evict_end_ns - kMs);
  EXPECT_EQ(charged(b), of_b);
  h.remove(s);
  EXPECT_TRUE(open_gate(h, t));
}

// a's turn comes before all that it had launched has left: it is granted anew and nothing waits.
TEST_F(TurnsTest, WhoHasNotLeftYetIsRecalledIntoItsTurn) {
  work(s, 4, 2, 5000);
  work(t, 1, 0, 5000);
  to(b);
  const uint32_t old = granted(h, s);
  ASSERT_FALSE(open_gate(h, s));
  h.report(t, 0, 0);
  ASSERT_TRUE(holds(a));
  EXPECT_TRUE(open_gate(h, s));
  EXPECT_EQ(granted(h, s), old + 1);
  EXPECT_TRUE(h.pages[s].grant & SLUICE_GRANT_RECALL);
  // Evicted again before that: both generations have to leave, and it counts as one.
  quietly(s, 4, 2, 5000);
  work(t, 1, 0, 5000);
  to(b);
  EXPECT_EQ(h.pages[s].evict, SLUICE_EVICT_ALL_SMS(old + 1));
  h.report(s, 4, 1, old);
  h.report(s, 4, 0, old + 1);
  EXPECT_EQ(h.scheduler->stats(h.now, a).ended, 0u);
}

// One that has its next turn before it has left launches behind what others have left meanwhile. So
// when its oldest has left, theirs are first.
TEST_F(TurnsTest, WhatCameLaterIsBehindWhatOthersHaveLeftBefore) {
  const VgpuId c = h.vgpu();
  const SessionId u = h.session(c);
  work(s, 4, 1, 5000);
  work(t, 4, 0, 5000);
  to(b);  // a has left one
  const uint32_t old = granted(h, s);
  work(u, 4, 0, 5000);
  quietly(t, 4, 1, 5000);
  to(c);  // so has b
  to(a);  // a again, before it has left
  quietly(s, 4, 1, 5000);
  to(c);
  // a's first one leaves: b's is next, then a's second one.
  uint64_t of_a = charged(a);
  const uint64_t of_b = charged(b);
  h.now += kMs;
  work(s, 3, 1, 5000, old);
  EXPECT_EQ(charged(a) - of_a, kMs);
  of_a = charged(a);
  h.now += kMs;
  work(t, 3, 0, 5000, granted(h, t));
  EXPECT_EQ(charged(a), of_a);
  EXPECT_EQ(charged(b) - of_b, kMs);
  h.now += kMs;
  work(s, 2, 0, 5000, granted(h, s));
  EXPECT_EQ(charged(a) - of_a, kMs);
}

// Who does not leave is ended, though turns go on meanwhile; who waits behind it is not.
TEST_F(TurnsTest, WhoNeverLeavesIsEndedAndTheOneBehindItIsNot) {
  work(s, 4, 1, 5000);
  work(t, 4, 0, 5000);
  std::string did;
  for (int i = 0; i < 20000 && did.find("end") == std::string::npos; ++i) {
    // Neither leaves: a spins, and b's launches do not come on to the GPU.
    quietly(s, 4, 1, 5000), quietly(t, 4, 1, 5000);
    h.time(std::max(h.wake, h.now + 1));
    did = h.take();
  }
  EXPECT_NE(did.find("end" + std::to_string(s) + " "), std::string::npos) << did;
  EXPECT_EQ(h.scheduler->stats(h.now, a).ended, 1u);
  EXPECT_EQ(h.scheduler->stats(h.now, b).ended, 0u);
  EXPECT_GE(h.now, SchedulerConfig{}.evict_end_ns);
  EXPECT_LE(h.now, 2 * SchedulerConfig{}.evict_end_ns + 100 * kMs);
  h.remove(s);
  EXPECT_TRUE(holds(b));
}

// Lengths are a worker's word. One that calls its launches long goes below others and waits there;
// one that calls them short pays for all that it keeps from others.
TEST_F(LengthsTest, WhoLiesOfLengthsPaysForWhatItKeeps) {
  work(s, 4, 1, 5000);
  work(t, 4, 0, 100);
  to(b);
  quietly(t, 4, 1, 100);
  to(a);
  ASSERT_EQ(level(h, s), 0u);
  const uint64_t of_a = charged(a), of_b = charged(b);
  h.now += 20 * kMs;  // one of b's "short" ones
  h.report(t, 3, 0, granted(h, t));
  EXPECT_EQ(charged(a), of_a);
  EXPECT_EQ(charged(b) - of_b, 20 * kMs);
}

TEST_F(TurnsTest, SessionsThatGoLeaveNothingBehind) {
  work(s, 4, 2, 5000);
  work(t, 4, 0, 5000);
  to(b);
  h.remove(s);  // leaving
  EXPECT_TRUE(holds(b));
  h.remove(t);  // with the turn
  EXPECT_FALSE(holds(b));
  const SessionId u = h.session(a);
  h.report(u, 1, 0);
  EXPECT_TRUE(open_gate(h, u));
  EXPECT_EQ(level(h, u), 0u);
  EXPECT_EQ(h.take().find("policy?"), std::string::npos);
}

// ---- visits ----------------------------------------------------------------------------------

struct VisitsTest : TurnsTest {
  // What is known of it, and then others linger.
  const uint64_t kVisit = 100'000 + SchedulerConfig{}.linger_ns;
  VisitsTest() : TurnsTest("wfq") {
    // So that nobody is new.
    for (const SessionId x : {t, s}) {
      work(x, 1, 0, 100);
      h.now += 100'000;
      h.report(x, 0, 0);
      h.now += kMs;
    }
    work(s, 4, 1, 5000);
    h.now += kMs;
    work(t, 1, 0, 100);
    to(b);
  }
  // b's visit ends, and it comes back with a launch that is longer than one of a visit's level.
  void visit_with_a_longer_one() {
    h.report(t, 0, 0);
    ASSERT_TRUE(holds(a));
    h.now += 4 * kMs;
    work(t, 1, 0, 900);
    to(b);
  }
};

TEST_F(VisitsTest, AreAboveWhileTheOneBeforeGoesOn) {
  EXPECT_TRUE(open_gate(h, t));
  EXPECT_EQ(level(h, t), 2u);
  // a fills what b leaves idle; nothing of it was evicted.
  EXPECT_TRUE(open_gate(h, s));
  EXPECT_EQ(level(h, s), 0u);
  EXPECT_EQ(h.scheduler->stats(h.now, a).evictions, 0u);
  EXPECT_FALSE(holds(a));
}

TEST_F(VisitsTest, OfClassLowKeepOthersOutOfTheirGaps) {
  EXPECT_FALSE(h.pages[t].grant & SLUICE_GRANT_FILL);
  for (const VgpuId v : {a, b})
    h.scheduler->set_share(h.now, v, {.weight = 100, .latency = policy::LatencyClass::kLow},
                           h.queue);
  h.report(t, 0, 0);
  h.now += 10 * kMs;
  EXPECT_TRUE(holds(a));
  EXPECT_EQ(level(h, s), 0u);
  work(t, 1, 0, 100);
  to(b);
  EXPECT_EQ(level(h, t), 2u);
  EXPECT_TRUE(h.pages[t].grant & SLUICE_GRANT_FILL);
}

TEST_F(VisitsTest, LeaveTheOtherAsItWas) {
  const uint64_t words[] = {h.pages[s].grant, h.pages[s].evict};
  const uint64_t of_a = charged(a), of_b = charged(b);
  h.now += 100'000;
  h.report(t, 0, 0);
  EXPECT_TRUE(holds(a));
  EXPECT_TRUE(stands_by(h, t));
  EXPECT_EQ(h.pages[s].grant, words[0]);
  EXPECT_EQ(h.pages[s].evict, words[1]);
  EXPECT_EQ(h.scheduler->stats(h.now, a).evictions, 0u);
  EXPECT_EQ(charged(a), of_a);
  EXPECT_EQ(charged(b) - of_b, 100'000u);
}

// a's blocks do not end, so that b's never begin, although b is above.
struct StuckTest : VisitsTest {
  // Until a session is ended: what was done. Nobody leaves.
  std::string until_one_is_ended() {
    std::string did;
    for (int i = 0; i < 20000 && did.find("end") == std::string::npos; ++i) {
      for (const SessionId x : stay) quietly(x, 1, 1, 100);
      h.time(std::max(h.wake, h.now + 1));
      did = h.take();
    }
    return did;
  }
  static std::string ends(SessionId x) { return "end" + std::to_string(x) + " "; }
  std::vector<SessionId> stay = {s, t};
};

TEST_F(StuckTest, WhoWasThereBeforeIsEnded) {
  const std::string did = until_one_is_ended();
  EXPECT_NE(did.find(ends(s)), std::string::npos) << did;
  EXPECT_EQ(did.find(ends(t)), std::string::npos) << did;
  h.remove(s);
  stay = {t};
  // b's begins, and is soon over.
  h.now += 10 * kMs;
  h.report(t, 0, 0, granted(h, t));
  EXPECT_EQ(h.scheduler->stats(h.now, b).ended, 0u);
}

// Its user has had enough.
TEST_F(StuckTest, WhoIsStuckAndGoesPaysNothingForThat) {
  for (int i = 0; i < 20000 && h.now < 1000 * kMs; ++i) {
    quietly(s, 1, 1, 100), quietly(t, 1, 1, 100);
    h.time(std::min(std::max(h.wake, h.now + 1), h.now + 10 * kMs));
    ASSERT_EQ(h.scheduler->take_stay_ns(h.now, t), 0u) << h.now;
  }
  EXPECT_GT(h.scheduler->take_stay_ns(h.now, s), 300 * kMs) << "who keeps the GPU from it does";
}

// Its turn goes on, since b's visit was over soon, and nobody else asks for it.
TEST_F(StuckTest, WhoHasTheTurnAgainIsEnded) {
  quietly(t, 1, 1, 100);
  for (int i = 0; i < 10 && !holds(a); ++i) h.time(h.wake);
  ASSERT_TRUE(holds(a));
  const std::string did = until_one_is_ended();
  EXPECT_NE(did.find(ends(s)), std::string::npos) << did;
  EXPECT_EQ(did.find(ends(t)), std::string::npos) << did;
}

// Else one could launch what takes long, where it was known as short, at its neighbour's cost.
TEST_F(StuckTest, WhoIsStuckPaysAllTheSame) {
  for (int i = 0; i < 200 && h.now < 500 * kMs; ++i) {
    quietly(s, 1, 1, 100), quietly(t, 1, 1, 100);
    h.time(std::max(h.wake, h.now + 1));
  }
  const uint64_t of_a = charged(a), of_b = charged(b);
  const uint64_t at = h.now;
  for (int i = 0; i < 2000 && h.now < at + 500 * kMs; ++i) {
    quietly(s, 1, 1, 100), quietly(t, 1, 1, 100);
    h.time(std::max(h.wake, h.now + 1));
  }
  EXPECT_LE(charged(a) - of_a, 10 * kMs);
  EXPECT_GE(charged(b) - of_b, 490 * kMs);
}

// ... whatever else its vGPU lets go meanwhile.
TEST_F(StuckTest, ASessionThatLeavesByItselfClearsNobody) {
  const SessionId other = h.session(a);
  stay = {s, t, other};
  for (const uint64_t until = h.now + 500 * kMs; h.now < until;) {
    for (const SessionId x : stay) quietly(x, 1, 1, 100);
    h.time(std::max(h.wake, h.now + 1));
  }
  h.remove(other);
  stay = {s, t};
  const std::string did = until_one_is_ended();
  EXPECT_NE(did.find(ends(s)), std::string::npos) << did;
  EXPECT_EQ(did.find(ends(t)), std::string::npos) << did;
}

// It was b: of those that are innocent one is ended at most.
TEST_F(StuckTest, WhoDoesNotLeaveThenEitherIsTheNext) {
  const VgpuId c = h.vgpu();
  const SessionId u = h.session(c);
  until_one_is_ended();
  h.remove(s);
  work(u, 4, 0, 5000);
  stay = {t, u};
  const uint64_t since_ns = h.now;
  const std::string did = until_one_is_ended();
  EXPECT_NE(did.find(ends(t)), std::string::npos) << did;
  EXPECT_EQ(h.scheduler->stats(h.now, c).ended, 0u);
  EXPECT_LE(h.now - since_ns, 2 * SchedulerConfig{}.evict_end_ns);
}

// b's first launch does not end, and goes above what a has left, who has always left in time.
struct NewcomerTest : TurnsTest {
  NewcomerTest() : TurnsTest("wfq") {
    const SessionId u = h.session(h.vgpu());
    for (int i = 0; i < 10; ++i)
      for (const SessionId x : {s, u}) short_turn(x);
    short_turn(t);
    work(s, 4, 1, 5000);
    h.now += kMs;
    work(t, 1, 0, 100);
    to(b);
  }
  void short_turn(SessionId x) {
    work(x, 1, 0, 100);
    h.now += 100'000;
    h.report(x, 0, 0);
    h.now += kMs;
  }
};

TEST_F(NewcomerTest, HasNobodyEndedWhoHasAlwaysLeft) {
  ASSERT_EQ(level(h, t), 2u);
  std::string did;
  for (int i = 0; i < 20000 && did.find("end") == std::string::npos; ++i) {
    for (const SessionId x : {s, t}) quietly(x, 1, 1, 100);
    h.time(std::max(h.wake, h.now + 1));
    did = h.take();
  }
  EXPECT_NE(did.find("end" + std::to_string(t) + " "), std::string::npos) << did;
  EXPECT_EQ(did.find("end" + std::to_string(s) + " "), std::string::npos) << did;
  h.remove(t);
  h.now += 10 * kMs;
  h.report(s, 0, 0, granted(h, s));
  EXPECT_EQ(h.scheduler->stats(h.now, a).ended, 0u);
}

TEST_F(VisitsTest, ThatLastGoDownAndTheOtherLeaves) {
  const uint32_t old_a = granted(h, s), old_b = granted(h, t);
  work(t, 30, 2, 100);
  h.time(h.now + kVisit);
  EXPECT_FALSE(open_gate(h, s));
  EXPECT_EQ(h.pages[s].evict, SLUICE_EVICT_ALL_SMS(old_a));
  EXPECT_TRUE(open_gate(h, t));
  EXPECT_EQ(level(h, t), 0u);
  EXPECT_EQ(granted(h, t), old_b + 1);
  EXPECT_TRUE(h.pages[t].grant & SLUICE_GRANT_RECALL);
  EXPECT_EQ(h.pages[t].evict, SLUICE_EVICT_ALL_SMS(old_b));
  EXPECT_TRUE(holds(b));
  EXPECT_EQ(h.scheduler->stats(h.now, a).evictions, 1u);
  // b's older launches have left: it is no eviction of b's turn.
  work(t, 30, 1, 100, old_b);
  EXPECT_TRUE(holds(b));
  EXPECT_EQ(h.scheduler->stats(h.now, b).evictions, 0u);
}

// A chain's known work is all a visit, beyond linger_ns too, as far as the policy lets it.
TEST_F(VisitsTest, LastAsLongAsWhatIsKnownOfThem) {
  h.report(t, 0, 0);
  ASSERT_TRUE(holds(a));
  h.now += 4 * kMs;
  work(t, 18, 0, 50);
  to(b);
  EXPECT_EQ(level(h, t), 2u);
  quietly(t, 18, 5, 50);
  h.time(h.now + SchedulerConfig{}.linger_ns + 800'000);
  EXPECT_TRUE(open_gate(h, s)) << "it lingers";
  EXPECT_EQ(level(h, t), 2u);
}

TEST_F(VisitsTest, OfLongerLaunchesAreBelowThoseOfShortOnes) {
  visit_with_a_longer_one();
  EXPECT_EQ(level(h, t), 1u);
  EXPECT_TRUE(open_gate(h, s));
}

// ... and who is interrupted on a visit does not go on above the holder, who would pay for it.
TEST_F(VisitsTest, ThatAreInterruptedByWhoWasBelowEnd) {
  h.scheduler->set_share(h.now, a, {.weight = 1000}, h.queue);
  visit_with_a_longer_one();
  ASSERT_EQ(level(h, t), 1u);
  ASSERT_TRUE(open_gate(h, s));
  quietly(t, 1, 1, 900);
  work(s, 1, 0, 100);  // short by now, and goes first
  to(a);
  EXPECT_TRUE(open_gate(h, s));
  EXPECT_EQ(level(h, s), 0u);
  EXPECT_FALSE(open_gate(h, t));
  const uint64_t of_a = charged(a), of_b = charged(b);
  h.now += 100'000;
  h.report(s, 1, 1);
  EXPECT_EQ(charged(b) - of_b, 100'000u) << "what it has left there runs";
  EXPECT_EQ(charged(a), of_a);
}

// The second of two would run behind the newcomer's first, and be charged to b.
TEST_F(VisitsTest, OfLongerLaunchesWaitUntilOthersHaveOneLeft) {
  const VgpuId c = h.vgpu();
  const SessionId u = h.session(c);
  h.scheduler->set_share(h.now, c, {.weight = 1000}, h.queue);
  visit_with_a_longer_one();
  ASSERT_EQ(level(h, t), 1u);
  quietly(t, 2, 2, 900);
  h.now += 20'000;
  work(u, 1, 0, 600);
  to(c);
  ASSERT_FALSE(open_gate(h, t));
  EXPECT_FALSE(open_gate(h, u)) << "b has left two launches at the same level";
  EXPECT_TRUE(open_gate(h, s)) << "a is below";
  const uint64_t of_b = charged(b), of_c = charged(c);
  h.now += 800'000;
  work(t, 1, 1, 900);
  EXPECT_TRUE(open_gate(h, u));
  EXPECT_EQ(level(h, u), 1u);
  EXPECT_EQ(charged(b) - of_b, 800'000u);
  EXPECT_EQ(charged(c), of_c);
}

// What it launched on the visit is above, what came later is not: each counts at its own level.
TEST_F(VisitsTest, ThatWentDownHaveLeftSomethingAtBothLevels) {
  const uint32_t old = granted(h, t);
  work(t, 300, 2, 100);
  h.time(h.now + kVisit);
  ASSERT_EQ(level(h, t), 0u);
  work(s, 4, 0, 5000, granted(h, s));  // has left
  quietly(t, 300, 5, 100);             // two of the visit, three that came later
  to(a);
  EXPECT_FALSE(open_gate(h, t));
  EXPECT_FALSE(open_gate(h, s)) << "b has left several short ones at a's level, too";
  work(t, 298, 3, 100, old);
  EXPECT_FALSE(open_gate(h, s));
  const uint64_t of_a = charged(a), of_b = charged(b);
  h.now += 200'000;
  work(t, 296, 1, 100, old);
  EXPECT_TRUE(open_gate(h, s));
  EXPECT_EQ(level(h, s), 0u);
  h.now += 100'000;
  work(t, 295, 0, 100, granted(h, t));
  EXPECT_EQ(charged(a), of_a);
  EXPECT_EQ(charged(b) - of_b, 300'000u);
}

TEST_F(VisitsTest, ASessionThatComesMeanwhileHasItsVgpusGrant) {
  EXPECT_TRUE(open_gate(h, h.session(a)));  // lingering
  const SessionId of_b = h.session(b);
  EXPECT_TRUE(open_gate(h, of_b));
  EXPECT_EQ(level(h, of_b), 2u);
  h.time(h.now + kVisit);
  EXPECT_FALSE(open_gate(h, h.session(a)));
}

TEST_F(VisitsTest, ALingeringSessionThatGoesLeavesNothingBehind) {
  h.remove(s);
  EXPECT_TRUE(holds(b));
  h.time(h.now + kVisit);
  EXPECT_TRUE(holds(b));
  EXPECT_EQ(h.take().find("policy?"), std::string::npos);
}

// ---- filling ---------------------------------------------------------------------------------

// b visits, as before, and a lingers below. c waits for its turn.
struct FillingTest : VisitsTest {
  FillingTest() : c(h.vgpu()), u(h.session(c)) { h.report(u, 0, 0); }
  // Nobody lingers any more, so c may fill.
  void a_goes() {
    h.remove(s);
    work(t, 1, 1, 100);
    ASSERT_TRUE(holds(b));
  }
  // A launch of b's ends, and the next one is there.
  void b_goes_on() {
    ++h.page(t).report.guest_launches;
    ++h.page(t).report.guest_launches_done;
    work(t, 1, 1, 100);
  }
  VgpuId c;
  SessionId u;
};

TEST_F(FillingTest, WhoWouldBeNextBeginsBelow) {
  a_goes();
  work(u, 1, 0, 100);
  EXPECT_TRUE(holds(b));
  EXPECT_TRUE(open_gate(h, u));
  EXPECT_EQ(level(h, u), 0u);
  EXPECT_GE(level(h, t), 1u);
  EXPECT_EQ(h.take().find("policy?"), std::string::npos);
}

// Or its worker would queue all that there is, before the next turn of another.
TEST_F(FillingTest, WhoFillsIsToldThatOthersWait) {
  a_goes();
  work(u, 1, 0, 100);
  ASSERT_TRUE(open_gate(h, u));
  EXPECT_TRUE(h.pages[u].grant & SLUICE_GRANT_CONTENDED);
}

// Asked when one of its two has just ended, it seems to want one.
TEST_F(FillingTest, WhoQueuesLeavesNoGaps) {
  a_goes();
  work(t, 2, 1, 100);
  work(t, 1, 1, 100);
  work(u, 1, 0, 100);
  EXPECT_FALSE(open_gate(h, u));
  h.report(t, 0, 0);
  work(t, 1, 0, 100);
  to(b);
  work(u, 1, 0, 100);
  EXPECT_TRUE(open_gate(h, u));
}

TEST_F(FillingTest, ItsTurnFindsItAtWork) {
  a_goes();
  work(u, 1, 0, 100);
  const uint32_t generation = granted(h, u);
  work(u, 1, 1, 100);
  const uint64_t of_b = charged(b), of_c = charged(c);
  h.now += 50'000;
  h.report(t, 0, 0);
  EXPECT_TRUE(holds(c));
  EXPECT_TRUE(open_gate(h, u));
  EXPECT_EQ(granted(h, u), generation);
  EXPECT_EQ(charged(b) - of_b, 50'000u) << "it was above";
  EXPECT_EQ(charged(c), of_c);
  EXPECT_EQ(h.scheduler->stats(h.now, c).evictions, 0u);
  // Now it leaves gaps itself, and is above who fills these.
  const SessionId x = h.session(a);
  work(x, 1, 0, 100);
  EXPECT_TRUE(open_gate(h, x));
  EXPECT_EQ(level(h, x), 0u);
  EXPECT_EQ(level(h, u), 1u);
  EXPECT_EQ(granted(h, u), generation);
}

TEST_F(FillingTest, WhoFillsPaysWhileTheHolderHasNothing) {
  work(u, 1, 0, 100);
  const uint64_t of_a = charged(a);
  // b's program is not back, and nobody has asked it to leave.
  h.now += 30'000;
  work(s, 4, 1, 5000);
  EXPECT_EQ(charged(a), of_a) << "b is above";
  quietly(t, 0, 0, 100);
  h.report(t, 0, 0);
  h.now += 70'000;
  EXPECT_GE(charged(a) + charged(c) - of_a, 70'000u);
}

TEST_F(FillingTest, WithNothingLeftItMakesRoomForAnother) {
  a_goes();
  work(u, 1, 0, 100);
  ASSERT_TRUE(open_gate(h, u));
  h.report(u, 0, 0);
  EXPECT_FALSE(open_gate(h, u));
  h.report(u, 0, 0, granted(h, u));
  const SessionId x = h.session(a);
  work(x, 1, 0, 100);
  EXPECT_TRUE(open_gate(h, x));
  EXPECT_EQ(level(h, x), 0u);
  EXPECT_TRUE(holds(b));
}

TEST_F(FillingTest, GapsOfClassLowAreItsOwn) {
  h.scheduler->set_share(h.now, b, {.weight = 100, .latency = policy::LatencyClass::kLow}, h.queue);
  a_goes();
  work(u, 1, 0, 100);
  EXPECT_FALSE(open_gate(h, u));
}

TEST_F(FillingTest, NobodyWithAMaximumFills) {
  h.scheduler->set_share(h.now, c, {.weight = 100, .max_permille = 500}, h.queue);
  a_goes();
  work(u, 1, 0, 100);
  EXPECT_FALSE(open_gate(h, u));
}

TEST_F(FillingTest, NobodyWhoseBlocksStayFills) {
  a_goes();
  h.page(u).report.guest_keeps = SLUICE_KEEPS_SMS;
  work(u, 1, 0, 100);
  EXPECT_FALSE(open_gate(h, u));
}

TEST_F(FillingTest, APausedOneIsClosed) {
  a_goes();
  work(u, 1, 0, 100);
  ASSERT_TRUE(open_gate(h, u));
  h.scheduler->set_paused(h.now, c, true, h.queue);
  h.drain();
  EXPECT_FALSE(open_gate(h, u));
}

// Its next sessions are as those of one that never filled: when a visit interrupts its turn it
// lingers, and stays while it has nothing to do.
TEST_F(FillingTest, ASessionThatGoesWhileItFillsLeavesNothingBehind) {
  a_goes();
  work(u, 1, 0, 100);
  ASSERT_TRUE(open_gate(h, u));
  h.remove(u);
  h.report(t, 0, 0);
  const SessionId x = h.session(c);
  work(x, 4, 1, 5000);
  to(c);
  h.now += 10 * kMs;
  work(t, 1, 0, 100);
  to(b);
  ASSERT_TRUE(open_gate(h, x));
  h.report(x, 0, 0);
  EXPECT_TRUE(open_gate(h, x));
}

// Those that linger go on as long as launches of the holder end.
TEST_F(FillingTest, WhoLingersGoesOnAsLongAsTheHolderDoes) {
  for (int i = 0; i < 3; ++i) {
    b_goes_on();
    h.time(h.now + kVisit);
    EXPECT_TRUE(open_gate(h, s)) << i;
    EXPECT_TRUE(holds(b));
  }
  h.time(h.now + kVisit);
  EXPECT_FALSE(open_gate(h, s)) << "its blocks may keep the holder's from beginning";
}

// The holder's launch is behind blocks without end of one that began to fill after its turn had
// begun: that one is ended.
TEST_F(FillingTest, WhoFillsWithoutEndIsEndedAndTheHolderIsNot) {
  a_goes();
  work(u, 1, 0, 100);
  ASSERT_TRUE(open_gate(h, u));
  h.now += 20'000;
  b_goes_on();
  std::string did;
  for (int i = 0; i < 20000 && did.find("end") == std::string::npos; ++i) {
    for (const SessionId x : {t, u}) quietly(x, 1, 1, 100);
    h.time(std::max(h.wake, h.now + 1));
    did = h.take();
  }
  EXPECT_NE(did.find("end" + std::to_string(u) + " "), std::string::npos) << did;
  EXPECT_EQ(did.find("end" + std::to_string(t) + " "), std::string::npos) << did;
}

// ... or the holder's was there before.
TEST_F(FillingTest, AHolderWithoutEndIsEndedAndWhoWouldFillIsNot) {
  a_goes();
  work(u, 1, 0, 100);
  ASSERT_TRUE(open_gate(h, u));
  std::string did;
  for (int i = 0; i < 20000 && did.find("end") == std::string::npos; ++i) {
    for (const SessionId x : {t, u}) quietly(x, 1, 1, 100);
    h.time(std::max(h.wake, h.now + 1));
    did = h.take();
  }
  EXPECT_NE(did.find("end" + std::to_string(t) + " "), std::string::npos) << did;
  EXPECT_EQ(did.find("end" + std::to_string(u) + " "), std::string::npos) << did;
}

// ---- standing by -----------------------------------------------------------------------------

// b's visit is over, and a goes on.
struct StandbyTest : VisitsTest {
  StandbyTest() {
    h.now += 100'000;
    h.page(t).report.guest_flight_ns += 100'000;
    h.report(t, 0, 0);
  }
  // A launch of so many us is on the GPU since `ago_ns`, and nobody was asked.
  void come(uint64_t us, uint64_t ago_ns) {
    h.page(t).report.guest_in_flight_ns = h.now - ago_ns;
    work(t, 1, 1, us);
  }
};

TEST_F(StandbyTest, TheNextVisitBeginsUnderTheSameGrant) {
  const uint32_t generation = granted(h, t);
  const uint64_t evicted = h.pages[t].evict;
  EXPECT_TRUE(stands_by(h, t));
  EXPECT_TRUE(h.pages[t].grant & SLUICE_GRANT_CONTENDED) << "or it would not ring when idle";
  EXPECT_EQ(level(h, t), 2u);
  EXPECT_FALSE(holds(b));
  h.now += 2 * kMs;
  come(100, 30'000);
  EXPECT_TRUE(holds(b));
  EXPECT_TRUE(open_gate(h, t));
  EXPECT_FALSE(stands_by(h, t));
  EXPECT_EQ(granted(h, t), generation);
  EXPECT_EQ(h.scheduler->stats(h.now, b).unasked, 1u);
  EXPECT_TRUE(open_gate(h, s)) << "it lingers";
  EXPECT_EQ(h.pages[t].evict, evicted) << "nothing of this visit was called back";
}

TEST_F(StandbyTest, WhoComesUnaskedPaysFromThenOn) {
  h.now += 2 * kMs;
  const auto paid = [&](VgpuId v) { return h.scheduler->stats(h.now, v); };
  const VgpuStats a0 = paid(a), b0 = paid(b);
  come(100, 30'000);
  const uint64_t sms = turns().policy_config.machine.sm_count;
  EXPECT_EQ(paid(b).extra_sm_ns - b0.extra_sm_ns, 30'000 * sms);
  h.now += 120'000;
  h.report(t, 0, 0);
  ASSERT_TRUE(holds(a));
  EXPECT_EQ(paid(b).charged_sm_ns - b0.charged_sm_ns, 150'000 * sms);
  h.now += kMs;
  work(t, 1, 0, 100);  // so that a is charged for what it has used until now
  EXPECT_EQ(paid(a).refunded_sm_ns - a0.refunded_sm_ns, 30'000 * sms);
}

// Its launches were in flight for a part of the time only. In the gaps a's went on.
TEST_F(StandbyTest, GapsAreChargedToWhoRunsInThem) {
  const uint64_t sms = turns().policy_config.machine.sm_count;
  const auto paid = [&](VgpuId v) { return h.scheduler->stats(h.now, v); };
  h.now += 2 * kMs;
  come(100, 30'000);
  ASSERT_TRUE(holds(b));
  const VgpuStats a0 = paid(a), b0 = paid(b);
  h.now += 100'000;
  h.page(t).report.guest_flight_ns += 70'000;  // 40 since then, and 10 of the next one
  come(100, 10'000);
  EXPECT_EQ(paid(a).extra_sm_ns - a0.extra_sm_ns, 50'000 * sms);
  h.now += 100'000;
  h.report(t, 0, 0);
  EXPECT_EQ(paid(a).extra_sm_ns - a0.extra_sm_ns, 50'000 * sms) << "it had no gap";
  EXPECT_EQ(paid(b).refunded_sm_ns - b0.refunded_sm_ns, 50'000 * sms);
  EXPECT_EQ(paid(b).charged_sm_ns - b0.charged_sm_ns, 150'000 * sms);
}

// Its worker sleeps, or its kernels wait for something else than the GPU.
TEST_F(StandbyTest, WhoHadNothingInFlightPaysForNoGaps) {
  const uint64_t sms = turns().policy_config.machine.sm_count;
  h.now += 2 * kMs;
  come(100, 30'000);
  ASSERT_TRUE(holds(b));
  quietly(s, 4, 0, 5000);
  h.now += 100'000;
  h.page(t).report.guest_flight_ns += 40'000;
  come(100, 10'000);
  h.now += 100'000;
  const uint64_t before = h.scheduler->stats(h.now, a).extra_sm_ns;
  h.page(t).report.guest_flight_ns += 40'000;
  come(100, 10'000);
  EXPECT_EQ(h.scheduler->stats(h.now, a).extra_sm_ns, before);
  // It launches: 20 us of the next 100 it runs.
  h.page(s).report.guest_in_flight_ns = h.now + 80'000;
  h.now += 100'000;
  quietly(s, 4, 1, 5000);
  h.page(t).report.guest_flight_ns += 40'000;
  come(100, 10'000);
  EXPECT_EQ(h.scheduler->stats(h.now, a).extra_sm_ns - before, 20'000 * sms);
}

// Two vGPUs with many sessions could have sluiced read all of one's for each report of the other's.
TEST_F(StandbyTest, GapsHaveOnlyReportsReadOfThoseThatMayHaveRun) {
  std::vector<SessionId> many;
  for (int i = 0; i < 40; ++i) many.push_back(h.session(a));
  for (const SessionId x : many) work(x, 1, 0, 5000);
  h.now += 2 * kMs;
  come(100, 30'000);
  ASSERT_TRUE(holds(b));
  h.now += 100'000;
  h.take();
  h.page(t).report.guest_flight_ns += 40'000;
  come(100, 10'000);
  const std::string did = h.take();
  size_t reads = 0;
  for (size_t at = did.find("read"); at != std::string::npos; at = did.find("read", at + 1))
    ++reads;
  EXPECT_GE(reads, 1u);
  EXPECT_LE(reads, 2u * turns().sessions_at_once) << did;
}

// Whatever a worker says, its vGPU gets back no more than it was charged since the report before.
TEST_F(StandbyTest, ALieAboutGapsIsBounded) {
  const uint64_t sms = turns().policy_config.machine.sm_count;
  const auto extra = [&] { return h.scheduler->stats(h.now, a).extra_sm_ns; };
  h.now += 2 * kMs;
  come(100, 30'000);
  uint64_t before = extra();
  for (const uint64_t all_ns : {UINT64_MAX - 1000, uint64_t{5}, UINT64_MAX, uint64_t{0}}) {
    h.now += 100'000;
    h.page(t).report.guest_flight_ns = all_ns;
    come(100, 0);
    EXPECT_LE(extra() - before, 100'000 * sms);
    before = extra();
  }
}

// Nobody was there to run in them: the GPU was idle, at the holder's cost.
TEST_F(StandbyTest, GapsInWhichNobodyRunsAreTheHolders) {
  h.report(s, 0, 0);
  const uint64_t before = h.scheduler->stats(h.now, a).extra_sm_ns;
  h.now += 2 * kMs;
  come(100, 30'000);
  h.now += 100'000;
  come(100, 10'000);
  h.now += 10'000;
  h.report(t, 0, 0);
  EXPECT_EQ(h.scheduler->stats(h.now, a).extra_sm_ns, before);
  EXPECT_EQ(h.scheduler->stats(h.now, b).refunded_sm_ns, 0u);
}

// However long ago, or in the future: a worker that forges it pays for visit_ns at most, or
// nothing.
TEST_F(StandbyTest, ALieAboutTheBeginIsBounded) {
  for (const uint64_t begin_ns : {uint64_t{0}, h.now + 1000 * kMs}) {
    h.now += 2 * kMs;
    const uint64_t before = h.scheduler->stats(h.now, b).extra_sm_ns;
    h.page(t).report.guest_in_flight_ns = begin_ns;
    work(t, 1, 1, 100);
    ASSERT_TRUE(holds(b));
    EXPECT_LE(h.scheduler->stats(h.now, b).extra_sm_ns - before,
              SchedulerConfig{}.visit_ns * turns().policy_config.machine.sm_count);
    h.now += 100'000;
    h.report(t, 0, 0);
    ASSERT_TRUE(stands_by(h, t));
  }
}

// c's launch was there first. What c launches after b has come runs behind b's, whenever b says
// that it came.
TEST_F(StandbyTest, WhoCameIsBeforeWhatComesLaterWhateverItSays) {
  const VgpuId c = h.vgpu();
  const SessionId u = h.session(c);
  h.now += 2 * kMs;
  work(u, 1, 0, 100);
  to(c);
  h.page(u).report.guest_in_flight_ns = h.now;
  quietly(u, 1, 1, 100);
  h.now += 20'000;
  h.page(t).report.guest_in_flight_ns = h.now + 1000 * kMs;
  const uint64_t before = charged(b);
  work(t, 1, 1, 100);
  h.now += 80'000;
  ++h.page(u).report.guest_launches_done;
  h.page(u).report.guest_in_flight_ns = h.now;
  work(u, 1, 1, 100);
  EXPECT_EQ(charged(b), before) << "c's was first";
  const uint64_t of_c = charged(c);
  h.now += 50'000;
  work(u, 1, 1, 100);
  EXPECT_EQ(charged(b) - before, 50'000u);
  EXPECT_EQ(charged(c), of_c);
}

// What it has found to do before it could see the word.
TEST_F(VisitsTest, WorkThatComesAsOneBeginsToStandByIsSeen) {
  h.now += 100'000;
  h.report(t, 0, 0);
  ASSERT_TRUE(stands_by(h, t));
  EXPECT_NE(h.take().find("read" + std::to_string(t)), std::string::npos);
}

TEST_F(StandbyTest, LongWorkIsNoVisit) {
  h.now += 2 * kMs;
  const uint32_t generation = granted(h, t);
  const uint64_t before = h.scheduler->stats(h.now, b).extra_sm_ns;
  work(t, 4, 0, 50'000);
  EXPECT_EQ(h.scheduler->stats(h.now, b).extra_sm_ns, before) << "nothing of it ran";
  EXPECT_FALSE(stands_by(h, t));
  EXPECT_FALSE(open_gate(h, t) && granted(h, t) == generation);
}

TEST_F(StandbyTest, APausedOneIsClosed) {
  h.scheduler->set_paused(h.now, b, true, h.queue);
  h.drain();
  EXPECT_FALSE(open_gate(h, t));
}

TEST_F(StandbyTest, OneThatMayNotComeUnaskedAnyMoreIsClosed) {
  h.scheduler->set_share(h.now, b, {.weight = 100, .max_permille = 100}, h.queue);
  h.drain();
  EXPECT_FALSE(open_gate(h, t));
}

TEST_F(StandbyTest, NobodyStandsByBelowAHigherPriority) {
  h.scheduler->set_share(h.now, a, {.weight = 100, .priority = 1}, h.queue);
  h.drain();
  EXPECT_FALSE(open_gate(h, t));
}

TEST_F(StandbyTest, SessionsThatGoLeaveNothingBehind) {
  h.remove(t);
  const SessionId u = h.session(b);
  EXPECT_FALSE(open_gate(h, u));
  h.now += 2 * kMs;
  work(u, 1, 0, 100);
  to(b);
  EXPECT_TRUE(open_gate(h, u));
  EXPECT_EQ(h.take().find("policy?"), std::string::npos);
}

// Every policy that gives the GPU to one at a time works with turns: random events, and nothing is
// asked for that cannot be.
TEST(Turns, RandomEventsUnderEveryPolicy) {
  for (const policy::Registration& row : policy::registry()) {
    if (!row.exclusive) continue;
    SchedulerConfig c = turns();
    c.policy = row.name;
    Host h(c);
    std::vector<VgpuId> vgpus;
    std::vector<SessionId> sessions;
    for (int i = 0; i < 4; ++i) {
      vgpus.push_back(h.vgpu(static_cast<uint32_t>(100 * (i + 1)), static_cast<uint32_t>(i % 2)));
      sessions.push_back(h.session(vgpus.back()));
    }
    uint64_t seed = 7;
    const auto random = [&](uint64_t n) {
      seed = seed * 6364136223846793005ull + 1442695040888963407ull;
      return (seed >> 33) % n;
    };
    for (int i = 0; i < 4000; ++i) {
      const SessionId s = sessions[random(4)];
      h.now += 1 + random(300'000);
      const uint32_t g = granted(h, s);
      switch (random(4)) {
        case 0:
          h.report(s, static_cast<uint32_t>(random(3)), 0, open_gate(h, s) ? g - (g > 0) : g);
          break;
        case 1:
          if (open_gate(h, s)) h.quietly(s, 2, static_cast<uint32_t>(random(3)));
          h.page(s).report.guest_hints =
              LaunchHints{.predicted = 2, .remaining_ns = kMs, .longest_ns = random(kMs)};
          break;
        default:
          if (h.wake != kNever) h.time(std::max(h.now, h.wake));
      }
      int holders = 0, visitors = 0;
      for (size_t k = 0; k < 4; ++k) {
        holders += h.scheduler->stats(h.now, vgpus[k]).holds;
        visitors +=
            open_gate(h, sessions[k]) && level(h, sessions[k]) == 2 && !stands_by(h, sessions[k]);
      }
      ASSERT_LE(holders, 1) << row.name;
      ASSERT_LE(visitors, 1) << row.name;
    }
    // Whoever waits for a place gets it when all have left.
    for (const SessionId x : sessions) h.report(x, 2, 0, granted(h, x));
    int open = 0;
    for (const SessionId x : sessions) open += open_gate(h, x);
    EXPECT_GE(open, 1) << row.name;
    const std::string did = h.take();
    EXPECT_EQ(did.find("policy?"), std::string::npos) << row.name;
    EXPECT_EQ(did.find("lie"), std::string::npos) << row.name;
  }
}

}  // namespace
}  // namespace sluice::core
