// Fat binaries: the containers in which nvcc puts code for several GPUs. Finds the PTX that the
// software GPU would choose in one.
//
// Pure; any thread. The image is the caller's own memory, but what it says is bounded before use.
#pragma once

#include <cstdint>
#include <string>

#include "mediator/base/result.h"

namespace sluice::softgpu {

// Whether the four bytes begin a fat binary, or the wrapper that programs register.
bool is_fat_binary(uint32_t magic);

// The PTX for the newest GPU not beyond compute capability `newest` (90: 9.0). Errors have a CUresult
// as code: nothing but machine code in it (by which GPUs), or a compression that this build cannot
// undo.
Result<std::string> ptx_of_fat_binary(const void* image, uint32_t newest);

}  // namespace sluice::softgpu
