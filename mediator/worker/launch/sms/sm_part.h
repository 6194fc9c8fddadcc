// SPDX-License-Identifier: Apache-2.0
// A clone that is kept to a part of the GPU's SMs: how many hardware blocks, how many on each SM,
// and which SMs of a range have to be barred. Arithmetic only; any thread.
//
// Nothing says to a grid where to run: its blocks go where there is room, and those that come to an
// SM that is not the session's leave (SLUICE_LAUNCH_SPATIAL, abi/preempt.h). So more are launched
// than are to stay ("over-launch", as FLEP's spatial preemption needs it), and a quota on each SM
// keeps those that stay from crowding on one. Those that leave first wait until the others are in
// their places, or the ones behind them would be sent where they were; so as many as the whole GPU
// holds are always enough.
#pragma once

#include <cstdint>

#include "mediator/base/sm_set.h"

namespace sluice::worker {

// Blocks that are launched for each one that is to stay, were they spread evenly over all SMs,
// where that is less than the whole GPU holds. Fewer: SMs may stay empty until the next relaunch.
// More: each costs its start, about a microsecond of one SM's.
inline constexpr uint32_t kOverLaunch = 2;

struct Part {
  uint32_t lo = 0, hi = 0;  // the range that the SMs lie in
  uint32_t quota = 1;       // workers on each SM
  uint32_t workers = 1;     // that are to stay, at most
  uint32_t blocks = 1;      // to launch, the proxy not counted: never more than the GPU holds
  uint8_t tail_shift = 0;   // sluice_preempt_params.tail_shift
  SmSet barred;             // SMs of [lo, hi) that are not the session's
};
// `sms`: not empty, below `gpu_sms`. `per_sm`: blocks of the clone that one SM holds, at least 1.
// `chunks`: chunks of tickets that the launch has, at least 1. `most_blocks`: that may be launched.
Part plan_part(const SmSet& sms, uint32_t gpu_sms, uint32_t per_sm, uint32_t chunks,
               uint32_t most_blocks);

// Of a vGPU's SMs those that a green context of its guest has, which takes them for all of the
// GPU's: as many of `part` as `own` are of `gpu_sms`, and in the same places; pairs stay whole. At
// least one pair, where `part` and `own` have any.
SmSet share_of(const SmSet& own, const SmSet& part, uint32_t gpu_sms);

}  // namespace sluice::worker
