// SPDX-License-Identifier: Apache-2.0
// SlicedGpuTest: a SlicedGpu whose vGPUs come, use it and go by hand, for tests of the rules of wfq
// on time slices.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "policies/wfq/slices/gpu.h"
#include "tests/unit/policies/policy_units.h"

namespace sluice::policy::slices {

class SlicedGpuTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kSms = 4;
  static constexpr uint64_t kHandoverNs = 200 * kUs,
                            kMeanNs = 5 * kMs;  // which a hand-over is 4 % of

  static constexpr VgpuShare kLow = {.latency = LatencyClass::kLow},
                             kBatch = {.latency = LatencyClass::kBatch};

  static Config config(bool free_alone = true) {
    Config c;
    c.machine.preemptor = PreemptorKind::kProportional;
    c.machine.sm_count = kSms;
    c.machine.handover_ns = kHandoverNs;
    c.machine.slice_floor_ns = 200 * kUs;
    c.machine.slice_least_ns = 100 * kUs;
    c.machine.slices_are_free_alone = free_alone;
    return c;
  }
  SlicedGpuTest() : SlicedGpuTest(config()) {}
  explicit SlicedGpuTest(const Config& c) : gpu(c) {}

  VgpuId add(const VgpuShare& share = {}) {
    const auto v = static_cast<VgpuId>(gpu.vgpus.size());
    gpu.add(v, share);
    return v;
  }
  void come(VgpuId v) {
    gpu.clock.turn_busy(v);
    gpu.enter(v);
    gpu[v].habit.came_ns = now;
  }
  void go(VgpuId v) {
    gpu.gate(now, v, false);
    gpu.clock.turn_idle(v);
    gpu.leave(v);
    gpu[v].habit.waited_ns = now;
  }
  VgpuId add_busy(const VgpuShare& share = {}) {
    const VgpuId v = add(share);
    come(v);
    return v;
  }
  void charge(VgpuId v, uint64_t ns) { gpu.clock.charge(v, ns * kSms); }
  // Returns how long it is.
  double begin_round() {
    gpu.find_top();
    double lightest = kMaxWeight;
    for (const VgpuId v : gpu.top) lightest = std::min<double>(lightest, gpu.share(v).weight);
    return gpu.lengths.begin_round(gpu.top.size(), gpu.weight_of_top, lightest, 0, false);
  }
  // Those of the highest level whose gates are open.
  using Open = std::vector<VgpuId>;
  Open open() const {
    Open open;
    for (const VgpuId v : gpu.top)
      if (!gpu[v].gated) open.push_back(v);
    return open;
  }
  // It came and went like that lately.
  void has_habit(VgpuId v, double burst_ns, double gap_ns) {
    Habit& habit = gpu[v].habit;
    habit.burst_ns = burst_ns, habit.gap_ns = gap_ns;
    habit.waited_ns = std::max(habit.waited_ns, now - kMs);
    habit.idled_open = true;
  }

  SlicedGpu gpu;
  uint64_t now = kSecond;
};

}  // namespace sluice::policy::slices
