// SPDX-License-Identifier: Apache-2.0
// What docs/results/papers/ claims of FRS and LoGA: the simulator's workloads under the policies,
// with tolerances. Where a result differs from the paper's, the test states ours and the page why.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "policies/sim/metrics.h"

namespace sluice::policy::sim {
namespace {

Metrics of(std::string_view workload, std::string_view policy,
           std::vector<Metrics>* runs = nullptr) {
  const auto report = evaluate(*find_workload(workload), policy, 1);
  if (!report) {
    ADD_FAILURE() << workload << " under " << policy << ": " << report.error().message;
    return {};
  }
  EXPECT_EQ(report->mean.ending.violations, 0u) << report->mean.ending.violation;
  EXPECT_FALSE(report->mean.ending.stuck);
  if (runs) *runs = report->runs;
  return report->mean;
}

TEST(Frs, TableOneInTheOrderOfThePaper) {
  std::map<std::string, Metrics> m;
  for (const char* p : {"frs", "srt", "sjf", "rr", "cfs"}) {
    m[p] = of("frs", p);
    EXPECT_EQ(m[p].ending.unfinished_runs, 0u) << p;
  }
  // Figure 4, middle: the order, and 0.42, 0.63, 0.70, 1.41, 2.99; docs/results/papers/ says why
  // cfs is off.
  EXPECT_LT(m["frs"].dntt, m["srt"].dntt);
  EXPECT_LT(m["srt"].dntt, m["sjf"].dntt);
  EXPECT_LT(m["sjf"].dntt, m["rr"].dntt);
  EXPECT_LT(m["rr"].dntt, m["cfs"].dntt);
  EXPECT_NEAR(m["frs"].dntt, 0.42, 0.2);
  EXPECT_NEAR(m["srt"].dntt, 0.63, 0.25);
  EXPECT_NEAR(m["sjf"].dntt, 0.70, 0.15);
  EXPECT_NEAR(m["rr"].dntt, 1.41, 0.15);
  EXPECT_NEAR(m["cfs"].dntt, 1.48, 0.15);  // ours
  // Left: 2.44, 1.96, 1.95, 4.87, 6.0.
  EXPECT_NEAR(m["frs"].antt, 2.44, 0.1);
  EXPECT_NEAR(m["srt"].antt, 1.96, 0.25);
  EXPECT_NEAR(m["sjf"].antt, 1.95, 0.15);
  EXPECT_NEAR(m["rr"].antt, 4.87, 0.15);
  EXPECT_NEAR(m["cfs"].antt, 5.08, 0.2);  // ours
  EXPECT_GT(m["cfs"].antt, m["rr"].antt);
  // Right: 3.79, 5.06, 5.13, 2.02, 1.79.
  EXPECT_NEAR(m["frs"].stp, 3.79, 0.1);
  EXPECT_NEAR(m["srt"].stp, 5.06, 0.4);
  EXPECT_NEAR(m["sjf"].stp, 5.13, 0.45);
  EXPECT_NEAR(m["rr"].stp, 2.02, 0.1);
  EXPECT_NEAR(m["cfs"].stp, 1.79, 0.25);
}

// With predictions off by 30 % (coefficient of variation) the policies that go by them are where
// the paper has them.
TEST(Frs, UncertainPredictionsExplainMeanTurnaroundAndThroughput) {
  const std::map<std::string, std::pair<double, double>> paper = {
      {"frs", {2.44, 3.79}}, {"srt", {1.96, 5.06}}, {"sjf", {1.95, 5.13}}};
  for (const auto& [name, figures] : paper) {
    const Metrics m = of("frs-uncertain", name);
    EXPECT_NEAR(m.antt / figures.first, 1, 0.05) << name;
    EXPECT_NEAR(m.stp / figures.second, 1, 0.05) << name;
  }
}

// Figure 3: all five treat CEDD, the longest, alike; under rr and cfs the short ones wait longest.
TEST(Frs, WhoPaysUnderWhom) {
  const auto ntt = [](const Metrics& m, std::string_view name) {
    for (const auto& [n, x] : m.ntt)
      if (n == name) return x;
    return 0.0;
  };
  for (const char* p : {"rr", "cfs"}) {
    const Metrics m = of("frs", p);
    EXPECT_GT(ntt(m, "MM"), 2 * ntt(m, "CEDD")) << p;
  }
  const Metrics srt = of("frs", "srt"), frs = of("frs", "frs");
  EXPECT_LT(ntt(srt, "RED"), 1.5);
  EXPECT_GT(ntt(frs, "RED"), ntt(srt, "RED"));  // its price: short ones wait for balance
  // "RR obtains a better value for Reduction", because it fits into a quantum.
  const Metrics rr = of("frs", "rr"), cfs = of("frs", "cfs");
  EXPECT_LT(ntt(rr, "RED"), ntt(rr, "HST256"));
  EXPECT_LT(ntt(rr, "RED"), ntt(cfs, "RED"));
}

// wfq protects short launches where their times are known: its turnaround is below that of frs, rr
// and cfs, and within a third of that of srt and sjf, which go by nothing else. frs stays the most
// even one.
TEST(Frs, WhereWfqStands) {
  const Metrics wfq = of("frs", "wfq");
  EXPECT_LT(wfq.antt, of("frs", "frs").antt);
  EXPECT_LT(wfq.antt, of("frs", "srt").antt * 1.33);
  EXPECT_LT(wfq.dntt, of("frs", "sjf").dntt * 1.15);
  EXPECT_GT(wfq.dntt, of("frs", "frs").dntt);  // a rival wins: docs/results/papers/ says so
}

// wfq-srt: the shortest known work first, paid out of each one's own share: on their own metric as
// good as srt and sjf (FRS) and as hpf (FLEP, equal priorities), within 1 %; and where all have
// work all the time it holds their shares, also those of one who lies.
TEST(ShortestFirstWithinShares, AsGoodAsTheRivalsThatKnowNoShares) {
  EXPECT_LT(of("frs", "wfq-srt").antt, of("frs", "srt").antt * 1.01);
  EXPECT_LT(of("frs", "wfq-srt").antt, of("frs", "sjf").antt);
  EXPECT_LT(of("frs", "wfq-srt").dntt, of("frs", "srt").dntt * 1.02);
  EXPECT_GT(of("frs", "wfq-srt").stp, of("frs", "srt").stp * 0.99);
  for (const char* w : {"flep-equal", "flep-triplets"})
    EXPECT_LT(of(w, "wfq-srt").antt, of(w, "hpf").antt * 1.01) << w;
  const Metrics shares = of("flep-fairness", "wfq-srt");
  EXPECT_LT(shares.share_error.max, 0.03);  // 2:1; hpf and srt starve one
  EXPECT_GT(shares.fluid.got_of_owed_min, 0.98);

  Workload w;
  w.gpu = {.sm_count = 132, .signal_ns = 3000, .start_ns = 4000};
  w.kernels = {{.name = "k", .alone_ns = 5'000'000, .tasks = 50'000, .blocks_per_sm = 8}};
  w.vgpus = {{"honest", {}, {}}, {"liar", {}, {}}};
  for (uint32_t v = 0; v < 2; ++v)
    w.programs.push_back({.name = w.vgpus[v].name,
                          .vgpu = v,
                          .steps = {{.kernel = 0}},
                          .arrival = ArrivalKind::kBacklog,
                          .runs = 0,
                          .queue_depth = 2,
                          .prediction_factor = v ? 0.001 : 1});
  w.horizon_ns = 4'000'000'000;
  const auto report = evaluate(w, "wfq-srt", 1);
  ASSERT_TRUE(report.ok());
  EXPECT_NEAR(report->mean.vgpu_share[1], 0.5, 0.02);
  EXPECT_GT(report->mean.fluid.got_of_owed_min, 0.98);
}

// Whose work is long is passed over, and not for ever: its share is what it gets in the end. Twenty
// that pause, each arrival with credit enough, need all of the GPU (it had nothing of ten seconds);
// and mixes whose highest level leaves 60 % of the time, where the credits were of 100 % (one
// program had nothing of a hundred seconds).
TEST(ShortestFirstWithinShares, NobodyIsPassedOverForEver) {
  Workload w;
  w.gpu = {.sm_count = 16, .signal_ns = 3000, .start_ns = 4000};
  w.kernels = {{.name = "long", .alone_ns = 500'000'000, .tasks = 100'000},
               {.name = "short", .alone_ns = 5'000'000, .tasks = 1'600}};
  w.vgpus = {{"long", {}, {}}};
  w.programs = {{.name = "long",
                 .vgpu = 0,
                 .steps = {{.kernel = 0}},
                 .arrival = ArrivalKind::kBacklog,
                 .runs = 0}};
  for (uint32_t v = 1; v <= 20; ++v) {
    w.vgpus.push_back({"short" + std::to_string(v), {}, {}});
    w.programs.push_back({.name = w.vgpus[v].name,
                          .vgpu = v,
                          .steps = {{.kernel = 1}},
                          .arrival = ArrivalKind::kPeriodic,
                          .first_ns = v * 5'000'000,
                          .period_ns = 100'000'000,
                          .runs = 0});
  }
  w.horizon_ns = 10'000'000'000;
  const auto report = evaluate(w, "wfq-srt", 1);
  ASSERT_TRUE(report.ok());
  EXPECT_GT(report->mean.vgpu_share[0], 0.75 / 21);

  for (const uint32_t number : {1u, 5u}) {
    const Workload mix = find_workload("preemptive-switch-6")->make(number, 1);
    const auto all = evaluate_all(mix, {"wfq", "wfq-srt"}, 1 + number);
    ASSERT_TRUE(all.ok());
    EXPECT_LT((*all)[1].mean.end_ms, 1.5 * (*all)[0].mean.end_ms) << number;
  }
}

// LoGA section 5.5: against four throttles an application that saturates gets more than its fair
// part from the hardware; loga corrects, by more than it should, and idles the GPU while it does;
// wfq neither.
TEST(LogaThrottle, WfqIsFairerAndWastesNothing) {
  std::vector<Metrics> loga_runs, wfq_runs;
  const Metrics loga = of("loga-throttle", "loga", &loga_runs),
                wfq = of("loga-throttle", "wfq", &wfq_runs);
  for (const auto& r : wfq_runs) {
    // A throttle alone makes a load of 20 %; beside the others it waits, so a little over 12 % is
    // what it can use.
    for (size_t i = 1; i < 5; ++i) EXPECT_NEAR(r.vgpu_share[i], 0.125, 0.01);
  }
  EXPECT_GT(wfq.conservation, 0.999);
  EXPECT_LT(loga.conservation, 0.97);
  EXPECT_LT(wfq.dntt, loga.dntt);
}

}  // namespace
}  // namespace sluice::policy::sim
