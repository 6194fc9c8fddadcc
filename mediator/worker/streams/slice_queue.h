// SPDX-License-Identifier: Apache-2.0
// SliceQueue: how many launches may be in flight where contexts share the GPU by time slices. A
// gate that closes holds back what has not been issued; what is in flight keeps running behind it,
// and takes slices from the vGPU whose turn it is.
//
//   the gate was not closed for kCalmNs   `depth`: what is in flight fills the slices
//   else                                  two, or as many as end within kAheadNs at the pace of
//                                         the launches before
//
// The pace is the fastest of the last kWindows windows, each of kWindowNs or one launch: in the
// others' slices nothing ends.
//
// Owned by StreamEngine; no lock of its own.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace sluice::worker {

class SliceQueue {
 public:
  static constexpr uint64_t kAheadNs = 2'000'000, kCalmNs = 50'000'000, kWindowNs = 1'000'000;
  static constexpr uint32_t kLeast = 2;
  explicit SliceQueue(uint32_t depth) : depth_(depth) { each_ns_.fill(kAheadNs); }

  bool allows(bool gate_is_open, uint64_t now_ns) {
    if (!gate_is_open) calm_from_ns_ = now_ns + kCalmNs;
    if (in_flight_ < kLeast || in_flight_ >= depth_) return in_flight_ < kLeast;
    if (now_ns >= calm_from_ns_) return true;
    return in_flight_ * *std::min_element(each_ns_.begin(), each_ns_.end()) < kAheadNs;
  }
  void add(uint64_t now_ns) {
    if (in_flight_++ == 0 && ended_ == 0) window_ns_ = now_ns;
  }
  void remove(uint64_t now_ns) {
    --in_flight_;
    ++ended_;
    if (now_ns - window_ns_ < kWindowNs) return;
    each_ns_[next_++ % kWindows] = (now_ns - window_ns_) / ended_;
    window_ns_ = now_ns;
    ended_ = 0;
  }
  void clear() { in_flight_ = 0; }

 private:
  static constexpr size_t kWindows = 4;
  const uint32_t depth_;
  uint32_t in_flight_ = 0, ended_ = 0;  // ended_: in the window
  uint64_t window_ns_ = 0, calm_from_ns_ = 0;
  std::array<uint64_t, kWindows> each_ns_;
  size_t next_ = 0;
};

}  // namespace sluice::worker
