// SPDX-License-Identifier: Apache-2.0
// Launches of kernels, once it is known which. Needs a context. Any thread.
#pragma once

#include "guest-agent/cudart/driver.h"
#include "guest-agent/cudart/types.h"

namespace sluice::cudart {

cudaError_t launch(CUkernel kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                   cudaStream_t stream);

}  // namespace sluice::cudart
