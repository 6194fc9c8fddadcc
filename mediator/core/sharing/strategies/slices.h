// SPDX-License-Identifier: Apache-2.0
// Slices: the GPU shares itself by time slices (a proportional preemptor). Several vGPUs hold it at
// once, the hardware goes round among their contexts, and the policy sets each one's slice.
//
//   - The gate of a backlogged vGPU is open while its slice is not 0. With 0 it is *gated*: its
//     gate closes and its launches are evicted, but nobody waits for that: it has no deadline.
//   - An idle vGPU's gate is closed while another is backlogged, so that it rings when it has work
//     again. A vGPU that has the GPU alone keeps it open, unless the policy is to hear of each of
//     its launches (Policy::hears_at_once()).
//   - A new slice stops whoever runs, and the hardware begins its round again (the switch log of an
//     H200): who is last in it has nothing if that happens more often than a round takes. So slices
//     change together, and then not before all that have work have run, or kLongestRoundNs.
//   - The slice is a vGPU's; its backlogged sessions that may launch (crowd.h) share it.
//   - What sessions without a part of the slice had begun runs on in the shortest slices (rides()).
//     Their switches are charged to their vGPU, since others lose them.
//   - Holding time says nothing of used time, so use is measured by the caller (on_used()). For a
//     vGPU that is alone that comes late: what the policy wants to hear at once is charged by the
//     clock, until all that the vGPU had begun has left.
//
// Owned by Sharing as its strategy, one thread. All vGPUs are checked after each event.
#pragma once

#include <vector>

#include "mediator/core/sharing/strategies/whole_gpu.h"

namespace sluice::core {

class Slices final : public WholeGpu {
 public:
  explicit Slices(Sharing& sharing) : WholeGpu(sharing) {}

  bool run(uint64_t, const policy::Action&, ActionQueue&) override { return false; }
  bool evict(uint64_t, const policy::Action&, ActionQueue&) override { return false; }
  bool set_slice(const policy::Action& action) override;
  bool charges_by_clock() const override { return false; }
  bool has_deadlines() const override { return false; }
  void charge_alone(uint64_t now_ns) override;
  uint64_t on_used(uint64_t now_ns, VgpuId v, uint64_t sm_ns) override;
  void charge_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns) override;
  void on_vgpu_added(VgpuId v) override {
    reset_record(slice_ns_, v);
    reset_record(rides_until_ns_, v);
    reset_record(used_at_ns_, v);
    reset_record(round_, v);
  }
  void on_session_added(SessionId s) override { reset_record(session_slice_ns_, s); }
  bool advance(uint64_t now_ns, ActionQueue& out) override;

 private:
  void on_opened(uint64_t, VgpuId) override {}
  void on_freed(uint64_t) override {}
  bool round_is_over(uint64_t now_ns) const;
  bool may_set(uint64_t now_ns);
  void divide_slice(uint64_t now_ns, VgpuId v, uint64_t slice_ns, ActionQueue& out);
  bool rides(VgpuId v, SessionId s);

  VgpuId alone() const;

  // Slices of one round of a vGPU: that of those that may launch, and how many ride.
  struct Round {
    uint64_t slice_ns = 0;
    uint32_t riders = 0;
  };
  // The shortest slice where the machine does not say: the software GPU's.
  static constexpr uint64_t kShortestNs = 50'000;
  static constexpr uint64_t kEndsNs = 50'000'000, kJustNow = ~0ull;
  static constexpr uint64_t kLongestRoundNs = 300'000'000;

  // By VgpuId, of ran_ns_: what it had begun before its slice became 0 keeps that slice until then.
  std::vector<uint64_t> rides_until_ns_;
  size_t leaving_ = 0;              // vGPUs, at the last event
  std::vector<uint64_t> slice_ns_;  // by VgpuId, as the policy set it; 0: gated
  uint64_t set_ns_ = 0;             // when a slice was set last
  uint64_t asked_ns_ = ~0ull;       // may_set_ is of then
  bool may_set_ = false;
  std::vector<Round> round_;          // by VgpuId, at the last event
  std::vector<uint64_t> used_at_ns_;  // by VgpuId: when it was last told that it has run
  // How long somebody with an open gate had work, until the last event, and whether since then.
  uint64_t ran_ns_ = 0, event_ns_ = 0;
  bool runs_ = false;
  std::vector<uint64_t> session_slice_ns_;       // by SessionId, as last set; 0: not yet
  VgpuId alone_ = policy::kNoVgpu;               // since the last event, charged until alone_to_ns_
  uint64_t alone_to_ns_ = 0, contended_ns_ = 0;  // ... when several had work last
};

}  // namespace sluice::core
