// SPDX-License-Identifier: Apache-2.0
// How many rounds a test runs. Under sanitizers a round takes ten times as long, so random tests
// run a fifth of them there; long simulations run a sample of their cases. Where SLUICE_ALL_ROUNDS
// is set (scripts/test --all) all tests run all.
#pragma once

#include <cstddef>
#include <cstdlib>

#include "tests/support/sanitizers.h"

namespace sluice {

inline bool runs_all() { return std::getenv("SLUICE_ALL_ROUNDS") != nullptr; }

template <class Number>
Number rounds(Number all) {
#ifdef SLUICE_ADDRESS_SANITIZER
  if (!runs_all()) return all / 5;
#endif
  return all;
}

// Whether case `k` of a table of like cases runs: under sanitizers every fifth does.
inline bool runs(size_t k) { return k % (5 / rounds<size_t>(5)) == 0; }

// Whether case `k` of a table of like cases is in the sample of one in `of`; all are where all
// rounds run.
inline bool in_sample(size_t k, size_t of) { return runs_all() || k % of == 0; }

}  // namespace sluice
