// SPDX-License-Identifier: Apache-2.0
// ExpectedVisits: which vGPUs have visited the GPU lately, or had a burst (burst.h), by latency
// class, and how long the slices of others may therefore be. Pure; part of WfqSlices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "policies/wfq/slices/gpu.h"

namespace sluice::policy::slices {

class ExpectedVisits {
 public:
  explicit ExpectedVisits(const SlicedGpu& gpu) : gpu_(gpu) {}

  void note(uint64_t now_ns, VgpuId v) {
    Visits& visits = of(gpu_.share(v).latency);
    if (visits.last != v) visits.other = visits.last, visits.other_ns = visits.last_ns;
    visits.last = v, visits.last_ns = now_ns;
  }
  // v is of another class now.
  void forget(VgpuId v) {
    Visits& visits = of(gpu_.share(v).latency);
    if (visits.last == v)
      visits.last = std::exchange(visits.other, kNoVgpu), visits.last_ns = visits.other_ns;
    if (visits.other == v) visits.other = kNoVgpu;
  }
  // The longest slice that v may have for the sake of expected visitors: 0.1 ms for class low, 1 ms
  // for normal. One of a higher priority waits for it as one of class low does.
  uint64_t longest_slice_ns(uint64_t now_ns, VgpuId v) const {
    const SliceLengths& lengths = gpu_.lengths;
    if (!lengths.free_alone()) return lengths.ceiling_ns();
    if (expects(now_ns, v, LatencyClass::kLow, Of::kAnyPriority) ||
        expects(now_ns, v, LatencyClass::kNormal, Of::kHigherPriority) ||
        expects(now_ns, v, LatencyClass::kBatch, Of::kHigherPriority))
      return lengths.expecting_low_ns();
    if (expects(now_ns, v, LatencyClass::kNormal, Of::kAnyPriority))
      return lengths.beside_normal_ns();
    return lengths.ceiling_ns();
  }

 private:
  enum class Of : uint8_t { kAnyPriority, kHigherPriority };
  // The last that visited, and the last that was another.
  struct Visits {
    VgpuId last = kNoVgpu, other = kNoVgpu;
    uint64_t last_ns = 0, other_ns = 0;
  };
  static constexpr uint64_t kExpectedNs = 1'000'000'000;

  Visits& of(LatencyClass latency) { return visits_[static_cast<size_t>(latency)]; }
  bool expects(uint64_t now_ns, VgpuId v, LatencyClass latency, Of of) const {
    const Visits& visits = visits_[static_cast<size_t>(latency)];
    const auto soon = [&](VgpuId who, uint64_t since_ns) {
      return who != kNoVgpu && who != v && !gpu_[who].stays && now_ns - since_ns < kExpectedNs &&
             (of == Of::kAnyPriority || gpu_.share(who).priority > gpu_.share(v).priority);
    };
    return soon(visits.last, visits.last_ns) || soon(visits.other, visits.other_ns);
  }

  const SlicedGpu& gpu_;
  std::array<Visits, 3> visits_;
};

}  // namespace sluice::policy::slices
