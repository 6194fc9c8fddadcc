// R27: what a task has started and not waited for must not run into the next one.
#include "kernels/passes/clone.h"

namespace sluice::passes {

Finding finish_copies(Clone& clone) {
  // Copies into shared memory that nobody waited for: the original's block may end before them.
  clone.options.clean_up.push_back("cp.async.wait_all;");
  return {};
}

}  // namespace sluice::passes
