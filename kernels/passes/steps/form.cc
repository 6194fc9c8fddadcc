// SPDX-License-Identifier: Apache-2.0
// Whether a form is possible at all: what no later pass can help with.
#include "kernels/passes/clone/clone.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

namespace {

// What the module is for, and whether it means the same when it is raised to what clones need.
Finding check_target(const ptx::Module& module) {
  if (module.sm() == 0) return {"target", "is for a target that is not known"};
  // PTX ISA: f32 arithmetic flushes subnormal numbers on sm_1x, and nowhere else.
  if (module.sm() < 20)
    return {"target",
            "is for " + std::string(module.target()) + ", whose arithmetic no later target has"};
  if (module.version() >= kLeastVersion) return {};
  for (const ptx::Variable& v : module.variables()) {
    // PTX ISA, 3.1: a variable's name in an initialiser is its offset now, was its generic address.
    std::size_t at = 0;
    if (!v.initializer.empty() && !ptx::next_identifier(v.initializer, at).empty())
      return {
          "target",
          "has addresses in initialisers, which mean something else in ISA 3.1, which clones need"};
    if (v.space == ptx::Space::kReg || v.space == ptx::Space::kLocal)
      return {
          "target",
          "has registers or local memory of the module, which ISA 3.1, which clones need, has not"};
  }
  return {};
}

}  // namespace

Finding check_form(Clone& clone) {
  const KernelFacts& facts = clone.in.facts;
  if (facts.opaque) return facts.opaque;
  if (clone.in.module.address_size() != 64) return {"address-size", "has 32-bit addresses"};
  if (Finding why = check_target(clone.in.module)) return why;
  if (clone.form == Form::kLoop && facts.no_loop) return facts.no_loop;
  return {};
}

}  // namespace sluice::passes
