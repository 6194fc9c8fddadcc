// SPDX-License-Identifier: Apache-2.0
// Riders: how long a round is beside vGPUs whose kernels go on behind closed gates. Pure; a rule of
// WfqSlices.
//
// A rider has the shortest slices, one for each of its contexts, and no gate stops it. So a round
// is to be so long that what it has in one is no more than its share. How many contexts it has is
// not known. So a round is long enough for one, and longer as long as the rider's lead grows. The
// lead counts its switches (Slices::on_used() of the scheduler).
#pragma once

#include <algorithm>
#include <cstdint>

#include "policies/wfq/slices/gpu.h"

namespace sluice::policy::slices {

struct RiderRounds {
  // Shortest turns that one leads by before a round grows for it. Less: a kernel that ends soon
  // makes slices longer. More: others wait for longer until they have their share.
  static constexpr double kFarAhead = 4;
  // How often a lead is checked: the log tells of use late, and a longer round takes time to act.
  static constexpr uint64_t kCheckNs = 100'000'000;
  // Quanta that it leads by, for a round to grow beyond one context's. Less: a rider with one has
  // as much from one round to the next.
  static constexpr double kFurther = 4;
  static constexpr double kGrows = 1.5, kShrinks = 0.9;

  // The least round for all riders that are far ahead; 0: there is none.
  static double least_ns(SlicedGpu& gpu, uint64_t now_ns, double weights) {
    double least_ns = 0;
    for (const VgpuId v : gpu.top)
      if (gpu.rides(now_ns, v) && gpu[v].lead_ns > kFarAhead * gpu.lengths.shortest_turn_ns())
        least_ns = std::max(least_ns, least_of(gpu, now_ns, v, weights));
    return least_ns;
  }

 private:
  static double least_of(SlicedGpu& gpu, uint64_t now_ns, VgpuId v, double weights) {
    SlicedVgpu& o = gpu[v];
    const double for_one_ns =
        SliceLengths::kSpare * gpu.lengths.shortest_turn_ns() * weights / gpu.share(v).weight;
    if (now_ns - o.ride_checked_ns >= kCheckNs) {
      const double round_ns = std::max(o.ride_round_ns, gpu.lengths.quantum_ns(1) * weights);
      const bool grows = o.lead_ns > std::max(o.ride_lead_ns, kFurther * gpu.quantum_ns(v));
      o.ride_round_ns = std::min(grows ? kGrows * round_ns : kShrinks * o.ride_round_ns,
                                 SliceLengths::kLongestForRidersNs);
      o.ride_lead_ns = o.lead_ns;
      o.ride_checked_ns = now_ns;
    }
    return std::max(o.ride_round_ns, for_one_ns);
  }
};

}  // namespace sluice::policy::slices
