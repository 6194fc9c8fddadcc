// SPDX-License-Identifier: Apache-2.0
// SharingStrategy: how the GPU is shared. One object per scheduler, chosen by the GPU's description
// when the scheduler is made; it holds only what its own way of sharing needs.
//
//   Exclusive  one vGPU has the whole GPU at a time         strategies/exclusive.h
//   InSpace    several vGPUs, each on its set of SMs        strategies/in_space.h
//   Slices     several vGPUs, the hardware goes round       strategies/slices.h
//   Turns      one vGPU goes first, the hardware's          strategies/turns.h
//              priorities see to it
//
// Exclusive and Slices open and close whole vGPUs alike: strategies/whole_gpu.h.
// Owned by Sharing, one thread.
#pragma once

#include <cstdint>

#include "mediator/core/sharing/state.h"
#include "policies/policy.h"

namespace sluice::core {

struct Sharing;

class SharingStrategy {
 public:
  virtual ~SharingStrategy() = default;

  // The policy's actions. False: it asked for what cannot be.
  virtual bool run(uint64_t now_ns, const policy::Action& action, ActionQueue& out) = 0;
  virtual bool evict(uint64_t now_ns, const policy::Action& action, ActionQueue& out) = 0;
  virtual bool set_slice(const policy::Action&) { return false; }

  // Whether v's sessions may launch, as many as the crowd's rule allows.
  virtual bool gates_open(VgpuId v) const = 0;
  // Whether holds may last, so that v's sessions have to take turns within one (crowd.h).
  virtual bool rotates() const { return true; }
  // Grant words. Flags beside open and contended, and the set that belongs to SLUICE_GRANT_PART.
  virtual uint64_t extra_flags(VgpuId) const { return 0; }
  virtual SmSet granted_sms(VgpuId) const { return {}; }

  // Charging: SMs that v is charged for while it holds.
  virtual uint32_t charged_sms(VgpuId v) const = 0;
  virtual bool charges_by_clock() const { return true; }
  // ... else: what the policy is to hear of by the clock all the same (Policy::on_free_usage()).
  virtual void charge_alone(uint64_t /*now_ns*/) {}
  // Whose clock runs though it does not hold the GPU.
  virtual VgpuId runs_beside() const { return policy::kNoVgpu; }
  // Whether somebody waits for evicted vGPUs, so that they have a deadline.
  virtual bool has_deadlines() const { return true; }
  // Deadlines are as of now.
  virtual void settle_time(uint64_t /*now_ns*/) {}
  // v's session has kept the GPU until it was gone (Deadlines::take_stay_ns()).
  virtual void on_stayed(VgpuId) {}
  // A fault of v has stopped the GPU since `from_ns`: who pays.
  virtual void charge_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns) = 0;

  // What happens to vGPUs and sessions.
  virtual void on_vgpu_added(VgpuId) {}
  virtual void on_session_added(SessionId) {}
  // The last of v's sessions that had to leave has drained.
  virtual void on_drained(uint64_t now_ns, VgpuId v, ActionQueue& out) = 0;
  // `s` is gone; it is no more among its vGPU's sessions.
  virtual void on_session_removed(uint64_t now_ns, SessionId s, ActionQueue& out) = 0;
  virtual void on_launches_ended(VgpuId) {}
  // v has used the GPU, as its hardware tells. Returns what it is to be charged beyond that, SM-ns.
  virtual uint64_t on_used(uint64_t /*now_ns*/, VgpuId, uint64_t /*sm_ns*/) { return 0; }
  virtual void on_report(uint64_t, SessionId, ActionQueue&) {}
  // The policy's timer has come; the policy hears of it when the reports asked for here are in.
  virtual void before_wake(ActionQueue&) {}
  // Begins what can begin, after each event. False: nothing was to be done.
  virtual bool advance(uint64_t, ActionQueue&) { return false; }
  // When advance() has something to do by the clock alone.
  virtual uint64_t next_ns() const { return kNever; }

  virtual void fill(VgpuId, VgpuStats&) const {}
};

}  // namespace sluice::core
