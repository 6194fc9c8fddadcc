// What docs/papers.md claims of FRS and LoGA, and what wfq is held to: the simulator's workloads under the
// policies, with tolerances. Where a result differs from the paper's, the test states ours and the page why.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "policies/sim/metrics.h"

namespace sluice::policy::sim {
namespace {

Metrics of(std::string_view workload, std::string_view policy, std::vector<Metrics>* runs = nullptr) {
  const auto report = evaluate(*find_workload(workload), policy, 1);
  if (!report) {
    ADD_FAILURE() << workload << " under " << policy << ": " << report.error().message;
    return {};
  }
  EXPECT_EQ(report->mean.violations, 0u) << report->mean.violation;
  EXPECT_FALSE(report->mean.stuck);
  if (runs) *runs = report->runs;
  return report->mean;
}

// FRS averages "their execution times ... by each application and scheduler" (section VI-C): the deviation
// of the nine means.
struct Figures {
  double antt, dntt, stp;
};
Figures by_application(const Metrics& m) {
  double sum = 0, squares = 0, stp = 0;
  for (const auto& [name, ntt] : m.ntt) sum += ntt, stp += 1 / ntt;
  const double n = static_cast<double>(m.ntt.size()), mean = sum / n;
  for (const auto& [name, ntt] : m.ntt) squares += (ntt - mean) * (ntt - mean);
  return {mean, std::sqrt(squares / n), stp};
}

TEST(Frs, TableOneInTheOrderOfThePaper) {
  std::map<std::string, Metrics> m;
  std::map<std::string, Figures> f;
  for (const char* p : {"frs", "srt", "sjf", "rr", "cfs"}) {
    m[p] = of("frs", p);
    f[p] = by_application(m[p]);
    EXPECT_EQ(m[p].unfinished_runs, 0u) << p;
  }
  // Figure 4, middle: the order, whether averaged first (as the paper) or last.
  EXPECT_LT(f["frs"].dntt, f["srt"].dntt);
  EXPECT_LT(f["srt"].dntt, f["sjf"].dntt);
  EXPECT_LT(f["sjf"].dntt, f["rr"].dntt);
  EXPECT_LT(f["rr"].dntt, f["cfs"].dntt);
  EXPECT_LT(m["frs"].dntt, m["srt"].dntt);
  EXPECT_LT(m["srt"].dntt, m["sjf"].dntt);
  EXPECT_LT(m["sjf"].dntt, m["rr"].dntt);
  EXPECT_LT(m["rr"].dntt, m["cfs"].dntt);
  // Figure 4, left: 2.44, 1.96, 1.95, 4.87, 6.0.
  EXPECT_NEAR(m["frs"].antt, 2.44, 0.15);
  EXPECT_NEAR(m["srt"].antt, 1.96, 0.2);
  EXPECT_NEAR(m["sjf"].antt, 1.95, 0.15);
  EXPECT_NEAR(m["rr"].antt, 4.87, 0.3);
  // cfs: ours is 5.1, the paper's 6.0; docs/papers.md says why it may be.
  EXPECT_NEAR(m["cfs"].antt, 5.1, 0.3);
  EXPECT_GT(m["cfs"].antt, m["rr"].antt);
  // Figure 4, right: 3.79, 5.06, 5.13, 2.02, 1.79.
  EXPECT_NEAR(f["frs"].stp, 3.79, 0.3);
  EXPECT_NEAR(f["srt"].stp, 5.06, 0.4);
  EXPECT_NEAR(f["sjf"].stp, 5.13, 0.4);
  EXPECT_NEAR(f["rr"].stp, 2.02, 0.2);
  EXPECT_NEAR(f["cfs"].stp, 1.79, 0.25);
  // DNTT as the paper averages it: 0.42, 0.63, 0.70, 1.41, 2.99; ours are 0.14, 0.48, 0.64, 1.22, 1.31.
  EXPECT_LT(f["frs"].dntt, 0.42);
  EXPECT_NEAR(f["srt"].dntt, 0.63, 0.2);
  EXPECT_NEAR(f["sjf"].dntt, 0.70, 0.1);
  EXPECT_NEAR(f["rr"].dntt, 1.41, 0.25);
  EXPECT_NEAR(f["cfs"].dntt, 1.3, 0.2);
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

// wfq does not know what a slowdown is: on FRS's own metric frs, srt and sjf are better, and it is better
// than rr and cfs in ANTT and no worse than a third of fcfs in deviation.
TEST(Frs, WhereWfqStands) {
  const Metrics wfq = of("frs", "wfq");
  const Figures f = by_application(wfq);
  EXPECT_LT(wfq.antt, of("frs", "rr").antt);
  EXPECT_LT(wfq.antt, of("frs", "cfs").antt);
  EXPECT_LT(f.dntt, by_application(of("frs", "cfs")).dntt);
  EXPECT_LT(f.dntt, by_application(of("frs", "fcfs")).dntt);
  EXPECT_GT(wfq.antt, of("frs", "frs").antt);  // a rival wins: docs/papers.md says so
}

// LoGA section 5.5: against four throttles an application that saturates gets more than its fair part from
// the hardware; loga corrects, by more than it should, and idles the GPU while it does; wfq neither.
TEST(LogaThrottle, WfqIsFairerAndWastesNothing) {
  std::vector<Metrics> loga_runs, wfq_runs;
  const Metrics loga = of("loga-throttle", "loga", &loga_runs), wfq = of("loga-throttle", "wfq", &wfq_runs);
  for (const auto& r : wfq_runs) {
    // A throttle alone makes a load of 20 %; beside the others it waits, so a little over 12 % is what it can use.
    for (size_t i = 1; i < 5; ++i) EXPECT_NEAR(r.vgpu_share[i], 0.125, 0.01);
  }
  EXPECT_GT(wfq.conservation, 0.999);
  EXPECT_LT(loga.conservation, 0.97);
  EXPECT_LT(wfq.dntt, loga.dntt);
}

// ---- ours ----------------------------------------------------------------------------------------

struct Ours {
  Workload w;
  Outcome r;
  double least_ns = 0;  // the least quantum that wfq came to from the hand-overs that it saw
};
Ours run(std::string_view workload, uint32_t number, uint64_t horizon_ns = 0) {
  Ours o{find_workload(workload)->make(number, 1), {}};
  if (horizon_ns) o.w.horizon_ns = horizon_ns;
  const auto policy = find_policy("wfq")->make(engine_config(o.w));
  o.r = simulate(o.w, *policy, {.seed = 1});
  EXPECT_EQ(o.r.violations, 0u) << o.r.violation;
  const double shown = static_cast<double>(policy->quantum_ns());
  const double part = static_cast<double>(o.w.config.latency_target_ns) / static_cast<double>(o.w.vgpus.size());
  o.least_ns = std::max(shown > part * 1.001 ? shown : 0, static_cast<double>(o.w.config.min_quantum_ns));
  return o;
}

// A turn: what a vGPU may be given at once, with the time to leave. The least quantum follows a mean of
// measured hand-overs, so it varies by half.
double turn_ns(const Ours& o, size_t v) {
  double weights = 0;
  for (const auto& x : o.w.vgpus) weights += x.share.weight;
  const Config& c = o.w.config;
  const double part = static_cast<double>(c.latency_target_ns) * o.w.vgpus[v].share.weight / weights;
  return std::min(std::max(part, 1.5 * o.least_ns), static_cast<double>(c.max_quantum_ns)) + 400'000;
}

// Over any second, nobody's share is off by more than a point of the GPU, with 2 to 256 vGPUs and weights from 1
// to 1,000; and by more than 1 % of itself where a second holds enough turns for that to be possible.
TEST(Wfq, SharesOverAnySecond) {
  for (uint32_t i = 0; i < 9; ++i) {
    const Ours o = run("wfq-shares", i);
    ASSERT_GT(o.r.windows.size(), 50u);
    double points = 0;
    for (const Window& x : o.r.windows) points = std::max(points, x.worst_points);
    EXPECT_LE(points, 0.01) << o.w.vgpus.size();
    EXPECT_GE(static_cast<double>(o.r.useful_sm_ns) /
                  (static_cast<double>(o.r.some_work_ns) * o.w.gpu.sm_count), 0.975);
    EXPECT_LE(static_cast<double>(o.r.idle_with_work_ns), 0.01 * static_cast<double>(o.r.some_work_ns));
  }
  for (uint32_t i = 0; i < 3; ++i) {  // 2, 3 and 4 of one weight
    const Ours o = run("wfq-equal", i);
    double error = 0;
    for (const Window& x : o.r.windows) error = std::max(error, x.worst_error);
    EXPECT_LE(error, 0.012) << o.w.vgpus.size();
  }
}

// Over all of the time, each is within a few of its turns of what it was owed, and its part of one turn of each of
// the others (start-time fair queuing: all others may go once before it). That is the bound that holds
// for all; 1 % of the share follows from it for who was owed some hundreds of turns.
TEST(Wfq, EachWithinAFewTurnsOfWhatItIsOwed) {
  for (uint32_t i = 0; i < 9; ++i) {
    const Ours o = run("wfq-shares", i);
    double weights = 0, turns = 0;
    for (size_t v = 0; v < o.w.vgpus.size(); ++v)
      weights += o.w.vgpus[v].share.weight, turns += turn_ns(o, v);
    for (size_t v = 0; v < o.w.vgpus.size(); ++v) {
      const double sms = o.w.gpu.sm_count;
      const double off = std::abs(o.r.vgpus[v].got_sm_ns - o.r.vgpus[v].owed_sm_ns) / sms;
      const double turn = turn_ns(o, v);
      EXPECT_LE(off, 3 * turn + 2 * turns * o.w.vgpus[v].share.weight / weights) << o.w.vgpus.size() << " vGPUs, " << v;
      if (o.r.vgpus[v].owed_sm_ns / sms > 300 * turn) {
        EXPECT_LE(off, 0.01 * o.r.vgpus[v].owed_sm_ns / sms);
      }
    }
  }
}

// With 256 vGPUs the lightest is owed 27 us in a second and a turn is 250 us, so only minutes can show it.
TEST(Wfq, JainIndexOverALongTime) {
  for (uint32_t i : {0u, 3u, 5u}) {
    EXPECT_GE(run("wfq-shares", i, 300ull * 1'000'000'000).r.all_contended_jain, 0.999) << i;
  }
  EXPECT_GE(run("wfq-shares", 8, 3000ull * 1'000'000'000).r.all_contended_jain, 0.999);
}

// Nobody waits longer than: until the others, by weight, have had what its last turn put it ahead by, and one
// turn of each.
TEST(Wfq, NobodyWaitsLongerThanItsBound) {
  for (const char* name : {"wfq-shares", "wfq-habits"}) {
    for (uint32_t i = 0; i < find_workload(name)->runs; ++i) {
      const Ours o = run(name, i);
      double weights = 0, turns = 0;
      for (size_t v = 0; v < o.w.vgpus.size(); ++v)
        weights += o.w.vgpus[v].share.weight, turns += turn_ns(o, v);
      for (size_t v = 0; v < o.w.vgpus.size(); ++v) {
        const double bound = 2 * turn_ns(o, v) * weights / o.w.vgpus[v].share.weight + 2 * turns;
        EXPECT_LE(static_cast<double>(o.r.vgpus[v].longest_wait_ns), bound)
            << name << " " << i << ": " << o.w.vgpus[v].name;
      }
    }
  }
}

// Tenants of every habit, liars among them, beside two that saturate: theirs and everybody's shares hold.
TEST(Wfq, EveryHabitBesideEveryOther) {
  for (uint32_t i = 0; i < find_workload("wfq-habits")->runs; ++i) {
    const Ours o = run("wfq-habits", i);
    double points = 0;
    for (const Window& x : o.r.windows) points = std::max(points, x.worst_points);
    EXPECT_LE(points, 0.012) << i;
    EXPECT_LE(static_cast<double>(o.r.idle_with_work_ns), 0.01 * static_cast<double>(o.r.some_work_ns));
    // Those that always have work, against each other: who pauses is served at once when it comes back, as long as
    // it asks for less than its share, and so gets more than its part of the time in which it has work.
    double whole = 0, weights = 0;
    for (size_t v = 0; v < o.w.vgpus.size(); ++v) {
      if (!o.w.vgpus[v].compared) continue;
      whole += static_cast<double>(o.r.vgpus[v].sm_ns) / o.w.gpu.sm_count;
      weights += o.w.vgpus[v].share.weight;
    }
    for (size_t v = 0; v < o.w.vgpus.size(); ++v) {
      if (!o.w.vgpus[v].compared) continue;
      const double owed = whole * o.w.vgpus[v].share.weight / weights;
      const double got = static_cast<double>(o.r.vgpus[v].sm_ns) / o.w.gpu.sm_count;
      EXPECT_LE(std::abs(got - owed), 3 * turn_ns(o, v)) << i << ": " << o.w.vgpus[v].name;
    }
  }
}

TEST(Wfq, OnTimeSlices) {
  for (uint32_t i = 0; i < find_workload("wfq-slices")->runs; ++i) {
    Ours o = run("wfq-slices", i);
    EXPECT_GE(o.r.all_contended_jain, 0.999) << i;
    EXPECT_LE(o.r.all_contended_error, 0.01) << i;
    EXPECT_GE(o.r.useful_sm_ns / (static_cast<double>(o.r.some_work_ns) * o.w.gpu.sm_count), 0.93) << i;
  }
}

}  // namespace
}  // namespace sluice::policy::sim
