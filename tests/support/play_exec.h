// SPDX-License-Identifier: Apache-2.0
// Plays a case of the suite's catalogue (kernels/suite/catalog/catalog.h) on the interpreter alone:
// places its buffers, does its steps, several blocks of a launch resident at a time and
// interleaved.
//
// For tests and benches; one thread. Owned by nobody: one call does all. Does not: rewrite, evict,
// or know of streams (see the rewriter's tests for players that do).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/exec/checker/checker.h"
#include "kernels/exec/program/program.h"
#include "kernels/suite/catalog/catalog.h"

namespace sluice::testing {

struct Played {
  std::string wrong;         // empty: every step worked and every result is right
  suite::Contents contents;  // of the buffers at the end
  std::uint64_t steps = 0;   // warp instructions
};

// Steps that a block runs before the next resident one has its turn.
inline constexpr std::uint64_t kTurn = 300;

// `program` is the case's module decoded (several cases share one); null: decodes work.ptx.
// `checker`: what the kernels are checked with; null: with nothing. It sees no uninitialised
// buffer.
Played play_on_exec(const suite::Case& work, std::shared_ptr<const exec::Program> program = nullptr,
                    std::uint32_t resident = 4, exec::Checker* checker = nullptr);

}  // namespace sluice::testing
