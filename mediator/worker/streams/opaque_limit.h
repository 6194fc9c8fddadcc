// SPDX-License-Identifier: Apache-2.0
// OpaqueLimit: how many launches that cannot be evicted may be in flight. A vGPU that waits for the
// GPU waits for all of them.
//
//   not contended    `depth`
//   contended        one, or as many as are expected to take `contended_ns` together
//
// On time slices slice_queue.h decides instead, and with a `contended_ns` of 0 it has to agree.
//
// Owned by StreamEngine; no lock of its own. Times are ns of the GPU.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::worker {

class OpaqueLimit {
 public:
  OpaqueLimit(uint32_t depth, uint64_t contended_ns) : depth_(depth), contended_ns_(contended_ns) {}

  // `expected_ns`: what the launch takes; 0: not known, which counts as much as all may take.
  bool allows(uint64_t expected_ns, bool contended) const {
    if (in_flight_ == 0) return true;
    if (in_flight_ >= depth_) return false;
    return !contended ||
           (contended_ns_ != 0 && expected_ns_ + counted_ns(expected_ns) <= contended_ns_);
  }
  void add(uint64_t expected_ns) {
    ++in_flight_;
    expected_ns_ += counted_ns(expected_ns);
  }
  void remove(uint64_t expected_ns) {
    --in_flight_;
    expected_ns_ -= counted_ns(expected_ns);
  }
  uint32_t in_flight() const { return in_flight_; }
  void clear() { in_flight_ = 0, expected_ns_ = 0; }

 private:
  uint64_t counted_ns(uint64_t ns) const {
    return ns == 0 ? contended_ns_ : std::min(ns, contended_ns_);
  }

  uint32_t depth_;
  uint64_t contended_ns_;
  uint32_t in_flight_ = 0;
  uint64_t expected_ns_ = 0;  // of them together
};

}  // namespace sluice::worker
