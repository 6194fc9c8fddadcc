// SPDX-License-Identifier: Apache-2.0
// ptxas, started by a program (Triton, XLA): the machine code that it writes gets its PTX.
//
// Programs start ptxas from where their packages have it, and it inherits LD_PRELOAD. So this
// library is in its process, too: at its start it forks, the child is ptxas as ever, and the parent
// attaches the PTX to what the child has written and ends with its status.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::jit {

// What a command line of ptxas asks for.
struct Assembly {
  std::string input;   // the PTX file
  std::string output;  // of machine code; empty: nothing to attach to
};
// Without an output where there are several inputs, or the output is to be linked (-c).
Assembly assembly_of(const std::vector<std::string>& arguments);

// Whether the program with this path is ptxas.
bool is_assembler(std::string_view executable);

// In ptxas's process, before its main(): returns in the child, or where there is nothing to do.
void supervise_assembler();

}  // namespace sluice::jit
