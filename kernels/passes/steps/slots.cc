// SPDX-License-Identifier: Apache-2.0
// Rule slot-place: where the loop's broadcast slots stand.
//
// Static shared memory where the kernel uses no dynamic shared memory. Otherwise the end of it,
// because new static memory would move its base, on whose alignment kernels rely. The same where
// static memory has no room, and where parameters or memory say where shared memory is: nothing may
// move then.
#include <algorithm>

#include "kernels/passes/clone/clone.h"

namespace sluice::passes {

namespace {

// What ptxas accepts (PTX ISA: 48 KiB of static shared memory).
constexpr std::uint64_t kMaxStaticSharedBytes = 48 * 1024;

}  // namespace

Finding place_slots(Clone& clone) {
  const KernelFacts& facts = clone.in.facts;
  const bool room = facts.shared.static_bytes + 2 * kSlotBytes <= kMaxStaticSharedBytes;
  // All such arrays begin at one address, so one of the module's serves where only the body has a
  // name for it.
  const bool of_body =
      std::any_of(clone.in.entry.variables.begin(), clone.in.entry.variables.end(),
                  [&](const ptx::Variable& v) { return v.name == facts.shared.dynamic; });
  if (facts.shared.dynamic.empty() && room && !facts.shared.given) {
    clone.slot = SlotPlace::kStatic;
  } else if (!facts.shared.dynamic.empty() && !of_body) {
    clone.slot = SlotPlace::kDynamicEnd;
    clone.options.dynamic_shared = facts.shared.dynamic;
  } else {
    clone.slot = SlotPlace::kDynamicEnd;
    clone.own_dynamic_shared = clone.name("~dynamic") + std::to_string(clone.in.number);
    clone.options.dynamic_shared = clone.own_dynamic_shared;
    clone.module_scope += ".extern .shared .align 16 .b8 " + clone.own_dynamic_shared + "[];\n\n";
  }
  if (!facts.shared.reads_dynamic_size || clone.slot == SlotPlace::kStatic) return {};

  // The kernel sees what its launch asked for.
  clone.start.line(".reg .b32 \t%~asked;")
      .line("mov.u32 \t%~asked, %dynamic_smem_size;")
      .line("sub.u32 \t%~asked, %~asked, " + std::to_string(SLUICE_PREEMPT_DYNAMIC_BYTES) + ";");
  for (const ptx::Statement& s : clone.in.entry.statements) {
    if (s.kind != ptx::StatementKind::kInstruction) continue;
    for (std::string_view operand : s.operands) {
      if (operand.find("%dynamic_smem_size") == operand.npos) continue;
      if (operand != "%dynamic_smem_size")
        return {"shared-size", "reads the size of its shared memory in an unusual way"};
      clone.edits.replace(clone.range_of(operand), clone.name("%~asked"));
    }
  }
  if (facts.function_reads_dynamic_size)
    return {"shared-size", "calls a function that reads the size of its shared memory"};
  return {};
}

}  // namespace sluice::passes
