// SPDX-License-Identifier: Apache-2.0
// Shares and waits where turns are priorities: what the GPU ran, not what was charged. Pairs, many
// tenants with launches of 20 us to 20 ms, a light tenant beside a heavy one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>

#include "tests/sim/hosts/turns_host.h"

namespace sluice::sim {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;

core::SchedulerConfig shared() {
  core::SchedulerConfig c;
  c.policy_config.machine.sm_count = 132;
  c.policy_config.min_quantum_ns = 5 * kMs;  // these three are sluiced's, with turns
  c.policy_config.machine.handover_ns = 40 * kUs;
  c.policy_config.machine.preemption_ns = 5 * kUs;
  c.turns_by_priority = true;
  return c;
}

struct Tenant {
  uint32_t weight;
  TurnsProgram program;
};

struct Shares {
  std::vector<double> ran, charged;  // parts of what all ran, or were charged
  double idle = 0;                   // of the time
};

Shares share(const std::vector<Tenant>& tenants, uint64_t seconds, const TurnsCosts& costs = {}) {
  TurnsHost h(shared(), costs);
  for (const Tenant& t : tenants) h.add(t.weight, t.program);
  h.run_until(kSecond / 2);
  Shares s;
  const auto count = [&](double sign) {
    for (core::VgpuId v = 0; v < tenants.size(); ++v) {
      s.ran[v] += sign * static_cast<double>(h.ran_ns(v));
      s.charged[v] += sign * static_cast<double>(h.stats(v).charged_sm_ns);
    }
    s.idle += sign * static_cast<double>(h.idle_ns());
  };
  s.ran.resize(tenants.size());
  s.charged.resize(tenants.size());
  count(-1);
  h.run_until(kSecond / 2 + seconds * kSecond);
  count(1);
  for (auto* parts : {&s.ran, &s.charged}) {
    double sum = 0;
    for (const double x : *parts) sum += x;
    for (double& x : *parts) x /= sum;
  }
  s.idle /= static_cast<double>(seconds * kSecond);
  return s;
}

constexpr TurnsProgram kQueues{}, kWaits{.queued = 0};

struct Pair {
  const char* name;
  Tenant a, b;
};

class TurnsPairs : public testing::TestWithParam<Pair> {};

TEST_P(TurnsPairs, HaveWhatTheirWeightsSay) {
  const auto& [name, a, b] = GetParam();
  const Shares s = share({a, b}, 10);
  const double asked = double{1} * b.weight / (a.weight + b.weight);
  EXPECT_NEAR(s.ran[1], asked, 0.01) << "charged " << s.charged[1];
  // What fills the moment between a waiting one's launch and the news of its end is not seen.
  const bool waits = a.program.queued == 0 || b.program.queued == 0;
  EXPECT_NEAR(s.charged[1], s.ran[1], waits ? 0.006 : 0.003);
  EXPECT_LE(s.idle, 0.015);
}

INSTANTIATE_TEST_SUITE_P(
    All, TurnsPairs,
    testing::Values(Pair{"queued_2_1", {100, kQueues}, {200, kQueues}},
                    Pair{"queued_3_1", {100, kQueues}, {300, kQueues}},
                    Pair{"queued_10_1", {100, kQueues}, {1000, kQueues}},
                    Pair{"waiting_2_1", {100, kWaits}, {200, kWaits}},
                    Pair{"waiting_and_queued_1_2", {100, kWaits}, {200, kQueues}},
                    Pair{"waiting_and_queued_2_1", {200, kWaits}, {100, kQueues}},
                    Pair{"short_and_long",
                         {100, {.launch_ns = 200 * kUs, .queued = 4}},
                         {200, {.launch_ns = 20 * kMs, .queued = 4}}},
                    Pair{"short_and_short",
                         {100, {.launch_ns = 100 * kUs, .queued = 32}},
                         {200, {.launch_ns = 20 * kUs, .queued = 64}}},
                    Pair{"opaque_of_20_ms",
                         {100, {.launch_ns = 20 * kMs, .opaque = true}},
                         {200, {.launch_ns = 20 * kMs, .opaque = true}}}),
    [](const testing::TestParamInfo<Pair>& i) { return std::string(i.param.name); });

// Each launch is a visit of its own: between two of them the others' blocks run, and are charged.
// What it waits for those is charged to it. Of 20 us it cannot take half of the GPU, and is not
// kept from what it can.
TEST(TurnsShares, ShortLaunchesWithShortPausesAreChargedWhatTheyAreOwed) {
  TurnsCosts costs;
  costs.program_ns = 45 * kUs;  // so that it does not keep the GPU over its pauses
  const TurnsProgram saturates{.launch_ns = kMs, .block_ns = 35 * kUs, .queued = 8};
  for (const uint64_t launch_ns : {20 * kUs, 100 * kUs})
    for (const uint32_t others : {1u, 3u}) {
      SCOPED_TRACE(std::to_string(launch_ns) + " ns beside " + std::to_string(others));
      std::vector<Tenant> tenants(1 + others, {100, saturates});
      tenants[0].program = {
          .launch_ns = launch_ns, .block_ns = 10 * kUs, .queued = 0, .pause_ns = launch_ns / 2};
      const Shares s = share(tenants, 4, costs);
      EXPECT_GE(s.charged[0] * (1 + others), launch_ns == 20 * kUs ? 0.92 : 0.97);
      EXPECT_GE(s.ran[0] * (1 + others), launch_ns == 20 * kUs ? 0.35 : 0.75);
      EXPECT_LE(s.idle, 0.015);
    }
}

// Each wants one launch at a time, so the next one begins below whose turn it is: nobody
// waits for messages. That some want 1 % more does not make them wait for those that want less.
TEST(TurnsShares, ProgramsThatWaitForOneLaunchLeaveNothingIdle) {
  TurnsCosts costs;
  costs.ring_ns = 20 * kUs;  // one that sleeps is woken
  for (const auto& [launch_ns, pause_ns] : {std::pair{200 * kUs, 100 * kUs},
                                            {50 * kUs, 0},
                                            {1000 * kUs, 100 * kUs},
                                            {3000 * kUs, 400 * kUs}})
    for (const uint32_t count : {4u, 8u}) {
      SCOPED_TRACE(std::to_string(count) + ", launches of " + std::to_string(launch_ns));
      TurnsHost h(shared(), costs);
      for (uint32_t i = 0; i < count; ++i)
        h.add(100, {.launch_ns = launch_ns + i * launch_ns / 200,
                    .block_ns = 10 * kUs,
                    .queued = 0,
                    .pause_ns = pause_ns + i * 3 * kUs});
      h.run_until(kSecond / 2);
      const uint64_t idle_ns = h.idle_ns();
      std::vector<uint64_t> ran_ns;
      std::vector<size_t> before;
      for (uint32_t i = 0; i < count; ++i) {
        ran_ns.push_back(h.ran_ns(i));
        before.push_back(h.took_ns(i).size());
      }
      h.run_until(kSecond / 2 + 2 * kSecond);
      EXPECT_LE(static_cast<double>(h.idle_ns() - idle_ns), 0.02 * 2 * kSecond);
      for (uint32_t i = 0; i < count; ++i) {
        EXPECT_NEAR(static_cast<double>(h.ran_ns(i) - ran_ns[i]) * count / (2 * kSecond), 1, 0.03);
        std::vector<uint64_t> took(h.took_ns(i).begin() + static_cast<ptrdiff_t>(before[i]),
                                   h.took_ns(i).end());
        std::sort(took.begin(), took.end());
        EXPECT_LE(took[took.size() * 95 / 100], count * std::max(250 * kUs, launch_ns * 5 / 4))
            << i;
      }
    }
}

// Two that wait for each launch and one that saturates: about what a fluid GPU gives each. Where
// launches of both came at one level the one that came later was charged, and had 0.36.
TEST(TurnsShares, WhoWaitsForEachLaunchHasItsWeight) {
  TurnsCosts costs;
  costs.ring_ns = 30 * kUs;
  const TurnsProgram saturates{.launch_ns = kMs, .block_ns = 35 * kUs, .queued = 8};
  for (const auto& [launch_ns, fluid] :
       {std::pair{300 * kUs, std::array{0.23, 0.46, 0.31}}, {1000 * kUs, {0.22, 0.55, 0.23}}}) {
    SCOPED_TRACE(launch_ns);
    TurnsProgram waits{
        .launch_ns = launch_ns, .block_ns = 35 * kUs, .queued = 0, .pause_ns = 100 * kUs};
    std::vector<Tenant> tenants{{100, waits}, {300, waits}, {100, saturates}};
    tenants[1].program.launch_ns += launch_ns / 200;
    const Shares s = share(tenants, 4, costs);
    for (size_t v = 0; v < 3; ++v) EXPECT_NEAR(s.ran[v], fluid[v], 0.05) << v;
    EXPECT_LE(s.idle, 0.015);
  }
}

// Who saturates the GPU has what three such programs leave, and pays for it. They take turns, so
// together they cannot have all that they are owed.
TEST(TurnsShares, WhoSaturatesFillsTheGapsOfThoseThatPause) {
  TurnsCosts costs;
  costs.ring_ns = 40 * kUs;
  const TurnsProgram thinks{
      .launch_ns = 20 * kUs, .block_ns = 10 * kUs, .queued = 0, .pause_ns = 10 * kUs};
  std::vector<Tenant> tenants(3, {100, thinks});
  tenants.push_back({100, {.launch_ns = kMs, .block_ns = 35 * kUs, .queued = 8}});
  for (int idle = 0; idle < 30; ++idle) tenants.push_back({100, {.start_ns = 1000 * kSecond}});
  const Shares s = share(tenants, 4, costs);
  EXPECT_LE(s.idle, 0.01);
  for (int i = 0; i < 3; ++i) EXPECT_GE(s.ran[i], 0.07) << i;
  EXPECT_LE(s.charged[3], 0.4);
}

// Two that saturate, and 32 that want a little less than they are owed. The first of these has
// launches that take `more_ns` longer.
std::vector<Tenant> beside_sleepers(uint64_t launch_ns, uint64_t pause_ns, uint64_t more_ns = 0) {
  std::vector<Tenant> tenants(2, {100, {.launch_ns = kMs, .block_ns = 35 * kUs, .queued = 8}});
  for (int i = 0; i < 32; ++i)
    tenants.push_back({100,
                       {.launch_ns = launch_ns + (i == 0 ? more_ns : 0),
                        .block_ns = 35 * kUs,
                        .queued = 0,
                        .pause_ns = pause_ns,
                        .random = true,
                        .wakes_ns = 100 * kUs}});
  return tenants;
}

// They go before those that saturate, which do no more than fill: one of them lingers from then on,
// and has to make room for the other.
TEST(TurnsShares, ThoseThatFillTakeTurns) {
  const Shares s = share(beside_sleepers(100 * kUs, 2100 * kUs), 2, {.ring_ns = 30 * kUs});
  EXPECT_LE(std::abs(s.ran[0] - s.ran[1]), 0.02);
  EXPECT_GE(std::min(s.ran[0], s.ran[1]), 0.6 / 34);
  EXPECT_LE(s.idle, 0.01);
}

TEST(TurnsShares, TheLongestOfManyShortOnesIsNotTheLastEachTime) {
  const Shares s = share(beside_sleepers(400 * kUs, 9 * kMs, 200 * kUs), 4,
                         {.ring_ns = 30 * kUs, .program_ns = 40 * kUs});
  double others = 0;
  for (size_t v = 3; v < s.ran.size(); ++v) others += s.ran[v] / 31;
  EXPECT_GE(s.ran[2], 0.85 * others);
}

// In turns that are no shorter than others': a part of each is lost to what fills its gaps.
TEST(TurnsShares, AMinimumBelowAHigherPriorityComesInWholeTurns) {
  TurnsHost h(shared(), {});
  const TurnsProgram program{.launch_ns = kMs, .queued = 8};
  const core::VgpuId least = h.add({.weight = 100, .min_permille = 200}, program);
  const core::VgpuId first = h.add({.weight = 100, .priority = 1}, program);
  h.run_until(kSecond / 2);
  const uint64_t before = h.ran_ns(least), grants = h.stats(least).grants;
  h.run_until(kSecond / 2 + 4 * kSecond);
  EXPECT_NEAR(static_cast<double>(h.ran_ns(least) - before) / (4 * kSecond), 0.2, 0.005);
  EXPECT_LE(h.stats(least).grants - grants, 4 * 45u);
  EXPECT_GT(h.ran_ns(first), 3 * kSecond);
}

// Random weights from 1 to 10, half of them with kernels that have no windows.
TEST(TurnsShares, ManyTenantsHaveWhatTheirWeightsSay) {
  for (const uint32_t count : {8u, 32u}) {
    std::mt19937 random(count);
    std::vector<Tenant> tenants;
    double weights = 0;
    for (uint32_t i = 0; i < count; ++i) {
      constexpr uint64_t kLengths[] = {20 * kUs, 200 * kUs, 2 * kMs, 20 * kMs};
      const uint64_t ns = kLengths[i / 2 % 4];
      const uint64_t queued = std::clamp<uint64_t>(10 * kMs / ns, 2, 64);
      tenants.push_back(
          {10 * static_cast<uint32_t>(1 + random() % 10),
           {.launch_ns = ns, .queued = static_cast<uint32_t>(queued), .opaque = i % 2 == 1}});
      weights += tenants.back().weight;
    }
    const Shares s = share(tenants, count == 8 ? 10 : 30);
    for (uint32_t i = 0; i < count; ++i)
      EXPECT_NEAR(s.ran[i] * weights / tenants[i].weight, 1, 0.06)
          << count << " tenants, the one of launches of " << tenants[i].program.launch_ns << " ns";
    EXPECT_LE(s.idle, 0.015);
  }
}

// A light tenant's launch waits for half a block and what the messages take, on a host with many
// vGPUs that have been idle for long as well: it has its visits without asking there too.
TEST(TurnsShares, ALightTenantIsServedBesideAHeavyOne) {
  for (const auto& [heavy, idle] : {std::pair{kQueues, 0}, {kWaits, 0}, {kQueues, 32}}) {
    TurnsHost h(shared(), {});
    const auto v = h.add(100, heavy);
    const auto light = h.add(100, {.launch_ns = 100 * kUs, .queued = 0, .pause_ns = 2 * kMs});
    for (int i = 0; i < idle; ++i) h.add(100, {.start_ns = 1000 * kSecond});
    h.run_until(4 * kSecond);
    EXPECT_GE(h.stats(light).unasked, 1000u);
    std::vector<uint64_t> took = h.took_ns(light);
    ASSERT_GT(took.size(), 1000u);
    std::sort(took.begin(), took.end());
    EXPECT_LE(took[took.size() / 2], 200 * kUs);
    EXPECT_LE(took[took.size() * 99 / 100], 260 * kUs);
    EXPECT_GE(static_cast<double>(h.ran_ns(v)), 0.94 * 4 * kSecond);
  }
}

// ... also where it used as much as it could until just now: alone, or its half beside another one.
// Two more vGPUs are there and idle.
TEST(TurnsShares, WhatALightTenantHadBeforeDelaysItForAMoment) {
  for (const uint64_t heavy_from_ns : {uint64_t{0}, kSecond}) {
    TurnsHost h(shared(), {});
    h.add(100, {.queued = 0, .start_ns = heavy_from_ns});
    const TurnsProgram light = {.launch_ns = 100 * kUs, .queued = 0, .pause_ns = 2 * kMs};
    TurnsProgram busy = light;
    busy.pause_ns = 0;
    const auto v = h.add(100, busy);
    for (int i = 0; i < 2; ++i) h.add(100, {.start_ns = 100 * kSecond});
    h.run_until(kSecond);
    h.change(v, light);
    h.run_until(kSecond + 200 * kMs);
    const size_t before = h.took_ns(v).size();
    h.run_until(3 * kSecond);
    std::vector<uint64_t> took(h.took_ns(v).begin() + static_cast<ptrdiff_t>(before),
                               h.took_ns(v).end());
    ASSERT_GT(took.size(), 500u);
    std::sort(took.begin(), took.end());
    EXPECT_LE(took[took.size() / 2], 200 * kUs) << "heavy from " << heavy_from_ns;
    EXPECT_LE(took[took.size() * 99 / 100], 260 * kUs) << "heavy from " << heavy_from_ns;
  }
}

// Its launch waits for long blocks, and all that time the heavy one goes on. Nobody is ended,
// though what the heavy one has left when its gates close leaves only in its next turns.
TEST(TurnsShares, ALightTenantBesideLongBlocksCostsNothingElse) {
  for (const uint64_t linger_ns : {core::SchedulerConfig{}.linger_ns, 300 * kUs}) {
    core::SchedulerConfig c = shared();
    c.linger_ns = linger_ns;
    TurnsHost h(c, {});
    const auto v = h.add(100, {.block_ns = kMs});
    const auto light = h.add(100, {.launch_ns = 100 * kUs, .queued = 0, .pause_ns = 2 * kMs});
    h.run_until(8 * kSecond);
    std::vector<uint64_t> took = h.took_ns(light);
    ASSERT_GT(took.size(), 2000u);
    std::sort(took.begin(), took.end());
    EXPECT_LE(took[took.size() * 99 / 100], 100 * kUs + kMs);
    EXPECT_GE(static_cast<double>(h.ran_ns(v)), 0.95 * 8 * kSecond);
    EXPECT_EQ(h.stats(v).ended + h.stats(light).ended, 0u);
  }
}

// Chains of kernels of 50 us, each after the other, at random times, beside kernels of 5 ms. Where
// nothing of the heavy ones begins between two of them a chain waits as one launch does; at each
// gap half a block.
struct Chains {
  uint32_t kernels;
  uint64_t pause_ns;
  uint32_t others, weight;
  double p50, p99;  // over alone, at most, without gaps
};

TEST(TurnsShares, AChainIsServedBesideHeavyTenants) {
  constexpr uint64_t kKernelNs = 50 * kUs, kBlockNs = 50 * kUs;
  for (const auto& [kernels, pause_ns, others, weight, p50, p99] :
       {Chains{20, 6 * kMs, 1, 100, 1.05, 1.1}, Chains{20, 6 * kMs, 3, 100, 1.05, 1.1},
        Chains{100, 16 * kMs, 1, 100, 1.03, 1.1}, Chains{100, 16 * kMs, 3, 300, 1.03, 1.1},
        // These want as much as their share, now and then more.
        Chains{100, 16 * kMs, 3, 100, 1.03, 12}}) {
    for (const uint64_t gap_ns : {uint64_t{0}, 2 * kUs}) {
      SCOPED_TRACE(std::to_string(kernels) + " beside " + std::to_string(others) + ", weight " +
                   std::to_string(weight) + ", gaps of " + std::to_string(gap_ns));
      TurnsCosts costs;
      costs.gap_ns = gap_ns;
      const TurnsProgram program{.launch_ns = kKernelNs,
                                 .block_ns = 10 * kUs,
                                 .queued = 0,
                                 .chain = kernels,
                                 .pause_ns = pause_ns,
                                 .random = true};
      TurnsHost by_itself(shared(), costs);
      by_itself.add(weight, program);
      TurnsHost h(shared(), costs);
      uint64_t ran_ns = 0;
      for (uint32_t i = 0; i < others; ++i) h.add(100, {.block_ns = kBlockNs});
      const auto chain = h.add(weight, program);
      by_itself.run_until(6 * kSecond);
      h.run_until(6 * kSecond);
      for (uint32_t v = 0; v < others; ++v) ran_ns += h.ran_ns(v);
      std::vector<uint64_t> took = h.took_ns(chain);
      ASSERT_GT(took.size(), 100u);
      std::sort(took.begin(), took.end());
      const auto alone = static_cast<double>(by_itself.took_ns(0).front());
      const double gaps = static_cast<double>(gap_ns == 0 ? 0 : kernels * kBlockNs / 2) / alone;
      EXPECT_LE(static_cast<double>(took[took.size() / 2]) / alone, p50 + gaps);
      if (gap_ns == 0) {
        EXPECT_LE(static_cast<double>(took[took.size() * 99 / 100]) / alone, p99);
      }
      EXPECT_GE(static_cast<double>(ran_ns + h.ran_ns(chain)), 0.97 * 6 * kSecond);
    }
  }
}

// Of class low, up to its share of the time, whatever it is entitled to against vGPUs that are
// idle.
TEST(TurnsShares, ABurstOfClassLowIsNotInterrupted) {
  constexpr uint64_t kKernelNs = 50 * kUs;
  struct {
    uint32_t kernels;
    uint64_t pause_ns;
    double p99;  // over alone
  } const cases[] = {{20, 4 * kMs, 1.1}, {100, 12 * kMs, 1.1}, {150, 16 * kMs, 1.1}};
  for (const auto& [kernels, pause_ns, p99] : cases) {
    SCOPED_TRACE(kernels);
    TurnsHost h(shared(), {});
    // Before it comes the chain has had the GPU alone: more than its share.
    const auto heavy = h.add(100, {.start_ns = kSecond});
    const auto chain =
        h.add({.weight = 100, .latency = policy::LatencyClass::kLow}, {.launch_ns = kKernelNs,
                                                                       .block_ns = 10 * kUs,
                                                                       .queued = 0,
                                                                       .chain = kernels,
                                                                       .pause_ns = pause_ns,
                                                                       .random = true});
    for (int idle = 0; idle < 2; ++idle) h.add(100, {.start_ns = kSecond * 1000});
    h.run_until(6 * kSecond);
    std::vector<uint64_t> took = h.took_ns(chain);
    ASSERT_GT(took.size(), 100u);
    std::sort(took.begin(), took.end());
    EXPECT_LE(static_cast<double>(took[took.size() * 99 / 100]),
              p99 * static_cast<double>(kernels * kKernelNs));
    EXPECT_GE(static_cast<double>(h.ran_ns(heavy) + h.ran_ns(chain)), 0.97 * 5 * kSecond);
  }
}

// Others wait after each launch of 5 ms, so what they want is often less than the chain: that is no
// reason to go before it, nor to be served again when their turn was ended for it.
TEST(TurnsShares, ABurstOfClassLowGoesBeforeShorterWork) {
  for (const uint32_t kernels : {20u, 100u})
    for (const uint32_t others : {1u, 3u}) {
      SCOPED_TRACE(std::to_string(kernels) + " beside " + std::to_string(others));
      TurnsHost h(shared(), {});
      for (uint32_t i = 0; i < others; ++i) h.add(100, {.queued = 0});
      const uint64_t kernel_ns = 54 * kUs, pause_ns = kernels == 20 ? 5 * kMs : 11 * kMs;
      const auto chain = h.add({.weight = 100 * others, .latency = policy::LatencyClass::kLow},
                               {.launch_ns = kernel_ns,
                                .block_ns = 10 * kUs,
                                .queued = 0,
                                .chain = kernels,
                                .pause_ns = pause_ns,
                                .random = true});
      h.run_until(6 * kSecond);
      std::vector<uint64_t> took = h.took_ns(chain);
      ASSERT_GT(took.size(), 100u);
      std::sort(took.begin(), took.end());
      EXPECT_LE(static_cast<double>(took[took.size() * 99 / 100]),
                1.1 * static_cast<double>(kernels * kernel_ns));
      uint64_t ran_ns = h.ran_ns(chain);
      for (uint32_t v = 0; v < others; ++v) ran_ns += h.ran_ns(v);
      EXPECT_GE(static_cast<double>(ran_ns), 0.98 * 6 * kSecond);
    }
}

}  // namespace
}  // namespace sluice::sim
