// Prints the conformance module's PTX: for ptxas, and to look at.
#include <cstdio>

#include "tests/conformance/instructions.h"

int main() {
  const std::string text = sluice::conformance::module_text(sluice::conformance::all_cases());
  std::fwrite(text.data(), 1, text.size(), stdout);
}
