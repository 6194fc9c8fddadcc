// Directives and declarations outside instructions: whether everything in a module is understood.
// Internal to kernels/exec; part of decode(); pure.
#pragma once

#include "kernels/ptx/module.h"
#include "mediator/base/result.h"

namespace sluice::exec::detail {

// Names the first directive, or variable's type, that is not known, with its line: it could change
// what the code means.
Result<void> check_declarations(const ptx::Module& module);

}  // namespace sluice::exec::detail
