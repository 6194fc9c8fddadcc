// SPDX-License-Identifier: Apache-2.0
// Replaces the hardware's block index and grid size in a clone's body by the task's (rule
// block-index).
//
// Pure but for the edits that it adds; one pass, one thread.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "abi/preempt.h"
#include "kernels/ptx/edit.h"
#include "kernels/ptx/module.h"

namespace sluice::passes {

// Where grid_x, grid_y, grid_z stand in the appended parameter block.
inline constexpr std::array<std::size_t, 3> kLaunchGridOffsets = {
    offsetof(sluice_preempt_params, grid_x), offsetof(sluice_preempt_params, grid_y),
    offsetof(sluice_preempt_params, grid_z)};

struct IndexNames {
  std::string_view prefix;      // of registers, "sluice1_": %<prefix>x, %<prefix>y, %<prefix>z hold
                                // the task's index; %<prefix>g0..2 are scratch
  std::string_view parameters;  // the parameter that holds the logical grid, at these offsets
  std::array<std::size_t, 3> grid_offsets;
};

// Edits one instruction. Returns the reason where a use of %ctaid or %nctaid is not understood,
// otherwise empty.
std::string replace_block_index(const ptx::Module& module, const ptx::Statement& statement,
                                const IndexNames& names, ptx::Edits& edits);

}  // namespace sluice::passes
