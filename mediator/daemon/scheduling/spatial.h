// SPDX-License-Identifier: Apache-2.0
// scheduler.spatial: may vGPUs run side by side on this GPU, each on some of its SMs? Asked once,
// when sluiced starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mediator/base/result.h"
#include "mediator/daemon/setup/config.h"

namespace sluice {

// SMs of the GPU if scheduler.spatial is set, else 0. An error says why it cannot be and what to
// do: the policy gives the GPU whole, or contexts would take turns on it (the software GPU in
// another mode than mps, NVIDIA's without MPS). `environment`: the workers', NAME=value each.
Result<uint32_t> spatial_sms(const Config& config, bool nvidia,
                             const std::vector<std::string>& environment);

// The unit that they are given in, of `sms` of them (device.sm_unit). An error if it does not fit
// the GPU.
Result<uint32_t> spatial_unit(const Config& config, uint32_t sms);

}  // namespace sluice
