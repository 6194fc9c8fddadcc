// SPDX-License-Identifier: Apache-2.0
// Prints the conformance modules' PTX: for ptxas, to look at, and as something to fuzz from.
//   dump_conformance_module [programs]     the single instructions, or the programs
#include <cstdio>
#include <cstring>

#include "tests/conformance/instructions.h"
#include "tests/conformance/programs.h"

int main(int argc, char** argv) {
  using namespace sluice::conformance;
  const bool programs = argc > 1 && std::strcmp(argv[1], "programs") == 0;
  const std::string text = programs ? programs_text(all_programs(1)) : module_text(all_cases());
  std::fwrite(text.data(), 1, text.size(), stdout);
}
