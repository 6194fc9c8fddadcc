// Whether a form is possible at all: what no later pass can help with.
#include "kernels/passes/clone.h"

namespace sluice::passes {

Finding check_form(Clone& clone) {
  const KernelFacts& facts = clone.in.facts;
  if (facts.opaque) return facts.opaque;
  if (clone.in.module.address_size() != 64) return {"address-size", "has 32-bit addresses"};
  if (clone.in.module.sm() < 20) return {"target", "is for a target that is not known"};
  if (clone.form == Form::kLoop && facts.no_loop) return facts.no_loop;
  return {};
}

}  // namespace sluice::passes
