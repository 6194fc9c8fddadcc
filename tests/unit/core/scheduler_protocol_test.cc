// SPDX-License-Identifier: Apache-2.0
// core::Scheduler step by step: which words it writes, in which order, and what it does with
// reports. (Shares and random workloads: tests/sim; the protocol itself: tests/model.)
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/core/scheduler_host.h"

namespace sluice::core {
namespace {

TEST(Scheduler, UnknownPolicy) { EXPECT_EQ(Scheduler::make({.policy = "nonsense"}, 0), nullptr); }

TEST(Scheduler, AloneTheGateOpensOnceAndStaysOpen) {
  Host h;
  const auto s = h.session(h.vgpu());
  EXPECT_EQ(h.take(), "grant0c!0");
  h.report(s, 1, 0);
  EXPECT_EQ(h.take(), "grant0o1 ring0");
  h.report(s, 0, 0);
  h.report(s, 3, 1);
  EXPECT_EQ(h.take(), "");
  EXPECT_EQ(h.wake, kNever);
}

// One that is made anew is what it was: here its maximum is used up. (Each life had a full bucket.)
TEST(Scheduler, OneThatIsMadeAnewOwesWhatItOwed) {
  for (const std::string_view again : {"a", "b"}) {
    Host h;
    const policy::VgpuShare capped{.max_permille = 100};
    const auto v = *h.scheduler->add_vgpu(h.now, capped, h.queue, "a");
    const auto s = h.session(v);
    h.report(s, 2, 0);
    h.take();
    h.quietly(s, 2, 0);
    while (h.page(s).evict == 0) h.time(h.wake);
    h.report(s, 2, 0, 1);
    h.scheduler->on_session_removed(h.now, s, h.queue);
    h.scheduler->remove_vgpu(h.now, v, h.queue, "a");
    const auto w = *h.scheduler->add_vgpu(h.now, capped, h.queue, again);
    const auto t = h.session(w);
    h.report(t, 1, 0);
    EXPECT_EQ((h.page(t).grant & SLUICE_GRANT_OPEN) != 0, again == "b");
    EXPECT_EQ(w == v, again == "a");
    // A second later it would be forgotten, too.
    h.now += 1000 * kMs;
    EXPECT_EQ(*h.scheduler->add_vgpu(h.now, capped, h.queue, "c") == v, again == "b");
  }
}

// Names that do not come back keep no ids from others.
TEST(Scheduler, WhoHasGoneMakesRoom) {
  SchedulerConfig config;
  config.max_vgpus = 3;
  Host h(config);
  for (int i = 0; i < 20; ++i) {
    const std::string name = "v" + std::to_string(i);
    const auto v = h.scheduler->add_vgpu(h.now, {}, h.queue, name);
    ASSERT_TRUE(v) << i;
    h.scheduler->remove_vgpu(h.now, *v, h.queue, name);
  }
}

TEST(Scheduler, EngagesReadsAndEvictsInTheProtocolsOrder) {
  Host h;
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 2, 1);
  h.take();
  h.now = 500 * kMs;  // long alone
  h.quietly(a, 2, 1);
  h.report(b, 1, 0);
  EXPECT_EQ(h.take(), "grant0o!1 read0 grant0c!1 evict0=1 read0") << "it is still there";
  h.report(a, 2, 0, 1);
  EXPECT_EQ(h.take(), "grant1o!1 ring1");
  EXPECT_EQ(h.scheduler->stats(h.now, 0).evictions, 1u);
  EXPECT_EQ(h.scheduler->eviction_latency(0).count(), 1u);
  // Its turn comes again with a new generation.
  h.quietly(b, 1, 0);
  h.time(h.wake);
  EXPECT_EQ(h.take(), "grant1c!1 evict1=1 read1 grant0o!2 ring0");
}

TEST(Scheduler, AwaitsReportsOfHoldersThatOthersWaitFor) {
  Host h;
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 2, 1);
  EXPECT_FALSE(h.scheduler->awaits(a)) << "nobody waits";
  h.quietly(a, 2, 1);
  h.report(b, 1, 0);
  EXPECT_TRUE(h.scheduler->awaits(a)) << "it holds";
  EXPECT_FALSE(h.scheduler->awaits(b)) << "it waits itself";
  h.time(h.wake);
  ASSERT_EQ(h.page(a).evict, SLUICE_EVICT_ALL_SMS(1));
  EXPECT_TRUE(h.scheduler->awaits(a)) << "it has to leave";
  h.quietly(b, 1, 0);
  h.report(a, 2, 0, 1);
  EXPECT_FALSE(h.scheduler->awaits(a)) << "it has left";
  EXPECT_TRUE(h.scheduler->awaits(b));
  EXPECT_FALSE(h.scheduler->awaits(4711));
}

TEST(Scheduler, AnIdleHolderGivesWayWithoutWaiting) {
  Host h;
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 1, 1);
  h.quietly(a, 0, 0);  // uncontended, so it did not ring
  h.take();
  h.report(b, 1, 0);
  EXPECT_EQ(h.take(), "grant0o!1 read0 grant0c!1 evict0=1 read0 grant1o1 ring1");
  EXPECT_EQ(h.scheduler->stats(h.now, 0).evictions, 0u) << "no work remained";
  EXPECT_EQ(h.scheduler->eviction_latency(0).count(), 0u);
}

TEST(Scheduler, APausedVgpuGivesWayAtOnceAndGetsNoTurn) {
  Host h;
  const auto v = h.vgpu(), w = h.vgpu();
  const auto a = h.session(v), b = h.session(w);
  const auto pause = [&](bool paused) {
    h.scheduler->set_paused(h.now, v, paused, h.queue);
    h.drain();
  };
  h.report(a, 2, 1);
  h.report(b, 1, 0);
  h.take();
  h.quietly(a, 2, 1);
  pause(true);
  h.report(a, 2, 0, 1);
  EXPECT_TRUE(h.page(b).grant & SLUICE_GRANT_OPEN) << h.take();
  EXPECT_FALSE(h.page(a).grant & SLUICE_GRANT_OPEN);
  h.take();
  // Whatever it reports and however long it waits, the other one stays.
  h.quietly(b, 1, 1);
  for (int i = 1; i < 50; ++i) {
    h.report(a, 3, 0, 1);
    h.time(h.now + 20 * kMs);
    EXPECT_FALSE(h.page(a).grant & SLUICE_GRANT_OPEN);
  }
  // It goes on: the two share again.
  pause(false);
  h.time(h.now + 500 * kMs);
  h.report(b, 1, 0, SLUICE_GRANT_GENERATION(h.page(b).grant));
  EXPECT_TRUE(h.page(a).grant & SLUICE_GRANT_OPEN) << h.take();
}

TEST(Scheduler, ALaterContenderClearsTheFlagWhenItGoes) {
  Host h;
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 1, 1);
  h.report(b, 1, 0);
  h.take();
  h.report(b, 0, 0);
  EXPECT_EQ(h.take(), "grant0o1");
}

TEST(Scheduler, SessionsOfAVgpuHoldTogetherAndSpeakForThemselves) {
  Host h;
  const auto v = h.vgpu(), w = h.vgpu();
  const auto a = h.session(v), b = h.session(v), c = h.session(w);
  h.report(a, 1, 0);
  EXPECT_EQ(h.take(), "grant0c!0 grant1c!0 grant2c!0 grant0o1 ring0 grant1o1 ring1");
  h.quietly(a, 1, 1);
  h.report(c, 1, 0);
  EXPECT_EQ(h.take(), "grant0o!1 read0 grant1o!1 read1");
  h.quietly(b, 1, 1);  // found work behind an open gate
  h.report(a, 0, 0);
  EXPECT_EQ(h.take(), "read0 read1") << "b works, so the vGPU is not idle";
  h.report(b, 0, 0);
  EXPECT_EQ(h.take(),
            "read0 read1 grant0c!1 evict0=1 read0 grant1c!1 evict1=1 read1 grant2o1 ring2");
  // A session that joins a holder is granted at once, one that joins another is not.
  h.session(w);
  EXPECT_EQ(h.take(), "grant3o1 ring3");
  h.session(v);
  EXPECT_EQ(h.take(), "grant4c!0");
}

TEST(Scheduler, WaitsForAllSessionsOfAVgpuToLeave) {
  Host h;
  const auto v = h.vgpu(), w = h.vgpu();
  const auto a = h.session(v), b = h.session(v), c = h.session(w);
  h.report(a, 1, 1), h.report(b, 1, 1);
  h.now = 400 * kMs;
  h.report(c, 1, 0);
  h.take();
  h.report(a, 1, 0, 1);
  EXPECT_EQ(h.take(), "");
  h.report(b, 1, 1, 1);  // left_generation alone is enough
  EXPECT_EQ(h.take(), "grant2o!1 ring2");
}

TEST(Scheduler, DeadlinesWarnThenEnd) {
  Host h;
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 1, 1);
  h.now = 500 * kMs;
  h.report(b, 1, 0);
  h.take();
  EXPECT_EQ(h.wake, 600 * kMs);
  h.time(600 * kMs);
  EXPECT_EQ(h.take(), "read0");
  EXPECT_EQ(h.wake, 700 * kMs) << "its worker is asked about again";
  h.time(2490 * kMs);
  EXPECT_EQ(h.take(), "read0");
  EXPECT_EQ(h.wake, 2500 * kMs);
  EXPECT_EQ(h.scheduler->stats(h.now, 0).overdue, 1u);
  h.time(2500 * kMs);
  EXPECT_EQ(h.take(), "read0 grant0c!1 ring0 end0") << "it may have left just now";
  EXPECT_TRUE(h.page(a).grant & SLUICE_GRANT_ENDING);
  h.time(9000 * kMs);
  EXPECT_EQ(h.take(), "") << "ended once";
  h.remove(a);
  EXPECT_EQ(h.take(), "grant1o1 ring1");
  EXPECT_GE(h.scheduler->stats(h.now, 0).gpu_ns, 8900 * kMs) << "charged until it was gone";
}

// sluiced and the workers stood still together: a report of just after that counts.
TEST(Scheduler, AHostThatStoodStillEndsNobody) {
  Host h;
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 1, 1);
  h.now = 500 * kMs;
  h.report(b, 1, 0);
  h.take();
  h.time(5000 * kMs);
  EXPECT_EQ(h.take(), "read0") << "warned late";
  EXPECT_EQ(h.wake, 6900 * kMs);
  h.report(a, 1, 0, 1);
  EXPECT_EQ(h.take(), "grant1o!1 ring1") << "it has left";
  h.time(7000 * kMs);
  EXPECT_EQ(h.take().find("end0"), std::string::npos);
}

TEST(Scheduler, ImpossibleReportsAreCountedAndClipped) {
  Host h;
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 1, 0);
  h.take();
  h.report(a, 0xffffffff, 0xffffffff, 77);
  EXPECT_EQ(h.take(), "lie0 lie0 lie0");
  h.page(a).report = {.guest_demand = 1, .guest_in_flight = 1};
  h.now = 500 * kMs;
  h.report(b, 1, 0);
  h.take();
  h.report(a, 1, 1, 5);  // has left a generation that it never had
  EXPECT_EQ(h.take(), "lie0") << "b must wait";
  EXPECT_EQ(h.scheduler->stats(h.now, 0).report_violations, 4u);
  h.report(a, 1, 0, 1);
  EXPECT_EQ(h.take(), "grant1o!1 ring1");
  // Nobody's report, or one of a session that is gone.
  h.scheduler->on_report(h.now, 999, {}, h.queue);
  h.remove(b);
  h.scheduler->on_report(h.now, b, {.guest_demand = 1}, h.queue);
}

TEST(Scheduler, CountersOfAReportNeverGoBack) {
  Host h;
  const auto v = h.vgpu();
  const auto a = h.session(v);
  h.page(a).report.guest_launches = 10;
  h.report(a, 1, 0);
  h.page(a).report.guest_launches = 3;
  h.report(a, 1, 0);
  EXPECT_EQ(h.scheduler->stats(h.now, v).guest.launches, 10u);
  h.remove(a);
  EXPECT_EQ(h.scheduler->stats(h.now, v).guest.launches, 10u) << "kept when its session is gone";
  // Nor does a sum of them, whatever a session says, alive or gone.
  const auto b = h.session(v), c = h.session(v);
  for (const auto s : {b, c}) {
    auto& report = h.page(s).report;
    report.guest_launches = report.guest_launches_done = report.guest_evictions = ~0ull - 5;
    h.report(s, 1, 0);
  }
  const auto most = [&] {
    const auto now = h.scheduler->stats(h.now, v);
    return now.guest.launches == ~0ull && now.guest.launches_done == ~0ull &&
           now.guest.relaunched == ~0ull;
  };
  EXPECT_TRUE(most());
  h.remove(b);
  EXPECT_TRUE(most());
  h.remove(c);
  EXPECT_TRUE(most());
}

TEST(Scheduler, GenerationsRunOutIntoAnEnd) {
  SchedulerConfig c;
  c.max_generation = 2;
  Host h(c);
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 1, 0), h.report(b, 1, 0);
  for (int i = 0; i < 4; ++i) h.time(h.wake);
  EXPECT_NE(h.take().find("end0"), std::string::npos);
  EXPECT_TRUE(h.page(a).grant & SLUICE_GRANT_ENDING);
  h.remove(a);
}

TEST(Scheduler, MeasuredTimeCorrectsTheClocksCharges) {
  SchedulerConfig c;
  c.policy_config.machine.sm_count = 4;
  Host h(c);
  const auto v = h.vgpu(), w = h.vgpu();
  const auto a = h.session(v), b = h.session(w);
  const auto measured = [&](VgpuId id, uint64_t refund, uint64_t extra) {
    h.scheduler->on_measured(h.now, id, refund, extra, h.queue);
    h.drain();
  };
  measured(v, 100 * kMs, 0);
  h.report(a, 9, 1), h.report(b, 1, 0);
  h.now += 2 * kMs;
  measured(77, 1, 1);
  auto s = h.scheduler->stats(h.now, v);
  EXPECT_EQ(s.charged_sm_ns, 0u) << "nothing is reported to the policy before the next event";
  EXPECT_EQ(s.refunded_sm_ns, 0u) << "nothing had been charged that could be owed";
  measured(v, kMs, 0);
  s = h.scheduler->stats(h.now, v);
  EXPECT_EQ(s.charged_sm_ns, 8 * kMs);
  h.now += 2 * kMs;
  measured(v, 0, 0);
  s = h.scheduler->stats(h.now, v);
  EXPECT_EQ(s.charged_sm_ns, 15 * kMs);
  EXPECT_EQ(s.refunded_sm_ns, kMs);
  // A source that is wrong without bound buys no more than one quantum.
  measured(v, ~0ull, 0);
  for (int i = 0; i < 200; ++i) h.now += kMs, measured(v, 0, 0);
  s = h.scheduler->stats(h.now, v);
  EXPECT_LE(s.refunded_sm_ns, kMs + 4 * SchedulerConfig{}.policy_config.max_quantum_ns);
  EXPECT_EQ(s.charged_sm_ns + s.refunded_sm_ns, 4 * 204 * kMs);
  // Used without a grant: charged though it does not hold.
  measured(w, 0, 12 * kMs);
  s = h.scheduler->stats(h.now, w);
  EXPECT_FALSE(s.holds);
  EXPECT_EQ(s.extra_sm_ns, 12 * kMs);
  EXPECT_EQ(s.charged_sm_ns, 12 * kMs);
}

// A charge for stolen time comes out of the thief's turns.
TEST(Scheduler, WhoUsedWithoutAGrantWaitsForIt) {
  Host h;
  const auto v = h.vgpu(), w = h.vgpu();
  const auto a = h.session(v), b = h.session(w);
  h.report(a, 9, 1), h.report(b, 9, 0);
  h.scheduler->on_measured(h.now, w, 0, 500 * kMs, h.queue);
  h.drain();
  const uint64_t begin = h.now;
  while (!h.scheduler->stats(h.now, w).holds && h.now < begin + 5'000 * kMs) {
    h.time(h.wake);
    for (SessionId s : {a, b}) {
      const auto word = h.page(s).grant;
      h.report(s, 9, word & SLUICE_GRANT_OPEN ? 1 : 0, SLUICE_GRANT_GENERATION(word));
    }
  }
  EXPECT_GE(h.now - begin, 450 * kMs);
  EXPECT_LE(h.now - begin, 600 * kMs);
}

// What sessions' records tell goes to the policy as one sum for each vGPU, bounded; what nobody
// predicts counts with the mean by the scheduler's own clock; when the work is done it is
// forgotten.
TEST(Scheduler, TellsWhatIsQueuedAsAWhole) {
  SchedulerConfig c;
  c.policy = "srt";
  c.policy_config.machine.sm_count = 4;
  Host h(c);
  const VgpuId a = h.vgpu(), b = h.vgpu();
  const SessionId s = h.session(a), t = h.session(a), u = h.session(b);
  const auto queued = [&](VgpuId v) { return h.scheduler->stats(h.now, v).queued_sm_ns; };
  EXPECT_TRUE(h.scheduler->wants_hints(s));
  h.page(s).report.guest_hints = LaunchHints{.predicted = 2, .remaining_ns = 10 * kMs};
  h.page(t).report.guest_hints = LaunchHints{.predicted = 1, .remaining_ns = 5 * kMs};
  h.report(s, 2, 1);
  EXPECT_EQ(queued(a), 4 * 10 * kMs);
  h.report(t, 1, 1);
  EXPECT_EQ(queued(a), 4 * 15 * kMs);
  // A shorter one comes: the holder leaves, and is not asked for hints on its way out.
  h.page(u).report.guest_hints = LaunchHints{.predicted = 1, .remaining_ns = kMs};
  h.report(u, 1, 0);
  EXPECT_FALSE(h.scheduler->wants_hints(s));
  EXPECT_TRUE(h.scheduler->wants_hints(u));
  h.report(s, 2, 0, 1), h.report(t, 1, 0, 1);
  EXPECT_TRUE(h.scheduler->stats(h.now, b).holds);
  // 3 ms for three launches, as its worker says, which announced one.
  h.now += 3 * kMs;
  h.page(u).report.guest_launches_done = 3;
  h.report(u, 0, 0);
  EXPECT_EQ(queued(b), 0u);
  EXPECT_TRUE(h.scheduler->stats(h.now, a).holds);
  h.page(u).report.guest_hints = LaunchHints{.predicted = 1, .remaining_ns = 100 * kMs};
  h.report(u, 3, 0);
  EXPECT_EQ(queued(b), 4 * (100 + 1 + 1) * kMs);
  // Claims beyond any measure are cut.
  h.page(u).report.guest_hints =
      LaunchHints{.predicted = ~0u, .remaining_ns = ~0ull, .preempt_ns = ~0ull};
  h.report(u, 3, 0);
  EXPECT_LE(queued(b), 1ull << 50);
  EXPECT_GT(queued(b), 1ull << 49);
  h.page(u).report.guest_hints = LaunchHints{.predicted = 0, .remaining_ns = 7};
  h.report(u, 1, 0);
  EXPECT_EQ(queued(b), 4 * kMs);
  EXPECT_EQ(h.take().find("policy?"), std::string::npos);

  Host fcfs(SchedulerConfig{.policy = "fcfs"});
  EXPECT_FALSE(fcfs.scheduler->wants_hints(fcfs.session(fcfs.vgpu())))
      << "it does not go by launches";
}

// What is shown as asked for goes by the groups that the policy goes by.
TEST(Scheduler, AskedIsByGroup) {
  const auto asked = [](const char* policy) {
    Host h(SchedulerConfig{.policy = policy});
    h.scheduler->set_group(h.now, 1, {.weight = 10}, h.queue);
    const auto v = h.scheduler->add_vgpu(h.now, {.group = 1}, h.queue);
    h.report(h.session(*v), 1, 0), h.report(h.session(h.vgpu()), 1, 0);
    h.now += kMs;
    h.scheduler->set_group(h.now, 1, {.weight = 300}, h.queue);
    const uint64_t before = h.scheduler->stats(h.now, *v).shares.own_entitled_ns;
    const uint64_t by_weight = h.scheduler->stats(h.now + kMs, *v).shares.own_entitled_ns - before;
    h.scheduler->set_share(h.now, *v, {.weight = 400}, h.queue);
    return std::vector{before, by_weight,
                       h.scheduler->stats(h.now + kMs, *v).shares.own_entitled_ns - before};
  };
  EXPECT_EQ(asked("wfq"), (std::vector{kMs / 11, kMs * 3 / 4, kMs * 4 / 5}));
  EXPECT_EQ(asked("rr"), (std::vector{kMs / 2, kMs / 2, kMs * 4 / 5})) << "it knows no groups";
}

TEST(Scheduler, IdsAreReusedAndEverythingStartsAfresh) {
  Host h;
  const auto v = h.vgpu();
  const auto a = h.session(v);
  h.report(a, 1, 1);
  h.remove(a);
  h.scheduler->remove_vgpu(h.now, v, h.queue);
  h.drain();
  h.take();
  EXPECT_EQ(h.vgpu(), v);
  EXPECT_EQ(h.session(v), a);
  EXPECT_EQ(h.take(), "grant0c!0");
  EXPECT_EQ(h.scheduler->stats(h.now, v).gpu_ns, 0u);
}

TEST(Scheduler, LimitsOnIds) {
  SchedulerConfig c;
  c.max_vgpus = 1;
  c.max_sessions = 2;
  Host h(c);
  const auto v = h.vgpu();
  EXPECT_FALSE(h.scheduler->add_vgpu(0, {}, h.queue));
  h.session(v), h.session(v);
  EXPECT_FALSE(h.scheduler->add_session(0, v, h.queue));
  EXPECT_FALSE(h.scheduler->add_session(0, 77, h.queue));
}

}  // namespace
}  // namespace sluice::core
