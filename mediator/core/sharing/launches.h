// SPDX-License-Identifier: Apache-2.0
// LaunchForecast: what the policy hears of launches. For each vGPU all that its sessions have
// queued, together (policy.h, Launch::id 0), because the gate that is opened and closed is a whole
// vGPU's.
//
// The lengths are hints: core/progress.h reads them from records that a worker and its kernels
// write. Launches without a prediction (opaque ones, kernels not seen before, more than there are
// records) count with the mean that the vGPU's launches took so far by the scheduler's own clock.
//
// Owned by Sharing, one thread. Does nothing for a policy that does not go by launches.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mediator/core/sharing/state.h"

namespace sluice::core {

struct Sharing;

class LaunchForecast {
 public:
  LaunchForecast(Sharing& sharing, bool in_use) : sharing_(sharing), in_use_(in_use) {}

  void reset_vgpu(VgpuId v) { reset_record(vgpus_, v); }
  void forget_vgpu(VgpuId v);
  void reset_session(SessionId s) { reset_record(hints_, s); }
  bool in_use() const { return in_use_; }

  void accept(SessionId s, const std::optional<LaunchHints>& hints);
  // Reports what v has queued to the policy, if that has changed.
  void report(uint64_t now_ns, VgpuId v, ActionQueue& out);
  // The same for one vGPU whose hints have changed. False: there is none.
  bool report_due(uint64_t now_ns, ActionQueue& out);
  // A busy time begins or ends: the mean length of v's launches is measured over it.
  void on_busy(uint64_t now_ns, VgpuId v);
  void on_idle(uint64_t now_ns, VgpuId v);
  // The longest launch that v has queued, alone on the whole GPU; 0: none is predicted.
  uint64_t longest_ns(VgpuId v) const;
  uint64_t reported_sm_ns(VgpuId v) const { return vgpus_[v].reported_sm_ns; }

 private:
  struct Forecast {
    bool due = false;                                        // its hints have changed
    uint64_t reported_sm_ns = 0, reported_preempt_ns = 0;    // since it turned busy
    double mean_launch_sm_ns = 0;                            // 0: none has ended yet
    uint64_t charged_at_start_sm_ns = 0, done_at_start = 0;  // when the busy time began
  };
  void begin_interval(VgpuId v, uint64_t launches_done);
  uint64_t launches_done(VgpuId v) const;

  Sharing& sharing_;
  const bool in_use_;
  std::vector<Forecast> vgpus_;     // by VgpuId
  std::vector<LaunchHints> hints_;  // by SessionId; checked and clipped
  std::vector<VgpuId> due_;
};

}  // namespace sluice::core
