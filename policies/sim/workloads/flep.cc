// SPDX-License-Identifier: Apache-2.0
// The workloads of "FLEP: Enabling Flexible and Efficient Preemption on GPUs" (Wu et al.), section
// 6: eight kernels with the times of Table 1 (large, small, trivial inputs) on a K40 of 15 SMs;
// pairs and triplets.
//
// Assumed, because the paper gives no latencies: from the decision to preempt until the preempting
// kernel works 175 us pass, 150 for the victim to leave (half of it useful) and 25 to launch. It is
// what the paper's two extreme speed-ups leave over: (15,775 + 484) us / 24.2 for SPMV behind NN
// and (5,419 + 1,499) us / 4.1 for MM behind PL are both 188 us more than the kernel's own time, of
// which 2.5 % is the form's (figure 17). A victim's relaunch costs 25 us. Predictions are wrong
// by 6.9 % (figure 7). A small kernel is launched 50 us after the large one, so that it finds it at
// work.
#include <algorithm>

#include "policies/sim/random.h"
#include "policies/sim/workloads/rows.h"

namespace sluice::policy::sim {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000, kSecond = 1'000'000'000;
constexpr uint32_t kSms = 15,
                   kTrivialSms = 5;  // section 6.1: "may only create 40 CTAs and only needs 5 SMs"
constexpr uint64_t kAfterNs = 50 * kUs;

enum Name : uint32_t { kCfd, kNn, kPf, kPl, kMd, kSpmv, kMm, kVa, kNames };
enum class Input : uint8_t { kLarge, kSmall, kTrivial };
struct Benchmark {
  const char* name;
  uint64_t large_us, small_us, trivial_us;
};
constexpr Benchmark kTable[kNames] = {
    {"CFD", 11'106, 521, 81}, {"NN", 15'775, 728, 55}, {"PF", 7'364, 811, 57},
    {"PL", 5'419, 952, 83},   {"MD", 15'905, 938, 90}, {"SPMV", 5'840, 484, 68},
    {"MM", 2'579, 1'499, 73}, {"VA", 30'634, 720, 49},
};
constexpr Name kAll[kNames] = {kCfd, kNn, kPf, kPl, kMd, kSpmv, kMm, kVa};

Workload empty(bool spatial) {
  Workload w;
  w.gpu.sm_count = kSms;
  w.gpu.spatial = spatial;
  w.gpu.start_ns = 25 * kUs;
  w.prediction_cv = 0.069;
  w.config.machine.handover_ns = 175 * kUs;
  return w;
}
uint64_t time_us(Name n, Input input) {
  const Benchmark& b = kTable[n];
  return input == Input::kLarge ? b.large_us : input == Input::kSmall ? b.small_us : b.trivial_us;
}
void add(Workload& w, Name n, Input input, VgpuShare share, uint64_t first_ns) {
  static constexpr const char* kInputs[] = {" large", " small", " trivial"};
  Kernel k;
  k.name = std::string(kTable[n].name) + kInputs[static_cast<size_t>(input)];
  // The table's times contain a launch's cost.
  k.alone_ns = time_us(n, input) * kUs - w.gpu.start_ns;
  k.width_sms = input == Input::kTrivial ? kTrivialSms : 0;
  k.tasks = 10'000;
  k.drain_ns = 150 * kUs;
  k.form_factor = 1.025;
  Program p;
  p.name = k.name;
  p.vgpu = static_cast<uint32_t>(w.vgpus.size());
  p.steps = {{.kernel = static_cast<uint32_t>(w.kernels.size())}};
  p.first_ns = first_ns;
  w.kernels.push_back(k);
  w.vgpus.push_back({.name = k.name, .share = share});
  w.programs.push_back(p);
}

struct Pair {
  Name large, small;
};
// Figure 8: CFD, NN, PF and PL large, each with each other one small; 28 pairs.
Pair priority_pair(uint32_t run) {
  const Name large = kAll[run / 7 % 4];
  const uint32_t other = run % 7;
  return {large, kAll[other + (other >= large)]};
}
// Figure 9: the pairs of figure 8 with SPMV, the shortest, which comes later and later: 0 to 9
// eighths of the large kernel's time. Run i is large kernel i / 10 with i % 10 eighths.
constexpr uint32_t kDelays = 10;
Workload delayed(uint32_t run, uint64_t) {
  const Name large = kAll[run / kDelays % 4];
  Workload w = empty(false);
  add(w, large, Input::kLarge, {.priority = 0}, 0);
  add(w, kSpmv, Input::kSmall, {.priority = 1},
      kAfterNs + run % kDelays * time_us(large, Input::kLarge) * kUs / 8);
  return w;
}
// Figure 10: MD, MM, SPMV and VA small, each with each other one large.
Pair equal_pair(uint32_t run) {
  const Name small = kAll[4 + run / 7 % 4];
  const uint32_t other = run % 7;
  return {kAll[other + (other >= small)], small};
}

Workload pairs(uint32_t run, uint64_t) {
  const Pair p = priority_pair(run);
  Workload w = empty(false);
  add(w, p.large, Input::kLarge, {.priority = 0}, 0);
  add(w, p.small, Input::kSmall, {.priority = 1}, kAfterNs);
  return w;
}
Workload equal_pairs(uint32_t run, uint64_t) {
  const Pair p = equal_pair(run);
  Workload w = empty(false);
  add(w, p.large, Input::kLarge, {}, 0);
  add(w, p.small, Input::kSmall, {}, kAfterNs);
  return w;
}
// Figure 12: 28 triplets drawn at random.
Workload triplets(uint32_t run, uint64_t seed) {
  Random random = Random::of(seed, run);
  Name names[kNames];
  std::copy(std::begin(kAll), std::end(kAll), names);
  for (uint32_t i = 0; i < 3; ++i) std::swap(names[i], names[i + random.below(kNames - i)]);
  Workload w = empty(false);
  add(w, names[0], Input::kLarge, {}, 0);
  add(w, names[1], Input::kSmall, {}, kAfterNs);
  add(w, names[2], Input::kSmall, {}, 2 * kAfterNs);
  return w;
}
// Section 6.3.2, the baseline that reorders: the same triplets, where of the two that wait the
// shorter has a higher priority. Without preemption, under npq.
Workload reordered(uint32_t run, uint64_t seed) {
  Workload w = triplets(run, seed);
  const bool second_shorter = w.kernels[2].alone_ns < w.kernels[1].alone_ns;
  w.vgpus[second_shorter ? 2 : 1].share.priority = 1;
  return w;
}
// Figures 13 and 14: the pairs of figure 8, each kernel launched again and again, 2:1.
Workload fairness(uint32_t run, uint64_t) {
  const Pair p = priority_pair(run);
  Workload w = empty(false);
  add(w, p.large, Input::kLarge, {.weight = 100}, 0);
  add(w, p.small, Input::kSmall, {.weight = 200}, 0);
  for (Program& program : w.programs) {
    program.arrival = ArrivalKind::kBacklog;
    program.runs = 0;
    program.queue_depth = 4;
  }
  w.horizon_ns = 4 * kSecond;
  w.config.max_overhead = 0.1;
  return w;
}
// Figure 15: each large input with each other trivial one, which has the higher priority. It comes
// when the large one is under way.
template <bool kSpatial>
Workload trivial(uint32_t run, uint64_t) {
  const Name large = kAll[run / 7 % kNames];
  const uint32_t other = run % 7;
  Workload w = empty(kSpatial);
  add(w, large, Input::kLarge, {.priority = 0}, 0);
  add(w, kAll[other + (other >= large)], Input::kTrivial, {.priority = 1}, kMs);
  return w;
}

}  // namespace

const std::vector<WorkloadRow>& flep_workloads() {
  static const std::vector<WorkloadRow> rows = {
      {"flep-pairs", "FLEP figure 8: 28 pairs, a small kernel of high priority behind a large one",
       28, pairs},
      {"flep-equal", "FLEP figures 10 and 11: 28 pairs of equal priority", 28, equal_pairs},
      {"flep-triplets", "FLEP figure 12: 28 triplets of equal priority", 28, triplets},
      {"flep-delay", "FLEP figure 9: SPMV comes 0 to 9 eighths of a large kernel's time later", 40,
       delayed},
      {"flep-reorder", "FLEP section 6.3.2: the triplets with the shorter small kernel first", 28,
       reordered},
      {"flep-fairness", "FLEP figures 13 and 14: 28 pairs in endless loops, weights 2:1", 28,
       fairness},
      {"flep-temporal", "FLEP figure 15: 56 pairs, a trivial kernel preempts all SMs", 56,
       trivial<false>},
      {"flep-spatial", "FLEP figure 15: 56 pairs, a trivial kernel preempts the SMs it needs", 56,
       trivial<true>},
  };
  return rows;
}

}  // namespace sluice::policy::sim
