// SPDX-License-Identifier: Apache-2.0
// Exclusive: one vGPU has the whole GPU at a time.
//
//   policy runs v:    nobody holds -> v's gates open
//   policy evicts v:  v's gates close, its launches are evicted; when all sessions have drained
//                     the policy hears that the GPU is free
//
// Which of the holder's gates are open: crowd.h.
//
// Owned by Sharing as its strategy, one thread.
#pragma once

#include "mediator/core/sharing/hold_times.h"
#include "mediator/core/sharing/strategies/whole_gpu.h"

namespace sluice::core {

class Exclusive final : public WholeGpu {
 public:
  explicit Exclusive(Sharing& sharing) : WholeGpu(sharing) {}

  bool run(uint64_t now_ns, const policy::Action& action, ActionQueue& out) override;
  bool evict(uint64_t now_ns, const policy::Action& action, ActionQueue& out) override;
  void charge_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns) override {
    holds_.charge_stall(now_ns, v, stall_ns);
  }
  void on_vgpu_added(VgpuId v) override { holds_.on_vgpu_added(v); }
  bool rotates() const override { return false; }

 private:
  void on_opened(uint64_t now_ns, VgpuId v) override;
  void on_evicted_running(uint64_t evicted_at_ns) override { handover_since_ns_ = evicted_at_ns; }
  void on_freed(uint64_t now_ns) override;
  bool is_whole(const policy::Action& action) const;

  HoldTimes holds_{sharing_};
  uint64_t handover_since_ns_ = 0;  // 0: the GPU was not taken from anybody who used it
};

}  // namespace sluice::core
