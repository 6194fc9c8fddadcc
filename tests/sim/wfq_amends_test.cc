// SPDX-License-Identifier: Apache-2.0
// What a vGPU that pauses keeps beside launches that cannot leave, under wfq given whole, of what
// short launches would leave it; and what that costs (policies/wfq/amends.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "policies/sim/simulation.h"
#include "tests/support/rounds.h"

namespace sluice::policy::sim {
namespace {

constexpr uint64_t kAmendsMs = 1'000'000, kAmendsSecond = 1'000'000'000;

// Launches of so long, so many one after the other, each waited for; then a pause.
struct Paced {
  double launch_ms;
  uint32_t launches;
  double pause_ms;
  bool random = false;
};
struct Beside {
  uint64_t rival_ns = 2 * kAmendsMs;
  bool opaque = false;
  uint64_t rival_pause_ns = 0;  // after each launch
  uint32_t victims = 1, rivals = 1;
  uint32_t victim_weight = 100, rival_weight = 100;
  uint64_t victim_runs = 0;  // 0: until the end
  bool third = false;        // one more, of the rivals' weight, that saturates and can leave
  uint64_t horizon_ns = 30 * kAmendsSecond;
};
struct Had {
  double launches = 0;   // of the victim that had least
  double rivals_ns = 0;  // that all rivals held the GPU
  double idle_ns = 0;    // nobody held it and somebody had work
  double end_ns = 0;
};

Had run_paced(const Paced& v, const Beside& b) {
  Workload w;
  w.gpu.sm_count = 132;
  w.gpu.start_ns = 4'000;
  w.gpu.signal_ns = 3'000;
  w.config.machine.handover_ns = 90'000;
  w.kernels = {{.name = "victim",
                .alone_ns = static_cast<uint64_t>(v.launch_ms * 1e6),
                .tasks = 20'000,
                .blocks_per_sm = 4,
                .drain_ns = 83'000},
               {.name = "rival", .alone_ns = b.rival_ns, .tasks = 20'000, .blocks_per_sm = 4}};
  w.kernels[1].evictable = !b.opaque;
  w.kernels[1].drain_ns = b.opaque ? 0 : 83'000;
  for (uint32_t i = 0; i < b.victims + b.rivals; ++i) {
    const bool victim = i < b.victims;
    w.vgpus.push_back({.name = "v" + std::to_string(i),
                       .share = {.weight = victim ? b.victim_weight : b.rival_weight},
                       .changes = {}});
    Program p;
    p.name = w.vgpus.back().name;
    p.vgpu = i;
    p.runs = victim ? b.victim_runs : 0;
    if (victim) {
      p.steps = {{.kernel = 0, .launches = v.launches, .host_ns = 20'000, .sync = true}};
      p.think_ns = static_cast<uint64_t>(v.pause_ms * 1e6);
      p.think_exponential = v.random;
    } else {
      p.steps = {{.kernel = 1}};
      p.arrival = b.rival_pause_ns ? ArrivalKind::kClosed : ArrivalKind::kBacklog;
      p.think_ns = b.rival_pause_ns;
      p.queue_depth = b.rival_pause_ns ? 1 : 4;
    }
    w.programs.push_back(p);
  }
  if (b.third) {
    w.kernels.push_back(w.kernels[0]);
    w.vgpus.push_back({.name = "third", .share = {.weight = b.rival_weight}, .changes = {}});
    Program p;
    p.vgpu = static_cast<uint32_t>(w.vgpus.size() - 1);
    p.steps = {{.kernel = 2}};
    p.arrival = ArrivalKind::kBacklog;
    p.queue_depth = 4;
    p.runs = 0;
    w.programs.push_back(p);
  }
  if (b.victim_runs) {  // or the simulation would end with them
    w.programs.push_back(w.programs[0]);
    w.programs.back().first_ns = 2 * b.horizon_ns;
  }
  w.horizon_ns = b.horizon_ns;
  const auto policy = find_policy("wfq")->make(engine_config(w));
  const Outcome o = simulate(w, *policy, {.seed = 1});
  EXPECT_EQ(o.violations, 0u) << o.violation;
  EXPECT_FALSE(o.stuck || o.cut);
  Had had{.launches = 1e300,
          .idle_ns = static_cast<double>(o.idle_with_work_ns),
          .end_ns = static_cast<double>(o.end_ns)};
  for (uint32_t i = 0; i < b.victims + b.rivals; ++i)
    if (i < b.victims)
      had.launches = std::min(had.launches, static_cast<double>(o.programs[i].launches_done));
    else
      had.rivals_ns += static_cast<double>(o.vgpus[i].sm_ns) / w.gpu.sm_count;
  return had;
}
double kept(const Paced& v, Beside b) {
  const Had beside = run_paced(v, b);
  b.opaque = false;
  b.rival_ns = 2 * kAmendsMs;
  b.rival_pause_ns = 0;
  return beside.launches / run_paced(v, b).launches;
}

// Those that work for three fifths of their time, or more: 0.1 to 20 ms of pause.
constexpr Paced kBusy[] = {{0.2, 1, 0.1},      {1, 1, 0.1},  {1, 1, 0.5},
                           {5, 1, 1},          {5, 1, 2.5},  {10, 1, 5},
                           {10, 10, 20, true}, {10, 10, 20}, {10, 1, 5, true}};
// ... and for less.
constexpr Paced kLight[] = {{2, 1, 2}, {1, 1, 5}, {5, 1, 20}, {1, 1, 20}, {2, 1, 5, true}};

// It was 0.02 to 0.5.
TEST(WfqAmends, WhoPausesKeepsItsShareBesideLaunchesThatCannotLeave) {
  size_t k = 0;
  for (const uint64_t rival_ms : {40u, 100u, 400u})
    for (const Paced& v : kBusy) {
      if (!in_sample(k++, 4)) continue;
      EXPECT_GE(kept(v, {.rival_ns = rival_ms * kAmendsMs, .opaque = true}), 0.95)
          << v.launch_ms << " x " << v.launches << ", " << v.pause_ms << ", rival " << rival_ms;
    }
}

// The GPU is not kept free for more than half of the time, so who works for little of its time
// keeps half. (It was 0.01 to 0.08.)
TEST(WfqAmends, WhoHardlyWorksKeepsHalf) {
  for (const uint64_t rival_ms : {40u, 400u})
    for (const Paced& v : kLight)
      EXPECT_GE(kept(v, {.rival_ns = rival_ms * kAmendsMs, .opaque = true}), 0.5)
          << v.launch_ms << ", " << v.pause_ms << ", rival " << rival_ms;
  // Unless its weight says more.
  for (const Paced& v : kLight)
    EXPECT_GE(kept(v, {.rival_ns = 400 * kAmendsMs, .opaque = true, .victim_weight = 1900}), 0.9)
        << v.launch_ms << ", " << v.pause_ms;
}

// A rival's own pauses, in which a victim has the GPU alone, end no debt.
TEST(WfqAmends, PausesOfTheRivalEndNothing) {
  for (const uint64_t pause_ms : {1u, 10u, 50u})
    for (const Paced& v : {Paced{1, 1, 0.5}, Paced{5, 1, 2.5}, Paced{10, 1, 0}})
      EXPECT_GE(kept(v, {.rival_ns = 400 * kAmendsMs,
                         .opaque = true,
                         .rival_pause_ns = pause_ms * kAmendsMs}),
                0.95)
          << v.launch_ms << ", " << v.pause_ms << ", rival pauses for " << pause_ms;
}

TEST(WfqAmends, SeveralVictimsAndSeveralRivals) {
  size_t k = 0;
  for (const auto& [victims, rivals] : {std::pair{1u, 3u}, {1u, 9u}, {3u, 1u}, {3u, 3u}})
    for (const Paced& v : {Paced{1, 1, 0.1}, Paced{5, 1, 1}, Paced{5, 1, 2.5}, Paced{10, 1, 5}}) {
      if (!in_sample(k++, 3)) continue;
      EXPECT_GE(kept(v, {.rival_ns = 400 * kAmendsMs,
                         .opaque = true,
                         .victims = victims,
                         .rivals = rivals,
                         .horizon_ns = 60 * kAmendsSecond}),
                0.9)
          << victims << " beside " << rivals << ": " << v.launch_ms << ", " << v.pause_ms;
    }
}

// Whatever others do, who cannot leave has half of its entitlement of the time; and the GPU is idle
// for less than half of it.
TEST(WfqAmends, WhoCannotLeaveKeepsHalfOfItsEntitlement) {
  for (const uint32_t rival_weight : {100u, 900u})
    for (const Paced& v : kBusy) {
      const Had had =
          run_paced(v, {.rival_ns = 400 * kAmendsMs, .opaque = true, .rival_weight = rival_weight});
      EXPECT_GE(had.rivals_ns, 0.48 * had.end_ns * rival_weight / (rival_weight + 100))
          << v.launch_ms << ", " << v.pause_ms;
      EXPECT_LE(had.idle_ns, 0.5 * had.end_ns);
    }
}

// The same beside launches that are no longer than a turn. (It was 0.1 to 0.7: such launches also
// passed for the cost of a hand-over, so that turns were long and short work did not end them.)
TEST(WfqAmends, WhoPausesKeepsItsShareBesideLaunchesOfATurn) {
  size_t k = 0;
  for (const uint64_t rival_ms : {3u, 4u, 6u, 9u})
    for (const Paced& v : kBusy) {
      if (!in_sample(k++, 4)) continue;
      EXPECT_GE(kept(v, {.rival_ns = rival_ms * kAmendsMs, .opaque = true}), 0.8)
          << v.launch_ms << " x " << v.launches << ", " << v.pause_ms << ", rival " << rival_ms;
    }
  for (const uint64_t rival_ms : {4u, 6u, 9u})
    for (const Paced& v : kLight)
      EXPECT_GE(kept(v, {.rival_ns = rival_ms * kAmendsMs, .opaque = true}), 0.5)
          << v.launch_ms << ", " << v.pause_ms << ", rival " << rival_ms;
}

// ... and beside launches so short that they hardly leave late: what they take to leave is their
// own use, and passes for no cost of a hand-over. (With a cost of twice as much, of which it was
// learnt then, it was 0.23 to 0.52 for those that pause for 0.5 to 1 ms.)
TEST(WfqAmends, WhoPausesKeepsItsShareBesideShortLaunches) {
  constexpr Paced kSteady[] = {{0.2, 1, 0.1}, {0.2, 1, 0.5}, {0.5, 1, 0.25}, {0.5, 1, 0.5},
                               {1, 1, 0.1},   {1, 1, 0.25},  {1, 1, 0.5},    {1, 1, 0.7, true},
                               {2, 1, 0.5},   {2, 1, 1},     {5, 1, 1},      {5, 1, 2.5}};
  constexpr uint64_t kHorizonNs = 5 * kAmendsSecond;
  const auto least = [&](const Paced& v) {
    double fewest = 1e300;
    for (const uint64_t rival_us : {300u, 1000u, 1500u, 2000u}) {
      const Beside rival{.rival_ns = rival_us * 1000, .opaque = true, .horizon_ns = kHorizonNs};
      fewest = std::min(fewest, run_paced(v, rival).launches);
    }
    return fewest / run_paced(v, {.horizon_ns = kHorizonNs}).launches;
  };
  size_t k = 0;
  for (const Paced& v : kSteady) {
    if (!in_sample(k++, 3)) continue;
    EXPECT_GE(least(v), 0.85) << v.launch_ms << ", " << v.pause_ms;
  }
  // Half of whose time is its own: nobody waits for it.
  EXPECT_GE(least({1, 1, 1}), 0.7);
}

// As evictable kernels do: nothing stays free for that.
TEST(WfqAmends, WhoLeavesALittleLateMakesNone) {
  const Had had = run_paced({5, 1, 2.5}, {.rival_ns = 9 * kAmendsMs / 10, .opaque = true});
  EXPECT_LE(had.idle_ns, 0.01 * had.end_ns);
}

// Who does not come back is waited for once.
TEST(WfqAmends, WhoIsGoneKeepsNobodyWaiting) {
  for (const Paced& v : kLight) {
    const Had had = run_paced(v, {.rival_ns = 400 * kAmendsMs, .opaque = true, .victim_runs = 1});
    EXPECT_EQ(had.launches, v.launches);
    EXPECT_LE(had.idle_ns, 401.0 * kAmendsMs) << v.launch_ms << ", " << v.pause_ms;
  }
  // Also while others use the GPU. (It had nothing any more.)
  const Had third = run_paced(
      {1, 1, 1}, {.rival_ns = 50 * kAmendsMs, .opaque = true, .victim_runs = 20, .third = true});
  EXPECT_GE(third.rivals_ns, 0.47 * third.end_ns);
  // Nor who comes so rarely that the wait would be in vain.
  const Had rare = run_paced({1, 1, 900}, {.rival_ns = 400 * kAmendsMs, .opaque = true});
  EXPECT_LE(rare.idle_ns, 401.0 * kAmendsMs);
}

}  // namespace
}  // namespace sluice::policy::sim
