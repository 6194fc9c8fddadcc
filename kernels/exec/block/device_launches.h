// SPDX-License-Identifier: Apache-2.0
// DeviceLaunches: what a kernel's launches of other kernels go to (CUDA C++ Programming Guide,
// "CUDA Dynamic Parallelism"). One per grid, owned by whoever runs grids; called by the threads
// that run its blocks, several at once.
#pragma once

#include <cstdint>

#include "kernels/exec/memory/fault.h"

namespace sluice::exec {

class DeviceLaunches {
 public:
  virtual ~DeviceLaunches() = default;
  // Where the kernel writes the parameters of such a launch; `kernel` is an address in
  // kKernelWindow. 0: it cannot be launched, error() says why.
  virtual uint64_t parameters(uint64_t kernel, Dim3 grid, Dim3 block, uint32_t shared_bytes) = 0;
  // Launches what has its parameters there. A cudaError_t.
  virtual uint32_t launch(uint64_t parameters, uint64_t stream) = 0;
  // The grid's last error; `take`: and there is none any more.
  virtual uint32_t error(bool take) = 0;
};

}  // namespace sluice::exec
