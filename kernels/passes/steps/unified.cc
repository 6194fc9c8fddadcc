// SPDX-License-Identifier: Apache-2.0
// Rule unified-barriers: early returns between, around and inside loops with block-wide barriers.
//
// Returns lead to a place where the thread goes on coming to the block's barriers until all threads
// are there (barriers.h says how that is known). All barriers of the kernel change to the form that
// is not .aligned: the lanes of one warp stand at different places (PTX ISA, "bar, barrier").
#include "kernels/passes/clone/barriers.h"
#include "kernels/passes/clone/clone.h"

namespace sluice::passes {

Finding unify_barriers(Clone& clone) {
  if (Finding f = unaligned_barriers_missing(clone)) return f;
  clone.needs(Tier::kUnified);
  count_returned(clone);
  for (const ptx::Statement* s : block_barriers(clone)) clone.replace(*s, shared_barrier());
  return {};
}

}  // namespace sluice::passes
