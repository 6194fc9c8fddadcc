// SPDX-License-Identifier: Apache-2.0
// Bursts of vGPUs of class low on a GPU in time slices. A burst begins when such a vGPU comes back
// after a pause with more than a visitor would use, and its credit pays for it: its share of the
// time, pauses included, up to two latency targets, and one target at most. It ends when the credit
// is used up.
#pragma once

#include <algorithm>
#include <cstdint>

#include "policies/wfq/slices/gpu.h"

namespace sluice::policy::slices {

inline bool bursts(const SlicedGpu& gpu, VgpuId v) {
  return gpu[v].in_burst && gpu[v].credit_ns > 0;
}

// v comes; its habit still has when it came the last time.
inline void begin_burst(SlicedGpu& gpu, uint64_t now_ns, VgpuId v) {
  const VgpuShare& share = gpu.share(v);
  const Habit& habit = gpu.habit(v);
  const double soon_ns = gpu.lengths.soon_ns();
  const double part = static_cast<double>(share.weight) /
                      static_cast<double>(std::max<int64_t>(gpu.clock.weight(share.priority), 1));
  const double most = std::min(2 * part, 1.0) * static_cast<double>(gpu.config.latency_target_ns);
  double& credit_ns = gpu[v].credit_ns;
  credit_ns = std::min(credit_ns + part * static_cast<double>(now_ns - habit.came_ns), most);
  gpu[v].in_burst = gpu.lengths.free_alone() && share.latency == LatencyClass::kLow &&
                    habit.burst_ns >= soon_ns && habit.gap_ns >= soon_ns &&
                    credit_ns >= habit.burst_ns;
}

}  // namespace sluice::policy::slices
