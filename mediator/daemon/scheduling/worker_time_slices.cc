// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/worker_time_slices.h"

#include <algorithm>

namespace sluice {

uint64_t WorkerTimeSlices::set(pid_t worker, uint64_t slice_ns) {
  const uint64_t slice = std::clamp(slice_ns, kLeastNs, kMostNs);
  uint64_t& known = workers_[worker].slice_ns;
  if (known == slice) return 0;
  return known = slice;
}

void WorkerTimeSlices::look(uint64_t now_ns, bool now, const Works& works, const Used& used) {
  const uint64_t elapsed_ns = looked_ns_ == 0 ? 0 : now_ns - looked_ns_;
  if (!now && elapsed_ns < kLookNs && looked_ns_ != 0) return;
  looked_ns_ = now_ns;
  double turns_ns = 0;
  for (const auto& [pid, w] : workers_)
    if (w.works) turns_ns += static_cast<double>(w.slice_ns + switch_ns_);
  for (auto& [pid, w] : workers_) {
    if (w.works) {
      const double part = static_cast<double>(w.slice_ns + switch_ns_) / turns_ns;
      if (const auto ns = static_cast<uint64_t>(part * static_cast<double>(elapsed_ns)); ns != 0)
        used(pid, ns);
    }
    w.works = works(pid);
  }
}

}  // namespace sluice
