// SPDX-License-Identifier: Apache-2.0
// Limits of sluice-agent.
#pragma once

namespace sluice::guest::limits {

// Where no interrupt arrives, the pause between two polls of the control ring. While a program
// waits for its slot: longer would delay each start of a program by as much.
inline constexpr int kPollBusyMs = 1;
// Otherwise only the end of the vGPU is news. Shorter: an idle virtual machine wakes up more often;
// longer: a live detach waits for it.
inline constexpr int kPollIdleMs = 100;

}  // namespace sluice::guest::limits
