// SPDX-License-Identifier: Apache-2.0
// SLUICE_CHECK: our own invariants. Stays on in release builds and ends the process, because going
// on would be worse. Never used on anything that another process, a guest or the machine produced.
#pragma once

#include <cstdio>
#include <cstdlib>

#define SLUICE_CHECK(cond)                                                                        \
  do {                                                                                            \
    if (!(cond)) [[unlikely]] {                                                                   \
      std::fprintf(stderr, "sluice: broken invariant at %s:%d: %s\n", __FILE__, __LINE__, #cond); \
      std::abort();                                                                               \
    }                                                                                             \
  } while (0)
