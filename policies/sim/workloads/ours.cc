// SPDX-License-Identifier: Apache-2.0
// What wfq must hold by itself: many vGPUs with weights from 1 to 1,000, tenants of every habit
// beside each other, on an exclusive preemptor with the hand-over measured under MPS (some 10 us)
// and on a proportional one with the measured context switch (200 us).
#include <algorithm>
#include <cmath>

#include "policies/sim/random.h"
#include "policies/sim/workloads/rows.h"

namespace sluice::policy::sim {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000, kSecond = 1'000'000'000;
constexpr uint32_t kCounts[] = {2, 3, 4, 8, 16, 32, 64, 128, 256};

Workload h200(std::string name) {
  Workload w;
  w.name = std::move(name);
  w.gpu.sm_count = 132;
  w.gpu.spatial = true;
  w.gpu.signal_ns = 3 * kUs;
  w.gpu.start_ns = 4 * kUs;
  w.config.machine.handover_ns = 10 * kUs;
  // Each vGPU has some two hundred turns in a second: that is what 1 % of its share takes.
  w.config.min_quantum_ns = 250 * kUs;
  w.config.latency_target_ns = 5 * kMs;
  w.config.max_quantum_ns = 5 * kMs;
  return w;
}

enum class Habit : uint32_t { kSaturating, kBursty, kTiny, kGiant, kLiar, kThoughtful, kHabits };
constexpr const char* kHabitNames[] = {"saturating", "bursty", "tiny",
                                       "giant",      "liar",   "thoughtful"};

void add(Workload& w, Random& r, Habit habit, uint32_t weight) {
  const auto index = static_cast<uint32_t>(w.vgpus.size());
  Kernel k;
  Program p;
  k.name = p.name = kHabitNames[static_cast<uint32_t>(habit)] + std::to_string(index);
  k.blocks_per_sm = 4;
  k.alone_ns = r.between(500 * kUs, 3 * kMs);
  k.tasks = static_cast<uint32_t>(r.between(5'000, 50'000));
  p.vgpu = index;
  p.steps = {{.kernel = static_cast<uint32_t>(w.kernels.size())}};
  p.arrival = ArrivalKind::kBacklog;
  p.runs = 0;
  p.queue_depth = 4;
  bool compared = true;
  switch (habit) {
    case Habit::kBursty:
      p.arrival = ArrivalKind::kPoisson;
      p.period_ns = r.between(5 * kMs, 40 * kMs);
      p.steps[0].launches = static_cast<uint32_t>(r.between(1, 20));
      compared = false;
      break;
    case Habit::kTiny:
      k.alone_ns = r.between(5 * kUs, 60 * kUs);
      k.tasks = 528;
      p.queue_depth = 64;
      break;
    case Habit::kGiant:
      k.alone_ns = r.between(200 * kMs, 2 * kSecond);
      k.tasks = 1'000'000;
      k.task_ns = r.between(20 * kUs, 200 * kUs);
      break;
    case Habit::kLiar:
      p.prediction_factor = r.below(2) ? 0.001 : 1000;
      break;
    case Habit::kThoughtful:
      p.arrival = ArrivalKind::kClosed;
      p.queue_depth = 1;
      p.think_ns = r.between(8 * kUs, 10 * kMs);
      compared = false;
      break;
    default:
      break;
  }
  w.kernels.push_back(k);
  w.programs.push_back(p);
  w.vgpus.push_back({.name = p.name, .share = {.weight = weight}, .compared = compared});
}

uint32_t weight_of(Random& r) {  // 1..1,000, as many small as large
  return static_cast<uint32_t>(std::lround(std::exp(r.unit() * std::log(1000.0))));
}

// Saturating tenants only: the share itself. The heaviest comes first: a vGPU that is alone when
// the others come pays for the time in which it leaves a whole GPU, and the lightest of 256 would
// pay that back for seconds (wfq-habits has them in any order).
Workload shares(uint32_t run, uint64_t seed) {
  Workload w = h200("wfq-shares");
  Random r = Random::of(seed, run);
  std::vector<uint32_t> weights(kCounts[run % std::size(kCounts)]);
  for (uint32_t& x : weights) x = weight_of(r);
  std::sort(weights.rbegin(), weights.rend());
  for (const uint32_t x : weights) add(w, r, Habit::kSaturating, x);
  w.horizon_ns = 20 * kSecond;
  return w;
}

// Equal weights: the case in which no vGPU is entitled to less than a turn.
Workload equals(uint32_t run, uint64_t seed) {
  Workload w = h200("wfq-equal");
  Random r = Random::of(seed, run);
  const uint32_t n = kCounts[run % std::size(kCounts)];
  for (uint32_t i = 0; i < n; ++i) add(w, r, Habit::kSaturating, 100);
  w.horizon_ns = 10 * kSecond;
  return w;
}

// With tasks (chunks, in rewritten kernels) of 8 us: an SM is left in that time, not in up to 320
// us.
Workload shares_short(uint32_t run, uint64_t seed) {
  Workload w = shares(run, seed);
  w.name = "wfq-shares-short";
  for (Kernel& k : w.kernels) k.task_ns = 8 * kUs;
  return w;
}

// Both on a GPU that can only be given whole.
Workload whole(Workload w, std::string name) {
  w.name = std::move(name);
  w.gpu.spatial = false;
  return w;
}
Workload shares_whole(uint32_t run, uint64_t seed) {
  return whole(shares(run, seed), "wfq-shares-whole");
}
Workload equals_whole(uint32_t run, uint64_t seed) {
  return whole(equals(run, seed), "wfq-equal-whole");
}

// The same as sluiced would run them on an H200: its defaults, tasks of 8 us, so that a hand-over
// takes some 15 us.
Workload turns_of(Workload w, std::string name) {
  w = whole(std::move(w), std::move(name));
  w.config = Config{};
  w.config.min_quantum_ns = kMs;
  for (Kernel& k : w.kernels) k.task_ns = 8 * kUs;
  w.horizon_ns = 5 * kSecond;
  return w;
}
Workload turns(uint32_t run, uint64_t seed) { return turns_of(equals(run, seed), "wfq-turns"); }
Workload turns_weights(uint32_t run, uint64_t seed) {
  return turns_of(shares(run, seed), "wfq-turns-weights");
}

// Every habit beside every other.
Workload habits(uint32_t run, uint64_t seed) {
  Workload w = h200("wfq-habits");
  Random r = Random::of(seed, run);
  const uint32_t n = static_cast<uint32_t>(r.between(3, 24));
  add(w, r, Habit::kSaturating, weight_of(r));  // so that shares are compared
  add(w, r, Habit::kSaturating, weight_of(r));
  for (uint32_t i = 2; i < n; ++i)
    add(w, r, static_cast<Habit>(r.below(static_cast<uint64_t>(Habit::kHabits))), weight_of(r));
  w.horizon_ns = 10 * kSecond;
  return w;
}

// Each of the 31 sets of the five habits (bit k of run + 1: habit k), two tenants of each, so that
// a lie, a giant or a burst always has somebody to gain from and one of its kind to be compared
// with.
Workload mixes(uint32_t run, uint64_t seed) {
  Workload w = h200("wfq-mixes");
  Random r = Random::of(seed, run);
  for (uint32_t k = 0; k < static_cast<uint32_t>(Habit::kThoughtful); ++k)
    for (int twice = 0; twice < 2; ++twice)
      if ((run % 31 + 1) >> k & 1)
        add(w, r, static_cast<Habit>(k), static_cast<uint32_t>(r.between(1, 10) * 100));
  w.horizon_ns = 4 * kSecond;
  return w;
}
Workload on_slices(Workload w, std::string name) {
  w.name = std::move(name);
  w.gpu.spatial = false;
  w.gpu.preemptor = PreemptorKind::kProportional;
  w.gpu.switch_ns = 200 * kUs;
  w.config = Config{};
  return w;
}
Workload mixes_whole(uint32_t run, uint64_t seed) {
  return turns_of(mixes(run, seed), "wfq-mixes-whole");
}
Workload mixes_slices(uint32_t run, uint64_t seed) {
  Workload w = on_slices(mixes(run, seed), "wfq-mixes-slices");
  w.horizon_ns = 20 * kSecond;
  return w;
}

// The same on hardware time slices: opaque kernels, 200 us a switch.
Workload slices(uint32_t run, uint64_t seed) {
  Workload w = h200("wfq-slices");
  w.gpu.preemptor = PreemptorKind::kProportional;
  w.gpu.switch_ns = 200 * kUs;
  w.config = Config{};
  Random r = Random::of(seed, run);
  const uint32_t n = kCounts[run % 5];
  for (uint32_t i = 0; i < n; ++i)
    add(w, r,
        i < 2 ? Habit::kSaturating
              : static_cast<Habit>(r.below(static_cast<uint64_t>(Habit::kHabits))),
        static_cast<uint32_t>(r.between(1, 10) * 100));
  w.horizon_ns = 60 * kSecond;
  return w;
}

}  // namespace

const std::vector<WorkloadRow>& our_workloads() {
  static const std::vector<WorkloadRow> rows = {
      {"wfq-shares", "2 to 256 saturating vGPUs, weights 1 to 1,000", 9, shares},
      {"wfq-equal", "2 to 256 saturating vGPUs of one weight", 9, equals},
      {"wfq-shares-short", "wfq-shares with tasks of 8 us", 9, shares_short},
      {"wfq-equal-whole", "the same on a GPU that is given whole", 9, equals_whole},
      {"wfq-shares-whole", "wfq-shares on a GPU that is given whole", 9, shares_whole},
      {"wfq-turns", "wfq-equal, given whole, with an H200's hand-overs and sluiced's defaults", 9,
       turns},
      {"wfq-turns-weights",
       "wfq-shares, given whole, with an H200's hand-overs and sluiced's defaults", 9,
       turns_weights},
      {"wfq-habits", "saturating, bursty, tiny, giant, lying and thoughtful tenants", 40, habits},
      {"wfq-mixes", "the 31 sets of saturating, bursty, tiny, giant and lying tenants, two of each",
       31, mixes},
      {"wfq-mixes-whole",
       "the same on a GPU that is given whole, with an H200's hand-overs and sluiced's defaults",
       31, mixes_whole},
      {"wfq-mixes-slices", "the same on hardware time slices", 31, mixes_slices},
      {"wfq-slices", "2 to 16 vGPUs on hardware time slices", 10, slices},
  };
  return rows;
}

}  // namespace sluice::policy::sim
