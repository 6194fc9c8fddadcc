// SPDX-License-Identifier: Apache-2.0
// Rule in-order: a kernel whose tasks wait for lower-numbered ones (decoupled look-back, chained
// scans).
//
// Why it ends: tickets are drawn one at a time and in order, the evict word is polled before a
// ticket is drawn, and every ticket that was drawn is run. So of the tasks that have begun, the
// lowest waits for none that has not, and ends; then the next lowest. That holds under eviction as
// well: a worker leaves only between tasks, and the next physical launch goes on with the next
// ticket.
#include "kernels/passes/clone/clone.h"

namespace sluice::passes {

Finding keep_order(Clone& clone) {
  clone.options.in_order = true;
  clone.needs(Tier::kInOrder);
  return {};
}

}  // namespace sluice::passes
