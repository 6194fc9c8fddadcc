// SPDX-License-Identifier: Apache-2.0
// core::Scheduler in space: sets of SMs, moves from one to another, and what hostile reports come
// to.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/core/scheduler_host.h"

namespace sluice::core {
namespace {

SchedulerConfig in_space(const char* policy = "wfq") {
  SchedulerConfig c;
  c.policy = policy;
  c.policy_config.machine.sm_count = 4;
  c.policy_config.machine.spatial = true;
  return c;
}

TEST(SchedulerInSpace, AloneItHasTheWholeGpu) {
  Host h(in_space());
  const auto s = h.session(h.vgpu());
  h.take();
  h.report(s, 1, 0);
  EXPECT_EQ(h.take(), "grant0o1 ring0") << "no set of SMs: the word says all";
  EXPECT_EQ(h.scheduler->stats(h.now, 0).sms, SmSet(0, 4));
}

// dss gives half of the SMs to the second, at once: the first is called back with its gate open,
// and the SMs go to the newcomer when everything of the old generation has left, not before.
TEST(SchedulerInSpace, ANewcomerGetsSmsWhenTheyHaveBeenLeft) {
  Host h(in_space("dss"));
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 4, 2);
  h.take();
  h.report(b, 1, 0);
  EXPECT_EQ(h.take(), "grant0o!1 read0 sms0:2=0-2 grant0opr!2 ring0 evict0=1 read0");
  EXPECT_EQ(h.page(b).grant & SLUICE_GRANT_OPEN, 0u);
  // A launch of the old generation ended, another is there still.
  h.report(a, 4, 2, 0);
  EXPECT_EQ(h.take(), "");
  EXPECT_EQ(h.scheduler->stats(h.now, 0).sms, SmSet(0, 4)) << "it pays for what it has not left";
  h.report(a, 4, 1, 1);
  EXPECT_EQ(h.take(), "sms1:1=2-4 grant1op!1 ring1");
  EXPECT_EQ(h.scheduler->stats(h.now, 0).sms, SmSet(0, 2));
  EXPECT_EQ(h.scheduler->stats(h.now, 1).sms, SmSet(2, 4));
  EXPECT_EQ(h.scheduler->stats(h.now, 0).evictions, 1u);
}

TEST(SchedulerInSpace, NothingInFlightHasLeftAtOnce) {
  Host h(in_space("dss"));
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 4, 0);
  h.take();
  h.report(b, 1, 0);
  EXPECT_EQ(
      h.take(),
      "grant0o!1 read0 sms0:2=0-2 grant0opr!2 ring0 evict0=1 read0 sms1:1=2-4 grant1op!1 ring1");
}

TEST(SchedulerInSpace, WhoIsAloneAgainGrowsBack) {
  Host h(in_space("dss"));
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 4, 0);
  h.report(b, 1, 0);
  h.report(a, 4, 1);
  h.take();
  // b is done: its gate closes, its SMs go to a, whose launches are called back to spread over all.
  h.report(b, 0, 0, 0);
  const std::string did = h.take();
  EXPECT_NE(did.find("grant1c!1 evict1=1 read1"), std::string::npos) << did;
  EXPECT_NE(did.find("grant0or3 ring0 evict0=2 read0"), std::string::npos) << did;
  EXPECT_EQ(h.scheduler->stats(h.now, 0).sms, SmSet(0, 4));
  EXPECT_FALSE(h.scheduler->stats(h.now, 1).holds);
}

// One change at a time: what is asked for during a move waits for its end.
TEST(SchedulerInSpace, ChangesWaitForTheMoveBeforeThem) {
  Host h(in_space("dss"));
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu()), c = h.session(h.vgpu());
  h.report(a, 4, 2);
  h.report(b, 1, 0);
  h.take();
  h.report(c, 1, 0);
  EXPECT_EQ(h.take(), "") << "a is still leaving the first SMs";
  h.report(a, 4, 2, 1);
  // b gets one or two of them; the rest of what a has to leave is a's next generation.
  const std::string did = h.take();
  EXPECT_NE(did.find("grant1op"), std::string::npos) << did;
  const SmSet held_a = h.scheduler->stats(h.now, 0).sms, held_b = h.scheduler->stats(h.now, 1).sms,
              held_c = h.scheduler->stats(h.now, 2).sms;
  EXPECT_FALSE(held_a.meets(held_b));
  EXPECT_FALSE(held_a.meets(held_c));
  EXPECT_FALSE(held_b.meets(held_c));
}

TEST(SchedulerInSpace, SessionsOfAVgpuShareItsSms) {
  Host h(in_space("dss"));
  const auto v = h.vgpu(), w = h.vgpu();
  const auto a = h.session(v), b = h.session(v), c = h.session(w);
  h.report(a, 1, 1);
  h.report(b, 1, 1);
  h.report(c, 1, 0);
  EXPECT_EQ(h.page(a).sms, SmSet(0, 2));
  EXPECT_EQ(h.page(b).sms, SmSet(0, 2));
  h.report(a, 1, 1, 1);
  EXPECT_EQ(h.page(c).grant & SLUICE_GRANT_OPEN, 0u) << "the other session has not left";
  h.report(b, 1, 1, 1);
  EXPECT_NE(h.page(c).grant & SLUICE_GRANT_OPEN, 0u);
  // A session that comes now is granted what its vGPU has.
  const auto d = h.session(v);
  EXPECT_EQ(h.page(d).sms, SmSet(0, 2));
  EXPECT_NE(h.page(d).grant & SLUICE_GRANT_PART, 0u);
}

TEST(SchedulerInSpace, SmsOfTheDeadGoToTheOthers) {
  Host h(in_space("dss"));
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 1, 1);
  h.report(b, 1, 0);  // a is called back, and dies before it has left
  h.remove(a);
  EXPECT_EQ(h.scheduler->stats(h.now, 0).sms, SmSet());
  EXPECT_EQ(h.scheduler->stats(h.now, 1).sms, SmSet(0, 4));
  EXPECT_NE(h.page(b).grant & SLUICE_GRANT_OPEN, 0u);
}

TEST(SchedulerInSpace, WhoDoesNotLeaveItsSmsIsEnded) {
  Host h(in_space("dss"));
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 1, 1);
  h.report(b, 1, 0);
  h.take();
  h.time(h.now + 200 * kMs);
  EXPECT_EQ(h.scheduler->stats(h.now, 0).overdue, 1u);
  h.time(h.now + 2000 * kMs);
  EXPECT_NE(h.take().find("end0"), std::string::npos);
  h.remove(a);
  EXPECT_EQ(h.scheduler->stats(h.now, 1).sms, SmSet(0, 4));
  (void)b;
}

// Growing is no eviction: a long opaque kernel of somebody who is given more SMs is left alone.
TEST(SchedulerInSpace, GrowingHasNoDeadline) {
  Host h(in_space("dss"));
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 1, 0);
  h.report(b, 1, 0);
  h.report(a, 1, 1);
  h.report(b, 0, 0);  // a gets all
  h.take();
  h.time(h.now + 5000 * kMs);
  EXPECT_EQ(h.take().find("end0"), std::string::npos);
  EXPECT_EQ(h.scheduler->stats(h.now, 0).overdue, 0u);
}

TEST(SchedulerInSpace, TimeIsChargedBySms) {
  Host h(in_space("dss"));
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 1, 0);
  h.report(b, 1, 0);  // two SMs each from here
  const uint64_t a0 = h.scheduler->stats(h.now, 0).gpu_ns, b0 = h.scheduler->stats(h.now, 1).gpu_ns;
  h.now += 100 * kMs;
  EXPECT_EQ(h.scheduler->stats(h.now, 0).gpu_ns - a0, 50 * kMs);
  EXPECT_EQ(h.scheduler->stats(h.now, 1).gpu_ns - b0, 50 * kMs);
  // An opaque kernel of b runs wherever it likes, for 10 ms: all SMs are charged to it.
  h.page(b).report.guest_unconfined = 1;
  h.report(b, 1, 1);
  h.now += 10 * kMs;
  h.page(b).report.guest_unconfined = 0;
  h.report(b, 1, 1);
  h.now += 10 * kMs;
  EXPECT_EQ(h.scheduler->stats(h.now, 1).gpu_ns - b0, 65 * kMs);
}

TEST(SchedulerInSpace, ImpossibleReportsAreCountedAndGainNothing) {
  Host h(in_space("dss"));
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 1, 1);
  h.report(b, 1, 0);
  h.take();
  // A generation that it was never granted, and more launches beyond its SMs than it has at all.
  h.page(a).report.guest_unconfined = 5;
  h.report(a, 1, 1, 77);
  EXPECT_EQ(h.take(), "lie0");
  EXPECT_EQ(h.scheduler->stats(h.now, 0).sms, SmSet(0, 4)) << "it has not left";
  EXPECT_EQ(h.scheduler->stats(h.now, 0).report_violations, 1u);
}

// ---- launches that stay
// ---------------------------------------------------------------------------------------------

// Three vGPUs under dss on 4 SMs: a and b hold two each, then c comes and one of them has to give
// SMs.
struct Stayers {
  Stayers() : h(in_space("dss")), a(h.session(h.vgpu())), b(h.session(h.vgpu())) {
    h.report(a, 1, 0);
    h.report(b, 1, 0);
    h.report(a, 1, 1, 1);
    h.report(b, 1, 1);
    h.take();
  }
  void keeps(SessionId s, uint32_t flags) { h.page(s).report.guest_keeps = flags; }
  // A third comes; what was done.
  std::string third() {
    c = h.session(h.vgpu());
    h.take();
    h.report(c, 1, 0);
    return h.take();
  }
  Host h;
  SessionId a, b, c = 0;
};

TEST(SchedulerInSpace, LaunchesStayOnTheSmsThatAreKept) {
  Stayers t;
  t.keeps(t.a, SLUICE_KEEPS_SHRINK | SLUICE_KEEPS_GROW);
  t.keeps(t.b, SLUICE_KEEPS_SHRINK | SLUICE_KEEPS_GROW);
  const std::string did = t.third();
  // The report is read before the words are stored: what it says of staying is fresh.
  const bool of_a = did.find("grant0") != std::string::npos;
  const SessionId from = of_a ? t.a : t.b;
  const std::string n = std::to_string(from);
  const size_t read = did.find("read" + n), grant = did.find("grant" + n),
               evict = did.find("evict" + n);
  ASSERT_NE(grant, std::string::npos) << did;
  EXPECT_LT(read, evict) << did;
  EXPECT_LT(evict, grant) << "a worker that reads the grant relies on the word: " << did;
  EXPECT_NE(did.find("oprk!"), std::string::npos) << did;
  const uint64_t word = t.h.page(from).evict;
  const SmSet leave(static_cast<uint32_t>(word >> 32 & 0xffff), static_cast<uint32_t>(word >> 48));
  EXPECT_FALSE(leave.meets(t.h.page(from).sms)) << did;
  EXPECT_EQ(leave.count(), 1u);
  EXPECT_EQ(t.h.page(t.c).grant & SLUICE_GRANT_OPEN, 0u) << "not before it was left";
  t.h.report(from, 1, 1, static_cast<uint32_t>(word));
  EXPECT_NE(t.h.page(t.c).grant & SLUICE_GRANT_OPEN, 0u);
  EXPECT_FALSE(t.h.page(t.c).sms.meets(t.h.page(from).sms));
}

TEST(SchedulerInSpace, WhoCannotKeepItsLaunchesIsCalledBackWhole) {
  Stayers t;
  const std::string did = t.third();
  EXPECT_EQ(did.find("k!"), std::string::npos) << did;
  EXPECT_NE(did.find("opr!"), std::string::npos) << did;
  EXPECT_EQ(did.find(":"), did.find("sms") + 4) << "no evict word for a range: " << did;
}

TEST(SchedulerInSpace, AWorkerMayAskToBeCalledBackWholeAfterAll) {
  Stayers t;
  t.keeps(t.a, SLUICE_KEEPS_SHRINK);
  t.keeps(t.b, SLUICE_KEEPS_SHRINK);
  const bool of_a = t.third().find("grant0") != std::string::npos;
  const SessionId from = of_a ? t.a : t.b;
  const auto old = static_cast<uint32_t>(t.h.page(from).evict);
  auto& r = t.h.page(from).report;
  r.guest_recall = old - 1;  // of a change before
  t.h.report(from, 1, 1);
  EXPECT_EQ(t.h.take().find("evict"), std::string::npos);
  r.guest_recall = old;
  t.h.report(from, 1, 1);
  EXPECT_EQ(t.h.page(from).evict, SLUICE_EVICT_ALL_SMS(old));
  t.h.take();
  t.h.report(from, 1, 1);
  EXPECT_EQ(t.h.take().find("evict"), std::string::npos) << "once is enough";
  // However often it asks, and for what: only its own launches go.
  r.guest_recall = 0xffffffff;
  t.h.report(from, 1, 1, old);
  EXPECT_EQ(t.h.take().find("evict" + std::to_string(from)), std::string::npos);
  EXPECT_NE(t.h.page(t.c).grant & SLUICE_GRANT_OPEN, 0u);
}

TEST(SchedulerInSpace, WhoSaysThatItStaysAndDoesNotLeaveIsEnded) {
  Stayers t;
  t.keeps(t.a, SLUICE_KEEPS_SHRINK);
  t.keeps(t.b, SLUICE_KEEPS_SHRINK);
  t.third();
  t.h.time(t.h.now + 200 * kMs);
  t.h.time(t.h.now + 2000 * kMs);
  EXPECT_NE(t.h.take().find("end"), std::string::npos);
}

TEST(SchedulerInSpace, UsedUpGenerationsEndTheSession) {
  auto c = in_space("dss");
  c.max_generation = 1;
  Host h(c);
  const auto a = h.session(h.vgpu()), b = h.session(h.vgpu());
  h.report(a, 1, 1);
  h.report(b, 1, 0);  // the recall would be generation 2
  EXPECT_NE(h.take().find("end0"), std::string::npos);
  EXPECT_EQ(h.page(a).grant & SLUICE_GRANT_OPEN, 0u);
  h.remove(a);
  EXPECT_EQ(h.scheduler->stats(h.now, 1).sms, SmSet(0, 4));
  (void)b;
}

}  // namespace
}  // namespace sluice::core
