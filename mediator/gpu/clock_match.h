// SPDX-License-Identifier: Apache-2.0
// ClockMatch: the GPU's clock and the host's. Both count nanoseconds and drift apart by about one
// in a million; so the difference is measured now and then and taken as it was measured best.
//
// A measurement is the host's time before and after the GPU's was asked for. The GPU's lies
// between, so the narrowest of the last kKept tells most. Pure; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace sluice::gpu {

class ClockMatch {
 public:
  void measured(uint64_t before_ns, uint64_t gpu_ns, uint64_t after_ns) {
    if (after_ns < before_ns) return;
    kept_[count_++ % kKept] = {before_ns + (after_ns - before_ns) / 2, gpu_ns,
                               after_ns - before_ns};
  }
  bool known() const { return count_ != 0; }
  // On the host's clock.
  uint64_t host_ns(uint64_t gpu_ns) const {
    const auto end = kept_.begin() + static_cast<std::ptrdiff_t>(std::min(count_, kKept));
    const auto best = std::min_element(
        kept_.begin(), end, [](const auto& a, const auto& b) { return a.width_ns < b.width_ns; });
    return best == end ? 0 : best->host_ns + (gpu_ns - best->gpu_ns);
  }

 private:
  static constexpr size_t kKept = 8;
  struct Measurement {
    uint64_t host_ns = 0, gpu_ns = 0, width_ns = 0;
  };
  std::array<Measurement, kKept> kept_;
  size_t count_ = 0;
};

}  // namespace sluice::gpu
