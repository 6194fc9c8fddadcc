// SPDX-License-Identifier: Apache-2.0
// mbarrier objects and bulk copies of a kernel, and whether a block can clean up behind each task
// so that the next one finds its shared memory as a new block would (rule clean-up).
//
// What must not outlive a task, by the PTX ISA ("mbarrier", "Async proxy", "cp.async.bulk"): an
// mbarrier object that is valid, because the next task's mbarrier.init on it is undefined; a bulk
// copy that still reads shared memory; the order between the task's own accesses and the next
// task's bulk copies, which only a proxy fence makes. What the original's block must have waited
// for itself, because its shared memory ends with it, is not waited for again: copies into shared
// memory.
//
// An object can be tracked where its mbarrier.init stands in the entry, outside loops, at an
// address that is the same for all threads: then one statement makes one object in a task. Pure;
// any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/passes/analysis/finding.h"
#include "kernels/ptx/cfg.h"
#include "kernels/ptx/divergence.h"
#include "kernels/ptx/dominators.h"

namespace sluice::passes {

struct MemoryBarriers {
  bool any = false;                        // mbarrier objects
  bool bulk = false;                       // copies without threads, to or from shared memory
  std::vector<std::uint32_t> init, inval;  // statements
  Finding no_loop;                         // a block cannot clean up
};

// Instructions that have to do with mbarrier objects or bulk copies.
bool is_asynchronous(const ptx::Statement& s);
MemoryBarriers find_memory_barriers(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators,
                                    const ptx::Divergence& divergence);

}  // namespace sluice::passes
