// SPDX-License-Identifier: Apache-2.0
// The original's blocks, as they are, in as many launches as the launcher likes: the *window* form.
// A window is a run of rows (planes, blocks) of the grid, launched as a grid of its own; the body's
// index is the hardware's plus where the window begins. What decides whether the rest of the grid
// still runs is the launcher, before each window; no block asks anything.
//
//   CHECK   blocks of windows in which `checks` is set go home if the launch before in the
//   program's
//           stream was evicted; the one at the mark reports that the launch has begun, or that all
//           of it has
//   ENTRY   the index
//
// The launcher (mediator/worker/launch/windows.cc) puts windows into two streams in turn, so that
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

#define WINDOW(name) field("launch", offsetof(sluice_window_params, name))

// The index passes read the grid where the other forms have it.
static_assert(offsetof(sluice_window_params, grid_x) == offsetof(sluice_preempt_params, grid_x));

struct Dimension {
  const char* its;  // register of the task's index
  const char* hardware;
  std::size_t first, mark;
};
constexpr Dimension kDimensions[] = {{"%~x", "%ctaid.x", offsetof(sluice_window_params, first_x),
                                      offsetof(sluice_window_params, mark_x)},
                                     {"%~y", "%ctaid.y", offsetof(sluice_window_params, first_y),
                                      offsetof(sluice_window_params, mark_y)},
                                     {"%~z", "%ctaid.z", offsetof(sluice_window_params, first_z),
                                      offsetof(sluice_window_params, mark_z)}};

// Where the kernel does not read an index, every block along it has the mark; but one that reads
// none still has a first block.
bool has_mark(const LoopOptions& options, int d) {
  const auto& reads = options.reads_ctaid;
  return reads[static_cast<std::size_t>(d)] || (d == 0 && !reads[1] && !reads[2]);
}

// The hardware's index plus where the window begins.
void write_index(Emitter& out, const Dimension& dim) {
  const std::string its = dim.its;
  out.line("mov.u32 \t" + its + ", " + dim.hardware + ";")
      .line("ld.param.u32 \t%~r0, " + field("launch", dim.first) + ";")
      .line("add.u32 \t" + its + ", " + its + ", %~r0;");
}

void write_declarations(Emitter& out) {
  out.line(".reg .pred \t%~p, %~lead;")
      .line(".reg .b32 \t%~x, %~y, %~z, %~g<3>, %~r<4>;")
      .line(".reg .b64 \t%~a, %~control;");
}

// Falls through into the body.
void write_entry(Emitter& out, const LoopOptions& options) {
  out.label("~BODY");
  for (int d = 0; d < 3; ++d)
    if (options.reads_ctaid[static_cast<std::size_t>(d)]) write_index(out, kDimensions[d]);
}

// Falls through into the entry.
void write_check(Emitter& out, const LoopOptions& options) {
  out.line("ld.param.u32 \t%~r0, " + WINDOW(checks) + ";")
      .line("setp.eq.u32 \t%~p, %~r0, 0;")
      .line("@%~p bra \t~BODY;");
  out.line("ld.param.u64 \t%~a, " + WINDOW(pred) + ";")
      .line("setp.eq.u64 \t%~p, %~a, 0;")
      .line("@%~p bra \t~AFTER;")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      // The same for all threads, and in every cache: what comes before in the stream has ended.
      .line("ld.global.u32 \t%~r0, " + CONTROL("a", done) + ";")
      .line("setp.eq.u32 \t%~p, %~r0, 0;")
      .line("@%~p ret;");
  out.label("~AFTER");
  for (int d = 0; d < 3; ++d) {
    if (!has_mark(options, d)) continue;
    write_index(out, kDimensions[d]);
    out.line("ld.param.u32 \t%~r0, " + field("launch", kDimensions[d].mark) + ";")
        .line("setp.ne.u32 \t%~p, " + std::string(kDimensions[d].its) + ", %~r0;")
        .line("@%~p bra \t~BODY;");
  }
  out.line("mov.u32 \t%~r0, %tid.x;")
      .line("mov.u32 \t%~r1, %tid.y;")
      .line("or.b32 \t%~r0, %~r0, %~r1;")
      .line("mov.u32 \t%~r1, %tid.z;")
      .line("or.b32 \t%~r0, %~r0, %~r1;")
      .line("setp.eq.u32 \t%~lead, %~r0, 0;")
      // None of it was sent home.
      .line("ld.param.u64 \t%~control, " + WINDOW(control) + ";")
      .line("cvta.to.global.u64 \t%~control, %~control;")
      .line("ld.param.u32 \t%~r0, " + WINDOW(end) + ";")
      .line("@%~lead atom.global.max.u32 \t%~r1, " + CONTROL("control", next_ticket) + ", %~r0;")
      .line("ld.param.u32 \t%~r2, " + WINDOW(tasks) + ";")
      .line("mov.u32 \t%~r1, 1;")
      .line("setp.eq.and.u32 \t%~p, %~r0, %~r2, %~lead;")
      // Whoever looks at it comes behind all windows in the stream.
      .line("@%~p {ST_GPU}.global.u32 \t" + CONTROL("control", done) + ", %~r1;")
      .line("ld.param.u64 \t%~a, " + WINDOW(record) + ";")
      .line("setp.eq.u64 \t%~p, %~a, 0;")
      .line("@%~p bra \t~BODY;")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("ld.param.u32 \t%~r1, " + WINDOW(begun) + ";")
      .line("@%~lead {ST_SYS}.global.u32 \t" + RECORD("a", tasks_fetched) + ", %~r1;")
      .line("mov.u64 \t%~control, %globaltimer;")
      // The first block of all, which is at the mark of the first window.
      .line("setp.eq.and.u32 \t%~p, %~r1, 1, %~lead;")
      .line("@%~p {ST_SYS}.global.u64 \t" + RECORD("a", start_ns) + ", %~control;")
      .line("mov.u32 \t%~r3, " + number(SLUICE_LAUNCH_RUNNING) + ";")
      .line("setp.ne.and.u32 \t%~p, %~r0, %~r2, %~lead;")
      .line("@%~p {ST_SYS}.global.u32 \t" + RECORD("a", state) + ", %~r3;")
      .line("setp.eq.and.u32 \t%~p, %~r0, %~r2, %~lead;")
      .line("@%~p {ST_SYS}.global.u64 \t" + RECORD("a", left_ns) + ", %~control;")
      .line("mov.u32 \t%~r0, " + number(SLUICE_LAUNCH_DONE) + ";")
      .line("ld.param.u32 \t%~r3, " + WINDOW(generation) + ";")
      .line("@%~p {ST_SYS}.global.v4.u32 \t[%~a], {%~r0, %~r3, %~r2, %~r2};");
}

}  // namespace

Finding run_in_windows(Clone& clone) {
  if (clone.in.facts.waits_for_lower_tasks)
    return {"in-order", "has tasks that wait for lower ones, which windows do not keep apart"};
  write_declarations(clone.head);
  write_check(clone.head, clone.options);
  write_entry(clone.head, clone.options);
  return {};
}

}  // namespace sluice::passes
