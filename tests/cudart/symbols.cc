// SPDX-License-Identifier: Apache-2.0
// Prints the symbols of the table of libcudart.so.13, one in each line.
#include <cstdio>

#include "guest-agent/cudart/functions.h"

#define SLUICE_ONE(symbol, ...) std::puts(#symbol);
#define SLUICE_TWO(symbol, suffix, ...) std::puts(#symbol), std::puts(#symbol "_" #suffix);

int main() {
  SLUICE_CUDART_FUNCTIONS(SLUICE_ONE, SLUICE_TWO, SLUICE_ONE, SLUICE_TWO, SLUICE_ONE, SLUICE_TWO,
                          SLUICE_ONE)
}
