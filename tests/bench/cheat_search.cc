// SPDX-License-Identifier: Apache-2.0
// A random search for ways to gain GPU time under a policy: vGPU 0 has 1 to 12 programs that lie,
// flood, pause or wait after each launch, of any latency class, beside 1 to 20 that saturate;
// weights of 1 to 1,000, hand-overs of 15, 90 and 300 us. It is compared with an honest one that
// saturates in its place. By hand; one process, one core.
//
//     cheat_search [--form whole|space|slices] [--policy wfq] [--draws 1000] [--first 0] [--seed 1]
//                  [--programs 1] [--opaque 1]
//
// A draw is printed when vGPU 0 has 1 % more than the honest one, or a rival lacks 1 % of what
// would be as large a part, and that is more than a longest turn: a lead of a turn is nobody's
// share. It is run for twice as long, too: what grows with time is a share.
//
// With --opaque 1 the rivals' launches cannot leave, and take 1 to 400 ms. Then a rival lacks when
// it has less than 0.45 of its entitlement of the time, and a longest launch.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "policies/sim/random.h"
#include "policies/sim/simulation.h"
#include "policies/wfq/turn_length.h"

using namespace sluice::policy;
using namespace sluice::policy::sim;

namespace {

constexpr uint64_t kUs = 1'000, kSecond = 1'000'000'000, kHorizonNs = 5 * kSecond;
constexpr uint64_t kOpaqueHorizonNs = 60 * kSecond;
constexpr uint64_t kMostEvents = 20'000'000;

struct Settings {
  std::string form = "whole", policy = "wfq";
  uint64_t draws = 1000, first = 0, seed = 1;
  bool programs = false;  // their programs are printed, too
  bool opaque = false;
};

// Between `least` and `most`, each order of magnitude as often.
uint64_t spread(Random& r, double least, double most) {
  return static_cast<uint64_t>(std::exp(std::log(least) + r.unit() * std::log(most / least)));
}
uint32_t kernel_of(Workload& w, uint64_t alone_ns) {
  Kernel k = w.kernels[0];
  k.name = "k" + std::to_string(w.kernels.size());
  k.alone_ns = alone_ns;
  k.tasks = static_cast<uint32_t>(std::max<uint64_t>(alone_ns / kUs, 132));
  w.kernels.push_back(k);
  return static_cast<uint32_t>(w.kernels.size() - 1);
}
void saturating(Workload& w, uint32_t weight) {
  const auto v = static_cast<uint32_t>(w.vgpus.size());
  w.vgpus.push_back({.name = "v" + std::to_string(v), .share = {.weight = weight}, .changes = {}});
  w.programs.push_back({.name = "p" + std::to_string(v), .vgpu = v, .steps = {{.kernel = 0}}});
  w.programs.back().arrival = ArrivalKind::kBacklog;
  w.programs.back().runs = 0;
  w.programs.back().queue_depth = 4;
}
Program drawn_program(Workload& w, Random& r) {
  constexpr double kFactors[] = {1, 0.001, 0.1, 10, 1000};
  constexpr ArrivalKind kKinds[] = {ArrivalKind::kClosed, ArrivalKind::kClosed,
                                    ArrivalKind::kBacklog, ArrivalKind::kPoisson,
                                    ArrivalKind::kPeriodic};
  Program p;
  const uint64_t alone_ns = spread(r, 5e3, 15e6);
  p.steps = {{.kernel = kernel_of(w, alone_ns),
              .launches = static_cast<uint32_t>(r.between(1, 8)),
              .host_ns = r.below(2) ? 0 : spread(r, 1e3, 1e6),
              .sync = r.below(2) == 0}};
  p.arrival = kKinds[r.below(std::size(kKinds))];
  p.runs = 0;
  p.queue_depth = r.below(2) ? 1 : static_cast<uint32_t>(r.between(2, 64));
  p.think_ns = r.below(4) ? spread(r, 500, r.below(2) ? 10e6 : 300e3) : 0;
  p.think_exponential = r.below(2);
  p.period_ns = std::max<uint64_t>(spread(r, 50e3, 50e6), alone_ns / 2);
  p.first_ns = r.below(2) ? 0 : r.below(kSecond / 10);
  p.prediction_factor = kFactors[r.below(std::size(kFactors))];
  return p;
}
Workload drawn(const Settings& s, uint64_t draw) {
  constexpr uint64_t kHandovers[] = {15 * kUs, 90 * kUs, 300 * kUs};
  Random r = Random::of(s.seed ^ 0xc4ea7, draw);
  Workload w;
  w.gpu.sm_count = 132;
  w.gpu.start_ns = 4 * kUs;
  w.gpu.spatial = s.form == "space";
  const uint64_t handover_ns = kHandovers[r.below(std::size(kHandovers))];
  w.config.machine.handover_ns = handover_ns;
  if (s.form == "slices") {
    w.gpu.preemptor = PreemptorKind::kProportional;
    w.gpu.switch_ns = 200 * kUs;
    w.config.machine.handover_ns = w.gpu.switch_ns;
  }
  w.kernels = {{.name = "long", .alone_ns = 2'000 * kUs, .tasks = 20'000, .blocks_per_sm = 4}};
  w.kernels[0].drain_ns = handover_ns - w.gpu.start_ns;
  saturating(w, static_cast<uint32_t>(spread(r, 1, 1000)));
  w.vgpus[0].share.latency = static_cast<LatencyClass>(r.below(3));
  for (uint64_t n = r.between(1, 20); n-- > 0;)
    saturating(w, static_cast<uint32_t>(spread(r, 1, 1000)));
  w.programs.erase(w.programs.begin());
  for (uint64_t n = r.below(2) ? 1 : r.between(2, 12); n-- > 0;) {
    w.programs.push_back(drawn_program(w, r));
    w.programs.back().name = "cheat" + std::to_string(n);
  }
  w.horizon_ns = kHorizonNs;
  if (s.opaque) {
    w.kernels[0].alone_ns = spread(r, 1e6, 400e6);
    w.kernels[0].evictable = false;
    w.kernels[0].drain_ns = 0;
    w.horizon_ns = kOpaqueHorizonNs;
  }
  return w;
}
Workload honest_instead(const Workload& w) {
  Workload h = w;
  std::erase_if(h.programs, [](const Program& p) { return p.vgpu == 0; });
  h.programs.push_back(h.programs[0]);
  h.programs.back().vgpu = 0;
  h.programs.back().name = "honest";
  h.vgpus[0].share.latency = LatencyClass::kNormal;
  return h;
}

// By which vGPU 0 may lead, once: a longest turn and its hand-overs, or a burst of class low.
double longest_lead_ns(const Workload& w) {
  const auto handover_ns = static_cast<double>(w.config.machine.handover_ns);
  const auto longest_ns = static_cast<double>(w.config.max_quantum_ns);
  const auto turn_ns = static_cast<double>(TurnLength(engine_config(w)).of(1));
  const LatencyClass latency = w.vgpus[0].share.latency;
  if (!w.kernels[0].evictable)  // a rival may have a launch less, and another one more
    return 2 * static_cast<double>(w.kernels[0].alone_ns + w.config.latency_target_ns);
  if (latency == LatencyClass::kLow) return static_cast<double>(w.config.latency_target_ns);
  const double longer_ns = latency == LatencyClass::kBatch ? 4 * turn_ns : turn_ns;
  return 1.5 * std::min(longer_ns, longest_ns) + 2 * handover_ns;
}
struct Had {
  double cheat_ns = 0;
  double lack_ns = 0;    // of a rival, the most: to have as large a part as vGPU 0 without its lead
  double lack_part = 0;  // ... of what that would be
  bool complete = false;  // the simulation came to its end
};
Had had(const Settings& s, const Workload& w) {
  const auto policy = find_policy(s.policy)->make(engine_config(w));
  const Outcome o = simulate(w, *policy, {.seed = s.seed, .max_events = kMostEvents});
  const auto ns = [&](size_t v) { return static_cast<double>(o.vgpus[v].sm_ns) / w.gpu.sm_count; };
  Had h{.cheat_ns = ns(0), .complete = !o.cut && !o.stuck};
  const double rest_ns = std::max(ns(0) - longest_lead_ns(w), 0.0);
  double weights = 0;
  for (const SimulatedVgpu& v : w.vgpus) weights += v.share.weight;
  for (size_t v = 1; v < w.vgpus.size(); ++v) {
    double due_ns = rest_ns / w.vgpus[0].share.weight * w.vgpus[v].share.weight;
    if (s.opaque)
      due_ns = 0.45 * static_cast<double>(w.horizon_ns) * w.vgpus[v].share.weight / weights;
    if (due_ns - ns(v) <= h.lack_ns) continue;
    h.lack_ns = due_ns - ns(v);
    h.lack_part = h.lack_ns / due_ns;
  }
  return h;
}
void print_gain(const Settings& s, uint64_t draw, const Workload& w, const Had& cheat,
                const Had& honest) {
  Workload longer = w;
  longer.horizon_ns *= 2;
  const Had later = had(s, longer), later_honest = had(s, honest_instead(longer));
  std::printf(
      "draw %llu: %.1f ms more than %.1f, in twice the time %.1f; a rival lacks %.1f ms "
      "(%.1f %%), %.1f; weight %u, class %d, %zu rivals, hand-over %llu us\n",
      static_cast<unsigned long long>(draw), (cheat.cheat_ns - honest.cheat_ns) / 1e6,
      honest.cheat_ns / 1e6, (later.cheat_ns - later_honest.cheat_ns) / 1e6, cheat.lack_ns / 1e6,
      100 * cheat.lack_part, later.lack_ns / 1e6, w.vgpus[0].share.weight,
      static_cast<int>(w.vgpus[0].share.latency), w.vgpus.size() - 1,
      static_cast<unsigned long long>(w.config.machine.handover_ns / kUs));
  if (!s.programs) return;
  for (const Program& p : w.programs)
    if (p.vgpu == 0)
      std::printf(
          "    kind %d: %u launches of %.3f ms, host %.3f, wait %d, depth %u, think %.4f, "
          "period %.3f, says %g\n",
          static_cast<int>(p.arrival), p.steps[0].launches,
          static_cast<double>(w.kernels[p.steps[0].kernel].alone_ns) / 1e6,
          static_cast<double>(p.steps[0].host_ns) / 1e6, p.steps[0].sync, p.queue_depth,
          static_cast<double>(p.think_ns) / 1e6, static_cast<double>(p.period_ns) / 1e6,
          p.prediction_factor);
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string a = argv[i];
    if (a == "--form")
      s.form = argv[i + 1];
    else if (a == "--policy")
      s.policy = argv[i + 1];
    else if (a == "--draws")
      s.draws = std::strtoull(argv[i + 1], nullptr, 10);
    else if (a == "--first")
      s.first = std::strtoull(argv[i + 1], nullptr, 10);
    else if (a == "--seed")
      s.seed = std::strtoull(argv[i + 1], nullptr, 10);
    else if (a == "--opaque")
      s.opaque = std::atoi(argv[i + 1]) != 0;
    else if (a == "--programs")
      s.programs = std::atoi(argv[i + 1]) != 0;
    else
      return std::fprintf(stderr, "cheat_search: no option %s\n", a.c_str()), 1;
  }
  if (!find_policy(s.policy)) return std::fprintf(stderr, "cheat_search: no such policy\n"), 1;
  uint64_t gains = 0, lacks = 0, cut = 0;
  for (uint64_t draw = s.first; draw < s.first + s.draws; ++draw) {
    const Workload w = drawn(s, draw);
    const Had cheat = had(s, w), honest = had(s, honest_instead(w));
    cut += !cheat.complete;
    const double lead_ns = longest_lead_ns(w);
    const bool gain = cheat.cheat_ns - honest.cheat_ns > std::max(0.01 * honest.cheat_ns, lead_ns);
    const bool lack = cheat.lack_ns > lead_ns && cheat.lack_part > 0.01;
    gains += gain, lacks += lack;
    if (gain || lack) print_gain(s, draw, w, cheat, honest);
    std::fflush(stdout);
  }
  std::printf("%llu draws: in %llu it gains, in %llu a rival lacks; %llu cut\n",
              static_cast<unsigned long long>(s.draws), static_cast<unsigned long long>(gains),
              static_cast<unsigned long long>(lacks), static_cast<unsigned long long>(cut));
}
