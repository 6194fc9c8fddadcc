// SPDX-License-Identifier: Apache-2.0
// How many rounds a random test runs. Under sanitizers a round takes ten times as long, so they run
// a fifth of them; where SLUICE_ALL_ROUNDS is set (scripts/test --all) they run all.
#pragma once

#include <cstdlib>

namespace sluice {

template <class Number>
Number rounds(Number all) {
#ifdef __SANITIZE_ADDRESS__
  if (std::getenv("SLUICE_ALL_ROUNDS") == nullptr) return all / 5;
#endif
  return all;
}

}  // namespace sluice
