// The last pass: a kernel that no other pass could make evictable stays as it is. It is gated at
// launch or time-sliced by the hardware; the reason tells its owner why.
#include "kernels/passes/pass.h"

namespace sluice::passes {

Outcome run_opaque(const PassInput&) {
  return {{}, "no pass fits", Tier::kOpaque, SlotPlace::kNone};
}

}  // namespace sluice::passes
