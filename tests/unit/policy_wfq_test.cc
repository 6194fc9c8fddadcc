// The contract of policies/policy.h as wfq and fcfs keep it, event by event, and the registry.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <set>
#include <vector>

#include "policies/fair_clock.h"
#include "policies/policy.h"

namespace sluice::policy {
namespace {

constexpr uint64_t kMs = 1'000'000;

// Drives a policy by hand and keeps what it asked for.
struct Driver {
  explicit Driver(std::string_view name, Config config = {})
      : policy(find_policy(name)->make(config)), sms(config.machine.sm_count) {}

  void add(VgpuId v, uint32_t weight = 100, uint32_t priority = 0) {
    call([&] { policy->on_vgpu_added(now, v, {.weight = weight, .priority = priority}, out); });
  }
  void arrive(VgpuId v) { call([&] { policy->on_arrival(now, v, out); }); }
  void idle(VgpuId v) { call([&] { policy->on_idle(now, v, out); }); }
  void left(VgpuId v, LeftReason why = LeftReason::kEvicted) {
    holder = kNoVgpu;
    call([&] { policy->on_left(now, v, why, out); });
  }
  // Time passes; the holder is charged for it; the wake fires if it is due.
  void pass(uint64_t ns) {
    now += ns;
    if (holder != kNoVgpu) policy->on_usage(now, holder, {.sm_ns = ns * sms});
    if (wake_ns && wake_ns <= now) {
      wake_ns = 0;
      call([&] { policy->on_wake(now, out); });
    }
  }
  template <class F>
  void call(F&& f) {
    out.clear();
    f();
    evicted = kNoVgpu;
    for (const Action& a : out) {
      if (a.kind == Action::Kind::kRun) {
        EXPECT_EQ(holder, kNoVgpu) << "run beside a holder";
        holder = a.vgpu;
      }
      if (a.kind == Action::Kind::kEvict) {
        EXPECT_EQ(holder, a.vgpu);
        evicted = a.vgpu;
      }
      if (a.kind == Action::Kind::kWake) wake_ns = a.at_ns;
    }
  }

  std::unique_ptr<Policy> policy;
  uint32_t sms;
  Actions out;
  uint64_t now = 1000 * kMs, wake_ns = 0;
  VgpuId holder = kNoVgpu, evicted = kNoVgpu;
};

TEST(Registry, NamesAreUniqueAndTheDefaultIsFirst) {
  std::set<std::string_view> names;
  for (const Registration& row : registry()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(row.exclusive || row.proportional);
    EXPECT_EQ(row.make(Config{})->name(), row.name);
    EXPECT_EQ(find_policy(row.name), &row);
  }
  EXPECT_EQ(registry().front().name, "wfq");
  EXPECT_EQ(find_policy("no such policy"), nullptr);
}

TEST(Wfq, AloneIsDisengaged) {
  Driver d("wfq");
  d.add(0);
  d.arrive(0);
  EXPECT_EQ(d.holder, 0u);
  EXPECT_EQ(d.wake_ns, 0u) << "nothing to decide, so no timer";
  d.pass(500 * kMs);
  d.idle(0);
  EXPECT_TRUE(d.out.empty()) << "an idle holder that nobody follows stays";
}

TEST(Wfq, ANewcomerGetsATurnAtOnceAfterALongSoloRun) {
  Driver d("wfq");
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
  Driver d("wfq");
  d.add(0), d.add(1);
  d.arrive(0);
  d.pass(500 * kMs);
  d.arrive(1);  // with the same virtual time
  d.left(0);
  EXPECT_EQ(d.holder, 1u);
}

TEST(Wfq, AnIdleHolderIsEvictedAtOnce) {
  Driver d("wfq");
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
  Driver d("wfq", c);
  for (VgpuId v = 0; v < 16; ++v) d.add(v);
  d.arrive(0), d.arrive(1);
  const auto quantum = [&] { return static_cast<double>(d.policy->quantum_ns()); };
  EXPECT_NEAR(quantum(), fitted(2, 10.1e6), 1);  // as short as 1 % in hand-overs allows, and the hand-over
  for (VgpuId v = 2; v < 16; ++v) d.arrive(v);
  EXPECT_NEAR(quantum(), fitted(16, 2.6e6), 1);  // its part of the latency target, which is 100 us / 4 %, too
  for (int i = 0; i < 100; ++i) d.policy->on_handover(d.now, 400'000);
  EXPECT_NEAR(quantum(), fitted(16, 10.4e6), 1);  // 400 us / 4 %
  for (int i = 0; i < 400; ++i) d.policy->on_handover(d.now, 10'000 * kMs);
  EXPECT_LE(quantum(), 30e6);  // bounded
}

TEST(Wfq, TurnsAreAsShortAsIsCheapAndNoShorterThanSharesNeed) {
  Config c;
  c.min_quantum_ns = kMs;
  c.machine.handover_ns = 20'000;
  Driver d("wfq", c);
  for (VgpuId v = 0; v < 16; ++v) d.add(v);
  d.arrive(0), d.arrive(1);
  const auto quantum = [&] { return static_cast<double>(d.policy->quantum_ns()); };
  EXPECT_NEAR(quantum(), fitted(2, 5.02e6), 1);  // two turns in 10 ms: a second is off by 1 % at most
  for (VgpuId v = 2; v < 16; ++v) d.arrive(v);
  EXPECT_NEAR(quantum(), fitted(16, 2.02e6), 1);  // 20 us / 1 %
  for (int i = 0; i < 100; ++i) d.policy->on_handover(d.now, 50'000);
  EXPECT_NEAR(quantum(), fitted(16, 2.55e6), 1);  // the latency target, 40 ms for 16, though 1 % would take twice as long
}

// Turns that end late, each by another time, as tasks do: who goes after whom stays the same from round to round, every
// second holds as many turns of each, and what a turn was too long the next one is shorter.
void uneven_ends(const std::array<uint32_t, 5>& weights) {
  Config c;
  c.min_quantum_ns = kMs;
  c.machine.handover_ns = 100'000;
  Driver d("wfq", c);
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
  for (size_t i = kVgpus; rounds && i < order.size(); ++i) EXPECT_EQ(order[i], order[i - kVgpus]) << "turn " << i;
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
  Driver d("wfq");
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
  Driver d("wfq");
  d.add(0), d.add(1);
  d.arrive(0), d.arrive(1);
  ASSERT_EQ(d.holder, 0u);
  d.call([&] { d.policy->on_vgpu_changed(d.now, 1, {.weight = 1, .priority = 5}, d.out); });
  EXPECT_EQ(d.evicted, 0u);
  d.left(0);
  EXPECT_EQ(d.holder, 1u);
  EXPECT_EQ(d.out.size(), 1u) << "a lower level waits until it is idle: no timer";
}

// Years of solo time move the virtual time far; arithmetic must not overflow, nor a newcomer suffer.
TEST(Wfq, VirtualTimeDoesNotOverflow) {
  Config c;
  c.machine.sm_count = 132;
  Driver d("wfq", c);
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
    Driver d("wfq");
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

Launch launch(LaunchId id, VgpuId v, uint64_t ns) {
  return {.id = id, .vgpu = v, .predicted_sm_ns = ns};
}

// A short job goes before others that are owed as much, once the holder had a hand-over's length ...
TEST(Wfq, AShortLaunchGoesFirst) {
  Driver d("wfq");
  for (VgpuId v = 0; v < 3; ++v) d.add(v);
  d.arrive(0);
  d.arrive(1);
  d.pass(100'000);
  d.call([&] { d.policy->on_launch_queued(d.now, launch(1, 2, kMs), d.out); });
  d.arrive(2);
  EXPECT_EQ(d.evicted, kNoVgpu);
  d.pass(100'000);  // 200 us is the guess at a hand-over
  EXPECT_EQ(d.evicted, 0u);
  EXPECT_EQ(d.out.back().next, 2u);
}

// ... but only as often as handover_loss pays for: then it waits for the least quantum.
TEST(Wfq, ShortLaunchesInterruptWithinABudget) {
  Driver d("wfq");
  for (VgpuId v = 0; v < 40; ++v) d.add(v);
  d.arrive(0);
  uint64_t waited[39] = {};
  for (VgpuId v = 1; v < 40; ++v) {
    d.pass(kMs);
    const uint64_t since = d.now;
    d.call([&] { d.policy->on_launch_queued(d.now, launch(v, v, 50'000), d.out); });
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
// Launch by launch, or told as a whole again and again.
TEST(Wfq, ClaimingToBeShortDoesNotPay) {
  for (const bool whole : {false, true}) {
    Driver d("wfq");
    for (VgpuId v = 0; v < 3; ++v) d.add(v);
    uint64_t got[3] = {};
    for (VgpuId v = 0; v < 3; ++v) d.arrive(v);
    LaunchId id = 0;
    for (int i = 0; i < 60'000; ++i) {
      Launch l = launch(whole ? 0 : ++id, 2, kMs / 2);
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

// As sluiced tells it; what is told anew replaces what was told before.
TEST(Wfq, AVgpuToldAsAWholeToBeShortGoesFirst) {
  for (const uint64_t ns : {kMs, 100 * kMs}) {
    Driver d("wfq");
    for (VgpuId v = 0; v < 3; ++v) d.add(v);
    d.arrive(0);
    d.arrive(1);
    d.pass(100'000);
    for (const uint64_t told : {50 * kMs, ns}) {
      const Launch l{.vgpu = 2, .predicted_sm_ns = told, .run_predicted_sm_ns = told};
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

// A holder with less left than a hand-over takes may end it.
TEST(Wfq, WhatEndsSoonerThanItCouldBeEvictedEnds) {
  Driver d("wfq");
  d.add(0), d.add(1);
  const auto quantum = static_cast<uint64_t>(fitted(2, 20.2e6));
  d.call([&] { d.policy->on_launch_queued(d.now, launch(1, 0, quantum + 100'000), d.out); });
  d.arrive(0), d.arrive(1);
  d.pass(quantum);
  EXPECT_EQ(d.evicted, kNoVgpu);
  d.pass(200'000);  // not longer than a hand-over, though
  EXPECT_EQ(d.evicted, 0u);
}

TEST(Fcfs, InOrderOfArrivalUntilIdle) {
  Driver d("fcfs");
  d.add(0), d.add(1), d.add(2);
  d.arrive(2), d.arrive(0), d.arrive(1);
  EXPECT_EQ(d.holder, 2u);
  d.pass(1000 * kMs);
  EXPECT_EQ(d.evicted, kNoVgpu);
  d.idle(2);
  EXPECT_EQ(d.evicted, 2u);
  d.left(2, LeftReason::kIdle);
  EXPECT_EQ(d.holder, 0u);
  d.idle(0);
  d.arrive(0);  // again, before it has left: behind the others
  d.left(0, LeftReason::kIdle);
  EXPECT_EQ(d.holder, 1u);
  d.idle(1);
  d.left(1, LeftReason::kIdle);
  EXPECT_EQ(d.holder, 0u);
}

TEST(FairClock, DividesByAnyWeightExactly) {
  for (uint32_t w = 1; w <= kMaxWeight; ++w) {
    const WeightDivisor by(w);
    const uint64_t most = FairClock::kMaxUsage * FairClock::kScale, last = most / w * w;
    for (const uint64_t x : {uint64_t{0}, uint64_t{w} - 1, uint64_t{w}, last / 3 / w * w - 1, last - 1, last, most})
      ASSERT_EQ(by.divide(x), x / w) << x << " / " << w;
  }
}

// Several reports at once, in two levels and of one without work, and one that moves a level's virtual times back.
TEST(FairClock, ReportsTogetherCountAsOneByOne) {
  FairClock one({}), all({});
  for (FairClock* c : {&one, &all})
    for (VgpuId v = 0; v < 5; ++v) {
      c->add(0, v, {.weight = 1 + 37 * v, .priority = v % 2});
      if (v != 3) c->turn_busy(0, v);
    }
  bool moved = false;
  for (uint64_t i = 0; i < 5'000; ++i) {
    std::vector<VgpuUsage> reports;
    for (uint64_t j = 0; j < 5; ++j) {
      const auto v = static_cast<VgpuId>((i + j) % 5);
      // By weight, more or less: far ahead of its level nobody comes.
      reports.push_back({v, {.sm_ns = (1 + 37 * v) * (5'000'000'000'000 + i * i * 79 + j * 1047) >> (v == 3 ? 20 : 0)}});
    }
    for (const VgpuUsage& r : reports) one.charge(r.vgpu, r.usage.sm_ns);
    all.charge(reports, [&](uint32_t, int64_t back) { moved |= back > 0; });
    for (VgpuId v = 0; v < 5; ++v) {
      ASSERT_EQ(one[v].used_sm_ns, all[v].used_sm_ns) << i;
      if (moved) continue;  // when in a batch that is done is not told
      ASSERT_EQ(one[v].vtime, all[v].vtime) << i;
      ASSERT_EQ(one.lead_sm_ns(v), all.lead_sm_ns(v)) << i;
      ASSERT_EQ(all.leads(v), all.lead_sm_ns(v) > 0) << i;
    }
  }
  EXPECT_TRUE(moved);
  for (VgpuId v = 0; v < 5; ++v) EXPECT_LT(all[v].vtime, 2 * FairClock::kRebaseAt);
}

}  // namespace
}  // namespace sluice::policy
