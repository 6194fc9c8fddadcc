// SPDX-License-Identifier: Apache-2.0
// Managed memory: pinned memory of the shared region, at one address in the guest, the worker and
// the GPU. Nothing migrates: the GPU reads and writes it across the bus, at the bus's speed, and it
// counts against the region and not against the GPU's memory. Any thread.
#pragma once

#include <optional>

#include "abi/cuda_driver.h"

namespace sluice::guest {

// cuMemFree of what may be managed: nothing, it is not. Waits for the context's work.
std::optional<CUresult> free_managed(CUdeviceptr address);

}  // namespace sluice::guest
