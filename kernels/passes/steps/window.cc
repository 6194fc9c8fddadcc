// SPDX-License-Identifier: Apache-2.0
// The original's blocks, as they are, in as many launches as the launcher likes: the *window* form.
// A window is a run of rows (planes, blocks) of the grid, launched as a grid of its own; the body's
// index is the hardware's plus where the window begins. What decides whether the rest of the grid
// still runs is the launcher, before each window; no block asks anything.
//
//   CHECK   where `pred` is set, blocks return if the launch before in the program's stream was
//           evicted
//   ENTRY   the index
//
// Nothing else: what stands before the body decides how the assembler treats the body. With a block
// that reported how far the launch has come, 30 instructions and 12 registers, behind a branch that
// was not taken, ptxas 13.0 built the inner loop of a kernel of 10 registers with VIADD in the
// place of IADD3 (sm_90), and its tasks took 1.24 of the original's time; with this it builds the
// original's loop.
//
// The launcher (mediator/worker/launch/windows.h) puts windows into two streams in turn, so that
// the next one waits in the hardware and takes every place that the one before leaves: kernel
// slicing without its gaps. It paces itself by their ends. Windows of one launch overlap, and
// blocks of a later one may come onto the GPU before the last ones of an earlier one: not for tasks
// that wait for lower-numbered ones.
//
// Tried and given up on an H200: a block of each window that reports to the launcher, for which
// every block compares its index (4 % of a task of 1.5 us); programmatic dependent launch in one
// stream (`griddepcontrol.launch_dependents`): each block that lets the next grid begin costs the
// hardware as much as starting a block, 1.4 to 2 times the original's time for short tasks; where
// only a window's last blocks do it, gaps come back (docs/notes/2026-11-22-benchmarks.md).
//
// Sources: kernel slicing (Zhong and He, Kernelet, TPDS 2014; Pai et al., ASPLOS 2013), whose
// slices wait for one another.
#include <cstddef>

#include "kernels/passes/clone/clone.h"
#include "kernels/passes/clone/loop_fields.h"

namespace sluice::passes {

namespace {

// The index passes read the grid where the other forms have it.
static_assert(offsetof(sluice_window_params, grid_x) == offsetof(sluice_preempt_params, grid_x));

struct Dimension {
  const char* its;  // register of the task's index
  const char* hardware;
  std::size_t first;
};
constexpr Dimension kDimensions[] = {{"%~x", "%ctaid.x", offsetof(sluice_window_params, first_x)},
                                     {"%~y", "%ctaid.y", offsetof(sluice_window_params, first_y)},
                                     {"%~z", "%ctaid.z", offsetof(sluice_window_params, first_z)}};

// The hardware's index plus where the window begins.
void write_index(Emitter& out, const Dimension& dim) {
  const std::string its = dim.its;
  out.line("mov.u32 \t" + its + ", " + dim.hardware + ";")
      .line("ld.param.u32 \t%~r0, " + field("launch", dim.first) + ";")
      .line("add.u32 \t" + its + ", " + its + ", %~r0;");
}

void write_declarations(Emitter& out) {
  out.line(".reg .pred \t%~p;")
      .line(".reg .b32 \t%~x, %~y, %~z, %~g<3>, %~r<4>;")
      .line(".reg .b64 \t%~a;");
}

// Falls through into the body.
void write_entry(Emitter& out, const LoopOptions& options) {
  out.label("~BODY");
  for (int d = 0; d < 3; ++d)
    if (options.reads_ctaid[static_cast<std::size_t>(d)]) write_index(out, kDimensions[d]);
}

// Falls through into the entry.
void write_check(Emitter& out) {
  out.line("ld.param.u64 \t%~a, " + field("launch", offsetof(sluice_window_params, pred)) + ";")
      .line("setp.eq.u64 \t%~p, %~a, 0;")
      .line("@%~p bra \t~BODY;")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      // The same for all threads, and in every cache: what comes before in the stream has ended.
      .line("ld.global.u32 \t%~r0, " + CONTROL("a", done) + ";")
      .line("setp.eq.u32 \t%~p, %~r0, 0;")
      .line("@%~p ret;");
}

}  // namespace

Finding run_in_windows(Clone& clone) {
  if (clone.in.facts.waits.for_lower_tasks)
    return {"in-order", "has tasks that wait for lower ones, which windows do not keep apart"};
  write_declarations(clone.head);
  write_check(clone.head);
  write_entry(clone.head, clone.options);
  return {};
}

}  // namespace sluice::passes
