// SPDX-License-Identifier: Apache-2.0
// Tenants that come and go beside tenants that saturate the GPU: sleepers, light Poisson tenants,
// short think times, slow hand-overs. An H200 that is given whole, with sluiced's defaults; tasks
// of 8 us, so that a hand-over takes some 15 us, unless the row says otherwise. `tenant-*` are the
// cases that showed faults; `held-*` draw populations that nothing was tuned on
// (tests/sim/wfq_bounds_test.cc freezes the seeds).
#include <algorithm>
#include <cmath>
#include <iterator>

#include "policies/sim/random.h"
#include "policies/sim/workloads/rows.h"

namespace sluice::policy::sim {
namespace {

constexpr uint64_t kTenantUs = 1000, kTenantMs = 1'000'000, kTenantSecond = 1'000'000'000;

Workload tenants(std::string name, uint64_t task_ns = 8 * kTenantUs) {
  Workload w;
  w.name = std::move(name);
  w.gpu.sm_count = 132;
  w.gpu.signal_ns = 3 * kTenantUs;
  w.gpu.start_ns = 4 * kTenantUs;
  w.config.machine.handover_ns = 10 * kTenantUs;
  w.kernels = {{.name = "long", .alone_ns = 2 * kTenantMs, .tasks = 20'000, .blocks_per_sm = 4}};
  w.kernels[0].task_ns = task_ns;
  w.horizon_ns = 20 * kTenantSecond;
  return w;
}

// One more vGPU with one program; the caller sets how it arrives.
Program& tenant(Workload& w, const std::string& name, uint32_t kernel, uint32_t weight = 100) {
  Program p;
  p.name = name + std::to_string(w.vgpus.size());
  p.vgpu = static_cast<uint32_t>(w.vgpus.size());
  p.steps = {{.kernel = kernel}};
  p.runs = 0;
  w.vgpus.push_back({.name = p.name, .share = {.weight = weight}, .compared = false});
  w.programs.push_back(p);
  return w.programs.back();
}
void saturating(Workload& w, uint32_t count, uint32_t weight = 100) {
  for (uint32_t i = 0; i < count; ++i) {
    Program& p = tenant(w, "saturating", 0, weight);
    p.arrival = ArrivalKind::kBacklog;
    p.queue_depth = 4;
    w.vgpus.back().compared = true;
  }
}
// `think_ns` of sleep between runs of `alone_ns`.
void sleepers(Workload& w, Random& r, uint32_t count, uint64_t alone_ns, uint64_t think_ns,
              uint32_t weight = 100) {
  Kernel k = w.kernels[0];
  k.name = "work" + std::to_string(w.kernels.size());
  k.alone_ns = alone_ns;
  k.tasks = 4'000;
  w.kernels.push_back(k);
  for (uint32_t i = 0; i < count; ++i) {
    Program& p = tenant(w, "sleeper", static_cast<uint32_t>(w.kernels.size() - 1), weight);
    p.think_ns = think_ns;
    p.first_ns = r.below(think_ns + 1);
  }
}
void light(Workload& w, uint64_t alone_ns, uint64_t period_ns, uint32_t weight = 100) {
  Kernel k = w.kernels[0];
  k.name = "light" + std::to_string(w.kernels.size());
  k.alone_ns = alone_ns;
  k.tasks = 528;
  w.kernels.push_back(k);
  Program& p = tenant(w, "light", static_cast<uint32_t>(w.kernels.size() - 1), weight);
  p.arrival = ArrivalKind::kPoisson;
  p.period_ns = period_ns;
  p.queue_depth = 16;  // what has piled up is queued at once
}

struct Population {
  uint32_t count;
  uint64_t work_ns, sleep_ns;
};
// More of them than the GPU can serve, all below any bound on what is short.
constexpr Population kCrowds[] = {{32, 900 * kTenantUs, 21 * kTenantMs},
                                  {28, 900 * kTenantUs, 21 * kTenantMs},
                                  {64, 900 * kTenantUs, 50 * kTenantMs},
                                  {20, kTenantMs, 16 * kTenantMs}};
Workload crowd(uint32_t run, uint64_t seed) {
  Workload w = tenants("tenant-crowd");
  Random r = Random::of(seed, run);
  saturating(w, 2);
  const Population& p = kCrowds[run % std::size(kCrowds)];
  sleepers(w, r, p.count, p.work_ns, p.sleep_ns);
  return w;
}

// One that uses 1 % beside 1, 4, 16, 64 that saturate.
constexpr uint32_t kBeside[] = {1, 4, 16, 64};
Workload light_beside(uint32_t run, uint64_t seed) {
  Workload w = tenants("tenant-light");
  (void)seed;
  light(w, 50 * kTenantUs, 5 * kTenantMs);
  saturating(w, kBeside[run % std::size(kBeside)]);
  return w;
}
Workload light_slices(uint32_t run, uint64_t seed) {
  Workload w = light_beside(run, seed);
  w.name = "tenant-light-slices";
  w.gpu.preemptor = PreemptorKind::kProportional;
  w.gpu.switch_ns = 200 * kTenantUs;
  w.config = Config{};
  return w;
}

// Sleeps just over the 20 ms that lags used to be kept for.
constexpr Population kNaps[] = {{8, 5 * kTenantMs, 20'500 * kTenantUs},
                                {16, 2 * kTenantMs, 20'500 * kTenantUs},
                                {32, 900 * kTenantUs, 20'500 * kTenantUs},
                                {48, 500 * kTenantUs, 21 * kTenantMs}};
Workload naps(uint32_t run, uint64_t seed) {
  Workload w = tenants("tenant-naps");
  Random r = Random::of(seed, run);
  saturating(w, 2);
  const Population& p = kNaps[run % std::size(kNaps)];
  sleepers(w, r, p.count, p.work_ns, p.sleep_ns);
  return w;
}

Workload think(uint32_t, uint64_t seed) {
  Workload w = tenants("tenant-think");
  Random r = Random::of(seed, 0);
  saturating(w, 1);
  sleepers(w, r, 1, 20 * kTenantUs, 10 * kTenantUs);
  w.horizon_ns = 5 * kTenantSecond;
  return w;
}

// Hand-overs of 86 and 295 us, as measured on an H200: 16 and 64 that saturate.
Workload slow(uint32_t run, uint64_t) {
  Workload w = tenants("tenant-slow", (run % 2 ? 288 : 79) * kTenantUs);
  saturating(w, run % 4 < 2 ? 16 : 64);
  return w;
}

// Drawn populations: not used while a rule is being tuned.
Workload held(uint32_t run, uint64_t seed, const char* name, bool equal) {
  Workload w = tenants(name);
  Random r = Random::of(seed ^ 0x5eed0fbe, run);
  const auto weight = [&] {
    return equal ? 100 : static_cast<uint32_t>(std::lround(std::exp(r.unit() * std::log(1000.0))));
  };
  for (uint64_t n = r.between(2, 6); n-- > 0;) saturating(w, 1, weight());
  for (uint64_t n = r.between(1, 4); n-- > 0;)
    sleepers(w, r, static_cast<uint32_t>(r.between(1, 12)), r.between(50, 4'000) * kTenantUs,
             r.between(1'000, 60'000) * kTenantUs, weight());
  for (uint64_t n = r.between(1, 3); n-- > 0;)
    light(w, r.between(30, 300) * kTenantUs, r.between(4, 40) * kTenantMs, weight());
  if (r.below(2)) w.programs[r.below(w.programs.size())].prediction_factor = 0.001;
  w.horizon_ns = 10 * kTenantSecond;
  return w;
}
Workload held_equal(uint32_t run, uint64_t seed) { return held(run, seed, "held-equal", true); }
Workload held_weights(uint32_t run, uint64_t seed) {
  return held(run, seed, "held-weights", false);
}

// What comes in bursts: up to eight launches one after the other, at random times or after a pause,
// of which it wants up to half of the GPU.
void bursts(Workload& w, Random& r, uint32_t weight) {
  Kernel k = w.kernels[0];
  k.name = "burst" + std::to_string(w.kernels.size());
  k.alone_ns = static_cast<uint64_t>(50e3 * std::exp(r.unit() * std::log(200.0)));
  k.tasks = 528;
  w.kernels.push_back(k);
  Program& p = tenant(w, "bursts", static_cast<uint32_t>(w.kernels.size() - 1), weight);
  p.steps[0].launches = static_cast<uint32_t>(r.between(1, 8));
  const double work_ns = static_cast<double>(k.alone_ns * p.steps[0].launches);
  p.arrival = r.below(2) ? ArrivalKind::kClosed : ArrivalKind::kPoisson;
  p.think_ns = static_cast<uint64_t>(work_ns * std::exp(r.unit() * std::log(30.0)));
  p.think_exponential = r.below(2);
  p.period_ns = p.think_ns + k.alone_ns * p.steps[0].launches;
  p.queue_depth = r.below(2) ? 1 : 8;
}
// 2 to 8 of class low, saturating or in bursts, beside up to two others.
Workload held_low(uint32_t run, uint64_t seed) {
  Workload w = tenants("held-low");
  Random r = Random::of(seed ^ 0x10c1a55, run);
  const bool equal = run % 2 == 0;
  const auto weight = [&] {
    return equal ? 100 : static_cast<uint32_t>(std::lround(std::exp(r.unit() * std::log(1000.0))));
  };
  const uint32_t kinds = run / 2 % 3;  // saturating, in bursts, both
  for (uint64_t n = r.between(2, 8); n-- > 0;) {
    if (kinds == 0 || (kinds == 2 && r.below(2)))
      saturating(w, 1, weight());
    else
      bursts(w, r, weight());
    w.vgpus.back().share.latency = LatencyClass::kLow;
  }
  for (uint64_t n = r.below(3); n-- > 0;) saturating(w, 1, weight());
  w.horizon_ns = 10 * kTenantSecond;
  return w;
}

// 2, 4, ... 256 vGPUs of weights 1 to 1,000, each of a drawn kind: saturating, a sleeper, bursts at
// random times, one that reports its launches as a thousandth or a thousand times of what they
// are. One at least saturates.
constexpr uint32_t kCrowdSizes = 8;
Workload many(uint32_t run, uint64_t seed) {
  Workload w = tenants("held-many");
  Random r = Random::of(seed ^ 0x3a9f, run);
  const uint64_t count = 2ull << run % kCrowdSizes;
  const auto weight = [&] {
    return static_cast<uint32_t>(std::lround(std::exp(r.unit() * std::log(1000.0))));
  };
  saturating(w, 1, weight());
  while (w.vgpus.size() < count) switch (r.below(4)) {
      case 0:
        saturating(w, 1, weight());
        break;
      case 1:
        sleepers(w, r, 1, r.between(50, 8'000) * kTenantUs, r.between(100, 60'000) * kTenantUs,
                 weight());
        break;
      case 2:
        light(w, r.between(30, 2'000) * kTenantUs, r.between(4, 100) * kTenantMs, weight());
        break;
      default:
        saturating(w, 1, weight());
        w.programs.back().prediction_factor = r.below(2) ? 0.001 : 1000;
    }
  w.horizon_ns = 5 * kTenantSecond;
  return w;
}

// One that cheats beside 1, 3 and 15 that saturate; kind 0 is what an honest one gets in its place.
enum class Cheat : uint32_t {
  kHonest,         // saturates
  kClaimsLess,     // saturates, and reports each launch as a thousandth of what it is
  kClaimsMore,     // ... a thousand times
  kFlood,          // 64 launches of 10 us queued at any time
  kShortPauses,    // works for just less than the least quantum, pauses for 50 us
  kLongPauses,     // ... for 1 ms
  kLiesAndPauses,  // works for 3 ms, reports 3 us, pauses for 100 us
  kOpenLoop,       // offers one and a half times its share in launches of 0.3 ms, at random times
  kManySessions,   // eight sessions that each work for 0.5 ms and pause for 2 ms
  kKinds
};
constexpr uint32_t kRivals[] = {1, 3, 15};
constexpr uint32_t kCheatRuns = static_cast<uint32_t>(Cheat::kKinds) * std::size(kRivals);
Workload cheat(uint32_t run, uint64_t seed) {
  Workload w = tenants("tenant-cheat");
  Random r = Random::of(seed, run);
  const auto kind = static_cast<Cheat>(run % static_cast<uint32_t>(Cheat::kKinds));
  const uint32_t rivals = kRivals[run / static_cast<uint32_t>(Cheat::kKinds) % std::size(kRivals)];
  const auto bursts = [&](uint64_t work_ns, uint64_t pause_ns) -> Program& {
    sleepers(w, r, 1, work_ns, pause_ns);
    return w.programs.back();
  };
  switch (kind) {
    case Cheat::kClaimsLess:
    case Cheat::kClaimsMore:
      saturating(w, 1);
      w.programs[0].prediction_factor = kind == Cheat::kClaimsLess ? 0.001 : 1000;
      break;
    case Cheat::kFlood: {
      Program& p = bursts(10 * kTenantUs, 0);
      p.arrival = ArrivalKind::kBacklog;
      p.queue_depth = 64;
      break;
    }
    case Cheat::kShortPauses:
      bursts(900 * kTenantUs, 50 * kTenantUs);
      break;
    case Cheat::kLongPauses:
      bursts(900 * kTenantUs, kTenantMs);
      break;
    case Cheat::kLiesAndPauses:
      bursts(3 * kTenantMs, 100 * kTenantUs).prediction_factor = 0.001;
      break;
    case Cheat::kOpenLoop:
      light(w, 300 * kTenantUs, 200 * kTenantUs * (rivals + 1));
      break;
    case Cheat::kManySessions:
      bursts(500 * kTenantUs, 2 * kTenantMs);
      for (int i = 1; i < 8; ++i) {
        w.programs.push_back(w.programs[0]);
        w.programs.back().name += "-" + std::to_string(i);
        w.programs.back().first_ns = r.below(2 * kTenantMs);
      }
      break;
    default:
      saturating(w, 1);
  }
  w.vgpus[0].compared = false;
  saturating(w, rivals);
  w.horizon_ns = 10 * kTenantSecond;
  return w;
}

}  // namespace

const std::vector<WorkloadRow>& tenant_workloads() {
  static const std::vector<WorkloadRow> rows = {
      {"tenant-crowd", "2 saturating vGPUs beside more sleepers than fit", 4, crowd},
      {"tenant-light", "a vGPU that uses 1 % beside 1, 4, 16, 64 saturating ones", 4, light_beside},
      {"tenant-light-slices", "the same on hardware time slices", 3, light_slices},
      {"tenant-naps", "2 saturating vGPUs beside sleepers of just over 20 ms", 4, naps},
      {"tenant-think", "20 us of work and 10 us of think time beside a saturating vGPU", 1, think},
      {"tenant-slow", "16 and 64 saturating vGPUs, hand-overs of 86 and 295 us", 4, slow},
      {"tenant-cheat", "one that lies, floods or pauses to gain, beside 1, 3 and 15", kCheatRuns,
       cheat},
      {"held-equal", "drawn sleepers and Poisson tenants beside saturating ones", 12, held_equal},
      {"held-weights", "the same with weights 1 to 1,000", 12, held_weights},
      {"held-low", "2 to 8 of class low, saturating or in bursts", 12, held_low},
      {"held-many", "2 to 256 vGPUs of drawn kinds and weights 1 to 1,000", kCrowdSizes, many},
  };
  return rows;
}

}  // namespace sluice::policy::sim
