// SPDX-License-Identifier: Apache-2.0
// TurnDriver: drives a policy that gives the whole GPU to one vGPU at a time by hand, event by
// event, with jobs of known length: time passes, the holder works, evictions are answered after a
// delay. For tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "policies/policy.h"
#include "tests/unit/policies/policy_units.h"

namespace sluice::policy {

struct TurnDriver {
  explicit TurnDriver(std::string_view name, Config config = {})
      : policy(find_policy(name)->make(config)), sms(config.machine.sm_count) {}

  // A job of vGPU v with one launch of `tasks` tasks; predicted 0: nothing is announced.
  void submit(VgpuId v, uint64_t length_ns, uint64_t predicted_ns, uint32_t tasks = 0) {
    if (added.insert(v).second) call([&] { policy->on_vgpu_added(now, v, {}, out); });
    const bool was_idle = work[v] == 0;
    work[v] += length_ns;
    Launch l{
        .id = ++launches, .vgpu = v, .tasks_total = tasks, .predicted_sm_ns = predicted_ns * sms};
    if (predicted_ns || tasks) call([&] { policy->on_launch_queued(now, l, out); });
    if (was_idle) call([&] { policy->on_arrival(now, v, out); });
  }
  // The same announced as a whole (Launch::id 0), as sluiced does.
  void whole(VgpuId v, uint64_t length_ns, uint64_t predicted_ns, uint64_t preempt_ns = 0) {
    if (added.insert(v).second) call([&] { policy->on_vgpu_added(now, v, {}, out); });
    work[v] += length_ns;
    tell(v, predicted_ns, preempt_ns);
    call([&] { policy->on_arrival(now, v, out); });
  }
  void tell(VgpuId v, uint64_t predicted_ns, uint64_t preempt_ns = 0) {
    Launch l{.vgpu = v,
             .predicted_sm_ns = predicted_ns * sms,
             .run_predicted_sm_ns = predicted_ns * sms,
             .preempt_ns = preempt_ns};
    call([&] { policy->on_launch_queued(now, l, out); });
  }
  void job(VgpuId v, uint64_t length_ns) { submit(v, length_ns, length_ns); }

  // Runs for `ns`, in the policy's steps: wakes, ends of jobs, ends of evictions.
  void pass(uint64_t ns) {
    const uint64_t until = now + ns;
    for (int guard = 0; guard < 1'000'000; ++guard) {
      uint64_t next = until;
      if (wake_ns) next = std::min(next, std::max(wake_ns, now));
      if (evicted != kNoVgpu) next = std::min(next, left_ns);
      if (holder != kNoVgpu && work[holder] > 0) next = std::min(next, now + work[holder]);
      const uint64_t dt = next - now;
      now = next;
      if (holder != kNoVgpu) {
        const uint64_t did = std::min(dt, work[holder]);
        policy->on_usage(now, holder, {.sm_ns = dt * sms});
        used[holder] += dt;
        const bool ended = work[holder] > 0 && did == work[holder];
        work[holder] -= did;
        if (ended) {
          ends[holder] = now;
          const VgpuId v = holder;
          call([&] { policy->on_idle(now, v, out); });
          if (evicted == v) left_ns = now;
          continue;
        }
      }
      if (evicted != kNoVgpu && left_ns <= now) {
        const VgpuId v = evicted;
        evicted = holder = kNoVgpu;
        call([&] {
          policy->on_left(now, v, work[v] ? LeftReason::kEvicted : LeftReason::kIdle, out);
        });
        continue;
      }
      if (wake_ns && wake_ns <= now) {
        wake_ns = 0;
        call([&] { policy->on_wake(now, out); });
        continue;
      }
      if (now >= until) return;
    }
    FAIL() << "the policy spins";
  }

  template <class F>
  void call(F&& f) {
    out.clear();
    f();
    for (const Action& a : out) {
      switch (a.kind) {
        case Action::Kind::kRun:
          EXPECT_EQ(holder, kNoVgpu) << "run beside a holder";
          EXPECT_GT(work[a.vgpu], 0u) << "run without work";
          holder = a.vgpu;
          starts.push_back(holder);
          start_ns.push_back(now);
          break;
        case Action::Kind::kEvict:
          EXPECT_EQ(holder, a.vgpu);
          EXPECT_EQ(evicted, kNoVgpu);
          EXPECT_NE(a.next, a.vgpu) << "evicted for itself";
          evicted = a.vgpu;
          left_ns = now + (work[a.vgpu] ? drain_ns : 0);
          evictions += work[a.vgpu] > 0;
          break;
        case Action::Kind::kWake:
          EXPECT_GE(a.at_ns, now);
          wake_ns = a.at_ns;
          break;
        default:
          FAIL() << "a slice on an exclusive preemptor";
      }
    }
  }

  std::unique_ptr<Policy> policy;
  uint64_t sms;
  Actions out;
  uint64_t now = 1000 * kMs, wake_ns = 0, left_ns = 0, drain_ns = 0, launches = 0, evictions = 0;
  VgpuId holder = kNoVgpu, evicted = kNoVgpu;
  std::set<VgpuId> added;
  std::map<VgpuId, uint64_t> work, used, ends;
  std::vector<VgpuId> starts;
  std::vector<uint64_t> start_ns;
};

// A machine on which handing the GPU over costs 10 us.
inline Config cheap() {
  Config c;
  c.machine.handover_ns = 10 * kUs;
  return c;
}

}  // namespace sluice::policy
