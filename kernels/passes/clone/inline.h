// SPDX-License-Identifier: Apache-2.0
// An entry with the functions that it calls written in place of the calls, for kernels whose called
// functions do what the loop's passes only understand in the entry itself: barriers and warp
// collectives that not all threads reach, an end of the thread, objects in shared memory, and the
// block's index read behind a call through a pointer (rules index-in-calls, returns).
//
// A function's body becomes a scope of its own, in which `ret` leads behind it. What is passed
// becomes a register where it is moved as a whole, otherwise local memory. Shared memory that a
// function declares exists once, so it becomes the entry's. A call through a pointer becomes a
// comparison with each function of that signature whose address the module takes; a pointer to none
// of them traps.
//
// Not written in place, and so no text at all: recursion, functions whose parameters are registers,
// whose parameters' address is taken, which declare variables that must stay where they are, or
// names that the module has as well; and what would become larger than the limits below. Pure and
// deterministic; one thread; refers to the module while it runs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/passes/analysis/facts.h"
#include "kernels/ptx/module.h"

namespace sluice::passes {

// A module's text can grow by every call within a call: what one kernel, and all of a module
// together, may become.
inline constexpr std::size_t kMostInlinedCalls = 2000;  // of one kernel
inline constexpr std::size_t kMostInlinedBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMostInlinedBytesOfModule = std::size_t{32} << 20;
// Text to be gone through for all of a module's kernels, those included for which it comes to
// nothing.
inline constexpr std::size_t kMostInliningWork = std::size_t{1} << 30;

// Whether the entry calls functions at all.
bool has_calls(const ptx::Function& entry);

// The entry's text from its linkage word to its `}` with its calls written in place; nothing where
// that is not possible, or where there is nothing to write in place. `prefix`: occurs nowhere in
// the module. `work` grows by what it took, in bytes of text, also where it came to nothing.
std::optional<std::string> inline_calls(const ptx::Module& module, const ModuleFacts& facts,
                                        const ptx::Function& entry, std::string_view prefix,
                                        std::size_t& work);

}  // namespace sluice::passes
