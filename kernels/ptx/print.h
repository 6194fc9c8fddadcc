// SPDX-License-Identifier: Apache-2.0
// From a Module back to text: the very bytes it was parsed from, put together from its items and
// statements, so that what the structure lost would be missing.
//
// Pure; any thread. Changing text is Edits' work (kernels/ptx/edit.h).
#pragma once

#include <string>

#include "kernels/ptx/module.h"

namespace sluice::ptx {

// Items and statements in order, each with the bytes before it. An error, with its place, where the
// bytes between two of them are more than white space and comments: then a statement was lost,
// which is our own fault and shown by tests.
Result<std::string> print(const Module& module);

// A listing for people: one line per statement with its kind, line, scope, guard, opcode, operands.
std::string list_statements(const Function& function);

}  // namespace sluice::ptx
