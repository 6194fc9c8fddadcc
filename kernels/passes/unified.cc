// R22: early returns between, around and inside loops with block-wide barriers.
//
// A thread that has returned in the original counts at no barrier. In the clone it is still there,
// so it comes to every barrier as well, in a place of its own (DRAIN), and says that it is done:
// each barrier becomes a reduction over "I am still running". Where the answer is no, all threads
// have returned and the task is over.
//
//   bar.sync 0   ->  barrier.red.or.pred ANY, 0, TRUE
//   ret          ->  bra DRAIN
//   DRAIN:           barrier.red.or.pred ANY, 0, FALSE;  @ANY bra DRAIN;
//
// None of them may be of the aligned form: the lanes of one warp stand at different places (PTX
// ISA, "bar, barrier"). All barriers of the kernel change, because reductions and plain barriers
// must not meet in one phase.
#include "kernels/passes/barriers.h"
#include "kernels/passes/clone.h"

namespace sluice::passes {

Finding unify_barriers(Clone& clone) {
  if (Finding f = unaligned_barriers_missing(clone)) return f;
  clone.needs(Tier::kUnified);
  clone.options.loose_lanes = true;
  clone.return_target = "~DRAIN";
  clone.start.line(".reg .pred \t%~any, %~gone;").line("mov.pred \t%~gone, 0;");
  for (const ptx::Statement* s : block_barriers(clone))
    clone.replace(*s, {"barrier.red.or.pred \t%~any, 0, !%~gone;"});
  clone.end.label("~DRAIN")
      .line("barrier.red.or.pred \t%~any, 0, %~gone;")
      .line("@%~any bra \t~DRAIN;");
  return {};
}

}  // namespace sluice::passes
