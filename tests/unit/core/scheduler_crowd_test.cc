// SPDX-License-Identifier: Apache-2.0
// Many sessions of one vGPU beside a neighbour with one: so many of them may launch at once, all of
// them get their turn, and the neighbour keeps its half. First where the GPU is given whole, then
// the same rule in each way of sharing (mediator/core/sharing/crowd.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <set>

#include "tests/unit/core/scheduler_host.h"

namespace sluice::core {
namespace {

class SchedulerCrowd : public ::testing::Test {
 protected:
  static constexpr int kCrowd = 12;
  SchedulerCrowd() {
    a = h.vgpu(), b = h.vgpu();
    for (int i = 0; i < kCrowd; ++i) crowd.push_back(h.session(a));
    sb = h.session(b);
  }
  VgpuStats stats(VgpuId v) { return h.scheduler->stats(h.now, v); }
  bool open(SessionId s) { return h.page(s).grant & SLUICE_GRANT_OPEN; }
  std::set<SessionId> open_ones() {
    std::set<SessionId> all;
    for (const SessionId s : crowd)
      if (open(s)) all.insert(s);
    return all;
  }
  // One step of the clock. Whoever has an open gate launches; the others leave at once.
  void step() {
    h.time(h.wake == kNever ? h.now + kMs : std::max(h.wake, h.now + 1));
    for (SessionId s = 0; s <= sb; ++s)
      if (!open(s)) h.report(s, 1, 0, SLUICE_GRANT_GENERATION(h.page(s).grant));
    for (SessionId s = 0; s <= sb; ++s)
      if (open(s)) h.report(s, 1, 1);
  }

  const uint32_t most = SchedulerConfig().sessions_at_once;
  Host h;
  VgpuId a = 0, b = 0;
  std::vector<SessionId> crowd;
  SessionId sb = 0;
};

TEST_F(SchedulerCrowd, SoManyAtOnceAndAllInTurn) {
  for (const SessionId s : crowd) h.report(s, 1, 1);
  EXPECT_EQ(open_ones().size(), crowd.size()) << "alone, all may launch";
  h.report(sb, 1, 0);
  while (!stats(b).holds) step();
  const uint64_t a_ns = stats(a).charged_sm_ns, b_ns = stats(b).charged_sm_ns;
  std::set<SessionId> had;
  for (int i = 0; i < 1000; ++i) {
    step();
    const auto now = open_ones();
    EXPECT_LE(now.size(), most);
    EXPECT_EQ(now.size(), stats(a).holds ? most : 0);
    had.insert(now.begin(), now.end());
  }
  EXPECT_EQ(had.size(), crowd.size()) << "each of them";
  const auto a_used = static_cast<double>(stats(a).charged_sm_ns - a_ns);
  const auto b_used = static_cast<double>(stats(b).charged_sm_ns - b_ns);
  EXPECT_NEAR(b_used / (a_used + b_used), 0.5, 0.02);
}

TEST_F(SchedulerCrowd, TheNextFollowWhenThoseHaveNoWork) {
  for (const SessionId s : crowd) h.report(s, 1, 0);
  h.report(sb, 1, 0);
  while (!stats(b).holds) step();
  while (!stats(a).holds) step();
  std::set<SessionId> done;
  while (done.size() < crowd.size()) {
    const auto now = open_ones();
    ASSERT_FALSE(now.empty());
    ASSERT_LE(now.size(), most);
    for (const SessionId s : now) {
      EXPECT_TRUE(done.insert(s).second) << "one that is through, while others wait";
      h.report(s, 0, 0);  // its last launch has ended
    }
    ASSERT_TRUE(done.size() == crowd.size() || stats(a).holds);
  }
}

TEST_F(SchedulerCrowd, WhoHasWorkAgainIsNotTakenForIdle) {
  for (const SessionId s : crowd) h.report(s, 1, 0);
  h.report(sb, 1, 0);
  while (!stats(b).holds) step();
  while (!stats(a).holds) step();
  const auto now = open_ones();
  for (const SessionId s : now)
    if (s != *now.begin()) h.report(s, 0, 0);
  for (const SessionId s : now)
    if (s != *now.begin()) h.quietly(s, 1, 1);
  h.report(*now.begin(), 0, 0);
  EXPECT_EQ(open_ones(), now);
}

TEST_F(SchedulerCrowd, AllMayLaunchOnceTheNeighbourHasNoWork) {
  for (const SessionId s : crowd) h.report(s, 1, 0);
  h.report(sb, 1, 0);
  while (!stats(b).holds) step();
  while (!stats(a).holds) step();
  EXPECT_EQ(open_ones().size(), most);
  h.report(sb, 0, 0);
  EXPECT_EQ(open_ones().size(), crowd.size());
}

TEST_F(SchedulerCrowd, EndsWithinATurnLeaveTheOthersTheirs) {
  for (const SessionId s : crowd) h.report(s, 1, 0);
  h.report(sb, 1, 0);
  while (!stats(b).holds) step();
  while (!stats(a).holds) step();
  while (!crowd.empty()) {
    const auto now = open_ones();
    ASSERT_EQ(now.size(), std::min<size_t>(most, crowd.size()));
    h.remove(*now.begin());
    h.page(*now.begin()).grant = 0;
    std::erase(crowd, *now.begin());
  }
  EXPECT_FALSE(stats(a).holds);
  EXPECT_TRUE(stats(b).holds);
}

// ---- in each way of sharing ------------------------------------------------------------------

struct Way {
  const char* name;
  SchedulerConfig config;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
Way way_exclusive() { return {"Exclusive", {}}; }
Way way_in_space() {
  Way w{"InSpace", {}};
  w.config.policy_config.machine.spatial = true;
  w.config.policy_config.machine.sm_count = 8;
  return w;
}
Way way_on_slices() {
  Way w{"Slices", {}};
  w.config.policy_config.machine.preemptor = policy::PreemptorKind::kProportional;
  return w;
}
Way way_in_turns() {
  Way w{"Turns", {}};
  w.config.turns_by_priority = true;
  return w;
}

class CrowdEverywhere : public ::testing::TestWithParam<Way> {
 protected:
  static constexpr int kCrowd = 12;
  CrowdEverywhere() : h(GetParam().config) {
    a = h.vgpu(), b = h.vgpu();
    for (int i = 0; i < kCrowd; ++i) crowd.push_back(h.session(a));
    sb = h.session(b);
  }
  bool open(SessionId s) { return h.page(s).grant & SLUICE_GRANT_OPEN; }
  uint32_t generation(SessionId s) { return SLUICE_GRANT_GENERATION(h.page(s).grant); }
  // What of the crowd may be on the GPU: whose gate is open, and whose launches have not left.
  size_t launching() {
    return static_cast<size_t>(std::count_if(crowd.begin(), crowd.end(), [&](SessionId s) {
      return open(s) || h.page(s).report.guest_in_flight > 0;
    }));
  }
  void tick() {
    h.time(h.wake == kNever ? h.now + kMs : std::min(std::max(h.wake, h.now + 1), h.now + kMs));
    if (GetParam().config.policy_config.machine.preemptor == policy::PreemptorKind::kProportional)
      for (const VgpuId v : {a, b}) h.scheduler->on_used(h.now, v, kMs / 2);
  }
  // One step of the clock. Who has an open gate launches; what has to leave does so at once, but
  // for `stays`.
  void step(const std::set<SessionId>& stays = {}) {
    tick();
    for (SessionId s = 0; s <= sb; ++s) {
      if (stays.count(s)) continue;
      if (!open(s)) h.report(s, 1, 0, generation(s));
      if (open(s)) h.report(s, 1, 1, generation(s) - 1);
    }
  }
  // Until the crowd has given way as far as it has to.
  void settle() {
    for (const SessionId s : crowd) h.report(s, 1, 0);
    h.report(sb, 1, 0);
    for (int i = 0; i < 10000 && launching() > most; ++i) step();
    ASSERT_LE(launching(), most);
  }

  const uint32_t most = SchedulerConfig().sessions_at_once;
  Host h;
  VgpuId a = 0, b = 0;
  std::vector<SessionId> crowd;
  SessionId sb = 0;
};

TEST_P(CrowdEverywhere, SoManyAtOnceAndAllInTurn) {
  for (const SessionId s : crowd) h.report(s, 1, 1);
  EXPECT_EQ(launching(), crowd.size()) << "alone, all may launch";
  settle();
  std::set<SessionId> had;
  for (int i = 0; i < 3000; ++i) {
    step();
    ASSERT_LE(launching(), most) << "step " << i;
    for (const SessionId s : crowd)
      if (open(s)) had.insert(s);
  }
  EXPECT_EQ(had.size(), crowd.size()) << "each of them";
  EXPECT_EQ(h.did.find("policy?"), std::string::npos);
}

TEST_P(CrowdEverywhere, WhatDoesNotLeaveIsNotJoinedByMore) {
  settle();
  std::set<SessionId> spinners;
  for (int i = 0; i < 10000 && spinners.size() < most; ++i) {
    step(spinners);
    for (const SessionId s : crowd)
      if (open(s) && spinners.size() < most) spinners.insert(s);
  }
  ASSERT_EQ(spinners.size(), most);
  for (int i = 0; i < 300; ++i) {
    step(spinners);
    ASSERT_LE(launching(), most) << "step " << i;
  }
}

TEST_P(CrowdEverywhere, ANewcomerIsNoneTooMany) {
  settle();
  for (int i = 0; i < 20; ++i) {
    crowd.push_back(h.session(a));
    sb = std::max(sb, crowd.back());
    ASSERT_LE(launching(), most);
    step();
    ASSERT_LE(launching(), most);
  }
}

TEST_P(CrowdEverywhere, WithoutWorkTheNextFollow) {
  settle();
  std::set<SessionId> done;
  for (int i = 0; i < 10000 && done.size() < crowd.size(); ++i) {
    tick();
    for (SessionId s = 0; s <= sb; ++s) {
      const bool has = s == sb || !done.count(s);
      if (!open(s)) h.report(s, has, 0, generation(s));
    }
    for (const SessionId s : crowd)
      if (open(s) && done.insert(s).second) h.report(s, 0, 0, generation(s) - 1);
    ASSERT_LE(launching(), most);
  }
  EXPECT_EQ(done.size(), crowd.size());
}

// A worker that was taken over reports work and none in turn, as fast as it may ring.
TEST_P(CrowdEverywhere, ReportsInTurnDoNotMoveTheCrowd) {
  settle();
  uint64_t before = 0, after = 0;
  for (const SessionId s : crowd) before += generation(s);
  const uint64_t began_ns = h.now;
  constexpr uint32_t kReports = 20'000;  // 10 us apart
  for (uint32_t i = 0; i < kReports; ++i) {
    h.now += 10'000;
    if (h.wake <= h.now) h.time(h.now);
    const SessionId s = crowd[i / 2 % crowd.size()];
    h.report(s, i % 2, 0, generation(s) - open(s));
    if (GetParam().config.policy_config.machine.preemptor == policy::PreemptorKind::kProportional)
      for (const VgpuId v : {a, b}) h.scheduler->on_used(h.now, v, 5'000);
  }
  for (const SessionId s : crowd) after += generation(s);
  // So many grants in that time by the rule, and those of turns of the whole vGPU.
  const uint64_t rounds = (h.now - began_ns) / SchedulerConfig().session_idle_ns;
  EXPECT_LE(after - before, most * (rounds + 2)) << kReports << " reports";
}

TEST_P(CrowdEverywhere, AllMayLaunchOnceTheNeighbourHasNoWork) {
  settle();
  h.remove(sb);
  h.page(sb).grant = 0;
  for (int i = 0; i < 1000 && launching() < crowd.size(); ++i) {
    tick();
    for (const SessionId s : crowd) h.report(s, 1, open(s), generation(s) - open(s));
  }
  EXPECT_EQ(launching(), crowd.size());
}

INSTANTIATE_TEST_SUITE_P(, CrowdEverywhere,
                         ::testing::Values(way_exclusive(), way_in_space(), way_on_slices(),
                                           way_in_turns()),
                         [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace sluice::core
