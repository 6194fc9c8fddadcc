// SPDX-License-Identifier: Apache-2.0
// A compiler's machine code with the PTX that it was made of (kernels/cubin/attach.h), and PTX out
// of what compilers are given. Pure but for the log; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::jit {

// SLUICE_JIT=off: nothing is attached, compilers answer as they are.
bool attaching();

// Empty: the code stays as it is; the log says why. `maker`: for the log.
std::string with_ptx(std::string_view machine_code, std::string_view ptx, const char* maker);

// PTX that a linker's or an assembler's input is or carries: text, a cubin with its PTX, a fat
// binary's for a GPU not beyond compute capability `newest`. Empty: none.
std::string ptx_of_input(std::string_view input, uint32_t newest);

}  // namespace sluice::jit
