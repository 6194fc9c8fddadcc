// SPDX-License-Identifier: Apache-2.0
// A ptxas that assembles nothing: writes the machine code of fakes.h to where -o says.
//
//   --fail     exit status 3, no output
//   --abort    ends by a signal
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/jit/fakes.h"

int main(int argc, char** argv) {
  const char* output = "elf.o";
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--fail") == 0) return 3;
    if (std::strcmp(argv[i], "--abort") == 0) std::abort();
    if (std::strcmp(argv[i], "-o") == 0 && i + 1 < argc) output = argv[++i];
  }
  std::ofstream(output, std::ios::binary) << sluice::test::scale_machine_code();
  return 0;
}
