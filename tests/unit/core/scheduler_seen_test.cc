// SPDX-License-Identifier: Apache-2.0
// core::Scheduler and what the host sees of the GPU by itself: who is ended for being there, and
// who is not. Each test is a row of the table in mediator/core/sharing/deadlines.h.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/core/scheduler_host.h"

namespace sluice::core {
namespace {

// vGPU v was granted, and is evicted; w waits.
struct Seen : Host {
  explicit Seen(SchedulerConfig config = {}) : Host(config) {
    v = vgpu(), w = vgpu();
    a = session(v), b = session(w);
    report(a, 2, 1);
    now = 500 * kMs;
    quietly(a, 2, 1);
    report(b, 1, 0);
    take();
  }
  // Looks every 10 ms for so long; timers ring meanwhile. What was done about sessions that are
  // ended.
  std::string look(SessionId running, uint64_t for_ns) {
    std::string ended;
    for (const uint64_t end = now + for_ns; now < end;) {
      now += 10 * kMs;
      if (wake <= now) scheduler->on_timer(now, queue), drain();
      scheduler->on_seen(now, running, queue);
      drain();
      const std::string line = take();
      for (size_t at = line.find("end"); at != line.npos; at = line.find("end", at + 1))
        ended += line.substr(at, 4);
    }
    return ended;
  }
  // The same without the host's own view.
  std::string wait(uint64_t for_ns) {
    std::string ended;
    for (const uint64_t end = now + for_ns; now < end;) {
      now += 10 * kMs;
      if (wake <= now) scheduler->on_timer(now, queue), drain();
      const std::string line = take();
      for (size_t at = line.find("end"); at != line.npos; at = line.find("end", at + 1))
        ended += line.substr(at, 4);
    }
    return ended;
  }
  // a's worker reports that it has left; w is granted and its launch is queued, then it is
  // evicted.
  void a_reports_left_and_b_is_evicted() {
    report(a, 2, 0, 1);
    EXPECT_TRUE(scheduler->stats(now, w).holds);
    quietly(b, 2, 1);
    now += 100 * kMs;
    scheduler->on_timer(now, queue);
    drain();
    EXPECT_NE(take().find("evict1="), std::string::npos) << "b is evicted";
  }
  VgpuId v, w;
  SessionId a, b;
};

TEST(SchedulerSeen, WhoRunsOnAfterItLeftIsEndedAndItsSuccessorIsNot) {
  Seen h;
  h.a_reports_left_and_b_is_evicted();
  EXPECT_EQ(h.look(h.a, 1800 * kMs), "");
  EXPECT_EQ(h.look(h.a, 400 * kMs), "end0") << "2 s in sum, less what leaks away";
  EXPECT_EQ(h.scheduler->stats(h.now, h.w).overdue, 0u) << "its launch was not on the GPU";
  h.remove(h.a);
  // Now b itself is there, and its own deadline begins only now.
  EXPECT_EQ(h.look(h.b, 1700 * kMs), "");
  EXPECT_EQ(h.scheduler->stats(h.now, h.w).ended, 0u);
  EXPECT_EQ(h.look(h.b, 500 * kMs), "end1");
}

TEST(SchedulerSeen, AVictimThatIsServedAfterwardsKeepsItsSession) {
  Seen h;
  h.a_reports_left_and_b_is_evicted();
  EXPECT_EQ(h.look(h.a, 2300 * kMs), "end0");
  h.remove(h.a);
  h.report(h.b, 1, 0, 1);
  EXPECT_EQ(h.look(h.b, 10'000 * kMs), "");
  EXPECT_EQ(h.scheduler->stats(h.now, h.w).ended, 0u);
}

// However rarely the host looks.
TEST(SchedulerSeen, AVictimThatGoesMeanwhilePaysNothing) {
  for (const uint64_t between : {10 * kMs, 190 * kMs}) {
    Seen h;
    h.scheduler->on_seen(h.now, kNoSession, h.queue);
    h.a_reports_left_and_b_is_evicted();
    for (const uint64_t end = h.now + 1500 * kMs; h.now < end;) {
      h.wait(between);
      ASSERT_EQ(h.scheduler->take_stay_ns(h.now, h.b), 0u);
      h.scheduler->on_seen(h.now, h.a, h.queue);
      h.drain();
    }
  }
}

// No report of b's changes anything: the host sees that it is b.
TEST(SchedulerSeen, WhoHoldsTheGpuAndSaysThatItsLaunchHasNotBegunIsEnded) {
  Seen h;
  h.a_reports_left_and_b_is_evicted();
  for (int i = 0; i < 10; ++i) h.report(h.b, 7, 1);
  h.take();
  EXPECT_EQ(h.look(h.b, 2100 * kMs), "end1");
  EXPECT_EQ(h.scheduler->stats(h.now, h.v).ended, 0u);
}

TEST(SchedulerSeen, WhereNobodyIsKnownTheReportsDecide) {
  Seen h;
  h.a_reports_left_and_b_is_evicted();
  EXPECT_EQ(h.look(kNoSession, 2100 * kMs), "end1");
  EXPECT_EQ(h.scheduler->stats(h.now, h.v).ended, 0u);
}

TEST(SchedulerSeen, ByTheClockAloneOnlyWhoReportsLaunchesInFlightIsEnded) {
  Seen h;
  EXPECT_EQ(h.wait(1900 * kMs), "");
  EXPECT_EQ(h.wait(200 * kMs), "end0");
  EXPECT_EQ(h.scheduler->stats(h.now, h.w).ended, 0u) << "it waits";
  h.remove(h.a);
  EXPECT_TRUE(h.scheduler->stats(h.now, h.w).holds);
}

// Its worker got no processor between its report and the GPU's release. The limit of a vGPU that
// has harmed others lately is short.
TEST(SchedulerSeen, WhoHadNoProcessorToReleaseTheGpuIsNotEnded) {
  for (const uint64_t limit : {2000 * kMs, 100 * kMs}) {
    Seen h;
    h.scheduler->set_evict_end(h.v, limit);
    h.a_reports_left_and_b_is_evicted();
    const uint64_t from = h.now;
    for (int i = 0; i < 14; ++i) {  // for 1.4 times the limit
      h.page(h.a).starved_ns = h.now - from;
      EXPECT_EQ(h.look(h.a, limit / 10), "") << limit / kMs;
    }
    h.look(kNoSession, 20'000 * kMs);
  }
}

TEST(SchedulerSeen, WhoStarvesForEverGainsItsLimitOnce) {
  Seen h;
  h.a_reports_left_and_b_is_evicted();
  const uint64_t from = h.now;
  std::string ended;
  while (ended.empty() && h.now < from + 20'000 * kMs) {
    h.page(h.a).starved_ns = 1000 * (h.now - from);
    ended = h.look(h.a, 10 * kMs);
  }
  EXPECT_EQ(ended, "end0");
  EXPECT_LE(h.now - from, 4600 * kMs);
  EXPECT_EQ(h.scheduler->overstay_ns(h.a, EndReason::kDidNotLeave), 2000 * kMs);
  EXPECT_GE(h.scheduler->overstay_ns(h.a, EndReason::kRanUngranted), 4000 * kMs)
      << "it pays for what was excused, too";
}

// It is gone for a while after each question, so that all that it ran is excused by the next one.
TEST(SchedulerSeen, WhoStarvesAndLeavesInBetweenGainsItsLimitOnce) {
  Seen h;
  h.a_reports_left_and_b_is_evicted();
  const uint64_t from = h.now;
  size_t asked = 0;
  h.on_asked = [&] { ++asked; };
  std::string ended;
  while (ended.empty() && h.now < from + 60'000 * kMs) {
    const size_t before = asked;
    h.page(h.a).starved_ns = h.now - from;
    ended = h.look(h.a, 10 * kMs);
    for (int i = 0; asked != before && i < 110; ++i) h.look(kNoSession, 10 * kMs);
  }
  EXPECT_EQ(ended.substr(0, 4), "end0");
}

TEST(SchedulerSeen, WithoutAnAnswerItEndsAllTheSame) {
  Seen h;
  h.answers = false;
  h.a_reports_left_and_b_is_evicted();
  EXPECT_EQ(h.look(h.a, 4600 * kMs), "end0");
}

// sluiced had no processor itself, but for one look at the GPU.
TEST(SchedulerSeen, OneSampleEndsNobody) {
  Seen h;
  h.scheduler->set_evict_end(h.v, 100 * kMs);
  h.a_reports_left_and_b_is_evicted();
  h.scheduler->on_seen(h.now, kNoSession, h.queue);
  h.now += 300 * kMs;
  h.scheduler->on_seen(h.now, h.a, h.queue);
  h.drain();
  EXPECT_EQ(h.take().find("end0"), std::string::npos);
  EXPECT_EQ(h.look(h.a, 400 * kMs), "end0") << "who is there on and on is";
}

// Two that help each other: while the one without a grant is seen the other's time stands still,
// and no longer.
TEST(SchedulerSeen, AnAccompliceBuysOnlyTheTimeForWhichItIsEndedItself) {
  Seen h;
  h.a_reports_left_and_b_is_evicted();
  std::string ended;
  const uint64_t begin = h.now;
  while (ended.find("end1") == ended.npos && h.now - begin < 60'000 * kMs) {
    ended += h.look(h.a, 10 * kMs);
    ended += h.look(h.b, 10 * kMs);
    if (ended == "end0" && h.page(h.a).grant != ~0ull) h.remove(h.a), h.page(h.a).grant = ~0ull;
  }
  EXPECT_EQ(ended.substr(0, 4), "end1") << "half of the time was its own";
  EXPECT_LE(h.now - begin, 4100 * kMs);
}

// Half of the time without a grant, the other half granted: it never leaves a pause of its own
// accord.
TEST(SchedulerSeen, GrantsInBetweenDoNotWashItClean) {
  Seen h;
  h.report(h.a, 2, 0, 1);
  std::string ended;
  const uint64_t begin = h.now;
  while (ended.empty() && h.now - begin < 60'000 * kMs) {
    // Whoever holds leaves when evicted; a is seen whatever it said.
    for (const SessionId s : {h.a, h.b}) {
      const uint64_t word = h.page(s).grant;
      const bool open = word & SLUICE_GRANT_OPEN;
      h.report(s, 2, open ? 1 : 0, SLUICE_GRANT_GENERATION(word) - (open ? 1 : 0));
    }
    ended += h.look(h.a, 10 * kMs);
  }
  EXPECT_EQ(ended, "end0");
  EXPECT_LE(h.now - begin, 10'000 * kMs);
  EXPECT_EQ(h.scheduler->stats(h.now, h.w).ended, 0u);
}

// Its kernel had ended, and the engine was released a little late, again and again, for an hour.
TEST(SchedulerSeen, DelaysOfAnHonestWorkerNeverAddUp) {
  Seen h;
  h.report(h.a, 2, 0, 1);
  std::string ended;
  for (int i = 0; i < 18'000; ++i) {
    h.now += 190 * kMs;
    h.scheduler->on_seen(h.now, kNoSession, h.queue);
    h.drain();
    h.take();
    ended += h.look(h.a, 10 * kMs);
  }
  EXPECT_EQ(ended, "");
}

TEST(SchedulerSeen, JustAfterItLeftNothingIsCounted) {
  Seen h;
  h.look(h.a, 20 * kMs);
  h.report(h.a, 2, 0, 1);
  h.take();
  SchedulerConfig config;
  for (int i = 0; i < 4; ++i) {
    h.now += kMs;
    h.scheduler->on_seen(h.now, h.a, h.queue);
    h.drain();
  }
  EXPECT_EQ(h.take().find("end"), std::string::npos);
}

// Gates counted as open while sluiced had no processor: what was launched then may run on.
TEST(SchedulerSeen, WhatBeganWhileSluicedWasSilentMayEnd) {
  Seen h;
  h.a_reports_left_and_b_is_evicted();
  h.scheduler->on_silence(h.now);
  EXPECT_EQ(h.look(h.a, 3900 * kMs), "") << "its deadline, and then its deadline";
  EXPECT_EQ(h.look(h.a, 500 * kMs), "end0");
  EXPECT_EQ(h.scheduler->stats(h.now, h.w).ended, 0u) << "meanwhile nobody else pays for it";
}

// A host that did not look for minutes knows nothing of them.
TEST(SchedulerSeen, OneLookStandsForABoundedTime) {
  Seen h;
  h.look(h.b, 10 * kMs);
  h.a_reports_left_and_b_is_evicted();
  const uint64_t evicted_ns = h.now;
  h.now += 1500 * kMs;
  h.scheduler->on_seen(h.now, h.a, h.queue);
  h.drain();
  EXPECT_EQ(h.take().find("end"), std::string::npos);
  EXPECT_EQ(h.scheduler->stats(h.now, h.v).ended, 0u);
  EXPECT_EQ(h.wake, evicted_ns + 300 * kMs)
      << "its first deadline of 100 ms: excused for no more than one look's time";
  // A session that is gone, and one that never was.
  h.remove(h.a);
  h.scheduler->on_seen(h.now, h.a, h.queue);
  h.scheduler->on_seen(h.now, 12345, h.queue);
  h.drain();
}

}  // namespace
}  // namespace sluice::core
