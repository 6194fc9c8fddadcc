// SPDX-License-Identifier: Apache-2.0
// The vGPU's device without VFIO: BAR0 and BAR2 are mapped from sysfs. For virtual machines without
// an IOMMU. No interrupt arrives: the agent and the programs poll.
//
// Exclusive use is by flock(2) of resource2. The lock belongs to the open file, which programs
// share: a second agent gets the device only when the first one and all its programs have ended,
// as with VFIO's group. Owned by sluice-agent; one thread.
#pragma once

#include <string>

#include "guest-agent/agent/vgpu_device.h"

namespace sluice::guest {

// Opens and maps `d.address`. The error's code is a DeviceProblem.
Result<void> open_by_sysfs(VgpuDevice& d, const std::string& sysfs);

}  // namespace sluice::guest
