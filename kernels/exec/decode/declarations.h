// SPDX-License-Identifier: Apache-2.0
// Directives and declarations outside instructions: whether everything in a module is understood.
// Internal to kernels/exec; part of decode(); pure.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/ptx/module.h"
#include "mediator/base/result.h"

namespace sluice::exec::detail {

// What is wrong with the text, and where.
Error at_line(uint32_t line, const std::string& what);

// Names the first directive, or variable's type, that is not known, with its line: it could change
// what the code means. Of the module by itself, and of a function without its statements.
Result<void> check_declarations(const ptx::Module& module);
Result<void> check_declarations(const ptx::Function& function);

}  // namespace sluice::exec::detail
