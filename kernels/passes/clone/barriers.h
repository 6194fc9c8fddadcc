// SPDX-License-Identifier: Apache-2.0
// What the passes over block-wide barriers share: counting the threads that have returned.
//
// A thread that has returned in the original counts at no barrier. In the clone it is still there,
// so it comes to every barrier as well, in a place of its own (DRAIN), until all threads of the
// block have come there; then the task is over.
//
// How the threads in DRAIN know: a counter in shared memory, which each thread that returns raises.
// All must read the same number, while others may be returning, so there are two: a thread that
// returns between barriers k and k+1 raises counter k mod 2, and behind barrier k+1 that one stands
// still. The other one's value is known from behind barrier k, when it stood still. Both together
// are the number of threads that returned before barrier k+1, the same for everybody.
// The next task has another pair, which everybody clears at the start of this one, when nobody uses
// it. `%~phase` is the address of the counter for threads that return now: bit 3 selects the pair,
// bit 2 the counter.
//
// Why not the obvious reduction over "I am still running" (barrier.red, rule unified-barriers): on
// an H200 (driver 580.159) the form without .aligned hangs or ends in an illegal instruction when
// lanes of one warp come to it from different places; barrier.sync is right there.
//
// Owner: one clone, one thread.
#pragma once

#include <vector>

#include "kernels/passes/clone/pass.h"

namespace sluice::passes {

// The entry's barriers of all threads on number 0, in order.
std::vector<const ptx::Statement*> block_barriers(const Clone& clone);
// A finding where the module's ISA version or target has no barrier for lanes that stand apart:
// PTX ISA, "bar, barrier": ISA 6.0 and sm_70.
Finding unaligned_barriers_missing(const Clone& clone);

// Counters, DRAIN, and returns that lead there.
void count_returned(Clone& clone);
// A plain barrier that threads in DRAIN come to as well.
std::vector<std::string> shared_barrier();

}  // namespace sluice::passes
