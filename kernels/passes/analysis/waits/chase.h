// SPDX-License-Identifier: Apache-2.0
// Loops that follow what they read from place to place: to a list's next element, to a tree's
// parent, up to the root of a set. However the places are read, nobody is waited for: each turn
// looks somewhere else.
//
// Owner: find_waiting(), one function, one thread; refers to the control-flow graph. A shape, not a
// proof: that the places form no circle is taken for granted.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ptx/cfg.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

// Whether each way round the loop `blocks`, from load `load` back to it,
//   - makes the load's next address of the value that it has read, by moves and sums, or
//   - goes past a compare-and-swap that has failed, with what is not the same in every turn: then
//     somebody else has got through.
// False where that is not known.
bool chases(const ptx::Cfg& cfg, ptx::RegisterTable& registers, std::uint32_t load,
            const std::vector<std::uint32_t>& blocks);

}  // namespace sluice::passes
