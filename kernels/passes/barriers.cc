#include "kernels/passes/barriers.h"

#include "kernels/passes/clone.h"

namespace sluice::passes {

std::vector<const ptx::Statement*> block_barriers(const Clone& clone) {
  std::vector<const ptx::Statement*> found;
  for (const ptx::Statement& s : clone.in.entry.statements) {
    if (s.kind != ptx::StatementKind::kInstruction) continue;
    const std::string_view base = ptx::base_opcode(s.opcode);
    if ((base != "bar" && base != "barrier") || ptx::has_modifier(s.opcode, "warp")) continue;
    const bool reduces = ptx::has_modifier(s.opcode, "red");
    const std::size_t id = reduces ? 1 : 0;
    std::uint64_t number = 0;
    if (s.operands.size() != (reduces ? 3u : 1u) ||
        !ptx::parse_integer(s.operands[id], number) || number != 0)
      continue;  // named or counted: facts.cc has made sure that all threads reach it
    found.push_back(&s);
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
