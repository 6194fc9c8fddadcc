// SPDX-License-Identifier: Apache-2.0
// What stands between a driver and a policy in space: SMs in units (in_units.h), and pauses that
// are kept from it (pauses.h).
#include <gtest/gtest.h>

#include "policies/parts/forwarding.h"
#include "policies/parts/in_units.h"
#include "policies/parts/pauses.h"

namespace sluice::policy {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000;

// Notes each event, and answers an arrival with all its SMs and an idle one with their
// eviction.
class Script : public Policy {
 public:
  explicit Script(const Config& c) : sms(static_cast<uint16_t>(c.machine.sm_count)) { last = this; }
  std::string_view name() const override { return "script"; }
  void on_vgpu_added(uint64_t, VgpuId, const VgpuShare&, Actions&) override {}
  void on_vgpu_changed(uint64_t, VgpuId, const VgpuShare&, Actions&) override {}
  void on_vgpu_removed(uint64_t, VgpuId, Actions&) override {}
  void on_arrival(uint64_t, VgpuId v, Actions& out) override {
    ++arrivals;
    const auto half = static_cast<uint16_t>(sms / 2);
    out.push_back(Action::run(v, v == 0 ? SmRange{0, half} : SmRange{half, sms}));
  }
  void on_idle(uint64_t, VgpuId v, Actions& out) override {
    ++idles;
    out.push_back(Action::evict(v));
  }
  void on_launch_queued(uint64_t, const Launch& l, Actions&) override { launch = l; }
  void on_usage(uint64_t, VgpuId v, const Usage& u) override { used[v] += u.sm_ns; }
  void on_left(uint64_t, VgpuId, LeftReason, Actions&) override {}
  void on_released(uint64_t, VgpuId, LaunchId, SmRange s, LeftReason, Actions&) override {
    released = s;
  }
  void on_wake(uint64_t, Actions&) override { ++wakes; }

  static inline Script* last = nullptr;
  const uint16_t sms;
  uint32_t arrivals = 0, idles = 0, wakes = 0;
  uint64_t used[2] = {};
  Launch launch;
  SmRange released;
};
std::unique_ptr<Policy> make_script(const Config& c) { return std::make_unique<Script>(c); }

Config machine(uint32_t sms, uint32_t unit, uint64_t change_ns = 0) {
  Config c;
  c.machine.sm_count = sms;
  c.machine.spatial = true;
  c.machine.sm_unit = unit;
  c.machine.change_ns = change_ns;
  return c;
}

TEST(SmUnits, APolicyCountsUnitsAndItsDriverSms) {
  const auto p = in_units(machine(132, 2), make_script);
  ASSERT_EQ(Script::last->sms, 66);
  Actions out;
  p->on_vgpu_added(0, 0, {}, out);
  p->on_vgpu_added(0, 1, {}, out);
  p->on_arrival(0, 1, out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].sms, (SmRange{66, 132}));
  p->on_released(1, 1, 0, {66, 70}, LeftReason::kEvicted, out);
  EXPECT_EQ(Script::last->released, (SmRange{33, 35}));
  p->on_launch_queued(2, {.sms_wanted = 7, .predicted_sm_ns = 1, .run_predicted_sm_ns = 21}, out);
  EXPECT_EQ(Script::last->launch.sms_wanted, 4);  // the fourth unit half
  EXPECT_EQ(Script::last->launch.predicted_sm_ns, 1u) << "0 would say that it is not known";
  EXPECT_EQ(Script::last->launch.run_predicted_sm_ns, 10u);
  // What is less than a unit-ns comes with the next report.
  for (int i = 0; i < 100; ++i) p->on_usage(3, 0, {.sm_ns = 3});
  const VgpuUsage both[] = {{0, {.sm_ns = 1}}, {1, {.sm_ns = 5}}};
  p->on_usages(4, both);
  EXPECT_EQ(Script::last->used[0], 150u);
  EXPECT_EQ(Script::last->used[1], 2u);
}

TEST(SmUnits, NoSmIsInNoUnit) {
  for (uint32_t sms = 1; sms <= 20; ++sms) {
    for (uint32_t unit = 2; unit <= 8; ++unit) {
      const auto p = in_units(machine(sms, unit), make_script);
      EXPECT_EQ(Script::last->sms, std::max(sms / unit, 1u));
      Actions out;
      p->on_vgpu_added(0, 1, {}, out);
      p->on_arrival(0, 1, out);  // the upper half of the units
      EXPECT_EQ(out[0].sms.hi, sms);
      EXPECT_TRUE(is_whole_units(sms, unit, out[0].sms));
      p->on_released(1, 1, 0, out[0].sms, LeftReason::kEvicted, out);
      EXPECT_EQ(Script::last->released,
                (SmRange{static_cast<uint16_t>(Script::last->sms / 2), Script::last->sms}));
    }
  }
  EXPECT_FALSE(is_whole_units(5, 2, {4, 5})) << "the last unit is SMs 2 to 4";
  EXPECT_TRUE(is_whole_units(5, 2, {2, 5}));
  EXPECT_FALSE(is_whole_units(6, 2, {1, 2}));
}

// Two vGPUs of half of ten SMs each; a change takes 100 us, so a pause is worth 400 us of waiting.
class KeptPauses : public ::testing::Test {
 protected:
  void SetUp() override {
    for (VgpuId v : {0u, 1u}) {
      p->on_vgpu_added(0, v, {}, out);
      p->on_arrival(0, v, out);
    }
    out.clear();
  }
  uint64_t wake() const {
    return out.empty() || out.back().kind != Action::Kind::kWake ? 0 : out.back().at_ns;
  }
  const Config config = machine(10, 1, 100 * kUs);
  std::unique_ptr<Policy> p = keep_pauses(config, make_script(config));
  Script& inner = *Script::last;
  Actions out;
};

TEST_F(KeptPauses, AShortOneIsNotReported) {
  p->on_idle(kMs, 0, out);
  EXPECT_EQ(inner.idles, 0u);
  EXPECT_EQ(wake(), kMs + 400 * kUs);
  p->on_arrival(kMs + 50 * kUs, 0, out);
  EXPECT_EQ(inner.arrivals, 2u);
  EXPECT_EQ(inner.used[0], 5 * 50 * kUs) << "it held them";
  p->on_wake(kMs + 400 * kUs, out);
  EXPECT_EQ(inner.idles, 0u);
  EXPECT_EQ(inner.wakes, 0u);
}

TEST_F(KeptPauses, ALongOneIsReportedWhenItHasLastedTooLong) {
  p->on_idle(kMs, 0, out);
  p->on_usage(kMs + 300 * kUs, 0,
              {.sm_ns = 300 * kUs});  // by a driver that charges idle ones: once is enough
  p->on_wake(kMs + 400 * kUs, out);
  EXPECT_EQ(inner.idles, 1u);
  EXPECT_EQ(out.back().kind, Action::Kind::kEvict);
  EXPECT_EQ(inner.used[0], 5 * 400 * kUs);
  p->on_arrival(2 * kMs, 0, out);
  EXPECT_EQ(inner.arrivals, 3u);
}

TEST_F(KeptPauses, ASingleLongOneIsWaitedForOutOfWhatHandOversMayCost) {
  p->on_idle(100 * kMs, 0, out);  // half of 4 % of 100 ms and all SMs
  p->on_wake(100 * kMs + 400 * kUs, out);
  EXPECT_EQ(inner.idles, 0u);
  EXPECT_EQ(wake(), 104 * kMs + 416 * kUs) << "20.08 ms of an SM for five of them";
  p->on_arrival(102 * kMs + 400 * kUs, 0, out);
  EXPECT_EQ(inner.used[0], 5 * 2400 * kUs) << "and charged for";
  // What was not needed is there for the next, as long as it lasts.
  p->on_idle(103 * kMs, 0, out);
  p->on_wake(103 * kMs + 400 * kUs, out);
  EXPECT_EQ(wake(), 103 * kMs + 400 * kUs + 2136 * kUs);
  p->on_wake(103 * kMs + 400 * kUs + 2136 * kUs, out);
  EXPECT_EQ(inner.idles, 1u);
  EXPECT_EQ(inner.used[0], 5 * (2400 + 2536) * kUs);
}

TEST_F(KeptPauses, WhoIsSeldomBackInTimeIsNotWaitedFor) {
  uint64_t now_ns = kMs;
  for (int i = 0; i < 3; ++i) {
    p->on_idle(now_ns, 0, out);
    p->on_wake(now_ns + 400 * kUs, out);
    p->on_wake(now_ns + 5 * kMs, out);
    p->on_arrival(now_ns += 10 * kMs, 0, out);
  }
  EXPECT_EQ(inner.idles, 3u);
  p->on_idle(now_ns, 0, out);
  EXPECT_EQ(inner.idles, 4u) << "at once";
  p->on_arrival(now_ns += kUs, 0, out);
  p->on_idle(now_ns, 0, out);
  EXPECT_EQ(inner.idles, 4u) << "once in time is enough after three";
}

TEST_F(KeptPauses, NoTimerWhereNobodyElseWorks) {
  p->on_idle(kMs, 1, out);
  p->on_wake(2 * kMs, out);  // 1 is idle
  ASSERT_EQ(inner.idles, 1u);
  p->on_released(2 * kMs, 1, 0, {5, 10}, LeftReason::kIdle, out);
  out.clear();
  p->on_idle(3 * kMs, 0, out);
  EXPECT_EQ(wake(), 0u);
  // Somebody comes long after: that one is not owed anything for the time in which nobody wanted
  // the SMs.
  p->on_arrival(900 * kMs, 1, out);
  EXPECT_EQ(wake(), 3 * kMs + 400 * kUs) << "due already";
  p->on_wake(900 * kMs, out);
  EXPECT_EQ(inner.idles, 2u);
  EXPECT_EQ(inner.used[0], 5 * 400 * kUs);
}

TEST_F(KeptPauses, WhoseSessionsAreGoneIsIdle) {
  p->on_idle(kMs, 0, out);
  p->on_released(kMs + kUs, 0, 0, {0, 5}, LeftReason::kGone, out);
  EXPECT_EQ(inner.idles, 1u);
  p->on_vgpu_removed(kMs + kUs, 0, out);
  EXPECT_EQ(inner.idles, 1u);
}

// Somebody waits without an SM while all SMs are held by those that pause: that may take 1 % of the
// time and not more.
TEST_F(KeptPauses, TheWholeGpuIsNotLeftIdleForLong) {
  // Its second vGPU gets nothing.
  class Hungry : public Forwarding {
   public:
    using Forwarding::Forwarding;
    void on_arrival(uint64_t now_ns, VgpuId v, Actions& a) override {
      if (v != 1) Forwarding::on_arrival(now_ns, v, a);
    }
  };
  p = keep_pauses(config, std::make_unique<Hungry>(make_script(config)));
  Script& script = *Script::last;
  for (VgpuId v : {0u, 1u}) p->on_vgpu_added(0, v, {}, out);
  p->on_arrival(0, 0, out);
  p->on_arrival(0, 1, out);
  out.clear();
  p->on_idle(kMs, 0, out);  // 9 us of waiting have been earned
  EXPECT_LE(wake(), kMs);
  p->on_wake(kMs, out);
  EXPECT_EQ(script.idles, 1u);
}

}  // namespace
}  // namespace sluice::policy
