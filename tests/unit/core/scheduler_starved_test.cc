// SPDX-License-Identifier: Apache-2.0
// core::Scheduler and workers without a processor: what their deadlines excuse, and what they do
// not; and sessions that go before their deadline (mediator/core/sharing/deadlines.h).
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/unit/core/scheduler_host.h"

namespace sluice::core {
namespace {

constexpr uint64_t kLimit = 2000 * kMs;  // SchedulerConfig::evict_end_ns

// v was granted, and has just been evicted; w waits. v's worker reports nothing by itself.
struct Starved : Host {
  Starved() {
    v = vgpu(), w = vgpu();
    a = session(v), b = session(w);
    report(a, 2, 1);
    now = 500 * kMs;
    quietly(a, 2, 1);
    report(b, 1, 0);
    EXPECT_NE(take().find("evict0="), std::string::npos);
    evicted_ns = now;
  }
  // Time passes, and at each step the kernel's count for a's worker is what `count` says. When a
  // was ended, since its eviction; 0: it was not, for so long.
  uint64_t ended_after(uint64_t for_ns, const std::function<uint64_t()>& count) {
    const uint64_t until = now + for_ns;
    while (now < until) {
      now += 10 * kMs;
      page(a).starved_ns = count();
      if (wake <= now) scheduler->on_timer(now, queue);
      drain();
      if (take().find("end0") != std::string::npos) return now - evicted_ns;
    }
    return 0;
  }
  VgpuId v, w;
  SessionId a, b;
  uint64_t evicted_ns;
};

TEST(SchedulerStarved, WhoseWorkerHadAProcessorIsEndedAtItsDeadline) {
  Starved h;
  // What it had to do without before the warning says nothing of this eviction.
  EXPECT_EQ(h.ended_after(2 * kLimit, [] { return 60'000 * kMs; }), kLimit);
}

TEST(SchedulerStarved, WhoseWorkerHadNoneMayLeaveLater) {
  Starved h;
  EXPECT_EQ(h.ended_after(kLimit + 500 * kMs, [&] { return h.now - h.evicted_ns; }), 0u);
  h.report(h.a, 2, 0, 1);  // now it had one
  EXPECT_NE(h.page(h.b).grant & SLUICE_GRANT_OPEN, 0u);
  EXPECT_EQ(h.ended_after(2 * kLimit, [] { return 0; }), 0u);
}

TEST(SchedulerStarved, ItsTimeGoesOnWhereItHasAProcessorAgain) {
  Starved h;
  const uint64_t spent = 700 * kMs;
  const uint64_t ended =
      h.ended_after(2 * kLimit, [&] { return std::min(h.now - h.evicted_ns, spent); });
  EXPECT_GE(ended, kLimit + spent - 100 * kMs) << "but for what was before the warning";
  EXPECT_LE(ended, kLimit + spent + 10 * kMs);
}

// One that starves itself, with the help of whatever.
TEST(SchedulerStarved, WhoStarvesForEverGainsItsLimitOnce) {
  for (const uint64_t times : {uint64_t{1}, uint64_t{1000}}) {
    Starved h;
    const uint64_t ended =
        h.ended_after(10 * kLimit, [&] { return times * (h.now - h.evicted_ns); });
    EXPECT_GE(ended, 2 * kLimit);
    EXPECT_LE(ended, 2 * kLimit + 100 * kMs);
    EXPECT_EQ(h.scheduler->overstay_ns(h.a, EndReason::kDidNotLeave), 2 * kLimit)
        << "it pays for that";
  }
}

TEST(SchedulerStarved, NobodyIsAskedMoreOftenThanWarningsCome) {
  Starved h;
  size_t asked = 0;
  h.on_asked = [&] { ++asked; };
  h.ended_after(10 * kLimit, [&] { return h.now - h.evicted_ns; });
  EXPECT_GE(asked, 2u);
  EXPECT_LE(asked, 20u);
}

TEST(SchedulerStarved, WithoutAnAnswerItEndsAllTheSame) {
  Starved h;
  h.answers = false;
  const uint64_t ended = h.ended_after(10 * kLimit, [] { return 0; });
  EXPECT_GT(ended, kLimit);
  EXPECT_LE(ended, 2 * kLimit + 10 * kMs);
}

// ---- gone before the deadline ----------------------------------------------------------------

struct Stayed : Starved {
  // Of `s`, which is gone so long after the last eviction; of that its worker starved so long.
  uint64_t take(SessionId s, uint64_t after_ns, uint64_t starved_ns = 0) {
    const auto starved = [&] { return std::min(starved_ns, now - evicted_ns); };
    EXPECT_EQ(ended_after(evicted_ns + after_ns - now, starved), 0u);
    return scheduler->take_stay_ns(now, s);
  }
  // a's leaves so late; it has its next turn, and is evicted again.
  void a_leaves_late(uint64_t after_ns) {
    now = evicted_ns + after_ns;
    report(a, 2, 0, SLUICE_GRANT_GENERATION(page(a).grant));
    now += kMs;
    report(b, 0, 0, SLUICE_GRANT_GENERATION(page(b).grant));
    for (int i = 0; i < 100 && !(page(a).grant & SLUICE_GRANT_OPEN); ++i) time(wake);
    ASSERT_NE(page(a).grant & SLUICE_GRANT_OPEN, 0u);
    report(a, 2, 1);
    now += 500 * kMs;
    quietly(a, 2, 1);
    report(b, 1, 0);
    for (int i = 0; i < 100 && page(a).grant & SLUICE_GRANT_OPEN; ++i) time(wake);
    ASSERT_EQ(page(a).grant & SLUICE_GRANT_OPEN, 0u);
    evicted_ns = now;
    take_words();
  }
  void take_words() { static_cast<void>(Host::take()); }
};

// The kernel is asked at 0.1, 0.2, 0.4, ... s; what came after the last answer is not known.
TEST(SchedulerStayed, WhoGoesWithItsLaunchOnTheGpuPaysFromWhenItHadToLeave) {
  for (const uint64_t after : {300 * kMs, 1800 * kMs}) {
    Stayed h;
    const uint64_t stay = h.take(h.a, after);
    EXPECT_LE(stay, after);
    EXPECT_GE(stay, after / 2);
  }
  Stayed h;
  EXPECT_EQ(h.take(h.a, 180 * kMs), 0u) << "it was hardly late";
  EXPECT_EQ(h.take(h.b, 1800 * kMs), 0u) << "who waits for it";
  EXPECT_EQ(h.take(77, 1800 * kMs), 0u);
}

TEST(SchedulerStayed, WhatLaunchesHaveTakenToEndIsFree) {
  Stayed h;
  h.a_leaves_late(400 * kMs);
  EXPECT_EQ(h.take(h.a, 380 * kMs), 0u) << "a long launch, and its program was killed";
  const uint64_t stay = h.take(h.a, 1000 * kMs);
  EXPECT_LE(stay, 600 * kMs);
  EXPECT_GE(stay, 350 * kMs);
  Stayed new_one;
  EXPECT_GE(new_one.take(new_one.a, 380 * kMs), 190 * kMs);
}

TEST(SchedulerStayed, OfSeveralSessionsTheTimeCountsOnce) {
  Stayed h;
  const SessionId c = h.session(h.v);
  h.quietly(c, 1, 1);
  h.a_leaves_late(0);  // both are evicted now
  EXPECT_GE(h.take(h.a, 500 * kMs), 390 * kMs);
  h.remove(h.a);
  EXPECT_EQ(h.take(c, 500 * kMs), 0u);
  const uint64_t more = h.take(c, 1000 * kMs);
  EXPECT_GE(more, 300 * kMs);
  EXPECT_LE(more, 600 * kMs);
}

TEST(SchedulerStayed, WhoWasEndedForItPaysOnce) {
  Stayed h;
  EXPECT_GT(h.ended_after(2 * kLimit, [] { return 0; }), 0u);
  EXPECT_EQ(h.scheduler->take_stay_ns(h.now, h.a), 0u);
}

// What its worker had no processor for, what others' faults have stopped, what is not known.
TEST(SchedulerStayed, WhatIsExcusedIsFree) {
  Stayed starved;
  EXPECT_EQ(starved.take(starved.a, 1500 * kMs, 1450 * kMs), 0u);
  Stayed for_a_while;
  const uint64_t stay = for_a_while.take(for_a_while.a, 2300 * kMs, 700 * kMs);
  EXPECT_LE(stay, 1700 * kMs) << "but for what was before the warning";
  EXPECT_GE(stay, 900 * kMs);
  Stayed stopped;
  EXPECT_EQ(stopped.ended_after(400 * kMs, [] { return 0; }), 0u);
  stopped.scheduler->on_stall(stopped.now, stopped.w, 150 * kMs, stopped.queue);
  stopped.drain();
  EXPECT_EQ(stopped.take(stopped.a, 500 * kMs), 0u);
  Stayed unknown;
  unknown.answers = false;
  EXPECT_EQ(unknown.take(unknown.a, 1800 * kMs), 0u);
}

// Its worker ends before it is answered for.
TEST(SchedulerStarved, ASessionThatHasGoneKeepsNobodyWaiting) {
  Starved h;
  h.answers = false;
  EXPECT_EQ(h.ended_after(kLimit + 50 * kMs, [] { return 0; }), 0u);
  h.remove(h.a);
  EXPECT_NE(h.page(h.b).grant & SLUICE_GRANT_OPEN, 0u);
  h.scheduler->on_starved(h.now, h.a, 0, h.queue);  // too late
  h.drain();
  EXPECT_EQ(h.take().find("end"), std::string::npos);
}

}  // namespace
}  // namespace sluice::core
