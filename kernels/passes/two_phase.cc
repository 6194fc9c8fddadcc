// R23: as R22, for kernels that reduce over barriers themselves (bar.red).
//
// Threads that have returned cannot know which reduction the others make, and different ones must
// not meet in one phase. So every barrier becomes two: first "is anybody still running?" on barrier
// 0, then a count of true values on a barrier that the kernel does not use, to which threads that
// have returned add nothing. From the count follow all three reductions over the threads that are
// left: and = "nobody said false", or = "somebody said true", popc = the count.
#include <bit>

#include "kernels/passes/barriers.h"
#include "kernels/passes/clone.h"

namespace sluice::passes {

Finding split_barriers(Clone& clone) {
  if (Finding f = unaligned_barriers_missing(clone)) return f;
  const std::uint32_t free = ~(clone.in.facts.barrier_numbers | 1u) & 0xffffu;
  if (free == 0) return {"barrier-number", "uses all sixteen barriers"};
  const std::string second = std::to_string(std::countr_zero(free));
  clone.needs(Tier::kTwoPhase);
  clone.options.loose_lanes = true;
  clone.return_target = "~DRAIN";
  clone.start.line(".reg .pred \t%~any, %~gone;")
      .line(".reg .b32 \t%~votes;")
      .line("mov.pred \t%~gone, 0;");
  const std::string first = "barrier.red.or.pred \t%~any, 0, !%~gone;";
  for (const ptx::Statement* s : block_barriers(clone)) {
    const auto count = [&](const std::string& to, const std::string& value) {
      return "barrier.red.popc.u32 \t" + to + ", " + second + ", " + value + ";";
    };
    if (!ptx::has_modifier(s->opcode, "red")) {
      clone.replace(*s, {first, count("%~votes", "%~gone")});
      continue;
    }
    if (s->operands.size() != 3) return {"barrier-number", "has a barrier that is not understood"};
    const std::string to(s->operands[0]), value(s->operands[2]);
    const std::string opposite = value.starts_with('!') ? value.substr(1) : "!" + value;
    if (ptx::has_modifier(s->opcode, "popc")) {
      clone.replace(*s, {first, count(to, value)});
    } else if (ptx::has_modifier(s->opcode, "and")) {
      clone.replace(*s,
                    {first, count("%~votes", opposite), "setp.eq.u32 \t" + to + ", %~votes, 0;"});
    } else {
      clone.replace(*s, {first, count("%~votes", value), "setp.ne.u32 \t" + to + ", %~votes, 0;"});
    }
  }
  clone.end.label("~DRAIN")
      .line("barrier.red.or.pred \t%~any, 0, %~gone;")
      .line("@!%~any bra \t~TAIL;")
      .line("barrier.red.popc.u32 \t%~votes, " + second + ", %~gone;")
      .line("bra \t~DRAIN;");
  return {};
}

}  // namespace sluice::passes
