// SPDX-License-Identifier: Apache-2.0
// What wfq is held to (docs/notes/2026-11-22-policies.md, "What wfq is held to"): in space, one at
// a time, and on time slices. Each simulation is run once and looked at by several tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "policies/sim/metrics.h"
#include "tests/support/rounds.h"

namespace sluice::policy::sim {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000'000'000;

struct Seen {
  Workload w;
  Outcome r;
  double least_ns =
      0;  // one at a time: the least quantum that wfq came to from the hand-overs that it saw
  double weights = 0;

  double entitled_sms(size_t v) const { return w.gpu.sm_count * w.vgpus[v].share.weight / weights; }
  double worst(double Window::*what) const {
    double most = 0;
    for (const Window& x : r.windows) most = std::max(most, x.*what);
    return most;
  }
  double useful() const {
    return r.useful_sm_ns / (static_cast<double>(r.some_work_ns) * w.gpu.sm_count);
  }
};
const Seen& run(std::string_view workload, uint32_t number, bool spatial, uint64_t horizon_ns) {
  static std::map<std::string, Seen> runs;
  const std::string key =
      std::string(workload) + " " + std::to_string(number) + " " + std::to_string(spatial);
  const auto [it, fresh] = runs.try_emplace(key);
  Seen& o = it->second;
  if (!fresh) return o;
  o.w = find_workload(workload)->make(number, 1);
  o.w.horizon_ns = horizon_ns;
  o.w.gpu.spatial = spatial;
  for (const SimulatedVgpu& v : o.w.vgpus) o.weights += v.share.weight;
  const auto policy = find_policy("wfq")->make(engine_config(o.w));
  o.r = simulate(o.w, *policy, {.seed = 1});
  EXPECT_EQ(o.r.violations, 0u) << o.r.violation;
  const double shown = static_cast<double>(policy->quantum_ns());
  const double part =
      static_cast<double>(o.w.config.latency_target_ns) / static_cast<double>(o.w.vgpus.size());
  o.least_ns =
      std::max(shown > part * 1.001 ? shown : 0, static_cast<double>(o.w.config.min_quantum_ns));
  return o;
}

// ---- in space
// ------------------------------------------------------------------------------------

// A least turn on one SM with the time to leave it: some 100 us each with these kernels' tasks (up
// to 320 us).
constexpr double kTurnSmNs = 250'000;
constexpr uint64_t kHorizon = 3 * kSecond;

const Seen& in_space(std::string_view workload, uint32_t number) {
  return run(workload, number, true, kHorizon);
}

// Over any second nobody's share is off by more than 1 % of itself, or by one turn where that is
// more: 2 to 256 vGPUs with weights from 1 to 1,000.
TEST(WfqInSpace, SharesOverAnySecond) {
  for (uint32_t i = 0; i < 9; ++i) {
    if (!in_sample(i, 2)) continue;
    const Seen& o = in_space("wfq-shares", i);
    ASSERT_GT(o.r.windows.size(), 15u);
    double least = 1e30;
    for (size_t v = 0; v < o.w.vgpus.size(); ++v)
      least = std::min(least, o.entitled_sms(v) * kSecond);
    EXPECT_LE(o.worst(&Window::worst_error), std::max(0.01, kTurnSmNs / least)) << o.w.vgpus.size();
    EXPECT_LE(o.worst(&Window::worst_points), 0.0005) << o.w.vgpus.size();
    EXPECT_GE(o.r.all_contended_jain, 0.999) << o.w.vgpus.size();
    EXPECT_GE(o.useful(), 0.985) << o.w.vgpus.size();
    EXPECT_EQ(o.r.idle_with_work_ns, 0u);
  }
}

// Where an SM is left within some 10 us, as rewritten kernels leave an H200's, the 1 % holds for
// all: also for one that is owed 3.5 ms of one SM in a second.
TEST(WfqInSpace, SharesOverAnySecondWithShortTasks) {
  for (uint32_t i = 6; i < 9; ++i) {
    if (!in_sample(8 - i, 3)) continue;
    const Seen& o = in_space("wfq-shares-short", i);
    ASSERT_GT(o.r.windows.size(), 15u);
    EXPECT_LE(o.worst(&Window::worst_error), 0.01) << o.w.vgpus.size();
    EXPECT_GE(o.useful(), 0.995) << o.w.vgpus.size();
  }
}

// With equal weights the 1 % holds for all numbers.
TEST(WfqInSpace, EqualSharesOverAnySecond) {
  for (uint32_t i = 0; i < 9; ++i) {
    if (!in_sample(i + 1, 2)) continue;
    const Seen& o = in_space("wfq-equal", i);
    EXPECT_LE(o.worst(&Window::worst_error), 0.01) << o.w.vgpus.size();
    EXPECT_GE(o.r.all_contended_jain, 0.9999) << o.w.vgpus.size();
    EXPECT_GE(o.useful(), 0.985) << o.w.vgpus.size();
  }
}

// Nobody waits longer than two of its frames, or than a least turn puts it ahead by.
TEST(WfqInSpace, NobodyWaitsLongerThanItsBound) {
  for (uint32_t i = 0; i < 9; ++i) {
    for (const char* name : {"wfq-shares", "wfq-equal"}) {
      if (!in_sample(name == std::string_view("wfq-equal") ? i + 1 : i, 2)) continue;
      const Seen& o = in_space(name, i);
      for (size_t v = 0; v < o.w.vgpus.size(); ++v) {
        const double part = std::min(o.entitled_sms(v), 1.0);
        const double bound = 2 * std::max(6.0 * kMs, kTurnSmNs / part);
        EXPECT_LE(static_cast<double>(o.r.vgpus[v].longest_wait_ns), bound)
            << name << i << ": " << o.w.vgpus[v].name;
      }
    }
  }
}

// Launches that can use few SMs and launches that can use all, by turns: the second have what they
// are owed, and what the first cannot use the others have.
TEST(WfqInSpace, WhoCanUseMoreAgainGetsIt) {
  Workload w;
  w.gpu = {.sm_count = 16, .spatial = true};
  w.kernels = {
      {.name = "narrow", .alone_ns = 8'000'000, .width_sms = 3, .tasks = 9'000, .blocks_per_sm = 2},
      {.name = "wide", .alone_ns = 1'000'000, .tasks = 9'000, .blocks_per_sm = 8}};
  w.vgpus = {{"mixed", {.weight = 300}, {}}, {"wide", {.weight = 100}, {}}};
  w.programs = {{.name = "mixed",
                 .vgpu = 0,
                 .steps = {{.kernel = 0, .launches = 3}, {.kernel = 1, .launches = 3}}},
                {.name = "wide", .vgpu = 1, .steps = {{.kernel = 1, .launches = 3}}}};
  for (Program& p : w.programs) p.arrival = ArrivalKind::kBacklog, p.runs = 0, p.queue_depth = 3;
  w.horizon_ns = kSecond;
  const auto policy = find_policy("wfq")->make(engine_config(w));
  const Outcome r = simulate(w, *policy, {.seed = 1});
  EXPECT_EQ(r.violations, 0u) << r.violation;
  // A run takes 27 ms alone, and 36 if all of it were slower by the share. Kept at three SMs it
  // took 55; with its share held all the time half of the GPU did nothing.
  EXPECT_GE(r.programs[0].runs.size(), 27u);
  EXPECT_GT(r.useful_sm_ns, 0.97 * 16 * kSecond);
}

// Tenants of every habit, liars among them, beside two that saturate. Who was alone when the others
// came pays for the time in which it left the whole GPU (a turn on every SM), if it is one of those
// two.
TEST(WfqInSpace, EveryHabitBesideEveryOther) {
  for (uint32_t i = 0; i < 12; ++i) {
    if (!in_sample(i, 3)) continue;
    const Seen& o = in_space("wfq-habits", i);
    EXPECT_LE(o.worst(&Window::worst_points), 0.002) << i;
    EXPECT_LE(static_cast<double>(o.r.idle_with_work_ns),
              0.01 * static_cast<double>(o.r.some_work_ns));
    double whole = 0, weights = 0;
    for (size_t v = 0; v < o.w.vgpus.size(); ++v) {
      if (!o.w.vgpus[v].compared) continue;
      whole += static_cast<double>(o.r.vgpus[v].sm_ns);
      weights += o.w.vgpus[v].share.weight;
    }
    for (size_t v = 0; v < o.w.vgpus.size(); ++v) {
      if (!o.w.vgpus[v].compared) continue;
      const double owed = whole * o.w.vgpus[v].share.weight / weights;
      const double turns = v == 0 ? o.w.gpu.sm_count : 2;
      EXPECT_NEAR(static_cast<double>(o.r.vgpus[v].sm_ns), owed,
                  std::max(0.01 * owed, turns * kTurnSmNs))
          << i << ": " << o.w.vgpus[v].name;
    }
  }
}

// ---- one at a time
// -------------------------------------------------------------------------------

const Seen& whole(std::string_view workload, uint32_t number) {
  return run(workload, number, false, 20 * kSecond);
}

// A turn: what a vGPU may be given at once, with the time to leave. The least quantum follows a
// mean of measured hand-overs, so it varies by half.
double turn_ns(const Seen& o, size_t v) {
  const Config& c = o.w.config;
  const double part =
      static_cast<double>(c.latency_target_ns) * o.w.vgpus[v].share.weight / o.weights;
  return std::min(std::max(part, 1.5 * o.least_ns), static_cast<double>(c.max_quantum_ns)) +
         400'000;
}

// Where the GPU can only be given whole, over any second: a point of the GPU at most; 1 % of itself
// where a second holds enough turns for that (docs/notes/2026-11-22-policies.md has the bound).
TEST(WfqOneAtATime, SharesOverAnySecond) {
  for (uint32_t i = 0; i < 9; ++i) {
    const Seen& o = whole("wfq-shares", i);
    ASSERT_GT(o.r.windows.size(), 50u);
    EXPECT_LE(o.worst(&Window::worst_points), 0.01) << o.w.vgpus.size();
    EXPECT_GE(o.useful(), 0.97) << o.w.vgpus.size();
    EXPECT_LE(static_cast<double>(o.r.idle_with_work_ns),
              0.01 * static_cast<double>(o.r.some_work_ns));
  }
  // 2 to 16 of one weight, once the cost of a hand-over (up to 320 us) is known.
  for (uint32_t i = 0; i < 5; ++i) {
    const Seen& o = whole("wfq-equal", i);
    for (size_t k = kWindowParts; k < o.r.windows.size(); ++k)
      ASSERT_LE(o.r.windows[k].worst_error, 0.01) << i << ", window " << k;
    EXPECT_GE(o.useful(), 0.97) << i;
  }
}

// Over all of the time, each is within a few of its turns of what it was owed, and its part of one
// turn of each of the others (start-time fair queuing: all others may go once before it). That is
// the bound that holds for all; 1 % of the share follows from it for who was owed some hundreds of
// turns.
TEST(WfqOneAtATime, EachWithinAFewTurnsOfWhatItIsOwed) {
  for (uint32_t i = 0; i < 9; ++i) {
    const Seen& o = whole("wfq-shares", i);
    double turns = 0;
    for (size_t v = 0; v < o.w.vgpus.size(); ++v) turns += turn_ns(o, v);
    for (size_t v = 0; v < o.w.vgpus.size(); ++v) {
      const double sms = o.w.gpu.sm_count;
      const double off = std::abs(o.r.vgpus[v].got_sm_ns - o.r.vgpus[v].entitled_sm_ns) / sms;
      const double turn = turn_ns(o, v);
      EXPECT_LE(off, 3 * turn + 2 * turns * o.w.vgpus[v].share.weight / o.weights)
          << o.w.vgpus.size() << " vGPUs, " << v;
      if (o.r.vgpus[v].entitled_sm_ns / sms > 300 * turn) {
        EXPECT_LE(off, 0.01 * o.r.vgpus[v].entitled_sm_ns / sms);
      }
    }
  }
}

// Nobody waits longer than: until the others, by weight, have had what its last turn put it ahead
// by, and one turn of each.
TEST(WfqOneAtATime, NobodyWaitsLongerThanItsBound) {
  for (const auto& [name, of] : {std::pair{"wfq-shares", 1u}, {"wfq-habits", 3u}}) {
    for (uint32_t i = 0; i < find_workload(name)->runs; ++i) {
      if (!in_sample(i + 1, of)) continue;
      const Seen& o = whole(name, i);
      double turns = 0;
      for (size_t v = 0; v < o.w.vgpus.size(); ++v) turns += turn_ns(o, v);
      for (size_t v = 0; v < o.w.vgpus.size(); ++v) {
        const double bound = 2 * turn_ns(o, v) * o.weights / o.w.vgpus[v].share.weight + 2 * turns;
        EXPECT_LE(static_cast<double>(o.r.vgpus[v].longest_wait_ns), bound)
            << name << " " << i << ": " << o.w.vgpus[v].name;
      }
    }
  }
}

// Tenants of every habit, liars among them, beside two that saturate: theirs and everybody's shares
// hold.
TEST(WfqOneAtATime, EveryHabitBesideEveryOther) {
  for (uint32_t i = 0; i < find_workload("wfq-habits")->runs; ++i) {
    if (!in_sample(i + 1, 3)) continue;
    const Seen& o = whole("wfq-habits", i);
    EXPECT_LE(o.worst(&Window::worst_points), 0.012) << i;
    EXPECT_LE(static_cast<double>(o.r.idle_with_work_ns),
              0.01 * static_cast<double>(o.r.some_work_ns));
    // Those that always have work, against each other: who pauses is served at once when it comes
    // back, as long as it asks for less than its share, and so gets more than its part of the time
    // in which it has work.
    double sum = 0, weights = 0;
    for (size_t v = 0; v < o.w.vgpus.size(); ++v) {
      if (!o.w.vgpus[v].compared) continue;
      sum += static_cast<double>(o.r.vgpus[v].sm_ns) / o.w.gpu.sm_count;
      weights += o.w.vgpus[v].share.weight;
    }
    for (size_t v = 0; v < o.w.vgpus.size(); ++v) {
      if (!o.w.vgpus[v].compared) continue;
      const double owed = sum * o.w.vgpus[v].share.weight / weights;
      const double got = static_cast<double>(o.r.vgpus[v].sm_ns) / o.w.gpu.sm_count;
      EXPECT_LE(std::abs(got - owed), 3 * turn_ns(o, v)) << i << ": " << o.w.vgpus[v].name;
    }
  }
}

// Where all have work all the time - giant kernels, which no gate stops, tiny ones and liars among
// them - a second holds a whole number of rounds: 1 % for all once the first is over. Where others
// come, or wait between, it holds a turn more or less of each, and who comes may have one before
// its time (docs/notes/2026-11-22-policies.md): a vGPU entitled to few turns in a second can be off
// by as much as these are of that.
TEST(WfqOnTimeSlices, SharesOverAnySecondWithinTurns) {
  for (uint32_t i = 0; i < find_workload("wfq-slices")->runs; ++i) {
    if (!in_sample(i, 2)) continue;
    const Seen& o = run("wfq-slices", i, false, 60 * kSecond);
    const Config& c = o.w.config;
    const double handover = static_cast<double>(c.machine.handover_ns);
    const double round =
        static_cast<double>(o.w.vgpus.size()) * (handover / c.handover_loss + handover);
    const bool steady = std::all_of(o.w.vgpus.begin(), o.w.vgpus.end(),
                                    [](const SimulatedVgpu& v) { return v.compared; });
    ASSERT_GT(o.r.windows.size(), 100u) << i;
    for (size_t k = kWindowParts; k < o.r.windows.size(); ++k) {
      const Window& x = o.r.windows[k];
      const double part = o.w.vgpus[x.worst_vgpu].share.weight / o.weights;
      const double turn =
          std::max(round * part, static_cast<double>(c.machine.slice_floor_ns) + handover);
      ASSERT_LE(x.worst_error, steady ? 0.003 : 3.5 * turn / (part * kSecond))
          << i << ": " << o.w.vgpus[x.worst_vgpu].name;
    }
    // Also who pauses, over its own time with work; with 16 what the others had begun may take
    // longer than its share allows.
    for (size_t v = 0; v < o.w.vgpus.size(); ++v) {
      const double least = o.w.vgpus.size() <= 8 ? 0.98 : 0.85;
      EXPECT_GE(o.r.vgpus[v].got_sm_ns, least * o.r.vgpus[v].entitled_sm_ns)
          << i << ": " << o.w.vgpus[v].name;
    }
  }
}

// What those that pause get is paid for with the others' seconds, and max_lead_turns says which
// goes first: with 0 the others (8 vGPUs) are within two turns of their shares over any second, and
// the one that pauses has less than half of what it is owed.
TEST(WfqOnTimeSlices, TheOperatorSaysWhoseSecondGoesFirst) {
  Workload w = find_workload("wfq-slices")->make(8, 1);
  w.config.max_lead_turns = 0;
  w.horizon_ns = 20 * kSecond;
  const auto policy = find_policy("wfq")->make(engine_config(w));
  const Outcome r = simulate(w, *policy, {.seed = 1});
  const Metrics m = measure(w, r, std::vector<double>(w.programs.size()));
  EXPECT_LE(m.share_error.settled, 0.075);
  EXPECT_LT(m.got_of_instant_min, 0.5);
  ASSERT_LT(m.share_error.settled,
            run("wfq-slices", 8, false, 60 * kSecond).worst(&Window::worst_error));
}

// With sluiced's defaults and hand-overs as short as an H200's (some 10 us to signal, drain and
// start): 2 to 64 of one weight. A second holds a whole number of turns of each, so it is off by
// what they are uneven only. The first second is left out, since the first turns rest on the guess
// of a hand-over's cost.
TEST(WfqOneAtATime, CheapHandoversMakeShortTurns) {
  for (uint32_t i = 0; i < 7; ++i) {
    Workload w = find_workload("wfq-turns")->make(i, 1);
    w.horizon_ns = 4 * kSecond;
    const auto policy = find_policy("wfq")->make(engine_config(w));
    const Outcome r = simulate(w, *policy, {.seed = 1});
    const size_t n = w.vgpus.size();
    ASSERT_GT(r.windows.size(), 20u);
    for (size_t k = kWindowParts; k < r.windows.size(); ++k)
      ASSERT_LE(r.windows[k].worst_error, 0.01) << n << ", window " << k;
    EXPECT_GE(r.useful_sm_ns / (static_cast<double>(r.some_work_ns) * w.gpu.sm_count), 0.99) << n;
    EXPECT_EQ(r.idle_with_work_ns, 0u) << n;
  }
}

// The same with weights 1 to 1,000, for 2 to 8 of them: the lightest is owed 5 ms in a second and
// has some turns in it.
TEST(WfqOneAtATime, CheapHandoversAndUnequalWeights) {
  for (uint32_t i = 0; i < 4; ++i) {
    const Workload w = find_workload("wfq-turns-weights")->make(i, 1);
    const auto policy = find_policy("wfq")->make(engine_config(w));
    const Outcome r = simulate(w, *policy, {.seed = 1});
    ASSERT_GT(r.windows.size(), 30u);
    for (size_t k = kWindowParts; k < r.windows.size(); ++k)
      ASSERT_LE(r.windows[k].worst_error, 0.01) << w.vgpus.size() << ", window " << k;
  }
}

// 2 to 32 with those weights, once the first turns, which rest on the guess of a hand-over's cost,
// have been paid back. A turn more or less of each would be n x hand-over / (1 % of the time) = 2.4
// % for 16 (docs/notes/2026-11-22-policies.md): any second holds as many turns of each, also of one
// that is owed a third of a millisecond in it, so that what is left is two hand-overs' time, for 1
// % of the time in hand-overs.
TEST(WfqOneAtATime, WhoIsOwedAPartOfAMillisecondInASecondGetsIt) {
  for (uint32_t i = 0; i < 6; ++i) {
    Workload w = find_workload("wfq-turns-weights")->make(i, 1);
    w.horizon_ns = 16 * kSecond;
    double weights = 0;
    for (const SimulatedVgpu& v : w.vgpus) weights += v.share.weight;
    const auto policy = find_policy("wfq")->make(engine_config(w));
    const Outcome r = simulate(w, *policy, {.seed = 1});
    const double handover_ns = 15'000;
    double worst = 0;
    ASSERT_GT(r.windows.size(), 130u);
    for (size_t k = 10 * kWindowParts; k < r.windows.size(); ++k) {
      const double owed_ns = w.vgpus[r.windows[k].worst_vgpu].share.weight / weights * kSecond;
      ASSERT_LE(r.windows[k].worst_error, 2 * handover_ns / owed_ns)
          << w.vgpus.size() << ", window " << k;
      worst = std::max(worst, r.windows[k].worst_error);
    }
    RecordProperty("worst_percent_" + std::to_string(w.vgpus.size()), std::to_string(100 * worst));
    EXPECT_GE(r.useful_sm_ns / (static_cast<double>(r.some_work_ns) * w.gpu.sm_count), 0.99)
        << w.vgpus.size();
  }
}

// ---- every set of habits
// -------------------------------------------------------------------------

// The 31 sets of saturating, bursty, tiny, giant and lying tenants, in each form: 1 % over any
// second among those that always have work, and nobody, the bursty included, is held short over its
// own time with work. Where some come and go no second holds a whole number of turns, and the
// bounds are a turn or two; in space a turn is on one SM, so 1 % holds there too.
TEST(WfqMixes, SharesInEverySetOfHabits) {
  const struct {
    const char* workload;
    uint64_t horizon_ns;
    double bursty, got;
  } forms[] = {{"wfq-mixes", 22 * kSecond / 10, 0.01, 0.99},
               {"wfq-mixes-whole", 5 * kSecond, 0.04, 0.93},
               {"wfq-mixes-slices", 12 * kSecond, 0.06, 0.88}};
  for (const auto& form : forms) {
    const WorkloadRow& row = *find_workload(form.workload);
    ASSERT_EQ(row.runs, 31u);
    for (uint32_t i = 0; i < row.runs; ++i) {
      // Each set in one of the forms.
      if (!in_sample(i + static_cast<size_t>(&form - forms), 3)) continue;
      Workload w = row.make(i, 1);
      w.horizon_ns = form.horizon_ns;
      const bool bursty = std::any_of(w.vgpus.begin(), w.vgpus.end(),
                                      [](const SimulatedVgpu& v) { return !v.compared; });
      const auto policy = find_policy("wfq")->make(engine_config(w));
      const Outcome r = simulate(w, *policy, {.seed = 1 + i});
      const Metrics m = measure(w, r, std::vector<double>(w.programs.size()));
      EXPECT_LE(m.share_error.settled, bursty ? form.bursty : 0.01)
          << form.workload << ", set " << i + 1;
      EXPECT_GE(m.got_of_instant_min, form.got) << form.workload << ", set " << i + 1;
      EXPECT_GE(m.conservation, 0.99) << form.workload << ", set " << i + 1;
      EXPECT_EQ(m.ending.violations, 0u) << m.ending.violation;
      if (i + 1 != 2) {  // two bursty ones alone: nobody always has work
        EXPECT_GT(r.windows.size(), kWindowParts) << form.workload << ", set " << i + 1;
      }
    }
  }
}

// A tenant that waits after each launch has no work for some microseconds then. It keeps the GPU
// meanwhile where that is its turn, as long as all such waiting costs 1 % of the time at most;
// before, another had a turn after each of its launches (50:50 for 1,000:1, and 62:38 for 100:300).
// Pauses of nothing cost nothing.
TEST(WfqBothExclusive, WhoWaitsAfterEachLaunchKeepsItsShare) {
  const struct {
    uint32_t weight, other;
    uint64_t launch_ns, gap_ns;
    bool pauses_too;
    double points;
  } cases[] = {{1000, 1, 1 * kMs, 0, true, 0.0015},
               {300, 100, 1 * kMs, 10'000, false, 0.015},
               {300, 100, 1 * kMs, 10'000, true, 0.015},
               {1000, 1, 2 * kMs, 10'000, false, 0.015}};
  size_t k = 0;
  for (const auto& c : cases) {
    for (const bool spatial : {false, true}) {
      if (!in_sample(k++, 3)) continue;
      Workload w;
      w.gpu = {.sm_count = 132, .spatial = spatial, .signal_ns = 3000, .start_ns = 4000};
      w.config.machine.handover_ns = 10'000;
      w.kernels = {{.name = "k", .alone_ns = c.launch_ns, .tasks = 10'000, .blocks_per_sm = 8}};
      w.vgpus = {{"other", {.weight = c.other}, {}}, {"pausing", {.weight = c.weight}, {}}};
      for (uint32_t v = 0; v < 2; ++v) {
        Program p{.name = w.vgpus[v].name,
                  .vgpu = v,
                  .steps = {{.kernel = 0}},
                  .arrival = ArrivalKind::kBacklog,
                  .runs = 0,
                  .queue_depth = 4};
        if (v == 1 || c.pauses_too)
          p.arrival = ArrivalKind::kClosed, p.think_ns = c.gap_ns, p.queue_depth = 1;
        w.programs.push_back(p);
      }
      w.horizon_ns = 4 * kSecond;
      const auto policy = find_policy("wfq")->make(engine_config(w));
      const Outcome r = simulate(w, *policy, {.seed = 1});
      const double owed = static_cast<double>(c.weight) / (c.weight + c.other);
      const double got = r.vgpus[1].got_sm_ns / (r.vgpus[0].got_sm_ns + r.vgpus[1].got_sm_ns);
      EXPECT_NEAR(got, owed, c.points) << c.weight << ":" << c.other << ", " << c.gap_ns << " ns"
                                       << (spatial ? ", in space" : "");
      EXPECT_LE(static_cast<double>(r.idle_with_work_ns),
                0.01 * static_cast<double>(r.some_work_ns));
      EXPECT_EQ(r.violations, 0u);
    }
  }
}

TEST(WfqOnTimeSlices, SharesOverAMinute) {
  for (uint32_t i = 0; i < find_workload("wfq-slices")->runs; ++i) {
    if (!in_sample(i, 2)) continue;
    const Seen& o = run("wfq-slices", i, false, 60 * kSecond);
    EXPECT_GE(o.r.all_contended_jain, 0.999) << i;
    EXPECT_LE(o.r.all_contended_error, 0.01) << i;
    EXPECT_GE(o.useful(), 0.93) << i;
    EXPECT_LE(static_cast<double>(o.r.idle_with_work_ns),
              0.01 * static_cast<double>(o.r.some_work_ns))
        << i;
  }
}

}  // namespace
}  // namespace sluice::policy::sim
