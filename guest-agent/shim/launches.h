// Launches that run later: checked and packed when they are made, queued as often as wanted. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "abi/cuda_driver.h"

namespace sluice::guest {

struct KernelLaunch {
  CUfunction function = nullptr;  // or a CUkernel
  uint32_t grid[3] = {}, block[3] = {}, shared_bytes = 0;
  uint64_t flags = 0;    // of sluice_launch
  uint64_t context = 0;  // where it runs, whichever is current then
  std::vector<std::byte> params;
  std::vector<CUlaunchAttribute> attributes;  // as the program gave them; `flags` has what counts of them
};

// Fills in the rest of `to` (its function, sizes, flags) from a program's arguments; what CUDA refuses at a
// launch is refused here. In the current context.
CUresult keep_launch(KernelLaunch* to, void** params, void** extra);
// The bits of sluice_launch that attributes ask for. `events` (may be null: such attributes are refused) gets
// what is to be recorded behind the launch.
CUresult flags_of_attributes(const uint32_t grid[3], const CUlaunchAttribute* attributes, size_t count,
                             uint64_t* flags, std::vector<CUevent>* events);
// Pointers to each parameter within the packed ones, as CUDA's parameter arrays have them; they hold as long as
// `launch.params` stays where it is.
std::vector<void*> parameter_pointers(const KernelLaunch& launch);
// The same refusals once more, after what counts of a launch's attributes has changed.
CUresult check_kept(const KernelLaunch& launch);
// Queues it in `stream`; its context is current.
CUresult run_launch(const KernelLaunch& launch, CUstream stream);

}  // namespace sluice::guest
