// SPDX-License-Identifier: Apache-2.0
// WordSource: GPU time per vGPU from the words that streams and kernels write when a launch begins
// and ends (the report page of the kernel stub, abi/stub.h). Such words lie in the guest's own
// context, and a hostile kernel can forge them; so this is a hint for people and for charging more
// (usage_fusion.h), and its error is as large as what the mediator's own clock allows.
//
// Pure; one thread. Launches of one vGPU may overlap (several streams); the union of their times
// counts, since the vGPU's time, not its launches' times, is charged.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::accounting {

class WordSource {
 public:
  // [begin, end) of a launch as its words say, on the mediator's clock, while the mediator knows
  // that the vGPU was granted during [granted_ns, now_ns]. Launches are reported in the order of
  // their ends. What lies outside of the grant, or ends before it begins, is cut off.
  void on_launch(uint64_t guest_begin_ns, uint64_t guest_end_ns, uint64_t granted_ns,
                 uint64_t now_ns) {
    const uint64_t begin = std::clamp(guest_begin_ns, granted_ns, std::max(granted_ns, now_ns));
    const uint64_t end = std::clamp(guest_end_ns, granted_ns, std::max(granted_ns, now_ns));
    const uint64_t from = std::max(begin, covered_ns_);
    if (end > from) {
      used_ns_ += end - from;
      covered_ns_ = end;
    }
  }
  // The union of the launches' times so far. A begin that lies before an end reported earlier is
  // covered by it as far as known, so the union can be too small where launches of several streams
  // end out of order, never too large.
  uint64_t used_ns() const { return used_ns_; }

 private:
  uint64_t used_ns_ = 0, covered_ns_ = 0;
};

}  // namespace sluice::accounting
