// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/clone/barriers.h"

#include "kernels/passes/analysis/sync/synchronisation.h"
#include "kernels/passes/clone/clone.h"

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

void count_returned(Clone& clone) {
  clone.options.loose_lanes = true;
  clone.return_target = "~DRAIN";
  Emitter& start = clone.start;
  // {counter, counter} twice, then {votes, votes} twice (two_phase.cc).
  start.line(".reg .pred \t%~all;")
      .line(".reg .b32 \t%~phase, %~vote, %~mine, %~other, %~threads;");
  if (clone.options.dynamic_shared.empty()) {
    start.line(".shared .align 32 .b8 ~counts[" + std::to_string(SLUICE_PREEMPT_COUNT_BYTES) + "];")
        .line("mov.u32 \t%~phase, ~counts;");
  } else {
    start.line("mov.u32 \t%~phase, %dynamic_smem_size;")
        .line("mov.u32 \t%~mine, " + std::string(clone.options.dynamic_shared) + ";")
        .line("add.u32 \t%~phase, %~phase, %~mine;")
        .line("sub.u32 \t%~phase, %~phase, " + std::to_string(SLUICE_PREEMPT_DYNAMIC_BYTES - 15) +
              ";")
        .line("and.b32 \t%~phase, %~phase, -16;")
        .line("add.u32 \t%~phase, %~phase, " + std::to_string(SLUICE_PREEMPT_SHARED_BYTES) + ";");
  }
  start.line("mov.u32 \t%~mine, 0;")
      .line("st.shared.v4.u32 \t[%~phase], {%~mine, %~mine, %~mine, %~mine};")
      .line("add.u32 \t%~vote, %~phase, 16;")
      .line("st.shared.v4.u32 \t[%~vote], {%~mine, %~mine, %~mine, %~mine};");
  // The pairs are 8 bytes, aligned to 16, so bits 2 and 3 of an address select.
  for (const char* pair : {"%~phase", "%~vote"}) {
    if (pair[2] == 'v' && !clone.in.facts.sync.reduction) continue;
    const std::string p = pair;
    auto& lines = clone.options.before_task;
    lines.push_back("and.b32 \t" + p + ", " + p + ", -5;");
    lines.push_back("mov.u32 \t%~mine, 0;");
    lines.push_back("st.shared.v2.u32 \t[" + p + "], {%~mine, %~mine};");
    lines.push_back("xor.b32 \t" + p + ", " + p + ", 8;");
  }
  clone.end.label("~DRAIN")
      .line("mov.u32 \t%~threads, %ntid.x;")
      .line("mov.u32 \t%~mine, %ntid.y;")
      .line("mul.lo.u32 \t%~threads, %~threads, %~mine;")
      .line("mov.u32 \t%~mine, %ntid.z;")
      .line("mul.lo.u32 \t%~threads, %~threads, %~mine;")
      .line("atom.shared.add.u32 \t%~mine, [%~phase], 1;")
      .line("xor.b32 \t%~mine, %~phase, 4;")
      .line("ld.volatile.shared.u32 \t%~other, [%~mine];")
      .label("~DRAINED")
      .line("barrier.sync \t0;")
      .line("ld.volatile.shared.u32 \t%~mine, [%~phase];")
      .line("xor.b32 \t%~phase, %~phase, 4;")
      .line("add.u32 \t%~other, %~other, %~mine;")
      .line("setp.eq.u32 \t%~all, %~other, %~threads;")
      .line("mov.u32 \t%~other, %~mine;")
      .line("@!%~all bra \t~DRAINED;");
}

std::vector<std::string> shared_barrier() {
  return {"barrier.sync \t0;", "xor.b32 \t%~phase, %~phase, 4;"};
}

}  // namespace sluice::passes
