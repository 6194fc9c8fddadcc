// SPDX-License-Identifier: Apache-2.0
// The code around a body of which a hardware block runs one task: the *admission*. Block n of what
// is left of the grid is task n, computed from the hardware's own index, and either runs the
// original body to its end or does nothing.
//
//   ENTRY  block 0 may be the proxy. The leader raises the launch's admission word to
//          {generation, n + 1} (one atomic maximum); nobody waits for the answer yet.
//   (here runs as much of the body as leaves no trace: its first loads travel with the question)
//   CHECK  the answer, for all threads by one barrier. A word that was *closed* before it reached
//          n + 1 sends the block home.
//
// Behind the body, what is rare:
//   RARE   task 0 starts; or the last task is admitted: the launch is done for its successors.
//   LOOK   without a proxy, a leader that finds the evict word set closes the admission word.
//   PROXY  closes it when host memory says so, or ends when everybody has been admitted.
//
// Why it is right: the word only grows while it is open, and does not change once it is closed. So
// if M is what it then holds, every task below M has been, or will be, admitted, and no other ever
// is: what is left is [M, tasks), the next physical launch's grid. That also holds for tasks that
// wait for lower ones (in_order.cc): whom they wait for is below M and runs. They count, as the
// original does, on the hardware starting blocks in the order of their numbers.
//
// Why it is cheap: three registers while the answer is out, no shared memory, the hardware's own
// distribution of blocks, and no counting at the end: the launcher knows from the end of the stream
// that what was admitted has run. What it costs is the answer's time, some 0.4 us a block of which
// other blocks hide a part, and under an eviction the rest of the grid has to come and go, some
// 1,400 blocks a microsecond on an H200 (docs/notes/2026-11-22-benchmarks.md). So short tasks and
// large grids have a loop (mediator/worker/launch/plan/geometry.h chooses).
//
// Sources: the check at the block's beginning of REEF (OSDI'22) and XSched (OSDI'25), with a
// closing counter in the place of their lists of blocks.
//
// Owner: one pass over one entry, one thread; speaks the protocol of abi/preempt.h with the
// launcher.
#pragma once

#include "kernels/passes/clone/loop_head.h"

namespace sluice::passes {

class Admission : private LoopHead {
 public:
  using LoopHead::LoopHead;
  void write_entry();  // ENTRY: declarations; falls through
  void write_check();  // CHECK: falls through for blocks that run
  void write_rest();   // behind the body, which may fall through and then returns

 private:
  void write_number();
  void write_close();
  void write_record(unsigned state, const std::string& admitted, const std::string& skip);
  void write_proxy();
};

}  // namespace sluice::passes
