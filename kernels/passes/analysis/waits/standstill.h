// SPDX-License-Identifier: Apache-2.0
// Loops that stand still: nothing that decides where they go can change from one turn to the next
// unless somebody else writes to global memory. Such a loop waits, however plainly it reads
// (`ld.global.cg`, a plain load behind a barrier); a loop over data has a counter or an address
// that moves on.
//
// Pure; any thread. It errs towards "moves on": what is not understood does, and so does a loop
// that writes to global memory, perhaps to what it reads.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/ptx/cfg.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

// An access to memory that only the block itself sees, or that nobody writes: waiting on it is
// waiting for one's own threads.
bool block_internal(const ptx::Statement& s);

// `blocks`: those of one loop. The statements in it that read global memory, if it stands still;
// else none.
std::vector<std::uint32_t> reads_of_standstill(const ptx::Cfg& cfg, ptx::RegisterTable& registers,
                                               const std::vector<std::uint32_t>& blocks);

// Whether an operand of a statement in the loop has the same value in every turn of the loop:
// nothing in the loop writes its registers, but for arithmetic of what is the same itself.
bool same_every_turn(const ptx::Cfg& cfg, ptx::RegisterTable& registers,
                     const std::vector<std::uint32_t>& blocks, std::uint32_t statement,
                     std::string_view operand);
// The same, where loads from what the loop does not write count as the same: variables in a stack
// frame whose address goes elsewhere.
bool same_but_for_others(const ptx::Cfg& cfg, ptx::RegisterTable& registers,
                         const std::vector<std::uint32_t>& blocks, std::uint32_t statement,
                         std::string_view operand);

// Whether `operand` of `statement` is certain to come from what the loop itself has found or
// counted before: it is no constant of the loop, and no load that may find the same again.
bool moves_on(const ptx::Cfg& cfg, ptx::RegisterTable& registers,
              const std::vector<std::uint32_t>& blocks, std::uint32_t statement,
              std::string_view operand);

}  // namespace sluice::passes
