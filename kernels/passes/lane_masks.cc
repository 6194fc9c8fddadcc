#include "kernels/passes/clone.h"

namespace sluice::passes {

Finding mask_lanes(Clone& clone) { return clone.in.facts.divergent_collective; }

}  // namespace sluice::passes
