// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/targets.h"

namespace sluice::fuzz {

void require(bool holds, const char* what, std::string_view detail) {
  if (holds) return;
  std::fprintf(stderr, "property broken: %s: %.*s\n", what, static_cast<int>(detail.size()),
               detail.data());
  std::abort();
}

}  // namespace sluice::fuzz
