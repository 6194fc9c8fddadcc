// SPDX-License-Identifier: Apache-2.0
// WholeTimes: how long a kernel's launches take that run as the original, whole, by the number of
// their blocks: one figure for each power of two.
//
//   nobody else waits    the mean of about the last kMean launches. One that took more than half as
//                        long again may have run beside others until just now: it grows by
//                        1/kQuickGrowth
//   others wait          the time may hold that of others' blocks, so the shortest counts. It grows
//                        by 1/kGrowth with each launch: a kernel that has become longer is known to
//                        be in time. Of two in a row the longer one: if an end is seen late, the
//                        next launch seems to have begun late, and to be short
//
// Owned by a LaunchVariant, used under the session's lock. Times are ns of the GPU.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

namespace sluice::worker {

class WholeTimes {
 public:
  static constexpr uint64_t kMean = 4, kGrowth = 64, kQuickGrowth = 8;

  // 0: not known.
  uint64_t expected_ns(uint32_t tasks) const { return of_[place(tasks)]; }
  void observe(uint32_t tasks, uint64_t ns, bool contended) {
    uint64_t& of = of_[place(tasks)];
    ns = std::clamp<uint64_t>(ns, 1, kLongestNs);
    // The first one may have waited for others: the second counts by itself.
    const uint64_t longer = std::max(ns, std::exchange(before_[place(tasks)], of == 0 ? 0 : ns));
    if (of == 0)
      of = ns;
    else if (contended)
      of = std::min(longer, of + of / kGrowth + 1);
    else if (ns > of + of / 2)
      of += of / kQuickGrowth + 1;
    else
      of = (of * (kMean - 1) + ns) / kMean;
  }

 private:
  static constexpr uint64_t kLongestNs = 1ull << 50;
  static size_t place(uint32_t tasks) { return static_cast<size_t>(std::bit_width(tasks)); }
  std::array<uint64_t, 33> of_{}, before_{};  // before_: the last one's time
};

}  // namespace sluice::worker
