// SPDX-License-Identifier: Apache-2.0
// Many sessions of one vGPU beside a neighbour with one: so many of them may launch at once, all of
// them get their turn, and the neighbour keeps its half.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sluice::core
