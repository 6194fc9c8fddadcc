// SPDX-License-Identifier: Apache-2.0
// The scheduler in space, in virtual time, under wfq and dss: shares by weight, no SM of two vGPUs
// at once, whatever comes and goes. A failing seed is printed.
#include <gtest/gtest.h>

#include <random>

#include "policies/parts/in_units.h"
#include "tests/sim/hosts/sim_host.h"

namespace sluice::sim {
namespace {

core::SchedulerConfig in_space(uint32_t sms, const char* policy = "wfq") {
  core::SchedulerConfig c;
  c.policy = policy;
  c.policy_config.machine.sm_count = sms;
  c.policy_config.machine.spatial = true;
  return c;
}

std::vector<double> sm_shares(const SimHost& h, const std::vector<VgpuTruth>& base,
                              const std::vector<core::VgpuId>& v) {
  return shares_since(h, base, v, &VgpuTruth::all_sm_ns);
}

TEST(SchedulerInSpaceSim, WholeSmsAreHeldForGood) {
  for (const char* policy : {"wfq", "dss"}) {
    SCOPED_TRACE(policy);
    SimHost h(in_space(4, policy), {}, 1);
    const std::vector<core::VgpuId> v = {h.add_vgpu(300), h.add_vgpu(100)};
    h.add_session(v[0], {});
    h.add_session(v[1], {.task_ns = 350 * kUs, .tasks_per_launch = 9});
    h.run_until(kSecond);
    const std::vector<VgpuTruth> base = {h.truth(v[0]), h.truth(v[1])};
    const uint64_t evictions = h.stats(v[0]).evictions;
    h.run_until(2 * kSecond);
    EXPECT_NEAR(sm_shares(h, base, v)[0], 0.75, 0.01);
    EXPECT_EQ(h.stats(v[0]).sms.count(), 3u);
    EXPECT_EQ(h.stats(v[1]).sms.count(), 1u);
    EXPECT_LE(h.stats(v[0]).evictions - evictions, 2u) << "nothing has to move";
    EXPECT_EQ(h.overlap_ns(), 0u);
    EXPECT_EQ(h.policy_violations(), 0u);
    EXPECT_NEAR(h.stats(v[0]).shares.share_got(), 0.75, 0.02);
  }
}

// Shares that are no whole SMs go by turns on one.
TEST(SchedulerInSpaceSim, PartsOfAnSmGoByTurns) {
  SimHost h(in_space(4), {}, 2);
  const std::vector<core::VgpuId> v = {h.add_vgpu(100), h.add_vgpu(100), h.add_vgpu(100)};
  for (const auto i : v) h.add_session(i, {.task_ns = 50 * kUs});
  h.run_until(10 * kSecond);
  for (const double got : sm_shares(h, std::vector<VgpuTruth>(3), v))
    EXPECT_NEAR(got, 1.0 / 3, 0.02);
  EXPECT_EQ(h.overlap_ns(), 0u);
  EXPECT_EQ(h.policy_violations(), 0u);
}

TEST(SchedulerInSpaceSim, MoreVgpusThanSms) {
  SimHost h(in_space(4), {}, 3);
  std::vector<core::VgpuId> v;
  for (int i = 0; i < 12; ++i) {
    v.push_back(h.add_vgpu(100));
    h.add_session(v.back(), {.task_ns = 30 * kUs});
  }
  h.run_until(10 * kSecond);
  for (const double got : sm_shares(h, std::vector<VgpuTruth>(12), v))
    EXPECT_NEAR(got * 12, 1.0, 0.05);
  EXPECT_EQ(h.overlap_ns(), 0u);
  EXPECT_EQ(h.policy_violations(), 0u);
}

TEST(SchedulerInSpaceSim, WeightsThatChangeMoveSms) {
  SimHost h(in_space(132), {}, 4);
  const std::vector<core::VgpuId> v = {h.add_vgpu(100), h.add_vgpu(100)};
  for (const auto i : v) h.add_session(i, {.task_ns = 20 * kUs, .tasks_per_launch = 500});
  h.run_until(kSecond);
  EXPECT_NEAR(h.stats(v[0]).sms.count(), 66, 2);
  h.set_share(v[0], 300);
  h.run_until(2 * kSecond);
  EXPECT_NEAR(h.stats(v[0]).sms.count(), 99, 2);
  EXPECT_EQ(h.overlap_ns(), 0u);
}

// What the registry says of a policy: it lets two who have work run side by side, or one after the
// other.
TEST(SchedulerInSpaceSim, EveryPolicyKeepsToWhatItsRowSays) {
  for (const policy::Registration& row : policy::registry()) {
    if (!core::Scheduler::runs(row)) continue;
    SCOPED_TRACE(row.name);
    SimHost h(in_space(4, row.name.data()), {}, 9);
    const std::vector<core::VgpuId> v = {h.add_vgpu(100), h.add_vgpu(100)};
    for (const auto i : v) h.add_session(i, {.launches_per_burst = 20, .pause_ns = 5 * kMs});
    bool together = false;
    for (uint64_t ms = 1; ms <= 500; ++ms) {
      h.run_until(ms * kMs);
      together |= !h.stats(v[0]).sms.empty() && !h.stats(v[1]).sms.empty();
    }
    EXPECT_EQ(together, row.parts);
    EXPECT_EQ(h.overlap_ns(), 0u);
    EXPECT_EQ(h.policy_violations(), 0u);
  }
}

// Who is alone has all; who goes leaves its SMs to the others.
TEST(SchedulerInSpaceSim, WorkIsConserved) {
  SimHost h(in_space(8), {}, 5);
  const std::vector<core::VgpuId> v = {h.add_vgpu(100), h.add_vgpu(100)};
  h.add_session(v[0], {});
  h.add_session(v[1], {.launches_per_burst = 2, .pause_ns = 20 * kMs});
  h.run_until(5 * kSecond);
  const auto used = static_cast<double>(h.truth(v[0]).sm_ns + h.truth(v[1]).sm_ns);
  EXPECT_GT(used, 0.95 * 8 * 5 * static_cast<double>(kSecond));
  EXPECT_EQ(h.overlap_ns(), 0u);
}

// Opaque launches take no notice of SMs; they are charged for all and are nobody's gain.
TEST(SchedulerInSpaceSim, OpaqueLaunchesPayForTheWholeGpu) {
  SimHost h(in_space(4), {}, 6);
  const std::vector<core::VgpuId> v = {h.add_vgpu(100), h.add_vgpu(100)};
  h.add_session(v[0], {.task_ns = 50 * kUs});
  h.add_session(v[1], {.task_ns = kMs, .tasks_per_launch = 1, .evictable = false});
  h.run_until(10 * kSecond);
  // By the mediator's books, in which b's kernels use four SMs each.
  EXPECT_NEAR(h.stats(v[1]).shares.share_got(), 0.5, 0.12);
  EXPECT_EQ(h.ended(), 0u);
  EXPECT_EQ(h.policy_violations(), 0u);
}

// Evictable, but on any SM (prologue clones): the same, and whoever is given SMs gets them when
// they have left.
TEST(SchedulerInSpaceSim, PrologueLaunchesPayForTheWholeGpuAndLeave) {
  SimHost h(in_space(4), {}, 6);
  const std::vector<core::VgpuId> v = {h.add_vgpu(100), h.add_vgpu(100)};
  h.add_session(v[0], {.task_ns = 50 * kUs});
  h.add_session(v[1],
                {.task_ns = 500 * kUs, .tasks_per_launch = 200, .confined = false});  // 100 ms each
  h.run_until(10 * kSecond);
  EXPECT_NEAR(h.stats(v[1]).shares.share_got(), 0.5, 0.02);
  // Its launches were called back in their middle; by its own account it had half of the time, on
  // all SMs.
  EXPECT_GT(h.stats(v[1]).evictions, 20u);
  EXPECT_EQ(h.overlap_ns(), 0u);
  EXPECT_EQ(h.stats(v[1]).overdue, 0u);
  EXPECT_EQ(h.ended(), 0u);
  EXPECT_EQ(h.policy_violations(), 0u);
}

TEST(SchedulerInSpaceSim, LiarsHarmNobodysShare) {
  using Lie = Program::Lie;
  for (const Lie lie :
       {Lie::kAlwaysBusy, Lie::kNothingInFlight, Lie::kLeftAtOnce, Lie::kSilent, Lie::kRandom}) {
    SCOPED_TRACE(static_cast<int>(lie));
    SimHost h(in_space(8), {}, 7);
    const std::vector<core::VgpuId> v = {h.add_vgpu(200), h.add_vgpu(100), h.add_vgpu(100)};
    h.add_session(v[0], {});
    h.add_session(v[1], {});
    h.add_session(v[2], {.start_ns = 100 * kMs, .lie = lie});
    h.run_until(10 * kSecond);
    const double a = static_cast<double>(h.truth(v[0]).sm_ns),
                 b = static_cast<double>(h.truth(v[1]).sm_ns);
    EXPECT_NEAR(a / (a + b), 2.0 / 3, 0.02);
    EXPECT_GT(a, 0.45 * 8 * 10 * static_cast<double>(kSecond));
    EXPECT_EQ(h.overlap_ns(), 0u);
    EXPECT_EQ(h.policy_violations(), 0u);
  }
}

TEST(SchedulerInSpaceSim, WhoNeverLeavesIsEnded) {
  auto c = in_space(4);
  c.evict_end_ns = 200 * kMs;
  SimHost h(c, {}, 8);
  const std::vector<core::VgpuId> v = {h.add_vgpu(100), h.add_vgpu(100)};
  h.add_session(v[1], {.never_leaves = true});
  h.add_session(v[0], {.start_ns = 50 * kMs});
  h.run_until(2 * kSecond);
  EXPECT_EQ(h.ended(), 1u);
  EXPECT_EQ(h.stats(v[0]).sms.count(), 4u);
}

// An H200 with green contexts: SMs in pairs, and each change of a vGPU's SMs stops all of them.
// Clients that wait after each launch keep their sets, see few different ones, do what they could
// do with SMs of their own, and have their shares over any second.
TEST(SchedulerInSpaceSim, SetsLastWhereChangesAreDear) {
  struct Client {
    uint64_t launch_ns, gap_ns;
  };
  const struct {
    std::vector<uint32_t> weights;
    std::vector<Client> clients;
  } cases[] = {
      {{2, 1}, {{200 * kUs, 100 * kUs}}},
      {{1, 1, 1}, {{200 * kUs, 20 * kUs}, {kMs, 50 * kUs}, {5 * kMs, 100 * kUs}}},
      {{4, 3, 2, 1}, {{200 * kUs, 100 * kUs}}},
      {{4, 3, 2, 1}, {{kMs, 50 * kUs}}},
      {{4, 3, 2, 1}, {{200 * kUs, 20 * kUs}, {kMs, 0}, {5 * kMs, 100 * kUs}, {kMs, 50 * kUs}}}};
  for (const auto& c : cases) {
    auto config = in_space(132);
    config.policy_config.machine.sm_unit = 2;
    config.policy_config.machine.change_ns = 150 * kUs;
    const Costs costs{.change_ns = 150 * kUs};
    SimHost h(config, costs, 10);
    double weights = 0, possible = 0, done = 0;
    for (const uint32_t w : c.weights) weights += w;
    const auto n = static_cast<core::VgpuId>(c.weights.size());
    const auto client = [&](core::VgpuId v) { return c.clients[v % c.clients.size()]; };
    for (core::VgpuId v = 0; v < n; ++v) {
      const auto [launch_ns, gap_ns] = client(v);
      h.add_vgpu(100 * c.weights[v]);
      h.add_session(v, {.task_ns = launch_ns / 100,
                        .tasks_per_launch = 100,
                        .queued = gap_ns ? 1u : 2u,
                        .launches_per_burst = gap_ns ? 1u : 0u,
                        .pause_ns = gap_ns});
      const auto launch = static_cast<double>(launch_ns), alone = launch * weights / c.weights[v];
      possible += launch / (alone + static_cast<double>(gap_ns + costs.start_ns));
    }
    constexpr uint64_t kSeconds = 3, kPartsOfSecond = 10;
    h.run_until(kSecond);
    uint64_t changes = 0;
    std::vector<VgpuTruth> base;
    for (core::VgpuId v = 0; v < n; ++v) base.push_back(h.truth(v)), changes -= base[v].set_changes;
    std::vector<std::vector<double>> held{std::vector<double>(n)};  // SM-time of each so far
    for (uint64_t part = 0; part < kSeconds * kPartsOfSecond; ++part) {
      held.push_back(held.back());
      for (uint64_t ms = 1; ms <= 1000 / kPartsOfSecond; ++ms) {
        h.run_until(kSecond + part * kSecond / kPartsOfSecond + ms * kMs);
        for (core::VgpuId v = 0; v < n; ++v) held.back()[v] += h.stats(v).sms.count();
      }
      if (held.size() <= kPartsOfSecond) continue;
      const auto& before = held[held.size() - 1 - kPartsOfSecond];
      for (core::VgpuId v = 0; v < n; ++v) {
        const double owed = 132 * 1000 * c.weights[v] / weights;
        EXPECT_NEAR((held.back()[v] - before[v]) / owed, 1, 0.01)
            << "vGPU " << v << " of " << n << ", second until " << part;
      }
    }
    for (core::VgpuId v = 0; v < n; ++v) {
      changes += h.truth(v).set_changes;
      done += static_cast<double>((h.truth(v).tasks_done - base[v].tasks_done) *
                                  (client(v).launch_ns / 100)) /
              (kSeconds * kSecond);
      EXPECT_LE(h.truth(v).new_sets - base[v].new_sets, 4 * kSeconds)
          << "vGPU " << v << " of " << n;
    }
    EXPECT_LE(changes, 50 * kSeconds) << n;
    EXPECT_GE(done, 0.98 * possible) << n;
    EXPECT_EQ(h.overlap_ns(), 0u);
    EXPECT_EQ(h.policy_violations(), 0u);
  }
}

void random_space_workload(uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 r(seed);
  const auto pick = [&](uint64_t lo, uint64_t hi) { return lo + r() % (hi - lo + 1); };
  auto c = in_space(static_cast<uint32_t>(pick(1, 3) == 1 ? pick(2, 256) : pick(2, 16)),
                    pick(0, 3) ? "wfq" : "dss");
  c.evict_end_ns = pick(1, 4) * 250 * kMs;
  std::mt19937_64 parts(seed);  // another one: a seed's other figures stay what they were
  policy::Machine& m = c.policy_config.machine;
  m.sm_unit = parts() % 2 ? 1 : 1 + static_cast<uint32_t>(parts() % m.sm_count);
  m.change_ns = parts() % 2 ? 0 : parts() % (400 * kUs);
  Costs costs;
  costs.ring_ns = pick(1, 60) * kUs;
  costs.gate_ns = pick(1, 60) * kUs;
  costs.signal_ns = pick(0, 30) * kUs;
  costs.start_ns = pick(0, 60) * kUs;
  SimHost h(c, costs, seed);
  std::vector<core::VgpuId> v;
  std::vector<core::SessionId> sessions;
  const uint64_t n = pick(2, 8);
  for (uint64_t i = 0; i < n; ++i) {
    v.push_back(h.add_vgpu(static_cast<uint32_t>(pick(1, 100) * 10),
                           static_cast<uint32_t>(pick(1, 5) == 1)));
    for (uint64_t k = pick(1, 3); k-- > 0;) {
      Program p;
      p.evictable = pick(1, 6) != 1;
      p.confined = pick(1, 6) != 1;
      p.task_ns = pick(1, 300) * kUs;
      p.tasks_per_launch = static_cast<uint32_t>(pick(1, 60));
      p.queued = static_cast<uint32_t>(pick(1, 4));
      if (pick(1, 2) == 1) {
        p.launches_per_burst = static_cast<uint32_t>(pick(1, 20));
        p.pause_ns = pick(1, 200) * 100 * kUs;
      }
      if (pick(1, 15) == 1) p.lie = static_cast<Program::Lie>(pick(0, 5));
      p.never_leaves = pick(1, 25) == 1;
      sessions.push_back(h.add_session(v.back(), p));
    }
  }
  for (int i = 0; i < 4; ++i)
    h.at(pick(1, 500) * kMs, [&h, which = v[r() % n], w = static_cast<uint32_t>(pick(1, 1000))] {
      h.set_share(which, w);
    });
  h.run_until(pick(100, 300) * kMs);
  h.kill_session(sessions[r() % sessions.size()]);
  h.run_until(600 * kMs);
  EXPECT_EQ(h.overlap_ns(), 0u);
  EXPECT_EQ(h.policy_violations(), 0u);
  SmSet all;
  for (const auto i : v) {
    EXPECT_FALSE(all.meets(h.stats(i).sms));
    all = all | h.stats(i).sms;
    const SmSet sms = h.stats(i).sms;
    for (SmSet::Range part = sms.next_range(); part.lo < part.hi; part = sms.next_range(part.hi))
      EXPECT_TRUE(policy::is_whole_units(
          m.sm_count, m.sm_unit, {static_cast<uint16_t>(part.lo), static_cast<uint16_t>(part.hi)}));
  }
}

TEST(SchedulerInSpaceSim, RandomWorkloads) {
  for (uint64_t seed = 1; seed <= 150 && !HasFailure(); ++seed) random_space_workload(seed);
}

}  // namespace
}  // namespace sluice::sim
