// SPDX-License-Identifier: Apache-2.0
// BoundedWait: for how long launches wait for something that is being made. The bound is of all
// waiting since it was last there, whatever it is that is waited for: a set of SMs may change
// faster than contexts can be made. A wait that nobody has asked about for that long is over, and
// the next question begins another. Not locked.
#pragma once

#include <cstdint>

namespace sluice::worker {

class BoundedWait {
 public:
  explicit BoundedWait(uint64_t most_ns) : most_ns_(most_ns) {}

  // It is not there. Whether to wait for it.
  bool asked(uint64_t now_ns) {
    if (since_ns_ == 0 || now_ns - asked_ns_ > most_ns_) since_ns_ = now_ns;
    asked_ns_ = now_ns;
    return now_ns - since_ns_ < most_ns_;
  }
  // It is there.
  void over() { since_ns_ = 0; }

 private:
  const uint64_t most_ns_;
  uint64_t since_ns_ = 0;  // 0: nothing is waited for
  uint64_t asked_ns_ = 0;
};

}  // namespace sluice::worker
