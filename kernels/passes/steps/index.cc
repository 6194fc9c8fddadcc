// SPDX-License-Identifier: Apache-2.0
// Rules block-index, returns, original-stays: the task's index for the block's, the loop's tail for
// returns, and no line information, whose labels must stay unique.
#include "kernels/passes/clone/block_index.h"
#include "kernels/passes/clone/clone.h"

namespace sluice::passes {

Finding replace_index(Clone& clone) {
  const IndexNames names{clone.in.prefix, clone.parameters, kLaunchGridOffsets};
  if (clone.return_target.empty() && clone.form == Form::kLoop) clone.return_target = "~TAIL";
  for (const ptx::Statement& s : clone.in.entry.statements) {
    if (s.kind == ptx::StatementKind::kDirective && s.opcode == ".loc") {
      clone.edits.remove(s.range);
      continue;
    }
    if (s.kind != ptx::StatementKind::kInstruction) continue;
    const std::string_view base = ptx::base_opcode(s.opcode);
    if (!clone.return_target.empty() && (base == "ret" || base == "exit")) {
      clone.replace(s, {"bra \t" + clone.return_target + ";"});
      continue;
    }
    if (std::string why = replace_block_index(clone.in.module, s, names, clone.edits); !why.empty())
      return {"index-use", std::move(why)};
  }
  return {};
}

}  // namespace sluice::passes
