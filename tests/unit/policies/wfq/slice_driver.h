// SPDX-License-Identifier: Apache-2.0
// SliceDriver: a GPU that alternates between contexts in time slices, in virtual time, for testing
// policies with a proportional preemptor. Opaque kernels; a context that has nothing to run gives
// the rest of its slice away; a gated one starts no new kernel, but a begun one goes on in its
// slices.
//
// With `log`, use is told as it is on NVIDIA's GPUs: a context that comes is restored for
// `restore_ns` before its slice begins, the records of who came and went go to
// accounting::EngineUse every lag_ns, and what that says is what the policy hears. used_ns is what
// was really used.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "policies/accounting/engine_use.h"
#include "policies/policy.h"
#include "tests/unit/policies/policy_units.h"

namespace sluice::policy {

struct SliceDriver {
  struct Tenant {
    uint64_t kernel_ns = 2'250'000;
    uint64_t wait_ns = 0;  // between two kernels, without work; 0: saturating
    bool busy = false, gated = false, begun = false;
    bool untold = false;   // idle, and the policy does not know
    bool leaving = false;  // its gate is closed, and the policy waits to hear that it has left
    uint64_t left_ns = 0, slice_ns = 0, next_ns = 0, used_ns = 0, busy_ns = 0, kernels = 0,
             gated_at_ns = 0;
    uint64_t longest_wait_ns = 0, served_ns = 0;
    // A worker that was taken over: says for so long that it has work, before each kernel, and
    // never that it has left.
    uint64_t pretends_ns = 0, real_at_ns = 0;
    bool silent = false;
  };

  explicit SliceDriver(std::string_view name, Config c = config())
      : machine(c.machine), policy(find_policy(name)->make(c)) {}
  static Config config() {
    Config c;
    c.machine.preemptor = PreemptorKind::kProportional;
    c.machine.sm_count = 4;
    return c;
  }
  VgpuId add(uint32_t weight, uint64_t kernel_ns, uint64_t wait_ns, uint32_t priority = 0,
             LatencyClass latency = LatencyClass::kNormal) {
    const auto v = static_cast<VgpuId>(tenants.size());
    tenants.push_back({.kernel_ns = kernel_ns, .wait_ns = wait_ns});
    call([&] {
      policy->on_vgpu_added(now, v, {.weight = weight, .priority = priority, .latency = latency},
                            out);
    });
    tenants[v].next_ns = now;
    if (log) log->add(v + 1, v);
    return v;
  }
  void run(uint64_t ns) {
    const uint64_t until = now + ns;
    while (now < until) {
      // Arrivals and wakes that are due.
      for (VgpuId v = 0; v < tenants.size(); ++v) {
        Tenant& t = tenants[v];
        if (t.busy || t.next_ns > now) continue;
        t.busy = true, t.left_ns = t.kernel_ns, t.served_ns = now;
        t.real_at_ns = now + t.pretends_ns;
        if (std::exchange(t.untold, false)) continue;
        for (VgpuId w = 0; w < tenants.size(); ++w)
          if (std::exchange(tenants[w].untold, false)) call([&] { policy->on_idle(now, w, out); });
        call([&] { policy->on_arrival(now, v, out); });
      }
      if (wake_ns && wake_ns <= now) {
        wake_ns = 0;
        call([&] { policy->on_wake(now, out); });
      }
      tell_who_left();
      // Who is on the engine.
      if (current == kNoVgpu || !runnable(current) || now >= slice_end_ns) {
        VgpuId next = kNoVgpu;
        for (size_t i = 1; i <= tenants.size() && next == kNoVgpu; ++i) {
          const auto v = static_cast<VgpuId>((last + i) % tenants.size());
          if (runnable(v)) next = v;
        }
        if (next != kNoVgpu) {
          const bool comes = next != last || !resident;
          if (comes) switch_to(next);
          if (comes && log) advance(restore_ns, kNoVgpu);
          slice_end_ns = now + slice_of(next);
          tenants[next].begun = true;
          last = next;
        }
        current = next;
      }
      uint64_t at = until;
      if (wake_ns) at = std::min(at, std::max(wake_ns, now));
      for (const Tenant& t : tenants) {
        if (!t.busy) at = std::min(at, std::max(t.next_ns, now));
        if (t.busy && t.real_at_ns > now) at = std::min(at, t.real_at_ns);
      }
      if (current != kNoVgpu) at = std::min({at, slice_end_ns, now + tenants[current].left_ns});
      advance(std::max(at, now) - now, current);  // a switch may end after `until`
      if (current == kNoVgpu || tenants[current].left_ns > 0) continue;
      Tenant& t = tenants[current];
      ++t.kernels;
      t.begun = false;
      if (t.wait_ns == 0) {
        t.real_at_ns = now + t.pretends_ns;
        t.left_ns = t.kernel_ns;
        t.begun = !t.gated;
        continue;
      }
      t.busy = false;
      t.next_ns = now + t.wait_ns;
      t.untold = quiet_alone && std::none_of(tenants.begin(), tenants.end(),
                                             [](const Tenant& other) { return other.busy; });
      if (!t.untold) call([&] { policy->on_idle(now, current, out); });
    }
  }
  void tell_who_left() {
    for (VgpuId v = 0; v < tenants.size(); ++v)
      if (tenants[v].leaving && !tenants[v].silent && !(tenants[v].busy && tenants[v].begun)) {
        tenants[v].leaving = false;
        call([&] { policy->on_left(now, v, LeftReason::kEvicted, out); });
      }
  }
  void switch_to(VgpuId next) {
    if (log && resident) log->on_record(now, last + 1, false);
    advance(switch_ns, kNoVgpu);
    ++switches;
    resident = true;
    if (log) log->on_record(now, next + 1, true);
  }
  // What a gated one had begun goes on in its slice for a while, then in the shortest slices.
  uint64_t slice_of(VgpuId v) {
    Tenant& t = tenants[v];
    if (log && t.gated && now - t.gated_at_ns > 6 * kMs)
      log->set_slice(v + 1, t.slice_ns = kGatedSliceNs);
    return std::max<uint64_t>(t.slice_ns, 1);
  }
  bool runnable(VgpuId v) const {
    return tenants[v].busy && now >= tenants[v].real_at_ns && claims(v);
  }
  // As it is reported.
  bool claims(VgpuId v) const { return tenants[v].busy && (!tenants[v].gated || tenants[v].begun); }
  void advance(uint64_t dt, VgpuId on) {
    now += dt;
    bool some = false;
    for (VgpuId v = 0; v < tenants.size(); ++v) {
      Tenant& t = tenants[v];
      if (!t.busy) continue;
      some = true;
      t.busy_ns += dt;
      if (v == on) t.used_ns += dt, t.left_ns -= dt, t.served_ns = now;
      t.longest_wait_ns = std::max(t.longest_wait_ns, now - t.served_ns);
    }
    if (on != kNoVgpu) untold_.resize(tenants.size()), untold_[on] += dt;
    if (now >= told_at_ns_ + lag_ns) tell();
    if (some && on == kNoVgpu) lost_ns += dt;
  }
  // What has been used since the last time.
  void tell() {
    told_at_ns_ = now;
    if (log) return hear_log();
    for (VgpuId v = 0; v < untold_.size(); ++v)
      if (const uint64_t ns = std::exchange(untold_[v], 0))
        policy->on_usage(now, v, {.sm_ns = ns * 4});
  }
  void hear_log() {
    std::vector<accounting::EngineUse::Used> used;
    log->settle(now, used);
    for (const auto& u : used)
      if (!u.free) policy->on_usage(now, u.worker - 1, {.sm_ns = u.ns * 4});
  }
  // The hardware of an H100, by its log.
  void use_log(const accounting::EngineUse::Config& c) {
    log.emplace(c);
    switch_ns = 80'000;
  }
  template <class F>
  void call(F&& f) {
    for (VgpuId v = 0; log && v < tenants.size(); ++v)
      log->on_claim(now, v + 1, claims(v), tenants[v].busy);
    out.clear();
    f();
    for (const Action& a : out) {
      if (a.kind == Action::Kind::kWake) wake_ns = a.at_ns;
      if (a.kind != Action::Kind::kSetSlice) {
        EXPECT_EQ(a.kind, Action::Kind::kWake) << "run or evict on a proportional preemptor";
        continue;
      }
      ++slice_actions;
      Tenant& t = tenants[a.vgpu];
      if (deaf && t.slice_ns) continue;
      if (!t.gated) t.gated_at_ns = now;
      t.leaving = a.value == 0 && (t.leaving || !t.gated);
      t.gated = a.value == 0;
      if (a.value) {
        EXPECT_GE(a.value,
                  machine.slice_least_ns != 0 ? machine.slice_least_ns : machine.slice_floor_ns);
        EXPECT_LE(a.value, machine.slice_ceiling_ns);
        if (sets_stop && t.slice_ns != a.value && current != kNoVgpu) slice_end_ns = now;
        t.slice_ns = a.value;
        if (log) log->set_slice(a.vgpu + 1, a.value);
      }
    }
  }
  double ratio(VgpuId a, VgpuId b) const {
    return static_cast<double>(tenants[a].used_ns) / static_cast<double>(tenants[b].used_ns);
  }

  const Machine machine;
  std::unique_ptr<Policy> policy;
  std::vector<Tenant> tenants;
  Actions out;
  uint64_t now = 1'000'000'000, wake_ns = 0, slice_end_ns = 0, switch_ns = 200'000, switches = 0;
  uint64_t lost_ns = 0, slice_actions = 0;
  VgpuId current = kNoVgpu, last = 0;
  bool resident = true;  // `last` is
  std::optional<accounting::EngineUse> log;
  uint64_t restore_ns = 137'000;
  static constexpr uint64_t kGatedSliceNs = 100'000;
  bool deaf = false;         // keeps every tenant's first slice, open
  uint64_t lag_ns = 0;       // use is told so seldom; 0: at once
  bool sets_stop = false;    // a new slice ends that of whoever runs
  bool quiet_alone = false;  // who has the GPU alone is asked when another comes

 private:
  std::vector<uint64_t> untold_;
  uint64_t told_at_ns_ = 0;
};

}  // namespace sluice::policy
