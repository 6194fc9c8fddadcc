// SPDX-License-Identifier: Apache-2.0
// WasteMeter: GPU time that nobody uses while gates are shut is charged to vGPUs whose gates are
// open: to claim work costs what having it would. Pure; part of WfqSlices.
//
// While some gates are shut, an open one keeps its slice's part of the GPU, and so does a vGPU that
// others wait for to leave. Beside turns of those that stay (stay_turns.h) a visitor keeps nothing:
// the GPU is the holder's. What all of them keep, beyond what is seen to be used, what switches
// cost and what a log reports late, is waste. Each pays for it by what it has kept lately and not
// used, beyond what the log may tell yet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "policies/wfq/slices/gpu.h"

namespace sluice::policy::slices {

class WasteMeter {
 public:
  explicit WasteMeter(SlicedGpu& gpu) : gpu_(gpu) {}

  // v has become backlogged; gpu.busy has it.
  void on_arrival(uint64_t now_ns, VgpuId v) {
    gpu_[v].kept_from_ns = now_ns;
    if (gpu_.busy.size() == 2) contended_since_ns_ = now_ns;
  }
  void on_use(VgpuId v, double used_ns) {
    if (open_slices_ns_ <= 0 && kept_ns_ <= 0) return;
    gpu_[v].seen_ns += used_ns;
    seen_ns_ += used_ns;
  }
  // A round has begun: slices and gates are as they will be in it.
  void begin_round() {
    open_slices_ns_ = 0;
    if (gpu_.gated == 0) return;  // nobody is kept from the GPU
    for (const VgpuId v : gpu_.busy) open_slices_ns_ += gpu_.kept_slice_ns(v);
  }
  // v's open gate has kept its slice's part of the GPU until now.
  void keep(uint64_t now_ns, VgpuId v) {
    SlicedVgpu& o = gpu_[v];
    const uint64_t from_ns = std::max(std::exchange(o.kept_from_ns, now_ns), contended_since_ns_);
    if (gpu_.busy.size() < 2 || open_slices_ns_ <= 0) return;
    o.kept_ns += static_cast<double>(now_ns - from_ns) *
                 std::min(gpu_.kept_slice_ns(v) / open_slices_ns_, 1.0);
  }
  // Until now some gates were open, and others wanted the GPU too.
  void pass(uint64_t now_ns) {
    const uint64_t from_ns = std::exchange(passed_ns_, now_ns);
    if (gpu_.busy.size() > 1 && open_slices_ns_ > 0)
      kept_ns_ += static_cast<double>(now_ns - from_ns);
  }
  // The round is over. The waste is charged to the vGPUs that kept the GPU from others.
  void charge(uint64_t now_ns) {
    pass(now_ns);
    for (const VgpuId v : gpu_.busy) keep(now_ns, v);
    if (kept_ns_ < kWindowNs) return;
    const double bearable_ns = (1 - gpu_.lengths.work_part() + kBearable) * kept_ns_;
    const double waste_ns = kept_ns_ - seen_ns_ - bearable_ns - slack_ns_;
    slack_ns_ = std::clamp(-waste_ns, 0.0, kLateNs);
    const double own_bearable = gpu_.stay_turns ? kVisitors : 0;
    double all_unused_ns = 0;
    for (const VgpuId v : gpu_.busy) {
      SlicedVgpu& o = gpu_[v];
      const double unused_ns =
          (1 - own_bearable) * std::exchange(o.kept_ns, 0) - std::exchange(o.seen_ns, 0);
      o.unused_ns = kStays * o.unused_ns + unused_ns;
      o.unused_ns = std::max(o.unused_ns, -kLateNs);
      all_unused_ns += beyond_late_ns(o);
    }
    if (waste_ns > 0 && all_unused_ns > 0) {
      for (const VgpuId v : gpu_.busy) {
        SlicedVgpu& o = gpu_[v];
        const double own_ns =
            std::min(beyond_late_ns(o), waste_ns * beyond_late_ns(o) / all_unused_ns);
        o.unused_ns -= own_ns;
        gpu_.clock.charge(v, static_cast<uint64_t>(kCosts * own_ns * gpu_.sms()));
      }
    }
    kept_ns_ = seen_ns_ = 0;
  }

 private:
  static double beyond_late_ns(const SlicedVgpu& v) {
    return std::max(v.unused_ns - kOwnLateNs, 0.0);
  }
  // Of what one keeps that stays, so much may be visitors' and their switches'.
  static constexpr double kVisitors = 0.25;
  static constexpr double kStays = 0.9;       // of what one had not used, in the next window
  static constexpr double kOwnLateNs = 10e6;  // what the log tells late of one
  static constexpr double kCosts = 2;         // of what use costs
  static constexpr double kWindowNs = 20e6;   // charge() waits for so much of the GPU, ...
  static constexpr double kBearable = 0.1;    // ... of which so much may be lost beyond switches
  // What a log reports late, or more, and a machine that stands still for a moment.
  static constexpr double kLateNs = 30e6;

  SlicedGpu& gpu_;
  uint64_t contended_since_ns_ = 0;   // two vGPUs or more are backlogged since then
  uint64_t passed_ns_ = 0;            // kept_ns_ is known until then
  double open_slices_ns_ = 0;         // all open slices as the last round began
  double kept_ns_ = 0, seen_ns_ = 0;  // of all vGPUs
  double slack_ns_ = kLateNs;         // waste that is borne yet
};

}  // namespace sluice::policy::slices
