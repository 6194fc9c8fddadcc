// Finds loops that wait for another block or for the host: a block that waits for one that has not
// been given its ticket, or has left, would wait for ever.
//
// Pure; any thread. Undecidable in general, so it errs towards finding one: a loop counts as
// waiting if its end depends on a value that it reads from global memory in a way that sees other
// blocks' stores. Retry loops around compare-and-swap or exchange do not wait for a block's turn
// (R31).
#pragma once

#include <string>

#include "kernels/ptx/cfg.h"
#include "kernels/ptx/post_dominators.h"

namespace sluice::passes {

// A sentence for people, or empty: no such loop.
std::string find_spin_loop(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators);

}  // namespace sluice::passes
