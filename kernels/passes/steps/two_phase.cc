// SPDX-License-Identifier: Apache-2.0
// Rule two-phase: as rule unified-barriers, for kernels that reduce over barriers themselves
// (bar.red).
//
// Threads that have returned cannot take part in a reduction of which they do not know, and the
// hardware's does not bear lanes that stand apart (barriers.h). So each reduction becomes a count
// of true values in shared memory between two barriers. From the count follow all three reductions
// over the threads that are left: and = "nobody said false", or = "somebody said true", popc = the
// count.
//
//   count += value;  barrier;  result = count;  the other count = 0;  barrier;  use the other next
//
// The count that is cleared was read before the first of the two barriers and is raised behind the
// second. Like the counters of returned threads, each task has a pair of its own.
#include "kernels/passes/clone/barriers.h"
#include "kernels/passes/clone/clone.h"

namespace sluice::passes {

Finding split_barriers(Clone& clone) {
  if (Finding f = unaligned_barriers_missing(clone)) return f;
  clone.needs(Tier::kTwoPhase);
  count_returned(clone);
  clone.start.line(".reg .b32 \t%~votes;");
  for (const ptx::Statement* s : block_barriers(clone)) {
    if (!ptx::has_modifier(s->opcode, "red")) {
      clone.replace(*s, shared_barrier());
      continue;
    }
    const std::string to(s->operands[0]);
    std::string value(s->operands[2]);
    const bool all = ptx::has_modifier(s->opcode, "and");
    // "and": counts those that say false.
    bool negated = all;
    if (value.starts_with('!')) {
      negated = !negated;
      value = value.substr(1);
    }
    std::vector<std::string> lines = {
        std::string("selp.u32 \t%~votes, ") + (negated ? "0, 1, " : "1, 0, ") + value + ";",
        "atom.shared.add.u32 \t%~mine, [%~vote], %~votes;", "barrier.sync \t0;",
        "ld.volatile.shared.u32 \t%~votes, [%~vote];", "xor.b32 \t%~vote, %~vote, 4;",
        "mov.u32 \t%~mine, 0;", "st.volatile.shared.u32 \t[%~vote], %~mine;",
        // Two barriers: the parity of the returned threads' counters is what it was.
        "barrier.sync \t0;"};
    if (ptx::has_modifier(s->opcode, "popc"))
      lines.push_back("mov.b32 \t" + to + ", %~votes;");
    else
      lines.push_back((all ? "setp.eq.u32 \t" : "setp.ne.u32 \t") + to + ", %~votes, 0;");
    clone.replace(*s, lines);
  }
  return {};
}

}  // namespace sluice::passes
