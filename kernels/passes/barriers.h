// What the passes over block-wide barriers share. Pure; any thread.
#pragma once

#include <vector>

#include "kernels/passes/pass.h"

namespace sluice::passes {

// The entry's barriers of all threads on number 0, in order.
std::vector<const ptx::Statement*> block_barriers(const Clone& clone);
// A finding where the module's ISA version or target has no barrier for lanes that stand apart:
// PTX ISA, "bar, barrier": ISA 6.0 and sm_70.
Finding unaligned_barriers_missing(const Clone& clone);

}  // namespace sluice::passes
