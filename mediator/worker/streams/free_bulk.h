// SPDX-License-Identifier: Apache-2.0
// FreeBulk: how much a session may copy within the device and fill without a grant. Such work runs
// on the GPU as kernels do, and a program that did nothing else would never need one: neither its
// weight nor anybody's wait would stand against it. What an ordinary program does between launches
// goes at once; more waits for a grant and is charged (OpKind::kBulk).
//
// Owned by the session, under its lock. No clock: time is an argument.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::worker {

class FreeBulk {
 public:
  // In all, and what comes back. More: a program without a grant takes more of the GPU (64 MiB/s
  // are 0.01 % of an H200's memory). Less: small copies of idle programs wait for a hand-over.
  static constexpr uint64_t kBytes = 16u << 20;
  static constexpr uint64_t kBytesPerSecond = 64u << 20;
  // What the least of them costs, as it takes some microseconds whatever its size: 256 a second of
  // a session, 4 % of a GPU in all 64 of a vGPU.
  static constexpr uint64_t kLeastBytes = 256u << 10;

  // True: this many go without a grant, now.
  bool take(uint64_t now_ns, uint64_t bytes) {
    const double earned = static_cast<double>(now_ns - at_ns_) * 1e-9 * kBytesPerSecond;
    left_ = std::min<double>(kBytes, left_ + earned);
    at_ns_ = now_ns;
    const auto cost = static_cast<double>(std::max(bytes, kLeastBytes));
    if (cost > left_) return false;
    left_ -= cost;
    return true;
  }

 private:
  double left_ = kBytes;
  uint64_t at_ns_ = 0;
};

}  // namespace sluice::worker
