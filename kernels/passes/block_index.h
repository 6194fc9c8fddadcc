// Replaces the hardware's block index and grid size in a clone's body by the task's (R7, R8).
//
// Pure but for the edits that it adds; one pass, one thread.
#pragma once

#include <string>
#include <string_view>

#include "kernels/ptx/edit.h"
#include "kernels/ptx/module.h"

namespace sluice::passes {

struct IndexNames {
  std::string_view prefix;      // of registers, "sluice1_": %<prefix>x, %<prefix>y, %<prefix>z hold
                                // the task's index; %<prefix>g0..2 and %<prefix>zero are scratch
  std::string_view parameters;  // name of the appended parameter block
};

// Edits one instruction. Returns the reason where a use of %ctaid or %nctaid is not understood,
// otherwise empty.
std::string replace_block_index(const ptx::Module& module, const ptx::Statement& statement,
                                const IndexNames& names, ptx::Edits& edits);

}  // namespace sluice::passes
