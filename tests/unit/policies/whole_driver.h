// SPDX-License-Identifier: Apache-2.0
// WholeDriver: drives a policy that gives the whole GPU to one vGPU at a time by hand, event by
// event, and keeps what it asked for. For tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "policies/policy.h"

namespace sluice::policy {

struct WholeDriver {
  explicit WholeDriver(std::string_view name, Config config = {})
      : WholeDriver(find_policy(name)->make(config), config) {}
  WholeDriver(std::unique_ptr<Policy> driven, const Config& config)
      : policy(std::move(driven)), sms(config.machine.sm_count) {}

  void add(VgpuId v, uint32_t weight = 100, uint32_t priority = 0) {
    add(v, {.weight = weight, .priority = priority});
  }
  void add(VgpuId v, const VgpuShare& share) {
    call([&] { policy->on_vgpu_added(now, v, share, out); });
  }
  void arrive(VgpuId v) {
    call([&] { policy->on_arrival(now, v, out); });
  }
  void idle(VgpuId v) {
    call([&] { policy->on_idle(now, v, out); });
  }
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
  uint64_t now = 1'000'000'000, wake_ns = 0;
  VgpuId holder = kNoVgpu, evicted = kNoVgpu;
};

inline Launch launch_of(LaunchId id, VgpuId v, uint64_t ns) {
  return {.id = id, .vgpu = v, .predicted_sm_ns = ns};
}

}  // namespace sluice::policy
