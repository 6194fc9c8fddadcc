// SPDX-License-Identifier: Apache-2.0
// KernelDriver: drives a policy by hand with kernels (launches) on a GPU of SMs, in virtual time,
// and checks the contract of policies/policy.h: nobody runs on SMs that another holds, nothing is
// run for who has no work and nothing evicted that is not held, and an eviction is asked for once.
// For the tests of the policies whose unit is the kernel; the simulator (policies/sim) models
// costs, this does not.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "policies/policy.h"
#include "tests/unit/policies/policy_units.h"

namespace sluice::policy {

struct KernelDriver {
  struct Kernel {
    VgpuId vgpu;
    uint64_t left_sm_ns;
    uint32_t wanted;  // SMs that it can use
    uint64_t ended_ns = 0;
  };
  struct Sm {
    LaunchId launch = 0;  // 0: held by the whole vGPU, or by nobody
    VgpuId vgpu = kNoVgpu;
    bool leaving = false;
    uint64_t leaves_ns = 0;
  };

  explicit KernelDriver(std::string_view name, Config config = {})
      : policy(find_policy(name)->make(config)), sms(std::max(config.machine.sm_count, 1u)) {}

  void add(VgpuId v, uint32_t priority = 0, uint32_t weight = 100) {
    call([&] { policy->on_vgpu_added(now, v, {.weight = weight, .priority = priority}, out); });
  }
  void change(VgpuId v, uint32_t weight, uint32_t priority = 0) {
    call([&] { policy->on_vgpu_changed(now, v, {.weight = weight, .priority = priority}, out); });
    settle();
  }
  // A kernel that takes `ns` on all the SMs that it can use. It may run at once.
  LaunchId launch(VgpuId v, uint64_t ns, uint32_t wanted = 0, double prediction = 1) {
    const LaunchId id = ++launches;
    const uint32_t width = wanted ? wanted : static_cast<uint32_t>(sm.size());
    const bool had_work = busy(v);
    kernels[id] = {.vgpu = v, .left_sm_ns = ns * width, .wanted = width};
    open[v].insert(id);
    Launch l{.id = id, .vgpu = v};
    l.sms_wanted = static_cast<uint16_t>(wanted);
    l.predicted_sm_ns = static_cast<uint64_t>(static_cast<double>(ns * width) * prediction);
    if (tells_launches) call([&] { policy->on_launch_queued(now, l, out); });
    if (!had_work) call([&] { policy->on_arrival(now, v, out); });
    settle();
    return id;
  }
  // All that v has queued takes `ns` on the whole GPU (Launch::id 0).
  void tell_as_a_whole(VgpuId v, uint64_t ns, uint64_t preempt_ns) {
    const uint64_t all_sm_ns = ns * sms;
    const Launch all{.vgpu = v,
                     .predicted_sm_ns = all_sm_ns,
                     .run_predicted_sm_ns = all_sm_ns,
                     .preempt_ns = preempt_ns};
    call([&] { policy->on_launch_queued(now, all, out); });
    settle();
  }
  bool busy(VgpuId v) const {
    const auto its = open.find(v);
    return its != open.end() && !its->second.empty();
  }
  uint32_t held(LaunchId id) const {
    return static_cast<uint32_t>(
        std::count_if(sm.begin(), sm.end(), [&](const Sm& s) { return runs(s) == id; }));
  }
  // What runs there: a whole vGPU's oldest kernel, as in one stream.
  LaunchId runs(const Sm& s) const {
    if (s.launch != 0 || s.vgpu == kNoVgpu) return s.launch;
    return busy(s.vgpu) ? *open.at(s.vgpu).begin() : 0;
  }
  bool ended(LaunchId id) const { return kernels.at(id).ended_ns != 0; }
  // The launch that holds SM `i`, 0 if none.
  LaunchId on(uint32_t i = 0) const { return runs(sm[i]); }
  uint64_t end_ns(LaunchId id) const { return kernels.at(id).ended_ns; }

  // Time passes, event by event.
  void pass(uint64_t ns) {
    const uint64_t until = now + ns;
    while (true) {
      uint64_t next = until;
      if (wake_ns > now) next = std::min(next, wake_ns);
      for (const Sm& s : sm)
        if (s.leaving) next = std::min(next, s.leaves_ns);
      for (const auto& [id, k] : kernels)
        if (const uint32_t n = k.ended_ns ? 0 : working(id); n > 0)
          next = std::min(next, now + (k.left_sm_ns + n - 1) / n);
      advance(std::max(next, now));
      if (now >= until) return settle();
      settle();
    }
  }

  std::unique_ptr<Policy> policy;
  uint32_t sms;
  uint64_t leave_ns = 0;       // how long an eviction takes
  bool tells_launches = true;  // false: the policy hears of vGPUs that have work, as from sluiced
  std::vector<Sm> sm = std::vector<Sm>(sms);
  std::map<LaunchId, Kernel> kernels;
  std::map<VgpuId, std::set<LaunchId>> open;  // those that have not ended
  LaunchId launches = 0;
  Actions out;
  uint64_t now = 1000 * kMs, wake_ns = 0;
  uint32_t evictions = 0;        // ordered
  std::vector<LaunchId> starts;  // Runs, in order

 private:
  uint32_t working(LaunchId id) const { return std::min(held(id), kernels.at(id).wanted); }
  void advance(uint64_t to) {
    for (auto& [id, k] : kernels) {
      if (k.ended_ns) continue;
      k.left_sm_ns -= std::min(k.left_sm_ns, working(id) * (to - now));
      if (held(id) > 0)
        policy->on_usage(to, k.vgpu,
                         {.sm_ns = held(id) * (to - now), .launch = id, .tasks_done = 0});
    }
    now = to;
  }
  // Everything that is due now.
  void settle() {
    for (bool more = true; more;) {
      more = false;
      for (auto& entry : kernels) {
        const LaunchId id =
            entry.first;  // lambdas of C++20 and clang 14 capture no structured binding
        Kernel& k = entry.second;
        if (k.ended_ns || k.left_sm_ns > 0) continue;
        k.ended_ns = now;
        open[k.vgpu].erase(id);
        more = true;
        if (tells_launches)
          call([&] { policy->on_launch_done(now, {.id = id, .vgpu = k.vgpu}, out); });
        for (uint32_t i = 0; i < sm.size(); ++i)
          if (sm[i].launch == id) released(i, LeftReason::kIdle);
        if (!busy(k.vgpu)) call([&] { policy->on_idle(now, k.vgpu, out); });
      }
      for (uint32_t i = 0; i < sm.size(); ++i) {
        if (!sm[i].leaving || sm[i].leaves_ns > now) continue;
        more = true;
        released(i, LeftReason::kEvicted);
      }
      if (wake_ns && wake_ns <= now) {
        wake_ns = 0;
        more = true;
        call([&] { policy->on_wake(now, out); });
      }
    }
  }
  void released(uint32_t i, LeftReason why) {
    const Sm left = sm[i];
    sm[i] = Sm{};
    uint16_t hi = static_cast<uint16_t>(i + 1);
    while (hi < sm.size() && sm[hi].vgpu == left.vgpu && sm[hi].launch == left.launch &&
           sm[hi].leaving == left.leaving)
      sm[hi++] = Sm{};
    call([&] {
      policy->on_released(now, left.vgpu, left.launch, {static_cast<uint16_t>(i), hi}, why, out);
    });
  }
  template <class F>
  void call(F&& f) {
    out.clear();
    f();
    const Actions asked = out;
    for (const Action& a : asked) {
      const uint32_t hi = std::min<uint32_t>(a.sms.hi, static_cast<uint32_t>(sm.size()));
      if (a.kind == Action::Kind::kWake) wake_ns = std::max(a.at_ns, now + 1);
      if (a.kind == Action::Kind::kRun) {
        const LaunchId id = runs({.launch = a.launch, .vgpu = a.vgpu});
        ASSERT_TRUE(kernels.count(id)) << "run of nothing";
        EXPECT_EQ(kernels[id].ended_ns, 0u) << "run of what has ended";
        EXPECT_EQ(kernels[id].vgpu, a.vgpu);
        starts.push_back(id);
        for (uint32_t i = a.sms.lo; i < hi; ++i) {
          EXPECT_EQ(sm[i].vgpu, kNoVgpu) << "run beside a holder on SM " << i;
          sm[i] = {.launch = a.launch, .vgpu = a.vgpu};
        }
      }
      if (a.kind == Action::Kind::kEvict) {
        ++evictions;
        for (uint32_t i = a.sms.lo; i < hi; ++i) {
          EXPECT_EQ(sm[i].vgpu, a.vgpu) << "evicts from SM " << i << " who is not there";
          EXPECT_FALSE(sm[i].leaving) << "evicted twice from SM " << i;
          sm[i].leaving = true;
          sm[i].leaves_ns = now + leave_ns;
        }
      }
    }
  }
};

// Kernels of random vGPUs, sizes and times; the contract is checked at each step, and every kernel
// ends once no more come. What a policy must keep whatever happens; `seed` is in the message of a
// failure.
inline void soak(std::string_view name, uint64_t seed, Config config) {
  SCOPED_TRACE(std::string(name) + " seed " + std::to_string(seed));
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  const auto draw = [&](uint64_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % n;
  };
  KernelDriver d(name, config);
  d.leave_ns = draw(3) * 40 * kUs;
  d.tells_launches = draw(2);
  for (VgpuId v = 0; v < 6; ++v)
    d.add(v, static_cast<uint32_t>(draw(4)), static_cast<uint32_t>(1 + draw(300)));
  for (int i = 0; i < 120; ++i) {
    const VgpuId v = static_cast<VgpuId>(draw(6));
    if (!d.busy(v)) {
      const uint32_t wanted = draw(3) == 0 ? static_cast<uint32_t>(1 + draw(d.sms)) : 0;
      d.launch(v, (1 + draw(3000)) * kUs, wanted, draw(4) == 0 ? 0.1 : 1.0);
    }
    d.pass(draw(2500) * kUs);
  }
  d.pass(1000 * kMs);
  for (const auto& [id, k] : d.kernels)
    EXPECT_NE(k.ended_ns, 0u) << "launch " << id << " never ended";
  for (const auto& s : d.sm) EXPECT_EQ(d.runs(s), 0u);
}

}  // namespace sluice::policy
