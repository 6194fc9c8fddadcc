// SPDX-License-Identifier: Apache-2.0
// The policy simulator: cases whose answer can be computed by hand, its laws of
// conservation, and that it notices a policy that breaks the contract.
#include <gtest/gtest.h>

#include <functional>

#include "policies/sim/metrics.h"
#include "policies/sim/simulation.h"

namespace sluice::policy::sim {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000;

// A policy written in the test: what it does at each event.
class Scripted final : public Policy {
 public:
  std::string_view name() const override { return "scripted"; }
  void on_vgpu_added(uint64_t, VgpuId, const VgpuShare&, Actions&) override {}
  void on_vgpu_changed(uint64_t, VgpuId, const VgpuShare&, Actions&) override {}
  void on_vgpu_removed(uint64_t, VgpuId, Actions&) override {}
  void on_arrival(uint64_t now, VgpuId v, Actions& out) override {
    if (arrival) arrival(now, v, out);
  }
  void on_idle(uint64_t now, VgpuId v, Actions& out) override {
    if (idle) idle(now, v, out);
  }
  void on_launch_queued(uint64_t now, const Launch& l, Actions& out) override {
    launches.push_back(l);
    if (queued) queued(now, l, out);
  }
  void on_launch_done(uint64_t, const Launch& l, Actions&) override { done.push_back(l); }
  void on_usage(uint64_t, VgpuId v, const Usage& u) override {
    used.resize(std::max<size_t>(used.size(), v + 1));
    used[v] += u.sm_ns;
  }
  void on_left(uint64_t, VgpuId, LeftReason, Actions&) override {}
  void on_released(uint64_t now, VgpuId v, LaunchId l, SmRange sms, LeftReason why,
                   Actions& out) override {
    releases.push_back({now, v, l, sms, why});
    if (released) released(now, v, sms, out);
  }
  void on_handover(uint64_t, uint64_t cost) override { handovers.push_back(cost); }
  void on_wake(uint64_t now, Actions& out) override {
    if (wake) wake(now, out);
  }

  struct Release {
    uint64_t at;
    VgpuId v;
    LaunchId l;
    SmRange sms;
    LeftReason why;
  };
  std::function<void(uint64_t, VgpuId, Actions&)> arrival, idle;
  std::function<void(uint64_t, const Launch&, Actions&)> queued;
  std::function<void(uint64_t, VgpuId, SmRange, Actions&)> released;
  std::function<void(uint64_t, Actions&)> wake;
  std::vector<Launch> launches, done;
  std::vector<Release> releases;
  std::vector<uint64_t> handovers, used;
};

// n vGPUs with one program each, that runs `kernel` once at `first_ns`.
Workload one_each(std::vector<Kernel> kernels, uint32_t sms = 4) {
  Workload w;
  w.gpu.sm_count = sms;
  w.gpu.spatial = true;
  for (Kernel& k : kernels) {
    const auto i = static_cast<uint32_t>(w.vgpus.size());
    w.vgpus.push_back({"v" + std::to_string(i), {}, {}});
    Program p;
    p.name = "p" + std::to_string(i);
    p.vgpu = i;
    p.steps = {{.kernel = i}};
    w.programs.push_back(p);
    w.kernels.push_back(k);
  }
  return w;
}
Kernel fine(uint64_t alone_ns) {  // leaves within a few ns
  Kernel k;
  k.name = "fine";
  k.alone_ns = alone_ns;
  k.tasks = 1u << 30;
  k.task_ns = 1;
  return k;
}

double ntt(const Workload& w, const char* policy, size_t i, uint64_t seed = 1) {
  auto r = evaluate(w, policy, seed);
  EXPECT_TRUE(r.ok()) << r.error().message;
  return r->mean.ntt[i].second;
}

TEST(Simulation, OneKernelAloneCostsItsFormAndNothingElse) {
  Workload w = one_each({fine(10 * kMs)});
  w.gpu.start_ns = 5 * kUs;
  EXPECT_DOUBLE_EQ(ntt(w, "fcfs", 0), 1.0);
  EXPECT_DOUBLE_EQ(ntt(w, "wfq", 0), 1.0);
  w.kernels[0].form_factor = 1.04;
  EXPECT_DOUBLE_EQ(ntt(w, "fcfs", 0), 1.0) << "nobody is evicted, so it keeps its own form";
  EXPECT_NEAR(ntt(w, "wfq", 0), (10.4e6 + 5e3) / (10e6 + 5e3), 1e-9);
  w.programs[0].opaque = true;
  EXPECT_DOUBLE_EQ(ntt(w, "wfq", 0), 1.0) << "an opaque launch has no other form";
}

TEST(Simulation, FcfsMakesTheSecondWait) {
  const Workload w = one_each({fine(10 * kMs), fine(10 * kMs)});
  EXPECT_DOUBLE_EQ(ntt(w, "fcfs", 0), 1.0);
  EXPECT_DOUBLE_EQ(ntt(w, "fcfs", 1), 2.0);
  auto r = evaluate(w, "fcfs", 1);
  EXPECT_DOUBLE_EQ(r->mean.antt, 1.5);
  EXPECT_DOUBLE_EQ(r->mean.stp, 1.5);
  EXPECT_DOUBLE_EQ(r->mean.dntt, 0.5);
  EXPECT_DOUBLE_EQ(r->mean.fairness, 0.5);
}

TEST(Simulation, RoundRobinOfTwoEqualKernels) {
  Workload w = one_each({fine(10 * kMs), fine(10 * kMs)});
  w.config.quantum_ns = kMs;
  // Turns of 1 ms: the first ends its tenth turn at 19 ms, the second at 20 ms.
  EXPECT_NEAR(ntt(w, "rr", 0), 1.9, 0.001);
  EXPECT_NEAR(ntt(w, "rr", 1), 2.0, 0.001);
}

TEST(Simulation, DrainTakesSignalAndRest) {
  Workload w = one_each({fine(10 * kMs), fine(kMs)});
  w.kernels[0].drain_ns = 80 * kUs;
  w.kernels[0].relaunch_ns = 7 * kUs;
  w.gpu.signal_ns = 6 * kUs;
  w.gpu.start_ns = 2 * kUs;
  w.programs[1].first_ns = 3 * kMs;
  Scripted p;
  p.arrival = [](uint64_t, VgpuId v, Actions& out) {
    out.push_back(v == 0 ? Action::run(0) : Action::evict(0, 1));
  };
  p.released = [](uint64_t, VgpuId v, SmRange, Actions& out) { out.push_back(Action::run(1 - v)); };
  p.idle = [](uint64_t, VgpuId v, Actions& out) {
    if (v == 1) out.push_back(Action::evict(1));
  };
  const Outcome r = simulate(w, p, {});
  EXPECT_EQ(r.violations, 0u) << r.violation;
  ASSERT_EQ(r.evict_latency_ns.size(), 1u);
  EXPECT_EQ(r.evict_latency_ns[0], 86 * kUs);
  ASSERT_EQ(p.handovers.size(), 1u) << "taking it from one without work costs nothing";
  EXPECT_EQ(p.handovers[0], 88 * kUs);
  EXPECT_EQ(r.programs[1].runs[0].ended_ns, 3 * kMs + 88 * kUs + kMs);
  // Half of the drain was useful; the relaunch and both starts were not.
  EXPECT_EQ(r.programs[0].runs[0].ended_ns,
            10 * kMs + kMs + (86 - 6 - 40) * kUs + 3 * 2 * kUs + 7 * kUs);
  EXPECT_EQ(r.programs[0].evictions, 1u);
  EXPECT_EQ(r.evictions, 1u);
}

TEST(Simulation, RestsOfTasksAreBelowOneTask) {
  Workload w = one_each({fine(1000 * kMs), fine(1000 * kMs)});
  w.kernels[0].task_ns = w.kernels[1].task_ns = 200 * kUs;
  w.config.quantum_ns = 5 * kMs;
  auto policy = find_policy("rr")->make(engine_config(w));
  const Outcome r = simulate(w, *policy, {});
  ASSERT_GT(r.evict_latency_ns.size(), 100u);
  double mean = 0;
  for (uint64_t l : r.evict_latency_ns) {
    EXPECT_LE(l, 200 * kUs);
    mean += static_cast<double>(l) / static_cast<double>(r.evict_latency_ns.size());
  }
  // The largest of four uniform rests: 4/5 of a task.
  EXPECT_NEAR(mean, 160e3, 8e3);
}

TEST(Simulation, ContextSwitchSavesAndRestores) {
  Workload w = one_each({fine(10 * kMs), fine(10 * kMs)});
  for (Kernel& k : w.kernels) {
    k.save_ns = 16 * kUs;
    k.restore_ns = 9 * kUs;
    k.form_factor = 2;  // not rewritten, so it does not matter
  }
  w.gpu.mechanism = Mechanism::kContextSwitch;
  w.config.quantum_ns = kMs;
  auto policy = find_policy("rr")->make(engine_config(w));
  const Outcome r = simulate(w, *policy, {});
  for (uint64_t l : r.evict_latency_ns) EXPECT_EQ(l, 16 * kUs);
  EXPECT_GE(r.evictions, 17u);
  EXPECT_EQ(r.end_ns, 20 * kMs + r.evictions * (16 + 9) * kUs);
  EXPECT_DOUBLE_EQ(r.lost_sm_ns, 4.0 * static_cast<double>(r.evictions) * 25e3);
}

TEST(Simulation, OpaqueLaunchesLeaveByEnding) {
  Workload w = one_each({fine(10 * kMs), fine(kMs)});
  w.kernels[0].evictable = false;
  w.programs[1].first_ns = 2 * kMs;
  auto policy = find_policy("piv")->make(engine_config(w));
  w.vgpus[1].share.priority = 3;
  const Outcome r = simulate(w, *policy, {});
  EXPECT_EQ(r.programs[0].runs[0].ended_ns, 10 * kMs);
  EXPECT_EQ(r.programs[1].runs[0].ended_ns, 11 * kMs);
}

TEST(Simulation, ProgressIsProportionalToSms) {
  Workload w = one_each({fine(8 * kMs), fine(8 * kMs)});
  Scripted p;
  p.queued = [](uint64_t, const Launch& l, Actions& out) {
    out.push_back(l.vgpu == 0 ? Action::run(0, {0, 1}, l.id) : Action::run(1, {1, 4}, l.id));
  };
  const Outcome r = simulate(w, p, {});
  EXPECT_EQ(r.violations, 0u) << r.violation;
  EXPECT_EQ(r.programs[0].runs[0].ended_ns, 32 * kMs);
  EXPECT_EQ(r.programs[1].runs[0].ended_ns, 8 * kMs * 4 / 3 + 1);
  EXPECT_EQ(r.useful_sm_ns, 2 * 4.0 * 8e6);
  EXPECT_EQ(p.used[0], 32 * kMs) << "SM-ns";
  ASSERT_EQ(p.releases.size(), 2u) << "what is run for a launch ends with it";
  EXPECT_EQ(p.releases[0].sms, (SmRange{1, 4}));
  EXPECT_EQ(p.releases[0].why, LeftReason::kIdle);
}

TEST(Simulation, PartsLeaveAndGrowBack) {
  Workload w = one_each({fine(12 * kMs)});
  Scripted p;
  p.arrival = [](uint64_t, VgpuId, Actions& out) {
    out.push_back(Action::run(0));
    out.push_back(Action::wake(2 * kMs));
  };
  p.wake = [](uint64_t now, Actions& out) {
    if (now == 2 * kMs) {
      out.push_back(Action::evict(0, kNoVgpu, {1, 3}));
      out.push_back(Action::wake(6 * kMs));
    } else {
      out.push_back(Action::run(0, {1, 3}));
    }
  };
  const Outcome r = simulate(w, p, {});
  EXPECT_EQ(r.violations, 0u) << r.violation;
  // 2 ms whole, 4 ms half: 8 ms of work remain of 12, at full speed.
  EXPECT_NEAR(static_cast<double>(r.end_ns), 14e6, 5);
  ASSERT_EQ(p.releases.size(), 1u);
  EXPECT_EQ(p.releases[0].sms, (SmRange{1, 3}));
}

TEST(Simulation, NarrowLaunchesOfOneVgpuRunBesideEachOther) {
  Workload w = one_each({fine(4 * kMs), fine(4 * kMs)});
  w.programs[1].vgpu = 0;
  w.vgpus.pop_back();
  w.kernels[0].width_sms = w.kernels[1].width_sms = 2;
  auto policy = find_policy("wfq")->make(engine_config(w));
  EXPECT_EQ(simulate(w, *policy, {}).end_ns, 4 * kMs);
  w.kernels[1].width_sms = 4;  // the second gets what the first leaves, then everything
  policy = find_policy("wfq")->make(engine_config(w));
  EXPECT_EQ(simulate(w, *policy, {}).end_ns, 6 * kMs);
  w.programs[1].stream_priority = 1;
  policy = find_policy("wfq")->make(engine_config(w));
  const Outcome r = simulate(w, *policy, {});
  EXPECT_EQ(r.programs[1].runs[0].ended_ns, 4 * kMs) << "the stream of higher priority goes first";
}

TEST(Simulation, HardwareSlicesFollowTheirLengths) {
  Workload w = one_each({fine(kMs), fine(kMs)});
  w.gpu.preemptor = PreemptorKind::kProportional;
  w.gpu.switch_ns = 200 * kUs;
  w.horizon_ns = 3000 * kMs;
  for (Program& p : w.programs) {
    p.arrival = ArrivalKind::kBacklog;
    p.runs = 0;
    p.queue_depth = 4;
  }
  Scripted p;
  p.arrival = [](uint64_t, VgpuId v, Actions& out) {
    out.push_back(Action::set_slice(v, (2 - v) * 3 * kMs));
  };
  const Outcome r = simulate(w, p, {});
  EXPECT_EQ(r.violations, 0u) << r.violation;
  const double done[] = {static_cast<double>(r.programs[0].work_done_sm_ns),
                         static_cast<double>(r.programs[1].work_done_sm_ns)};
  EXPECT_NEAR(done[0] / (done[0] + done[1]), 2.0 / 3, 0.005);
  // 9 ms of work and two switches a round.
  EXPECT_NEAR((done[0] + done[1]) / (4 * 3000e6), 9.0 / 9.4, 0.005);
}

TEST(Simulation, GatedVgpusStartNothing) {
  Workload w = one_each({fine(kMs), fine(kMs)});
  w.gpu.preemptor = PreemptorKind::kProportional;
  w.horizon_ns = 50 * kMs;
  Scripted p;
  p.arrival = [](uint64_t, VgpuId v, Actions& out) {
    out.push_back(Action::set_slice(v, v == 0 ? 0 : 2 * kMs));
    out.push_back(Action::wake(20 * kMs));
  };
  p.wake = [](uint64_t, Actions& out) { out.push_back(Action::set_slice(0, 2 * kMs)); };
  const Outcome r = simulate(w, p, {});
  EXPECT_EQ(r.programs[1].runs.at(0).ended_ns, kMs);
  EXPECT_EQ(r.programs[0].runs.at(0).ended_ns, 21 * kMs);
}

TEST(Simulation, BreachesOfTheContractAreCounted) {
  const auto first_breach = [](std::vector<Action> actions, bool spatial = true) {
    Workload w = one_each({fine(kMs), fine(kMs)});
    w.gpu.spatial = spatial;
    w.horizon_ns = 5 * kMs;
    Scripted p;
    p.arrival = [&](uint64_t, VgpuId v, Actions& out) {
      if (v == 1) out.insert(out.end(), actions.begin(), actions.end());
    };
    const Outcome r = simulate(w, p, {});
    EXPECT_GE(r.violations, 1u);
    return r.violation;
  };
  EXPECT_NE(first_breach({Action::run(0), Action::run(1)}).find("holds"), std::string::npos);
  EXPECT_NE(first_breach({Action::run(0, {0, 3}), Action::run(1, {2, 4})}).find("holds"),
            std::string::npos);
  EXPECT_NE(first_breach({Action::evict(0)}).find("does not hold"), std::string::npos);
  EXPECT_NE(first_breach({Action::run(9)}).find("not there"), std::string::npos);
  EXPECT_NE(first_breach({Action::run(0, {}, 77)}).find("not there"), std::string::npos);
  EXPECT_NE(first_breach({Action::run(1, {}, 1)}).find("not there"), std::string::npos)
      << "another's launch";
  EXPECT_NE(first_breach({Action::run(0, {3, 3})}).find("no SM"), std::string::npos);
  EXPECT_NE(first_breach({Action::run(0, {0, 2})}, false).find("part"), std::string::npos);
  EXPECT_NE(first_breach({Action::set_slice(0, 1)}).find("slice"), std::string::npos);
}

TEST(Simulation, APolicyThatDoesNothingIsNoticed) {
  const Workload w = one_each({fine(kMs)});
  Scripted p;
  const Outcome r = simulate(w, p, {});
  EXPECT_TRUE(r.stuck);
  EXPECT_EQ(r.programs[0].unfinished_runs, 1u);
}

TEST(Simulation, EventsCanBeLimited) {
  Workload w = one_each({fine(kMs)});
  w.programs[0].runs = 1000;
  const auto run = [&](uint64_t limit) {
    const auto p = find_policy("rr")->make(engine_config(w));
    return simulate(w, *p, {.max_events = limit});
  };
  EXPECT_FALSE(run(0).cut);
  EXPECT_TRUE(run(100).cut);
  EXPECT_EQ(run(100).events, 100u);
  EXPECT_FALSE(run(100).stuck);
  w.max_events = 50;
  EXPECT_EQ(run(0).events, 50u);
  EXPECT_EQ(run(100).events, 100u) << "the caller's goes first";
}

TEST(Simulation, ArrivalsAndHosts) {
  Workload w = one_each({fine(kMs)});
  Program& p = w.programs[0];
  const auto ends = [&] {
    auto policy = find_policy("fcfs")->make(engine_config(w));
    std::vector<uint64_t> at;
    const Outcome outcome = simulate(w, *policy, {.preempts = false});
    for (const RunRecord& r : outcome.programs[0].runs) at.push_back(r.ended_ns / kUs);
    return at;
  };
  using V = std::vector<uint64_t>;
  p.runs = 3;
  p.think_ns = 2 * kMs;
  EXPECT_EQ(ends(), (V{1000, 4000, 7000}));
  p.arrival = ArrivalKind::kPeriodic;
  p.period_ns = 600 * kUs;
  EXPECT_EQ(ends(), (V{1000, 2000, 3000})) << "runs queue behind each other";
  p.arrival = ArrivalKind::kOffsets;
  p.offsets_ns = {5 * kMs, 5 * kMs + 1, 9 * kMs};
  EXPECT_EQ(ends(), (V{6000, 7000, 10000}));
  p.arrival = ArrivalKind::kClosed;
  p.offsets_ns.clear();
  p.runs = 1;
  p.steps = {{.kernel = 0, .launches = 3, .host_ns = 100 * kUs}};
  EXPECT_EQ(ends(), (V{3300})) << "waits after each launch";
  p.queue_depth = 2;
  EXPECT_EQ(ends(), (V{3100})) << "the host works while the GPU does";
  p.steps.push_back({.kernel = 0, .launches = 1, .host_ns = 50 * kUs, .sync = true});
  EXPECT_EQ(ends(), (V{4150}));
}

TEST(Simulation, SharesFollowAChangeOfWeight) {
  Workload w = one_each({fine(5 * kMs), fine(5 * kMs)});
  for (Program& p : w.programs) {
    p.arrival = ArrivalKind::kBacklog;
    p.runs = 0;
    p.queue_depth = 2;
  }
  w.vgpus[0].changes = {{2'000 * kMs, {.weight = 300}}};
  w.horizon_ns = 4'000 * kMs;
  auto policy = find_policy("wfq")->make(engine_config(w));
  const Outcome r = simulate(w, *policy, {});
  const double got = static_cast<double>(r.vgpus[0].sm_ns) / 4;
  EXPECT_NEAR(got, 1000e6 + 1500e6, 30e6);
  EXPECT_NEAR(r.vgpus[0].entitled_sm_ns / r.vgpus[0].got_sm_ns, 1, 0.02);
}

TEST(Simulation, TheModelLearnsAndLiesReachThePolicy) {
  Workload w = one_each({fine(2 * kMs), fine(2 * kMs)});
  w.predictor = Predictor::kModel;
  w.programs[0].runs = 10;
  w.programs[1].first_ns = 100 * kMs;
  w.programs[1].prediction_factor = 10;
  Scripted p;
  p.queued = [](uint64_t, const Launch& l, Actions& out) {
    out.push_back(Action::run(l.vgpu, {}, l.id));
  };
  (void)simulate(w, p, {});
  ASSERT_EQ(p.launches.size(), 11u);
  EXPECT_EQ(p.launches[0].predicted_sm_ns, 0u) << "nothing is known yet";
  EXPECT_NEAR(static_cast<double>(p.launches[9].predicted_sm_ns), 8e6, 8e4);
  EXPECT_NEAR(static_cast<double>(p.launches[10].predicted_sm_ns), 8e7, 8e5);
}

TEST(Simulation, OutcomesDependOnTheSeedAlone) {
  Workload w = one_each({fine(5 * kMs), fine(3 * kMs), fine(7 * kMs)});
  for (Kernel& k : w.kernels) {
    k.alone_cv = 0.5;
    k.task_ns = 100 * kUs;
  }
  for (Program& p : w.programs) {
    p.runs = 20;
    p.think_ns = kMs;
    p.think_exponential = true;
  }
  const auto end = [&](uint64_t seed) {
    auto policy = find_policy("rr")->make(engine_config(w));
    return simulate(w, *policy, {.seed = seed}).end_ns;
  };
  EXPECT_EQ(end(1), end(1));
  EXPECT_NE(end(1), end(2));
}

// ---- memory bandwidth -------------------------------------------------------------------------
// Two vGPUs with half of four SMs each, from the start on; a kernel of 8 ms alone on all.
Outcome on_halves(double bandwidth_a, double bandwidth_b) {
  Workload w = one_each({{.name = "a", .alone_ns = 8 * kMs, .bandwidth = bandwidth_a},
                         {.name = "b", .alone_ns = 8 * kMs, .bandwidth = bandwidth_b}});
  Scripted p;
  p.arrival = [](uint64_t, VgpuId v, Actions& out) {
    out.push_back(Action::run(v, v == 0 ? SmRange{0, 2} : SmRange{2, 4}));
  };
  const Outcome r = simulate(w, p, {});
  EXPECT_EQ(r.violations, 0u) << r.violation;
  return r;
}
double ended_ms(const Outcome& r, size_t program) {
  return static_cast<double>(r.programs[program].runs.at(0).ended_ns) / kMs;
}

TEST(SimulationBandwidth, WhoIsBoundByMemoryIsAsFastOnFewerSms) {
  const Outcome r = on_halves(2, 0);
  EXPECT_NEAR(ended_ms(r, 0), 8, 0.001);   // half of the SMs use all of the memory
  EXPECT_NEAR(ended_ms(r, 1), 16, 0.001);  // uses none
  EXPECT_NEAR(r.vgpus[0].slowed_sm_ns, 0, 1);
}

TEST(SimulationBandwidth, NeighboursSlowEachOther) {
  // Each would use all of it: half the speed of alone on the same SMs.
  const Outcome r = on_halves(2, 2);
  EXPECT_NEAR(ended_ms(r, 0), 16, 0.001);
  EXPECT_NEAR(ended_ms(r, 1), 16, 0.001);
  for (const VgpuResult& v : r.vgpus) EXPECT_NEAR(v.slowed_sm_ns / v.worked_sm_ns, 1, 0.001);
  // One that uses half of it alone, on half of the SMs a quarter, beside one that would use all:
  // 1.25 in all stretches half of its time by a quarter. Until the other ends, at 10 ms.
  const Outcome mixed = on_halves(2, 0.5);
  EXPECT_NEAR(ended_ms(mixed, 0), 10, 0.01);  // rates are whole 1/1024 SMs
  EXPECT_NEAR(ended_ms(mixed, 1), 10 + (16 - 10 / 1.125), 0.01);
}

TEST(SimulationBandwidth, AWorkloadThatFitsIsNotSlowed) {
  const Outcome r = on_halves(1, 1);
  EXPECT_NEAR(ended_ms(r, 0), 16, 0.001);
  EXPECT_NEAR(r.vgpus[0].slowed_sm_ns + r.vgpus[1].slowed_sm_ns, 0, 1);
}

// Given whole, nobody meets a neighbour: times are as without.
TEST(SimulationBandwidth, TurnsOnTheWholeGpuMeetNobody) {
  for (const double bandwidth : {0.0, 0.7, 3.0}) {
    Workload w = one_each({{.alone_ns = 5 * kMs, .bandwidth = bandwidth},
                           {.alone_ns = 5 * kMs, .bandwidth = bandwidth}});
    w.gpu.spatial = false;
    const auto policy = find_policy("fcfs")->make(engine_config(w));
    const Outcome r = simulate(w, *policy, {});
    EXPECT_NEAR(static_cast<double>(r.end_ns) / kMs, 10, 0.001) << bandwidth;
    EXPECT_NEAR(r.vgpus[0].slowed_sm_ns, 0, 1);
  }
}

// What is charged beside a neighbour that would use all of the memory, over what was held.
TEST(SimulationBandwidth, SlowdownIsChargedToWhoUsesMoreThanItsPart) {
  for (const ChargeBy account : {ChargeBy::kTime, ChargeBy::kSlowdown}) {
    Workload w = one_each({{.name = "a", .alone_ns = 8 * kMs, .bandwidth = 2},
                           {.name = "b", .alone_ns = 8 * kMs, .bandwidth = 0.5}});
    w.account = account;
    Scripted p;
    p.arrival = [](uint64_t, VgpuId v, Actions& out) {
      out.push_back(Action::run(v, v == 0 ? SmRange{0, 2} : SmRange{2, 4}));
    };
    const Outcome r = simulate(w, p, {});
    const double lost_b = 2 * 10e6 * (1 - 1 / 1.125), held_b = 2e6 * (10 + (16 - 10 / 1.125));
    EXPECT_NEAR(r.vgpus[0].slows_sm_ns, lost_b, 1e4);
    EXPECT_NEAR(r.vgpus[1].slows_sm_ns, 0, 1);
    const double shift = account == ChargeBy::kSlowdown ? lost_b : 0;
    EXPECT_NEAR(static_cast<double>(p.used[0]), 20e6 + shift, 2e4);
    EXPECT_NEAR(static_cast<double>(p.used[1]), held_b - shift, 2e4);
  }
}

// Who stays within its part of the memory does as much as if its neighbours did, too.
TEST(SimulationBandwidth, ChargedSlowdownGivesWorkByWeight) {
  const auto work = [](ChargeBy account) {
    Workload w = one_each({{.alone_ns = 2 * kMs, .tasks = 20'000, .bandwidth = 1.5},
                           {.alone_ns = 2 * kMs, .tasks = 20'000, .bandwidth = 0.8}},
                          132);
    w.account = account;
    w.horizon_ns = 2'000 * kMs;
    for (Program& p : w.programs) p.arrival = ArrivalKind::kBacklog, p.runs = 0, p.queue_depth = 4;
    const auto policy = find_policy("wfq")->make(engine_config(w));
    const Outcome r = simulate(w, *policy, {});
    return r.vgpus[1].worked_sm_ns / (static_cast<double>(r.end_ns) * 132);
  };
  EXPECT_NEAR(work(ChargeBy::kTime), 0.5 / 1.12, 0.01);
  EXPECT_NEAR(work(ChargeBy::kSlowdown), 0.5, 0.01);
}

// ---- copies -----------------------------------------------------------------------------------
TEST(SimulationCopies, AreInOrderWithLaunchesAndNoPolicyHearsOfThem) {
  Workload w = one_each({{.alone_ns = 4 * kMs}});
  w.programs[0].steps = {{.copy_ns = 2 * kMs}, {.kernel = 0}, {.copy_ns = 3 * kMs}};
  w.programs[0].steps[2].way = CopyWay::kToHost;
  w.programs[0].queue_depth = 3;
  Scripted p;
  p.arrival = [](uint64_t now, VgpuId v, Actions& out) {
    EXPECT_EQ(now, 2 * kMs);
    out.push_back(Action::run(v));
  };
  std::vector<uint64_t> idle;
  p.idle = [&](uint64_t now, VgpuId, Actions&) { idle.push_back(now); };
  const Outcome r = simulate(w, p, {});
  EXPECT_EQ(r.violations, 0u) << r.violation;
  EXPECT_EQ(p.launches.size(), 1u);
  EXPECT_EQ(idle, std::vector<uint64_t>{6 * kMs});
  EXPECT_NEAR(ended_ms(r, 0), 9, 0.001);
  EXPECT_EQ(r.vgpus[0].copied_ns[0], 2 * kMs);
  EXPECT_EQ(r.vgpus[0].copied_ns[1], 3 * kMs);
}

// Copies of 10 ms at weight 100 beside copies of 1 ms at weight 300, always some of each.
Outcome copying(uint64_t part_ns, CopyWay way_of_second = CopyWay::kToDevice) {
  Workload w = one_each({{}, {}});
  w.gpu.copy_part_ns = part_ns;
  w.vgpus[1].share.weight = 300;
  w.horizon_ns = 1'000 * kMs;
  for (uint32_t i = 0; i < 2; ++i) {
    Program& p = w.programs[i];
    p.steps = {{.copy_ns = i == 0 ? 10 * kMs : kMs}};
    p.arrival = ArrivalKind::kBacklog;
    p.runs = 0;
    p.queue_depth = 2;
  }
  w.programs[1].steps[0].way = way_of_second;
  Scripted p;
  return simulate(w, p, {});
}
TEST(SimulationCopies, InPartsGoByWeight) {
  const Outcome r = copying(100 * kUs);
  EXPECT_NEAR(static_cast<double>(r.vgpus[0].copied_ns[0]) / kMs, 250, 1);
  EXPECT_NEAR(static_cast<double>(r.vgpus[1].copied_ns[0]) / kMs, 750, 1);
}
TEST(SimulationCopies, WholeOnesGoByTheirLength) {
  const Outcome r = copying(0);
  EXPECT_NEAR(static_cast<double>(r.vgpus[0].copied_ns[0]) / kMs, 1'000 * 10 / 11.0, 11);
}
TEST(SimulationCopies, EachWayHasAnEngine) {
  const Outcome r = copying(100 * kUs, CopyWay::kToHost);
  EXPECT_NEAR(static_cast<double>(r.vgpus[0].copied_ns[0]) / kMs, 1'000, 1);
  EXPECT_NEAR(static_cast<double>(r.vgpus[1].copied_ns[1]) / kMs, 1'000, 1);
}
// Who was away has no credit: 500 ms alone, then the other one, too.
TEST(SimulationCopies, WhoWasAwayIsOwedNothing) {
  Workload w = one_each({{}, {}});
  w.gpu.copy_part_ns = 100 * kUs;
  w.horizon_ns = 600 * kMs;
  for (Program& p : w.programs) {
    p.steps = {{.copy_ns = 5 * kMs}};
    p.arrival = ArrivalKind::kBacklog;
    p.runs = 0;
    p.queue_depth = 2;
  }
  w.programs[1].first_ns = 500 * kMs;
  Scripted p;
  const Outcome r = simulate(w, p, {});
  EXPECT_NEAR(static_cast<double>(r.vgpus[1].copied_ns[0]) / kMs, 50, 1);
}

}  // namespace
}  // namespace sluice::policy::sim
