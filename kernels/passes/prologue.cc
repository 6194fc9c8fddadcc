// The fall-back for kernels that one block cannot run again and again: every block looks at the
// evict word once, before it draws a ticket, and then runs that one task and ends as the original
// does. What has not been drawn when the word is set stays for the next physical launch.
//
// Sources: the prologue check of XSched (OSDI'25) and REEF (OSDI'22), with the ticket counter of
// the loop in place of their lists of blocks: tickets are drawn in order by blocks that run, so
// this is right for tasks that wait for lower ones as well (in_order.cc).
#include "kernels/passes/clone.h"

namespace sluice::passes {

Finding run_one_task(Clone& clone) {
  clone.options.once = true;
  LoopHead(clone.options, clone.head).write_before_body();
  LoopHead(clone.options, clone.tail).write_after_body();
  return {};
}

}  // namespace sluice::passes
