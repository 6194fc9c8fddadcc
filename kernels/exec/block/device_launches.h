// SPDX-License-Identifier: Apache-2.0
// DeviceLaunches: what a kernel's launches of other kernels go to, and its questions (CUDA C++
// Programming Guide, "CUDA Dynamic Parallelism"). One per grid, owned by whoever runs grids; called
// by the threads that run its blocks, several at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

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
  // A copy or a fill of memory, in the order of the launches. A cudaError_t.
  virtual uint32_t copy(uint64_t to, uint64_t from, uint64_t bytes, uint64_t stream) = 0;
  virtual uint32_t fill(uint64_t to, uint8_t value, uint64_t bytes, uint64_t stream) = 0;
  // What a kernel asks about the GPU and its program's kernels, attributes by the driver API's
  // numbers. Nothing: there is no such attribute or kernel.
  virtual std::optional<int> device_attribute(int which) const = 0;
  virtual std::optional<int> kernel_attribute(uint64_t kernel, int which) const = 0;
  virtual std::optional<uint32_t> blocks_per_sm(uint64_t kernel, uint32_t block_threads,
                                                uint64_t shared_bytes) const = 0;
  virtual std::optional<uint64_t> limit(int which) const = 0;
  // From now on kernels can read what lies there, to the end of the process.
  virtual void show(std::string_view text) = 0;
  // The grid's last error; `take`: and there is none any more.
  virtual uint32_t error(bool take) = 0;
};

}  // namespace sluice::exec
