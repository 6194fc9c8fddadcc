// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's assembler says of a module, where one is at hand. Never needed.
//
// One thread; runs the given program as a child and reads what it prints.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace sluice::tool {

struct Resources {
  std::uint32_t registers = 0;
  std::uint64_t shared_bytes = 0;  // static
  std::uint64_t spill_bytes = 0;   // stores and loads
};

// Where ptxas is: $SLUICE_PTXAS, then the PATH, then /usr/local/cuda/bin. Empty: nowhere.
std::string find_assembler();

// By entry; empty where the assembler refuses the module. `target`: "sm_90a".
std::map<std::string, Resources> assemble(const std::string& assembler, const std::string& target,
                                          const std::string& ptx);

}  // namespace sluice::tool
