#include "kernels/passes/barriers.h"

#include "kernels/passes/clone.h"
#include "kernels/passes/synchronisation.h"

namespace sluice::passes {

std::vector<const ptx::Statement*> block_barriers(const Clone& clone) {
  std::vector<const ptx::Statement*> found;
  for (const ptx::Statement& s : clone.in.entry.statements) {
    // Named or counted ones stay: facts.cc has made sure that all threads reach them.
    if (is_block_barrier(s, /*guarded=*/true)) found.push_back(&s);
  }
  return found;
}

Finding unaligned_barriers_missing(const Clone& clone) {
  if (clone.in.module.version() >= ptx::Module::Version{6, 0} && clone.in.module.sm() >= 70)
    return {};
  return {"barrier-old-target",
          clone.in.facts.divergent_barrier.text + ", and is for a GPU without barriers for that"};
}

}  // namespace sluice::passes
