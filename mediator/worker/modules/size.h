// SPDX-License-Identifier: Apache-2.0
// What a module of PTX will take before the driver has seen it: device memory of its variables and
// code, host memory of the worker.
//
// Pure functions of a guest's text, linear in its length. They never say less than the driver
// takes: what they cannot size they refuse, and what may be a variable is counted as one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::worker {

// Bytes of all `.global` and `.const` variables, padded to their alignment. No value: the size of
// one is unknown, overflows, or the text has preprocessor directives.
std::optional<uint64_t> variable_bytes(std::string_view ptx);

// Whether a `.global` or `.const` is declared. Where a text is laid out oddly: yes.
bool declares_variables(std::string_view ptx);

struct ModuleBytes {
  // Variables, and code, which takes no more than its text (16 bytes an instruction, and few lines
  // of PTX are shorter). No value as above.
  std::optional<uint64_t> device;
  // What the worker keeps for a module: copies, compiled forms, tables. Measured with the software
  // GPU, whose decoded programs are the larger ones.
  uint64_t host = 0;
};
ModuleBytes module_bytes(std::string_view ptx);

// Host memory for machine code.
uint64_t cubin_host_bytes(std::string_view image);

}  // namespace sluice::worker
