// SPDX-License-Identifier: Apache-2.0
// A case of the suite's catalogue on the interpreter, original against clone: every launch runs in
// both forms from the same memory, the clone evicted at random, and all of memory must be the same
// after it. What the case's own reference says must hold at the end. For GoogleTest: failures are
// its assertions.
//
// SLUICE_EVICTION_ROUNDS=n: n runs of each clone, for 6. Prints at the end how often clones were
// evicted.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/suite/catalog/catalog.h"

namespace sluice::tool {

// An environment variable, or else what stands for it.
std::string setting(const char* name, const char* otherwise);
std::uint64_t number(const char* name, const char* otherwise);

void play_evicted(const suite::Case& work, std::uint64_t seed);

}  // namespace sluice::tool
