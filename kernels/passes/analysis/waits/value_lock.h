// SPDX-License-Identifier: Apache-2.0
// A value that is its own lock: to change it, a thread reads it, swaps it for a mark, and stores
// the new value. Others read again while they find the mark. That is no waiting for another task:
// the thread that put the mark there runs, and its task ends with a value in the place.
//
// Owner: find_waiting(), one function, one thread; refers to the control-flow graph. Errs towards
// waiting.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/passes/analysis/places.h"
#include "kernels/ptx/cfg.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

// Whether the load `load` in the loop `blocks` reads such a value. True only where
//   - it is read again only where it was the mark, or where the swap has failed,
//   - behind a swap that succeeded every path stores something else than the mark to the place,
//   - nothing else in the function can write to the place, before a swap has succeeded.
bool reads_value_lock(const ptx::Cfg& cfg, ptx::RegisterTable& registers, Sums& sums,
                      std::uint32_t load, const std::vector<std::uint32_t>& blocks);

}  // namespace sluice::passes
