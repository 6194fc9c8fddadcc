// SPDX-License-Identifier: Apache-2.0
// Barrier numbers that stand in registers although they are constants: `__barrier_sync(0)` of a
// build without optimisation, once its call is written in place (inline.h). Rule numbered-barriers
// asks for numbers in the text.
//
// A register counts as a constant where it is written once in the whole function, by an unguarded
// move of a number or of such a register. Pure; any thread.
#pragma once

#include "kernels/ptx/edit.h"
#include "kernels/ptx/module.h"

namespace sluice::passes {

// Adds to `edits`, of the text of `module`, a number for each such operand of the function's
// barriers.
void write_barrier_numbers(const ptx::Module& module, const ptx::Function& function,
                           ptx::Edits& edits);

}  // namespace sluice::passes
