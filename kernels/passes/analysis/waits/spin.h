// SPDX-License-Identifier: Apache-2.0
// Finds loops that wait for another block or for the host: a block that waits for one that has not
// been given its ticket, or has left, would wait for ever.
//
// Pure; any thread. Undecidable in general, so it errs towards finding one: a loop counts as
// waiting if its end depends on a value that it reads from global memory in a way that sees other
// blocks' stores. Retry loops around compare-and-swap or exchange do not wait for a block's turn
// (rule in-order).
//
// A wait is one for a *lower task* where the address that it polls is the block's index, or a
// ticket that the kernel drew itself, less something: the shape of decoupled look-back (Merrill and
// Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016) and of chained scans.
// Tickets are drawn in order and every drawn ticket is run, so such a wait ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "kernels/ptx/cfg.h"
#include "kernels/ptx/dominators.h"
#include "kernels/ptx/value_flow.h"

namespace sluice::passes {

enum class SpinLoops : std::uint8_t { kNone, kLowerTasks, kUnknown };

struct Waiting {
  SpinLoops spins = SpinLoops::kNone;
  // With kLowerTasks: what is waited for is lower only where the grid is one row. CUB numbers its
  // blocks down the columns, x * gridDim.y + y, and launches one row.
  bool one_row = false;
  std::string why;  // with kUnknown: a sentence for people
  // A loop whose end depends on a counter in global memory that it advances itself: the kernel
  // hands out its own work, so it is persistent already.
  bool fetches_work = false;
};
// What a call of this operand (a name, or a register) may do, by itself or by what it calls; empty:
// none does.
struct Callees {
  std::function<bool(std::string_view)> polls;  // reads what other blocks write
  std::function<bool(std::string_view)>
      reads;  // reads global memory, which is that in a loop with a fence
  std::function<bool(std::string_view)> orders;  // has a fence, or sleeps
  // Whether a variable of this name is the module's own and only ever read: data, not a flag.
  std::function<bool(std::string_view)> constant;
};
// `flow`: the function's, where it is known.
Waiting find_waiting(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators,
                     const Callees& callees = {}, const ptx::ValueFlow* flow = nullptr);
// The same of one instruction.
bool may_poll(const ptx::Statement& statement);
bool may_read(const ptx::Statement& statement);
bool may_touch(const ptx::Statement& statement);  // reads, or swaps, or copies from global memory
bool orders_memory(const ptx::Statement& statement);
bool hands_on(const ptx::Statement& statement);  // writes what other threads or callers may read

}  // namespace sluice::passes
