// SPDX-License-Identifier: Apache-2.0
// Launches that graphs keep and queue later (graphs/driver.h). Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "guest-agent/graphs/driver.h"

namespace sluice::guest {

using graphs::KernelLaunch;

// Fills in the rest of `to` (its function, sizes, flags) from a program's arguments; what CUDA
// refuses at a launch is refused here. In the current context.
CUresult keep_launch(KernelLaunch* to, void** params, void** extra);
// The bits of sluice_launch that attributes ask for. `events` (null: such attributes are refused)
// gets the events recorded behind the launch.
CUresult flags_of_attributes(const CUlaunchAttribute* attributes, size_t count, uint64_t* flags,
                             std::vector<CUevent>* events);
// Pointers to each parameter within the packed ones.
std::vector<void*> parameter_pointers(const KernelLaunch& launch);
// The same refusals once more, after a launch's attributes have changed.
CUresult check_kept(const KernelLaunch& launch);
// Queues it in `stream`; its context is current.
CUresult run_launch(const KernelLaunch& launch, CUstream stream);

}  // namespace sluice::guest
