// SPDX-License-Identifier: Apache-2.0
// What a kernel's fault is to CUDA. Pure; any thread.
#pragma once

#include "abi/cuda_driver.h"
#include "kernels/exec/memory/fault.h"

namespace sluice::softgpu {

// The sticky error that a GPU reports for it.
CUresult to_result(exec::FaultKind kind);

}  // namespace sluice::softgpu
