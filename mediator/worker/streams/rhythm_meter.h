// SPDX-License-Identifier: Apache-2.0
// RhythmMeter: for how long a worker has launches to run each time, and none in between: means of
// the last ones, of which each counts for an eighth. sluiced, which hears nothing of a vGPU that
// has the GPU alone, reads them when another one comes.
//
// Owned by Gate; no lock of its own.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::worker {

class RhythmMeter {
 public:
  // Longer gaps and bursts count as that.
  static constexpr uint64_t kLongestNs = 1'000'000'000;

  void begin(uint64_t now_ns) {
    if (changed_ns_ != 0) note(gap_ns_, now_ns);
    changed_ns_ = now_ns;
  }
  void end(uint64_t now_ns) {
    note(burst_ns_, now_ns);
    changed_ns_ = now_ns;
  }
  uint64_t burst_ns() const { return burst_ns_; }
  uint64_t gap_ns() const { return gap_ns_; }
  uint64_t changed_ns() const { return changed_ns_; }

 private:
  void note(uint64_t& mean_ns, uint64_t now_ns) const {
    const uint64_t ns = std::clamp<uint64_t>(now_ns - changed_ns_, 1, kLongestNs);
    mean_ns = mean_ns == 0 ? ns : std::max<uint64_t>((mean_ns * 7 + ns) / 8, 1);
  }

  uint64_t changed_ns_ = 0;  // when it began or ended last; 0: never
  uint64_t burst_ns_ = 0, gap_ns_ = 0;
};

}  // namespace sluice::worker
