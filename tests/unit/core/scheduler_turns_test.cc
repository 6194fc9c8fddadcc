// SPDX-License-Identifier: Apache-2.0
// The scheduler where turns are priorities (mediator/core/sharing/turns.h), step by step.
#include <gtest/gtest.h>

#include "tests/unit/core/scheduler_host.h"

namespace sluice::core {
namespace {

SchedulerConfig turns() {
  SchedulerConfig c;
  c.policy = "rr";
  c.policy_config.quantum_ns = 2 * kMs;
  c.turns_by_priority = true;
  return c;
}
bool open_gate(const Host& h, SessionId s) { return h.pages[s].grant & SLUICE_GRANT_OPEN; }
uint32_t level(const Host& h, SessionId s) { return SLUICE_GRANT_LEVEL(h.pages[s].grant); }
bool is_above(const Host& h, SessionId s) { return level(h, s) == 2; }
uint32_t granted(const Host& h, SessionId s) { return SLUICE_GRANT_GENERATION(h.pages[s].grant); }

// Two vGPUs with a session each, both backlogged; a has the turn.
struct TurnsTest : testing::Test {
  TurnsTest() : h(turns()), a(h.vgpu()), b(h.vgpu()), s(h.session(a)), t(h.session(b)) {
    h.report(s, 1, 0);
    EXPECT_TRUE(open_gate(h, s));
    h.quietly(s, 4, 2);
    h.report(t, 1, 0);
  }
  // Until b has the turn.
  void to_b() {
    for (int i = 0; i < 10 && !h.scheduler->stats(h.now, b).holds; ++i) h.time(h.wake);
    ASSERT_TRUE(h.scheduler->stats(h.now, b).holds);
  }
  Host h;
  VgpuId a, b;
  SessionId s, t;
};

TEST_F(TurnsTest, TheNextIsGrantedAboveWhileTheOneBeforeIsStillThere) {
  EXPECT_FALSE(open_gate(h, t));
  h.take();
  to_b();
  EXPECT_TRUE(open_gate(h, t));
  EXPECT_TRUE(is_above(h, t));
  // a fills what b leaves idle; nothing of it was evicted.
  EXPECT_TRUE(open_gate(h, s));
  EXPECT_FALSE(is_above(h, s));
  EXPECT_EQ(h.pages[s].evict, 0u);
  EXPECT_FALSE(h.scheduler->stats(h.now, a).holds);
  EXPECT_EQ(h.scheduler->stats(h.now, a).evictions, 0u);
}

TEST_F(TurnsTest, AVisitLeavesTheOtherAsItWas) {
  to_b();
  const uint64_t words[] = {h.pages[s].grant, h.pages[s].evict};
  h.now += 100'000;
  h.report(t, 0, 0);  // its launch has ended
  EXPECT_TRUE(h.scheduler->stats(h.now, a).holds);
  EXPECT_FALSE(open_gate(h, t));
  EXPECT_EQ(h.pages[s].grant, words[0]);
  EXPECT_EQ(h.pages[s].evict, words[1]);
  EXPECT_EQ(h.scheduler->stats(h.now, a).evictions, 0u);
}

TEST_F(TurnsTest, AfterTheLingerGatesCloseAndTheHolderGoesDown) {
  to_b();
  const uint32_t old_a = granted(h, s), old_b = granted(h, t);
  h.quietly(t, 3, 2);
  h.time(h.now + SchedulerConfig{}.linger_ns);
  EXPECT_FALSE(open_gate(h, s));
  EXPECT_EQ(h.pages[s].evict, SLUICE_EVICT_ALL_SMS(old_a));
  EXPECT_TRUE(open_gate(h, t));
  EXPECT_FALSE(is_above(h, t));
  EXPECT_EQ(granted(h, t), old_b + 1);
  EXPECT_TRUE(h.pages[t].grant & SLUICE_GRANT_RECALL);
  EXPECT_EQ(h.pages[t].evict, SLUICE_EVICT_ALL_SMS(old_b));
  EXPECT_TRUE(h.scheduler->stats(h.now, b).holds);
  EXPECT_EQ(h.scheduler->stats(h.now, a).evictions, 1u);
  // b's older launches have left: it is no eviction of b's turn.
  h.report(t, 3, 1, old_b);
  EXPECT_TRUE(h.scheduler->stats(h.now, b).holds);
  EXPECT_EQ(h.scheduler->stats(h.now, b).evictions, 0u);
}

// a's turn comes before all that it had launched has left: it is granted anew and nothing waits.
TEST_F(TurnsTest, WhoHasNotLeftYetIsRecalledIntoItsTurn) {
  to_b();
  const uint32_t old = granted(h, s);
  h.time(h.now + SchedulerConfig{}.linger_ns);
  ASSERT_FALSE(open_gate(h, s));
  h.report(t, 0, 0, granted(h, t) - 1);
  ASSERT_TRUE(h.scheduler->stats(h.now, a).holds);
  EXPECT_TRUE(open_gate(h, s));
  EXPECT_EQ(granted(h, s), old + 1);
  EXPECT_TRUE(h.pages[s].grant & SLUICE_GRANT_RECALL);
  // Evicted again before that: both generations have to leave, and it counts as one.
  h.quietly(s, 4, 2);
  h.report(t, 1, 0);
  to_b();
  h.time(h.now + SchedulerConfig{}.linger_ns);
  EXPECT_EQ(h.pages[s].evict, SLUICE_EVICT_ALL_SMS(old + 1));
  h.report(s, 4, 1, old);
  h.report(s, 4, 0, old + 1);
  EXPECT_EQ(h.scheduler->stats(h.now, a).ended, 0u);
}

// Who does not leave is ended, though turns go on meanwhile; who waits behind it is not.
TEST_F(TurnsTest, WhoNeverLeavesIsEndedAndTheOneBehindItIsNot) {
  std::string did;
  for (int i = 0; i < 20000 && did.find("end") == std::string::npos; ++i) {
    // Neither leaves: a spins, and b's launches do not come on to the GPU.
    h.quietly(s, 4, 2), h.quietly(t, 4, 2);
    h.time(std::max(h.wake, h.now + 1));
    did = h.take();
  }
  EXPECT_NE(did.find("end" + std::to_string(s) + " "), std::string::npos) << did;
  EXPECT_EQ(h.scheduler->stats(h.now, a).ended, 1u);
  EXPECT_EQ(h.scheduler->stats(h.now, b).ended, 0u);
  EXPECT_GE(h.now, SchedulerConfig{}.evict_end_ns);
  EXPECT_LE(h.now, 2 * SchedulerConfig{}.evict_end_ns + 100 * kMs);
  h.remove(s);
  EXPECT_TRUE(h.scheduler->stats(h.now, b).holds);
}

// What is left of a when its turn is over waits below b, and costs a nothing. What is left of b is
// then above a, so b pays for it.
TEST_F(TurnsTest, WhoRunsOnAboveTheHolderPaysForIt) {
  const uint64_t linger = SchedulerConfig{}.linger_ns;
  to_b();
  h.quietly(t, 3, 1);
  h.time(h.now + linger);
  ASSERT_FALSE(open_gate(h, s));
  EXPECT_EQ(level(h, t), 1u);
  const auto charged = [&](VgpuId v) { return h.scheduler->stats(h.now, v).charged_sm_ns; };
  const uint64_t of_a = charged(a), late = 5 * kMs;
  h.now += late;
  h.report(s, 4, 0, granted(h, s));
  EXPECT_EQ(charged(a), of_a);
  h.quietly(s, 4, 2);
  for (int i = 0; i < 10 && !h.scheduler->stats(h.now, a).holds; ++i) h.time(h.wake);
  ASSERT_TRUE(h.scheduler->stats(h.now, a).holds);
  EXPECT_EQ(level(h, s), 2u) << "b lingers";
  h.time(h.now + linger);
  ASSERT_FALSE(open_gate(h, t));
  EXPECT_EQ(level(h, s), 0u);
  const uint64_t of_b = charged(b);
  h.now += late;
  h.report(t, 3, 0, granted(h, t));
  EXPECT_GE(charged(b) - of_b, late - kMs);
  EXPECT_LE(charged(b) - of_b, late + kMs);
}

// A launch of a outlasts b's turn, a's next one and b's after that. a has paid for its own.
TEST_F(TurnsTest, TurnsOfItsOwnAreNotChargedAgain) {
  const uint64_t linger = SchedulerConfig{}.linger_ns;
  const auto charged = [&](VgpuId v) { return h.scheduler->stats(h.now, v).charged_sm_ns; };
  to_b();
  h.quietly(t, 3, 1);
  h.time(h.now + linger);
  ASSERT_FALSE(open_gate(h, s));
  h.report(t, 0, 0, granted(h, t));
  ASSERT_TRUE(h.scheduler->stats(h.now, a).holds);
  const uint64_t of_a = charged(a), of_b = charged(b), begin = h.now;
  h.quietly(s, 4, 2);
  h.report(t, 1, 0);
  to_b();
  const uint64_t held = h.now - begin;
  ASSERT_GE(held, kMs);
  h.quietly(t, 3, 1);
  h.time(h.now + linger);
  ASSERT_FALSE(open_gate(h, s));
  h.now += 5 * kMs;
  h.report(s, 4, 0, granted(h, s));
  EXPECT_GE(charged(a) - of_a, held - kMs / 2);
  EXPECT_LE(charged(a) - of_a, held + kMs / 2);
  h.time(h.now + 1);
  EXPECT_GE(charged(b) - of_b, 5 * kMs);
}

TEST_F(TurnsTest, SessionsThatGoLeaveNothingBehind) {
  to_b();
  h.remove(s);  // lingering
  EXPECT_TRUE(h.scheduler->stats(h.now, b).holds);
  h.time(h.now + SchedulerConfig{}.linger_ns);
  h.remove(t);  // with the turn
  EXPECT_FALSE(h.scheduler->stats(h.now, b).holds);
  const SessionId u = h.session(a);
  h.report(u, 1, 0);
  EXPECT_TRUE(open_gate(h, u));
  EXPECT_FALSE(is_above(h, u));
  EXPECT_EQ(h.take().find("policy?"), std::string::npos);
}

TEST_F(TurnsTest, ASessionThatComesMeanwhileHasItsVgpusGrant) {
  to_b();
  EXPECT_TRUE(open_gate(h, h.session(a)));  // lingering
  const SessionId of_b = h.session(b);
  EXPECT_TRUE(open_gate(h, of_b));
  EXPECT_TRUE(is_above(h, of_b));
  h.time(h.now + SchedulerConfig{}.linger_ns);
  EXPECT_FALSE(open_gate(h, h.session(a)));
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
          break;
        default:
          if (h.wake != kNever) h.time(std::max(h.now, h.wake));
      }
      int holders = 0, with_above = 0;
      for (int k = 0; k < 4; ++k) {
        const bool holds = h.scheduler->stats(h.now, vgpus[static_cast<size_t>(k)]).holds;
        holders += holds;
        with_above += is_above(h, sessions[static_cast<size_t>(k)]) &&
                      open_gate(h, sessions[static_cast<size_t>(k)]);
        EXPECT_TRUE(!holds || open_gate(h, sessions[static_cast<size_t>(k)])) << row.name;
      }
      ASSERT_LE(holders, 1) << row.name;
      ASSERT_LE(with_above, 1) << row.name;
    }
    const std::string did = h.take();
    EXPECT_EQ(did.find("policy?"), std::string::npos) << row.name;
    EXPECT_EQ(did.find("lie"), std::string::npos) << row.name;
  }
}

}  // namespace
}  // namespace sluice::core
