// SPDX-License-Identifier: Apache-2.0
// UsageMeter read by AdaptivePoller as sluiced does it on a slow machine, in virtual time: how
// wrong loads are, whether the truth is within the bound, and what it costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "policies/accounting/adaptive_poller.h"
#include "policies/accounting/usage_meter.h"
#include "tests/unit/policies/policy_units.h"

namespace sluice::accounting {
namespace {

// A poller as slow as a virtual machine's: 35 us of processor time and 50 to 80 us of delay for a
// wake-up, now and then half a millisecond. `load(t)`: the status register. Returns the processor
// time in parts of a core, over whole rounds.
template <class Register>
double poll_slowly(UsageMeter& m, uint64_t seed, uint64_t until_ns, uint32_t busy,
                   Register&& status0) {
  constexpr uint64_t kWake = 35 * kUs;
  std::mt19937_64 r(seed);
  AdaptivePoller poller(
      {.steady_budget = 0.0168, .wake_ns = kWake, .engaged_rounds = 0, .seed = seed});
  uint64_t now = 0, cpu = 0, paid_until = 0;
  while (now < until_ns) {
    const auto plan = poller.next(busy, m.known());
    const uint64_t dense_end = now + plan.dense_ns, follow_end = dense_end + plan.dense_ns / 4,
                   pause_end = dense_end + plan.pause_ns;
    const uint64_t begin = now;
    paid_until = pause_end;
    m.begin_phase(now);
    for (; now < dense_end; now += kUs) m.sample(now, status0(now));
    m.end_phase(now);
    for (; m.follows() && now < follow_end; now += kUs) m.follow(now, status0(now));
    cpu += now - begin;
    uint64_t from = now;
    while (from < pause_end && now < until_ns) {
      const uint64_t due = poller.read_at(from, std::min(plan.stratum_ns, pause_end - from));
      now = std::max(now, due) + 50 * kUs + r() % (r() % 60 ? 30 * kUs : 500 * kUs);
      uint64_t to = std::min(from + plan.stratum_ns, pause_end);
      if (now > to) to = now;
      StatusRead read(status0(now));
      if (plan.window_ns) read = StatusRead();
      for (uint64_t t = 0; t < plan.window_ns; t += kUs) read.add(status0(now + t), kUs);
      m.point(now, read, from, to, due, poller.half());
      if (poller.batch_ends()) m.end_batch();
      cpu += kWake + plan.window_ns;
      from = to;
    }
    // A round that the end cuts would have gone on so.
    if (from < pause_end) cpu += (pause_end - from) / plan.stratum_ns * (kWake + plan.window_ns);
    now = std::max(now, from);
    m.take_change();
  }
  return static_cast<double>(cpu) / static_cast<double>(std::max(now, paid_until));
}

// LoGA's cases (figures 9 and 10) and as many that no paper and no benchmark has: kernels of 20 us
// to 5 ms at any load, in cycles that vary, with pauses of their own. On such a machine all keep to
// the bound and to the budget, and loads are right to half a point as a rule (a standard error).
TEST(SlowPoller, LoadsAreRightAndBoundsHold) {
  constexpr uint64_t kEnd = 5'500 * kMs;
  double paper = 0, random = 0, cpu = 0;
  uint32_t outside = 0, all = 0, over = 0;
  for (uint64_t seed = 1; seed <= 96; ++seed) {
    std::mt19937_64 r(seed);
    constexpr uint64_t kPaper[8][2] = {{100, 900}, {300, 700}, {500, 500}, {700, 300},
                                       {900, 100}, {100, 10},  {300, 10},  {1000, 10}};
    uint64_t run = kPaper[seed % 8][0] * kUs, idle = kPaper[seed % 8][1] * kUs, vary = 10;
    if (seed > 48) {
      run = static_cast<uint64_t>(
          20e3 * std::exp(static_cast<double>(r() % 1000) / 1000 * std::log(250.0)));
      idle = run * (5 + r() % 200) / 100;
      vary = 1 + r() % 40;
    }
    const auto about = [&](uint64_t ns) {
      return ns - ns * vary / 200 + r() % (ns * vary / 100 + 1);
    };
    std::vector<uint64_t> edges{0};  // idle first, then by turns
    uint64_t ran = 0, paused = 0;
    for (uint64_t now = r() % kMs; now < kEnd + kSecond;) {
      edges.push_back(now);
      const uint64_t end = now + (seed > 48 ? about(run) : run);
      ran += std::min(end, kEnd) - std::min(now, kEnd);
      edges.push_back(end);
      now = end + about(idle);
      if (now > paused + 850 * kMs) now = paused = now + 60 * kMs;
    }
    UsageMeter m;
    m.set_usable(0, Source::kRegisters, true);
    for (const uint32_t v : {0u, 1u}) m.add_vgpu(0, v), m.on_busy(0, v, true);
    m.assign(1, 0);
    m.on_granted(0, 0);
    size_t at = 0;
    const double part = poll_slowly(m, seed, kEnd, 2, [&](uint64_t t) {
      while (at > 0 && edges[at] > t) --at;
      while (at + 1 < edges.size() && edges[at + 1] <= t) ++at;
      return SLUICE_STATUS0(1, SLUICE_CTX_VALID, 0, static_cast<uint32_t>(at % 2));
    });
    const auto got = m.read(kEnd, 0);
    const double off = static_cast<double>(got.used.used_ns) - static_cast<double>(ran);
    outside += std::abs(off) > static_cast<double>(got.used.error_ns);
    (seed > 48 ? random : paper) +=
        off * off / static_cast<double>(kEnd) / static_cast<double>(kEnd);
    over += std::abs(off) > 0.01 * static_cast<double>(kEnd);
    cpu = std::max(cpu, part);
    ++all;
  }
  RecordProperty("over_a_point", static_cast<int>(over));
  RecordProperty("cpu", std::to_string(cpu));
  for (const auto& [name, x] : {std::pair{"paper", paper}, {"random", random}})
    RecordProperty(name, std::to_string(100 * std::sqrt(2 * x / all)));
  EXPECT_EQ(outside, 0u);
  // 0.47 points, 0.54 without optimisation, whose sums round otherwise; 0.72 before reads stood on
  // whole cycles.
  EXPECT_LE(std::sqrt(2 * paper / all), 0.0065);
  EXPECT_LE(std::sqrt(2 * random / all), 0.01);
  EXPECT_LE(cpu, 0.02);
}

}  // namespace
}  // namespace sluice::accounting
