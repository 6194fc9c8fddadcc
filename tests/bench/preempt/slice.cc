// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/preempt/slice.h"

#include "kernels/passes/clone/block_index.h"
#include "kernels/ptx/edit.h"
#include "kernels/ptx/module.h"

namespace sluice::bench {

Result<std::string> add_slices(const std::string& ptx) {
  auto module = ptx::Module::parse(ptx);
  if (!module) return std::move(module).error();
  ptx::Edits slices;
  for (const ptx::Function& f : module->functions()) {
    if (!f.is_entry || !f.has_body || f.params.empty()) continue;
    ptx::Edits edits;
    const passes::IndexNames names{"slicing_", "slicing_grid", {0, 4, 8}};
    bool whole = true;
    for (const ptx::Statement& s : f.statements) {
      if (s.kind == ptx::StatementKind::kDirective && s.opcode == ".loc") edits.remove(s.range);
      if (s.kind != ptx::StatementKind::kInstruction) continue;
      whole &= passes::replace_block_index(*module, s, names, edits).empty();
    }
    if (!whole) continue;
    edits.replace(f.name_range, std::string(f.name) + kSliceSuffix);
    edits.insert(f.params.back().range.end, ",\n\t.param .align 4 .b8 slicing_grid[16]");
    edits.insert(f.body_range.begin + 1, R"(
	.reg .b32 %slicing_x, %slicing_y, %slicing_z, %slicing_g<3>, %slicing_n, %slicing_d;
	mov.u32 %slicing_n, %ctaid.x;
	ld.param.u32 %slicing_d, [slicing_grid+12];
	add.u32 %slicing_n, %slicing_n, %slicing_d;
	ld.param.u32 %slicing_d, [slicing_grid];
	rem.u32 %slicing_x, %slicing_n, %slicing_d;
	div.u32 %slicing_n, %slicing_n, %slicing_d;
	ld.param.u32 %slicing_d, [slicing_grid+4];
	rem.u32 %slicing_y, %slicing_n, %slicing_d;
	div.u32 %slicing_z, %slicing_n, %slicing_d;
)");
    slices.insert(f.range.end, "\n\n" + edits.apply(module->text(), f.range));
  }
  return slices.apply(module->text(), {0, static_cast<std::uint32_t>(module->text().size())});
}

}  // namespace sluice::bench
