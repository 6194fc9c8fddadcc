// SPDX-License-Identifier: Apache-2.0
// The scheduler on a GPU that shares itself by time slices
// (mediator/core/sharing/strategies/slices.h), step by step.
#include <gtest/gtest.h>

#include "tests/unit/core/scheduler_host.h"

namespace sluice::core {
namespace {

SchedulerConfig slices(const char* policy = "wfq") {
  SchedulerConfig c;
  c.policy = policy;
  c.policy_config.machine.preemptor = policy::PreemptorKind::kProportional;
  return c;
}
// An NVIDIA GPU's.
SchedulerConfig nvidia_slices() {
  SchedulerConfig c = slices();
  c.policy_config.machine.slices_are_free_alone = true;
  c.policy_config.machine.handover_ns = 200'000;
  return c;
}
bool opened(const Host& h, SessionId s) { return h.pages[s].grant & SLUICE_GRANT_OPEN; }
// The slice that a session was set last, us; 0: none.
uint64_t slice_us(const std::string& did, SessionId s) {
  const std::string key = "slice" + std::to_string(s) + "=";
  const size_t at = did.rfind(key);
  return at == std::string::npos ? 0 : std::stoull(did.substr(at + key.size()));
}

TEST(SchedulerOnSlices, RunsThePoliciesThatSetThem) {
  for (const policy::Registration& row : policy::registry()) {
    const auto c = slices(std::string(row.name).c_str());
    EXPECT_EQ(Scheduler::make(c, 0) != nullptr, row.proportional) << row.name;
    EXPECT_EQ(Scheduler::runs(row, policy::PreemptorKind::kProportional), row.proportional);
  }
}

TEST(SchedulerOnSlices, AllWhoHaveWorkHoldTheGpuWithSlicesByWeight) {
  Host h(slices());
  const VgpuId a = h.vgpu(300), b = h.vgpu(100);
  const SessionId s = h.session(a), t = h.session(b);
  h.report(s, 1, 0);
  EXPECT_TRUE(opened(h, s));
  h.report(t, 1, 0);
  EXPECT_TRUE(opened(h, s));
  EXPECT_TRUE(opened(h, t));
  EXPECT_TRUE(h.scheduler->stats(h.now, a).holds);
  EXPECT_TRUE(h.scheduler->stats(h.now, b).holds);
  h.time(h.wake);
  const std::string did = h.take();
  EXPECT_NEAR(static_cast<double>(slice_us(did, s)) / static_cast<double>(slice_us(did, t)), 3, 0.3)
      << did;
  EXPECT_EQ(did.find("evict"), std::string::npos) << did;
  EXPECT_EQ(did.find("policy?"), std::string::npos) << did;
}

// Where use alone is free a maximum goes by the clock: the worker rings when its work begins and
// ends, and what goes on behind the closed gate counts.
TEST(SchedulerOnSlices, AMaximumHoldsForWhoIsAlone) {
  Host h(nvidia_slices());
  const VgpuId a = h.vgpu();
  const SessionId s = h.session(a);
  h.report(s, 1, 0);
  EXPECT_TRUE(opened(h, s));
  EXPECT_FALSE(h.pages[s].grant & SLUICE_GRANT_CONTENDED);
  h.report(s, 0, 0);
  EXPECT_TRUE(opened(h, s)) << "it is alone";
  h.scheduler->set_share(h.now, a, {.weight = 100, .max_permille = 250}, h.queue);
  h.drain();
  EXPECT_FALSE(opened(h, s));

  const auto until = [&](bool open) {
    for (int i = 0; i < 1000 && opened(h, s) != open; ++i) h.time(h.wake);
    return h.now;
  };
  h.time(h.now + 100 * kMs);
  const uint64_t from = h.now;
  h.report(s, 1, 1);
  EXPECT_TRUE(opened(h, s));
  EXPECT_TRUE(h.pages[s].grant & SLUICE_GRANT_CONTENDED) << "or it would not ring";
  const uint32_t generation = SLUICE_GRANT_GENERATION(h.pages[s].grant);
  EXPECT_LT(until(false) - from, 10 * kMs);
  h.time(h.now + 20 * kMs);
  h.report(s, 1, 0, generation);
  EXPECT_NEAR(static_cast<double>(until(true) - from), 4.0 * 20 * kMs, 25.0 * kMs);
}

// A burst shorter than the time after which use is free is none for that.
TEST(SchedulerOnSlices, ShortBurstsAloneCountAgainstAMaximum) {
  Host h(nvidia_slices());
  const VgpuId a = h.vgpu();
  const SessionId s = h.session(a);
  h.scheduler->set_share(h.now, a, {.weight = 100, .max_permille = 250}, h.queue);
  h.drain();
  uint64_t ran = 0;
  for (int i = 0; i < 200; ++i) {
    h.report(s, 1, 1);
    for (int k = 0; k < 1000 && !opened(h, s); ++k) h.time(h.wake);
    h.time(h.now + kMs / 2);
    ran += kMs / 2;
    h.report(s, 0, 0, opened(h, s) ? 0 : SLUICE_GRANT_GENERATION(h.pages[s].grant));
    h.time(h.now + kMs / 10);
  }
  EXPECT_LT(static_cast<double>(ran), 0.3 * static_cast<double>(h.now));
}

// a's session has had the GPU alone for 99 ms; b's has nothing yet.
struct OneAlone {
  Host h{nvidia_slices()};
  const VgpuId a = h.vgpu(), b = h.vgpu();
  const SessionId s = h.session(a), t = h.session(b);
  OneAlone() {
    h.now = kMs;
    h.report(s, 1, 1);
    h.now = 100 * kMs;
  }
};

// Nothing is heard of it while it is alone. When another comes, its worker says that it visits: the
// newcomer has short slices at once.
TEST(SchedulerOnSlices, WhoWasAloneIsKnownWhenAnotherComes) {
  for (const bool visits : {false, true})
    for (const bool works : {false, true}) {
      OneAlone o;
      Host& h = o.h;
      const SessionId s = o.s, t = o.t;
      h.quietly(s, works, works);
      ReportSnapshot& said = h.page(s).report;
      said.guest_burst_ns = visits ? 60'000 : 90 * kMs;
      said.guest_gap_ns = 5 * kMs;
      said.guest_demand_changed_ns = h.now - 50'000;
      h.take();
      h.report(t, 1, 1);
      const std::string did = h.take();
      if (visits)
        EXPECT_EQ(slice_us(did, t), 1000u) << did << works;
      else
        EXPECT_GT(slice_us(did, t), 2000u) << did << works;
    }
}

// Whatever a worker that was taken over says of that, and of its waits: the newcomer has its half.
TEST(SchedulerOnSlices, AnyWordsOfComingAndGoingAreBorne) {
  for (const uint64_t burst : {uint64_t{1}, ~uint64_t{0}})
    for (const uint64_t gap : {uint64_t{0}, ~uint64_t{0}})
      for (const uint64_t changed : {50 * kMs, 100 * kMs, ~uint64_t{0}})
        for (const uint32_t demand : {0u, 1u, ~0u}) {
          OneAlone o;
          Host& h = o.h;
          const SessionId s = o.s, t = o.t;
          h.quietly(s, demand, 0);
          ReportSnapshot& said = h.page(s).report;
          said.guest_burst_ns = burst, said.guest_gap_ns = gap;
          said.guest_demand_changed_ns = changed;
          said.guest_idles = ~0u;
          h.report(t, 1, 1);
          int open_ms = 0;
          for (int i = 0; i < 1000; ++i) {
            ++said.guest_idles;
            h.report(s, demand, 0);
            h.time(h.now + kMs);
            if (opened(h, t))
              ++open_ms, h.scheduler->on_used(h.now, o.b, kMs);
            else
              h.report(t, 1, 0, SLUICE_GRANT_GENERATION(h.pages[t].grant));
          }
          EXPECT_GT(open_ms, 400) << burst << " " << gap << " " << changed << " " << demand;
        }
}

// A new slice has the hardware begin its round again, so the next ones wait until all that have
// work have had a turn.
TEST(SchedulerOnSlices, NewSlicesWaitForTheEndOfTheRound) {
  Host h(slices());
  std::vector<VgpuId> all;
  std::vector<SessionId> sessions;
  for (int i = 0; i < 3; ++i) {
    all.push_back(h.vgpu());
    sessions.push_back(h.session(all.back()));
    h.report(sessions.back(), 1, 1);
  }
  const auto use = [&](VgpuId v) { h.scheduler->on_used(h.now, v, kMs); };
  h.now += kMs;
  for (const VgpuId v : all) use(v);
  h.take();
  h.now += kMs;
  h.scheduler->set_share(h.now, all[0], {.weight = 400}, h.queue);
  h.drain();
  EXPECT_NE(slice_us(h.take(), sessions[0]), 0u) << "all had a turn";
  h.now += kMs;
  use(all[0]), use(all[1]);
  h.scheduler->set_share(h.now, all[0], {.weight = 100}, h.queue);
  h.drain();
  EXPECT_EQ(slice_us(h.take(), sessions[0]), 0u) << "the third has not";
  h.now += kMs;
  use(all[2]);
  h.time(h.wake);
  EXPECT_NE(slice_us(h.take(), sessions[0]), 0u);
}

// Whoever had more than it is owed is gated until the others have caught up; nobody waits for its
// leaving, and there is no deadline for it.
TEST(SchedulerOnSlices, WhoIsAheadIsGatedAndHasNoDeadline) {
  Host h(slices());
  const VgpuId a = h.vgpu(), b = h.vgpu();
  const SessionId s = h.session(a), t = h.session(b);
  h.report(s, 1, 1), h.report(t, 1, 1);
  h.quietly(s, 1, 1), h.quietly(t, 1, 1);
  h.take();
  h.now = h.wake;
  h.scheduler->on_used(h.now, a, 200 * kMs);
  h.scheduler->on_used(h.now, b, kMs);
  h.time(h.now);
  EXPECT_FALSE(opened(h, s));
  EXPECT_TRUE(opened(h, t));
  const std::string did = h.take();
  EXPECT_NE(did.find("evict" + std::to_string(s)), std::string::npos) << did;
  // What it had begun keeps its slice, in which most of it ends; then it is as short as can be.
  const std::string shortest = "slice" + std::to_string(s) + "=0";
  EXPECT_EQ(did.find(shortest), std::string::npos) << did;
  h.time(h.now + 5 * kMs);
  EXPECT_EQ(h.take().find(shortest), std::string::npos);
  h.time(h.now + 10'000 * kMs);
  const std::string later = h.take();
  EXPECT_NE(later.find(shortest), std::string::npos) << later;
  EXPECT_EQ(later.find("end"), std::string::npos);
  EXPECT_EQ(h.scheduler->stats(h.now, a).overdue, 0u);
  // It leaves late; when the other has caught up its gate opens again.
  h.report(s, 1, 0, 1);
  h.scheduler->on_used(h.now, b, 400 * kMs);
  h.time(h.wake);
  EXPECT_TRUE(opened(h, s));
  EXPECT_FALSE(opened(h, t));
  EXPECT_EQ(h.scheduler->stats(h.now, a).evictions, 1u);
  EXPECT_EQ(h.scheduler->stats(h.now, a).charged_sm_ns, 200 * kMs);
}

// Idle beside somebody who works: its gate closes, so that it rings when it is back. Alone it stays
// open.
TEST(SchedulerOnSlices, TheGateOfWhoIsIdleClosesWhileAnotherWorks) {
  Host h(slices());
  const VgpuId a = h.vgpu(), b = h.vgpu();
  const SessionId s = h.session(a), t = h.session(b);
  h.report(s, 1, 1);
  h.report(s, 0, 0);
  EXPECT_TRUE(opened(h, s)) << "nobody else is there";
  h.quietly(s, 0, 0);
  h.report(t, 1, 0);
  EXPECT_FALSE(opened(h, s));
  EXPECT_TRUE(opened(h, t));
  h.report(s, 1, 0, 1);
  EXPECT_TRUE(opened(h, s));
  EXPECT_TRUE(opened(h, t));
  h.remove(t);
  EXPECT_TRUE(opened(h, s));
  h.remove(s);
  EXPECT_EQ(h.take().find("policy?"), std::string::npos);
}

TEST(SchedulerOnSlices, SessionsWithWorkShareTheirVgpusSlice) {
  Host h(slices());
  const VgpuId a = h.vgpu(), b = h.vgpu();
  const SessionId s = h.session(a), t = h.session(a), u = h.session(b);
  h.report(u, 1, 0);
  h.report(s, 1, 0);
  const uint64_t alone = slice_us(h.take(), s);
  h.report(t, 1, 0);
  const std::string did = h.take();
  EXPECT_NEAR(static_cast<double>(slice_us(did, s)), static_cast<double>(alone) / 2,
              static_cast<double>(alone) / 8);
  EXPECT_EQ(slice_us(did, s), slice_us(did, t));
}

// Of six with kernels that go on, two have no part of the slice once another vGPU has work.
TEST(SchedulerOnSlices, WhatRidesIsChargedWithItsSwitches) {
  Host h(slices());
  const VgpuId a = h.vgpu(), b = h.vgpu();
  std::vector<SessionId> many;
  for (int i = 0; i < 6; ++i) {
    many.push_back(h.session(a));
    h.report(many.back(), 1, 1);
  }
  const auto extra_ns = [&](VgpuId v) {
    const uint64_t before = h.scheduler->stats(h.now, v).extra_sm_ns;
    h.scheduler->on_used(h.now, v, kMs);
    return h.scheduler->stats(h.now, v).extra_sm_ns - before;
  };
  EXPECT_EQ(extra_ns(a), 0u) << "nobody else loses anything";
  const SessionId t = h.session(b);
  h.report(t, 1, 0);
  h.quietly(t, 1, 1);
  const uint64_t two_ns = extra_ns(a);
  EXPECT_GT(two_ns, 0u);
  EXPECT_EQ(extra_ns(b), 0u);
  int left = 0;
  for (const SessionId s : many)
    if (!opened(h, s) && ++left == 1) h.report(s, 0, 0, SLUICE_GRANT_GENERATION(h.page(s).grant));
  ASSERT_EQ(left, 2);
  const uint64_t one_ns = extra_ns(a);
  EXPECT_GT(one_ns, 0u);
  EXPECT_LT(one_ns, two_ns);
}

// LoGA suspends who is ahead for a pause, and lets it on again.
TEST(SchedulerOnSlices, LogaSuspendsAndResumes) {
  Host h(slices("loga"));
  const VgpuId a = h.vgpu(), b = h.vgpu();
  const SessionId s = h.session(a), t = h.session(b);
  h.report(s, 1, 1), h.report(t, 1, 1);
  h.quietly(s, 1, 1), h.quietly(t, 1, 1);
  bool suspended = false, resumed = false;
  for (int i = 0; i < 200; ++i) {
    h.now = h.wake;
    if (opened(h, s)) h.scheduler->on_used(h.now, a, 8 * kMs);
    h.scheduler->on_used(h.now, b, kMs);
    h.time(h.now);
    if (!opened(h, s)) h.report(s, 1, 0, SLUICE_GRANT_GENERATION(h.page(s).grant));
    suspended |= !opened(h, s);
    resumed |= suspended && opened(h, s);
    ASSERT_TRUE(opened(h, t)) << "it is behind";
  }
  EXPECT_TRUE(suspended);
  EXPECT_TRUE(resumed);
  EXPECT_EQ(h.take().find("policy?"), std::string::npos);
}

}  // namespace
}  // namespace sluice::core
