// SPDX-License-Identifier: Apache-2.0
// wfq one vGPU at a time, event by event: the rules that open policies/wfq/whole.h.
#include <array>
#include <cmath>
#include <vector>

#include "tests/unit/policies/policy_units.h"
#include "tests/unit/policies/whole_driver.h"

namespace sluice::policy {
namespace {

TEST(Wfq, AloneIsDisengaged) {
  WholeDriver d("wfq");
  d.add(0);
  d.arrive(0);
  EXPECT_EQ(d.holder, 0u);
  EXPECT_EQ(d.wake_ns, 0u) << "nothing to decide, so no timer";
  d.pass(500 * kMs);
  d.idle(0);
  EXPECT_TRUE(d.out.empty()) << "an idle holder that nobody follows stays";
}

TEST(Wfq, ANewcomerGetsATurnAtOnceAfterALongSoloRun) {
  WholeDriver d("wfq");
  d.add(0), d.add(1);
  d.arrive(0);
  d.pass(500 * kMs);
  d.arrive(1);
  EXPECT_EQ(d.evicted, 0u);
  EXPECT_EQ(d.out.back().next, 1u);
  d.out.clear();
  d.pass(kMs);
  EXPECT_TRUE(d.out.empty()) << "it waits for on_left()";
  d.left(0);
  EXPECT_EQ(d.holder, 1u);
  EXPECT_EQ(d.wake_ns, d.now + d.policy->quantum_ns());
}

TEST(Wfq, AnEvictionThatTookNoTimeIsNotUndone) {
  WholeDriver d("wfq");
  d.add(0), d.add(1);
  d.arrive(0);
  d.pass(500 * kMs);
  d.arrive(1);  // with the same virtual time
  d.left(0);
  EXPECT_EQ(d.holder, 1u);
}

TEST(Wfq, AnIdleHolderIsEvictedAtOnce) {
  WholeDriver d("wfq");
  d.add(0), d.add(1);
  d.arrive(0), d.arrive(1);
  EXPECT_EQ(d.holder, 0u);
  d.pass(kMs);
  d.idle(0);
  EXPECT_EQ(d.evicted, 0u);
  d.left(0, LeftReason::kIdle);
  EXPECT_EQ(d.holder, 1u);
}

// A whole number of turns of `least_ns` or somewhat more in what one of n is owed in a second.
double fitted(double n, double least_ns) { return 1e9 / n / std::floor(1e9 / n / least_ns); }

TEST(Wfq, QuantumFollowsHandoverCostAndNumber) {
  Config c;
  c.machine.handover_ns = 100'000;
  WholeDriver d("wfq", c);
  for (VgpuId v = 0; v < 16; ++v) d.add(v);
  d.arrive(0), d.arrive(1);
  const auto quantum = [&] { return static_cast<double>(d.policy->quantum_ns()); };
  EXPECT_NEAR(quantum(), fitted(2, 10.1e6),
              1);  // as short as 1 % in hand-overs allows, and the hand-over
  for (VgpuId v = 2; v < 16; ++v) d.arrive(v);
  EXPECT_NEAR(quantum(), fitted(16, 2.6e6),
              1);  // its part of the latency target, which is 100 us / 4 %, too
  for (int i = 0; i < 400; ++i) d.policy->on_handover(d.now, 10'000 * kMs);
  EXPECT_NEAR(quantum(), fitted(16, 2.6e6), 1);  // no longer than by what the machine is known for
  for (int i = 0; i < 400; ++i) d.policy->on_handover(d.now, 50'000);
  EXPECT_NEAR(quantum(), fitted(16, 2.55e6), 1);  // the latency target
}

// Nor does one whose launches cannot leave make all turns longer, late as it leaves each time.
TEST(Wfq, WhoLeavesLateMakesNobodysTurnsLonger) {
  Config c;
  c.machine.handover_ns = 100'000;
  WholeDriver d("wfq", c);
  for (VgpuId v = 0; v < 16; ++v) d.add(v), d.arrive(v);
  const uint64_t quantum_ns = d.policy->quantum_ns();
  for (int i = 0; i < 500; ++i) {
    while (d.evicted == kNoVgpu) d.pass(kMs);
    d.pass(4 * kMs);
    d.left(d.evicted);
    d.policy->on_handover(d.now, 4 * kMs);
  }
  EXPECT_EQ(d.policy->quantum_ns(), quantum_ns);
}

TEST(Wfq, TurnsAreAsShortAsIsCheapAndNoShorterThanSharesNeed) {
  Config c;
  c.min_quantum_ns = kMs;
  c.machine.handover_ns = 20'000;
  WholeDriver d("wfq", c);
  for (VgpuId v = 0; v < 16; ++v) d.add(v);
  d.arrive(0), d.arrive(1);
  const auto quantum = [&] { return static_cast<double>(d.policy->quantum_ns()); };
  EXPECT_NEAR(quantum(), fitted(2, 5.02e6),
              1);  // two turns in 10 ms: a second is off by 1 % at most
  for (VgpuId v = 2; v < 16; ++v) d.arrive(v);
  EXPECT_NEAR(quantum(), fitted(16, 2.02e6), 1);  // 20 us / 1 %
  for (int i = 0; i < 100; ++i) d.policy->on_handover(d.now, 50'000);
  EXPECT_NEAR(quantum(), fitted(16, 2.55e6),
              1);  // the latency target, 40 ms for 16, though 1 % would take twice as long
}

// Turns that end late, each by another time, as tasks do: who goes after whom stays the same from
// round to round, every second holds as many turns of each, and what a turn was too long the next
// one is shorter.
void uneven_ends(const std::array<uint32_t, 5>& weights) {
  Config c;
  c.min_quantum_ns = kMs;
  c.machine.handover_ns = 100'000;
  WholeDriver d("wfq", c);
  constexpr VgpuId kVgpus = 5;
  double all = 0;
  for (const uint32_t w : weights) all += w;
  for (VgpuId v = 0; v < kVgpus; ++v) d.add(v, weights[v]);
  for (VgpuId v = 0; v < kVgpus; ++v) d.arrive(v);
  uint64_t random = 7;
  std::vector<std::array<uint64_t, kVgpus>> used(1);  // in the hundredths of the time
  std::vector<VgpuId> order;
  const uint64_t begin = d.now;
  const auto step = [&](uint64_t ns) {
    used.resize((d.now - begin) / (10 * kMs) + 1);
    used.back()[d.holder] += ns;
    d.pass(ns);
  };
  while (d.now < begin + 4000 * kMs) {
    step(10'000);
    if (d.evicted == kNoVgpu) continue;
    const VgpuId v = d.evicted;
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    for (uint64_t late = (random >> 33) % 20; late > 0; --late) step(10'000);  // up to 190 us
    d.policy->on_handover(d.now, 100'000);
    d.left(v);
    if (d.now > begin + 1000 * kMs) order.push_back(v);
  }
  const bool rounds = all == kVgpus * weights[0];
  for (size_t i = kVgpus; rounds && i < order.size(); ++i)
    EXPECT_EQ(order[i], order[i - kVgpus]) << "turn " << i;
  for (size_t from = 100; from + 100 < used.size(); ++from)
    for (VgpuId v = 0; v < kVgpus; ++v) {
      double got = 0;
      for (size_t i = from; i < from + 100; ++i) got += static_cast<double>(used[i][v]);
      EXPECT_NEAR(got / 1e9, weights[v] / all, 0.005 * weights[v] / all) << v << " from " << from;
    }
}
TEST(Wfq, UnevenEndsLeaveTheOrderAndTheSecondAsTheyAre) {
  uneven_ends({100, 100, 100, 100, 100});
  uneven_ends({100, 100, 200, 50, 300});
}

TEST(Wfq, WeightsCanChangeWhileItRuns) {
  WholeDriver d("wfq");
  d.add(0, 200), d.add(1, 100);
  d.arrive(0), d.arrive(1);
  uint64_t got[2] = {};
  const auto run = [&](int ms) {
    got[0] = got[1] = 0;
    for (int i = 0; i < ms * 10; ++i) {
      got[d.holder] += kMs / 10;
      d.pass(kMs / 10);
      if (d.evicted != kNoVgpu) d.left(d.evicted);
    }
  };
  run(6000);
  EXPECT_NEAR(static_cast<double>(got[0]) / static_cast<double>(got[1]), 2.0, 0.03);
  d.call([&] { d.policy->on_vgpu_changed(d.now, 0, {.weight = 100}, d.out); });
  if (d.evicted != kNoVgpu) d.left(d.evicted);
  d.call([&] { d.policy->on_vgpu_changed(d.now, 1, {.weight = 300}, d.out); });
  if (d.evicted != kNoVgpu) d.left(d.evicted);
  run(8000);
  EXPECT_NEAR(static_cast<double>(got[1]) / static_cast<double>(got[0]), 3.0, 0.05);
}

TEST(Wfq, APriorityChangeTakesEffectAtOnce) {
  WholeDriver d("wfq");
  d.add(0), d.add(1);
  d.arrive(0), d.arrive(1);
  ASSERT_EQ(d.holder, 0u);
  d.call([&] { d.policy->on_vgpu_changed(d.now, 1, {.weight = 1, .priority = 5}, d.out); });
  EXPECT_EQ(d.evicted, 0u);
  d.left(0);
  EXPECT_EQ(d.holder, 1u);
  EXPECT_EQ(d.out.size(), 1u) << "a lower level waits until it is idle: no timer";
}

// Years of solo time move the virtual time far; arithmetic must not overflow, nor a newcomer
// suffer.
TEST(Wfq, VirtualTimeDoesNotOverflow) {
  Config c;
  c.machine.sm_count = 132;
  WholeDriver d("wfq", c);
  d.add(0, 1), d.add(1, 1);
  d.arrive(0);
  for (int i = 0; i < 3000; ++i) {  // of 2.4 hours each, 132 SMs
    d.now += 1;
    d.policy->on_usage(d.now, 0, {.sm_ns = ~0ull});
  }
  d.now += 100 * kMs;
  d.arrive(1);
  EXPECT_EQ(d.evicted, 0u);
  d.left(0);
  uint64_t got[2] = {};
  for (int i = 0; i < 20000; ++i) {
    got[d.holder] += kMs / 10;
    d.pass(kMs / 10);
    if (d.evicted != kNoVgpu) d.left(d.evicted);
  }
  EXPECT_NEAR(static_cast<double>(got[0]) / 2e9, 0.5, 0.02);
}

TEST(Wfq, SameEventsSameActions) {
  std::vector<std::vector<std::pair<int, VgpuId>>> runs;
  for (int run = 0; run < 2; ++run) {
    WholeDriver d("wfq");
    std::vector<std::pair<int, VgpuId>> seen;
    for (VgpuId v = 0; v < 8; ++v) d.add(v, 10 + 7 * v), d.arrive(v);
    for (int i = 0; i < 5000; ++i) {
      d.pass(kMs);
      for (const Action& a : d.out) seen.push_back({static_cast<int>(a.kind), a.vgpu});
      if (d.evicted != kNoVgpu) d.left(d.evicted);
    }
    EXPECT_GT(seen.size(), 100u);
    runs.push_back(seen);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

// A short job goes before others that are owed as much, at once if it is worth two hand-overs (200
// us each is the guess), else once the holder had a hand-over's length ...
TEST(Wfq, AShortLaunchGoesFirst) {
  for (const uint64_t work_ns : {kMs, uint64_t{300'000}}) {
    WholeDriver d("wfq");
    for (VgpuId v = 0; v < 3; ++v) d.add(v);
    d.arrive(0);
    d.arrive(1);
    d.pass(100'000);
    d.call([&] { d.policy->on_launch_queued(d.now, launch_of(1, 2, work_ns), d.out); });
    d.arrive(2);
    if (work_ns < kMs) {
      EXPECT_EQ(d.evicted, kNoVgpu);
      d.pass(100'000);
    }
    EXPECT_EQ(d.evicted, 0u);
    EXPECT_EQ(d.out.back().next, 2u);
  }
}

// ... but only as often as handover_loss pays for: then it waits for the least quantum.
TEST(Wfq, ShortLaunchesInterruptWithinABudget) {
  WholeDriver d("wfq");
  for (VgpuId v = 0; v < 40; ++v) d.add(v);
  d.arrive(0);
  uint64_t waited[39] = {};
  for (VgpuId v = 1; v < 40; ++v) {
    d.pass(kMs);
    const uint64_t since = d.now;
    d.call([&] { d.policy->on_launch_queued(d.now, launch_of(v, v, 50'000), d.out); });
    d.arrive(v);
    while (d.evicted == kNoVgpu && d.now - since < 20 * kMs) d.pass(100'000);
    ASSERT_EQ(d.evicted, 0u);
    waited[v - 1] = d.now - since;
    d.left(0);
    ASSERT_EQ(d.holder, v);
    d.pass(50'000);
    d.idle(v);
    d.left(v, LeftReason::kIdle);
    ASSERT_EQ(d.holder, 0u);
  }
  EXPECT_LT(waited[0], kMs / 2);
  uint32_t at_once = 0;
  for (const uint64_t ns : waited) at_once += ns < kMs / 2;
  EXPECT_GE(at_once, 4u);
  EXPECT_LT(at_once, 39u);  // each 1.25 ms: 4 % of that pays for a quarter of a hand-over
}

// Who claims to be short and is not is ahead of V after a turn, and then waits like the others.
// Launch by launch, or announced as a whole again and again.
TEST(Wfq, ClaimingToBeShortDoesNotPay) {
  for (const bool whole : {false, true}) {
    WholeDriver d("wfq");
    for (VgpuId v = 0; v < 3; ++v) d.add(v);
    uint64_t got[3] = {};
    for (VgpuId v = 0; v < 3; ++v) d.arrive(v);
    LaunchId id = 0;
    for (int i = 0; i < 60'000; ++i) {
      Launch l = launch_of(whole ? 0 : ++id, 2, kMs / 2);
      if (whole) l.run_predicted_sm_ns = l.predicted_sm_ns;
      if (i % 10 == 0) d.call([&] { d.policy->on_launch_queued(d.now, l, d.out); });
      if (d.evicted != kNoVgpu) d.left(d.evicted);
      got[d.holder] += kMs / 10;
      d.pass(kMs / 10);
      if (d.evicted != kNoVgpu) d.left(d.evicted);
    }
    for (const uint64_t g : got) EXPECT_NEAR(static_cast<double>(g), 2e9, 0.04e9) << whole;
  }
}

// As sluiced announces it; each announcement replaces the one before.
TEST(Wfq, AVgpuAnnouncedAsAWholeToBeShortGoesFirst) {
  for (const uint64_t ns : {kMs, 100 * kMs}) {
    WholeDriver d("wfq");
    for (VgpuId v = 0; v < 3; ++v) d.add(v);
    d.arrive(0);
    d.arrive(1);
    d.pass(100'000);
    for (const uint64_t announced : {50 * kMs, ns}) {
      const Launch l{.vgpu = 2, .predicted_sm_ns = announced, .run_predicted_sm_ns = announced};
      d.call([&] { d.policy->on_launch_queued(d.now, l, d.out); });
    }
    d.arrive(2);
    d.pass(100'000);
    if (ns == kMs) {
      ASSERT_EQ(d.evicted, 0u);
    }
    EXPECT_EQ(d.evicted == kNoVgpu ? kNoVgpu : d.out.back().next, ns == kMs ? 2u : kNoVgpu);
  }
}

// What a program used at its start, when nobody else wanted the GPU, is forgotten within a few
// turns: short work goes first again.
TEST(Wfq, ALongStartDoesNotMakeShortWorkWaitForSeconds) {
  for (const char* name : {"wfq", "wfq-srt"}) {
    Config c;
    c.machine.handover_ns = 40'000;
    WholeDriver d(name, c);
    for (VgpuId v = 0; v < 4; ++v) d.add(v);
    const auto ends = [&](VgpuId v) {
      d.idle(v);
      if (d.holder == v) d.left(v, LeftReason::kIdle);
    };
    d.arrive(1), d.pass(200 * kMs), ends(1);
    d.arrive(0), d.pass(200 * kMs);
    int late = 0;
    for (int i = 0; i < 50; ++i) {
      d.pass(2 * kMs);
      if (d.evicted != kNoVgpu) d.left(d.evicted);
      const uint64_t since = d.now;
      const Launch l{.vgpu = 1, .predicted_sm_ns = 100'000, .run_predicted_sm_ns = 100'000};
      d.call([&] {
        d.policy->on_arrival(d.now, 1, d.out);
        d.policy->on_launch_queued(d.now, l, d.out);
      });
      while (d.evicted == kNoVgpu && d.holder != 1 && d.now - since < 100 * kMs) d.pass(20'000);
      if (d.evicted != kNoVgpu) d.left(d.evicted);
      late += d.now - since > 500'000;
      ASSERT_EQ(d.holder, 1u);
      d.pass(100'000), ends(1);
      ASSERT_EQ(d.holder, 0u);
    }
    EXPECT_LE(late, 3) << name;
  }
}

// A holder with less left than a hand-over takes may end it.
TEST(Wfq, WhatEndsSoonerThanItCouldBeEvictedEnds) {
  WholeDriver d("wfq");
  d.add(0), d.add(1);
  const auto quantum = static_cast<uint64_t>(fitted(2, 20.2e6));
  d.call([&] { d.policy->on_launch_queued(d.now, launch_of(1, 0, quantum + 100'000), d.out); });
  d.arrive(0), d.arrive(1);
  d.pass(quantum);
  EXPECT_EQ(d.evicted, kNoVgpu);
  d.pass(200'000);  // not longer than a hand-over, though
  EXPECT_EQ(d.evicted, 0u);
}

// Removed and made again each 10 ms, with work at once: it comes with no burst. (With one each time
// it had all of the GPU.)
TEST(Wfq, AVgpuOfClassLowThatIsMadeAnewBringsNoBurst) {
  WholeDriver d("wfq");
  const auto leave = [&] {
    if (d.evicted != kNoVgpu) d.left(d.evicted);
  };
  const auto arrive = [&](VgpuId v) {
    d.policy->on_launch_queued(d.now, launch_of(0, v, 1'000'000'000), d.out);
    d.arrive(v);
    leave();
  };
  for (const VgpuId v : {0u, 1u, 2u}) d.add(v), arrive(v);
  uint64_t low_steps = 0;
  constexpr uint64_t kTimes = 200, kSteps = 100;
  for (uint64_t i = 0; i < kTimes; ++i) {
    const VgpuShare low{.latency = LatencyClass::kLow};
    d.call([&] { d.policy->on_vgpu_added(d.now, 3, low, d.out); });
    arrive(3);
    for (uint64_t k = 0; k < kSteps; ++k) {
      low_steps += d.holder == 3;
      d.pass(100'000);
      leave();
    }
    d.idle(3);
    if (d.holder == 3) d.left(3, LeftReason::kGone);
    d.call([&] { d.policy->on_vgpu_removed(d.now, 3, d.out); });
  }
  EXPECT_LE(low_steps, kTimes * kSteps * 6 / 10);  // its part, and a turn each time
}

}  // namespace
}  // namespace sluice::policy
