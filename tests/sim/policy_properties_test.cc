// SPDX-License-Identifier: Apache-2.0
// Properties of every registered policy over random workloads: the contract is kept, all work that
// arrives is done, nobody who is promised progress starves, equal seeds give equal outcomes,
// weights are followed. A failing seed is printed and written to policy_properties_failed.txt in
// the working directory, and the test ends with it; SLUICE_PROPERTY_SEED=N runs that one alone,
// SLUICE_PROPERTY_RUNS=N so many from the first or from that one on, all of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "policies/sim/simulation.h"
#include "tests/sim/random_workload.h"

namespace sluice::policy::sim {
namespace {

struct Seeds {
  uint64_t first, end;
  bool all;  // also after one that failed
  bool more(uint64_t seed) const { return seed < end && (all || !::testing::Test::HasFailure()); }
};
Seeds seeds(uint64_t usual) {
  const char *one = std::getenv("SLUICE_PROPERTY_SEED"),
             *many = std::getenv("SLUICE_PROPERTY_RUNS");
  const uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  return {first,
          first + (many  ? std::strtoull(many, nullptr, 10)
                   : one ? 1
                         : usual),
          many != nullptr};
}

std::vector<const Registration*> policies(PreemptorKind kind) {
  std::vector<const Registration*> rows;
  for (const Registration& row : registry())
    if (kind == PreemptorKind::kExclusive ? row.exclusive : row.proportional) rows.push_back(&row);
  return rows;
}

// Beyond it a simulation is cut: who asks to be woken at the same time again and again would never
// end. What fits into the horizon is no such thing: launches of the shortest kernel from all
// programs, with their events (seed 4841: one of 1.1 us, 1.2 million times).
uint64_t events_allowed(const Workload& w) {
  uint64_t shortest_ns = w.horizon_ns;
  for (const Kernel& k : w.kernels)
    shortest_ns = std::min(shortest_ns, std::max<uint64_t>(k.alone_ns, 1));
  return 3'000'000 + (w.horizon_ns ? 8 * w.programs.size() * (w.horizon_ns / shortest_ns) : 0);
}
Outcome under(const Registration& row, const Workload& w, uint64_t seed) {
  const auto policy = row.make(engine_config(w));
  return simulate(w, *policy,
                  {.seed = seed, .preempts = row.preempts, .max_events = events_allowed(w)});
}

int failures() {
  return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
}
// Keeps what failed since `before`, and says how to see it again.
void keep(const char* property, const Registration& row, uint64_t seed, int before) {
  if (failures() == before) return;
  std::ofstream("policy_properties_failed.txt", std::ios::app)
      << property << " policy " << row.name << " seed " << seed << '\n';
}

// For which wfq may keep the GPU free: what others are owed for overruns (policies/wfq/amends.h).
uint64_t amends_ns(const Workload& w, const Outcome& r) {
  constexpr uint64_t kMostIdle = 19;
  uint64_t all_ns = 0;
  for (const uint64_t ns : r.evict_latency_ns)
    if (ns > w.config.min_quantum_ns) all_ns += ns + w.config.min_quantum_ns;
  return kMostIdle * all_ns;
}

class PolicyProperties : public ::testing::TestWithParam<PreemptorKind> {};

TEST_P(PolicyProperties, WhatArrivesIsDoneWithinTheContract) {
  const Seeds tried = seeds(1000);
  for (uint64_t seed = tried.first; tried.more(seed); ++seed) {
    const Workload w = random_workload(seed, Shape::kFinite, GetParam());
    ASSERT_EQ(check_workload(w), "") << "seed " << seed;
    for (const Registration* row : policies(GetParam())) {
      const int before = failures();
      const Outcome r = under(*row, w, seed);
      SCOPED_TRACE(std::string(row->name) + ", seed " + std::to_string(seed));
      EXPECT_EQ(r.violations, 0u) << r.violation;
      EXPECT_FALSE(r.stuck || r.cut) << "after " << r.events << " events";
      double held = 0;
      for (const VgpuResult& v : r.vgpus) held += static_cast<double>(v.sm_ns);
      for (size_t i = 0; i < r.programs.size(); ++i) {
        EXPECT_EQ(r.programs[i].work_done_sm_ns, r.programs[i].work_arrived_sm_ns)
            << "program " << i;
        EXPECT_EQ(r.programs[i].unfinished_runs, 0u) << "program " << i;
        EXPECT_EQ(r.programs[i].runs.size(), w.programs[i].runs) << "program " << i;
      }
      EXPECT_GE(r.lost_sm_ns, -1e-6 * held) << "more work done than SM-time held";
      EXPECT_LE(held, static_cast<double>(w.gpu.sm_count) * static_cast<double>(r.some_work_ns) *
                          (1 + 1e-9));
      // On slices gates may leave it idle for a moment, which in such short runs says little: see
      // below. wfq may wait for one that is about to be back, for less than handing over would
      // cost: 1 % of the time, and more where that one pays for it. And it keeps the GPU free for
      // the pauses of those that waited for one that did not leave in time.
      if (GetParam() == PreemptorKind::kExclusive) {
        uint64_t allowed = 0;
        if (row->name.starts_with("wfq")) allowed = r.some_work_ns / 100 + 50'000 + amends_ns(w, r);
        EXPECT_LE(r.idle_with_work_ns - r.kept_ns, allowed)
            << "somebody had work and nobody was on the GPU";
        EXPECT_LE(r.kept_ns, r.some_work_ns / 2 + 50'000) << "kept for those that pause";
      }
      if (!row->preempts) {
        EXPECT_EQ(r.evictions, 0u);
      }
      keep("done", *row, seed, before);
    }
  }
}

TEST_P(PolicyProperties, EqualSeedsGiveEqualOutcomes) {
  const Seeds tried = seeds(200);
  for (uint64_t seed = tried.first; tried.more(seed); ++seed) {
    const Workload w = random_workload(seed, Shape::kFinite, GetParam());
    for (const Registration* row : policies(GetParam())) {
      const int before = failures();
      const Outcome a = under(*row, w, seed), b = under(*row, w, seed);
      SCOPED_TRACE(std::string(row->name) + ", seed " + std::to_string(seed));
      EXPECT_EQ(a.end_ns, b.end_ns);
      EXPECT_EQ(a.events, b.events);
      EXPECT_EQ(a.evict_latency_ns, b.evict_latency_ns);
      EXPECT_EQ(a.wait_ns, b.wait_ns);
      keep("determinism", *row, seed, before);
    }
  }
}

// The longest wait for the policies that promise progress: a round of everybody's quanta by weight,
// with room for launches that must end first. Generous, because it is about starvation: a starved
// vGPU waits until the horizon, a second and a half, and until a horizon four times as far as well.
// (Seed 1260, frs: one of four endless jobs is ahead after its first turns and waits 1.2 s, once;
// after 6 s all four have had the same.)
TEST_P(PolicyProperties, NobodyPromisedProgressStarves) {
  const Seeds tried = seeds(200);
  for (uint64_t seed = tried.first; tried.more(seed); ++seed) {
    Workload w = random_workload(seed, Shape::kBacklogged, GetParam());
    // Within a factor of eight, so that a fair wait of the lightest stays far below the horizon.
    for (SimulatedVgpu& v : w.vgpus) v.share.weight = 100 + v.share.weight % 701;
    // Short tasks: behind long ones a fair wait is long too (ffs makes its epochs ten times as long
    // as what preemptions cost).
    for (Kernel& k : w.kernels) {
      k.evictable = true;
      k.task_ns = std::min<uint64_t>(k.alone_ns, 200'000);
    }
    // Who says that it needs a hundred times what it needs has itself to blame; who says a
    // hundredth would harm others.
    for (Program& p : w.programs) p.prediction_factor = std::min(p.prediction_factor, 1.0);
    for (const Registration* row : policies(GetParam())) {
      if (!row->starvation_free) continue;
      const int before = failures();
      const Outcome r = under(*row, w, seed);
      SCOPED_TRACE(std::string(row->name) + ", seed " + std::to_string(seed));
      EXPECT_EQ(r.violations, 0u) << r.violation;
      EXPECT_FALSE(r.stuck || r.cut);
      for (size_t v = 0; v < r.vgpus.size(); ++v) {
        if (r.vgpus[v].longest_wait_ns < 1'400'000'000u) {
          EXPECT_GT(r.vgpus[v].sm_ns, 0u) << "vGPU " << v;
          continue;
        }
        Workload longer = w;
        longer.horizon_ns *= 4;
        EXPECT_LT(under(*row, longer, seed).vgpus[v].longest_wait_ns, longer.horizon_ns / 2)
            << "vGPU " << v;
      }
      // loga idles the GPU by its paper's rule; wfq may wait for 1 % of the time.
      EXPECT_LE(r.idle_with_work_ns - r.kept_ns, r.some_work_ns / (row->name == "loga" ? 5 : 100));
      EXPECT_LE(r.kept_ns, r.some_work_ns / 2 + 50'000);
      keep("starvation", *row, seed, before);
    }
  }
}

TEST_P(PolicyProperties, MoreWeightIsNeverLessGpu) {
  const Seeds tried = seeds(100);
  for (uint64_t seed = tried.first; tried.more(seed); ++seed) {
    Workload w = random_workload(seed, Shape::kBacklogged, GetParam());
    for (SimulatedVgpu& v : w.vgpus) v.share.weight = 100 + v.share.weight % 301;
    for (Kernel& k : w.kernels) {  // evictable within a short time, so that the share can be held
      k.evictable = true;
      k.task_ns = std::min<uint64_t>(k.alone_ns, 50'000);
    }
    for (const Registration* row : policies(GetParam())) {
      if (!row->follows_weights) continue;
      const int before = failures();
      // By how much doubling the weight of the first takes GPU away from it, ns of the whole GPU.
      const auto lost_ns = [&](uint64_t horizon_ns) {
        double got[2];
        for (uint32_t i : {0u, 1u}) {
          Workload x = w;
          x.horizon_ns = horizon_ns;
          x.vgpus[0].share.weight *= 1 + i;
          got[i] = static_cast<double>(under(*row, x, seed).vgpus[0].sm_ns);
        }
        return (got[0] - got[1]) / w.gpu.sm_count;
      };
      SCOPED_TRACE(std::string(row->name) + ", seed " + std::to_string(seed));
      // A turn more or less at the end of the run is no breach of it; loga's is a suspension, as
      // long as a pause (5 ms a vGPU, half as much more at most).
      const double suspension_ns =
          row->name == "loga" ? 7.5e6 * static_cast<double>(w.vgpus.size()) : 0;
      const auto allowed_ns = [&](uint64_t horizon_ns) {
        return 0.03 * static_cast<double>(horizon_ns) + suspension_ns;
      };
      uint64_t horizon_ns = w.horizon_ns;
      // loga goes by phases of 1 ms a vGPU, which see the turns (2 ms and a switch) of some of
      // them: whom it suspends is chance at first. What that makes of a share falls with the root
      // of their number (seed 1398: 62 phases in 1.5 s, and the share is 49 % with a weight of 262,
      // 44 with 524, 58 with 1,048; after 6 s 50, 57, 61; after 48 s 58, 60, 61).
      if (row->name == "loga" && lost_ns(horizon_ns) > allowed_ns(horizon_ns)) horizon_ns *= 8;
      EXPECT_LE(lost_ns(horizon_ns), allowed_ns(horizon_ns));
      keep("monotonicity", *row, seed, before);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Preemptors, PolicyProperties,
                         ::testing::Values(PreemptorKind::kExclusive, PreemptorKind::kProportional),
                         [](const auto& p) {
                           return p.param == PreemptorKind::kExclusive ? "Exclusive"
                                                                       : "Proportional";
                         });

}  // namespace
}  // namespace sluice::policy::sim
