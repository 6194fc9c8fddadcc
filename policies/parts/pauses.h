// SPDX-License-Identifier: Apache-2.0
// Short pauses, kept from a policy that gives parts of the GPU where a change of somebody's SMs is
// expensive (Machine::change_ns): a vGPU that turns idle, and that usually is back soon, keeps its
// SMs. To the policy it stays backlogged, and it is charged for what it holds: otherwise pausing
// would be a way to hold SMs for nothing.
//
// What it costs to give the SMs of one that pauses to others and then back: all who are concerned,
// so up to the whole GPU, stand still for a change's length, twice. What it costs to wait: its SMs'
// time. So it is waited for
//     2 * change * (SMs of the GPU) / (SMs that it holds), at most kLongestPauseNs
// (ski rental: never more than twice what the better of the two would have cost), unless it came
// back later than that more often than not; three times one after the other are enough. Now and
// then it is waited for longer, up to kLongestPauseNs, for half of handover_loss of the GPU's time:
// a single long pause among short ones shall not cost it its set. While nobody else has work there
// is nothing to decide, and no timer. Where those that pause hold all SMs and somebody waits for
// one, the GPU idles as a whole: that may take kIdleLoss of the time (Idling), as in the other
// forms of wfq.
#pragma once

#include <memory>

#include "policies/policy.h"

namespace sluice::policy {

// `inner` itself if config.machine.change_ns is 0. `config`: what it was made with.
std::unique_ptr<Policy> keep_pauses(const Config& config, std::unique_ptr<Policy> inner);

}  // namespace sluice::policy
