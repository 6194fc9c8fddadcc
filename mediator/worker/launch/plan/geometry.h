// SPDX-License-Identifier: Apache-2.0
// The arithmetic of an evictable launch: how many worker blocks, how many tickets at a time, and
// the numbers by which a kernel turns a ticket into block coordinates without dividing.
//
// Pure functions; any thread. Used by LaunchPlanner (planner.h) and by tests/bench/preempt.
#pragma once

#include <cstdint>

#include "abi/preempt.h"
#include "mediator/base/grid_windows.h"

namespace sluice::worker {

// x*y*z, or 0 if it is 2^31 or more (abi/preempt.h: such grids are not evictable).
uint32_t task_count(uint32_t x, uint32_t y, uint32_t z);

// How the session's clones check for evictions; from its configuration.
struct LoopSettings {
  uint32_t target_us = 20;  // from the host's store to the last block's exit, for short tasks; see
                            // kChunkQuarters
  uint32_t clock_khz = 1000000;  // of the SMs
  uint16_t chunk_max = 1024;
  uint8_t batch_shift = 1;  // a batch, the time between two checks of the evict word: chunk /
                            // 2^this and one task
  // FLEP's amortising factor: every worker draws and runs this many tasks between two checks,
  // whatever they take. 0: adaptive.
  uint16_t fixed_chunk = 0;
  // What the rest of a grid may take to leave the GPU where every block runs one task and those
  // that are not admitted come and go; 0: loops wherever there is one.
  uint32_t admission_us = 40;
  // How long a window of a grid takes where it is launched in windows. 0: no windows. Where tasks
  // are short, each window costs some 1 us (an H200).
  uint32_t window_us = 32;
  // How long before a window's last block begins the next one is queued: an eviction waits for
  // this and a whole window at most. The worker and the driver take most of it (an H200: with 8 us
  // of 16 windows often came too late, 1.05 of the original's time instead of 1.01).
  uint32_t window_lead_us = 16;
  // Where turns are priorities: launches that are expected to take no longer are the original,
  // whole.
  uint32_t whole_us = 0;
  uint32_t leave_ps = 750;  // one of them for every 256 of its threads, on an H200
                            // (docs/notes/2026-11-22-benchmarks.md)
};
// The same on the software GPU, which interprets some 30 instructions for each thread.
inline constexpr uint32_t kSoftwareLeavePs = 50'000'000;

// What a clone's launcher must know of it beside its parameters.
struct CloneForm {
  bool in_order = false;     // draws one ticket at a time and has no left-over list
  bool once = false;         // a hardware block runs one task (kernels/passes/clone/admission.h)
  bool resumable = false;    // one task as well, which may leave in its middle and be resumed
  uint32_t state_bytes = 0;  // resumable: what a thread saves
};

struct Geometry {
  bool evictable = false;      // false: launch the original
  uint32_t blocks = 0;         // hardware blocks of the clone, with the proxy
  uint16_t chunk = 1;          // a worker's first
  uint8_t tail_shift = 0;      // sluice_preempt_params.tail_shift
  uint32_t first_tickets = 0;  // likewise; the same in every physical launch
};
// `resident`: blocks of the clone that the GPU holds at once (occupancy x SMs). `first_chunk`: from
// ChunkModel. A grid that fits on the GPU at once has no boundary between tasks to leave at.
Geometry plan_launch(uint32_t tasks, uint32_t resident, uint32_t first_chunk, bool proxy,
                     const LoopSettings& settings, CloneForm form);

// Which of a kernel's clones a launch takes.
enum class FormKind : uint8_t {
  kLoop,     // persistent workers (kernels/passes/clone/loop_head.h)
  kOneTask,  // the original's blocks, each admitted (kernels/passes/clone/admission.h)
  kWindows,  // the original's blocks, a window of the grid at a time
             // (kernels/passes/steps/window.cc)
};
inline constexpr int kForms = 3;

// Chooses it, where the GPU is given whole, by what launches took: the loop's registers and
// instructions cost some kernels a fifth of their speed and those that are kept in order 40 %, but
// others take 0.6 of their original's time in it; the question at the beginning of each block costs
// some a tenth; windows cost grids of very short tasks a twentieth (an H200,
// docs/notes/2026-11-22-benchmarks.md). No rule tells them apart beforehand.
//
// One per function and block size; not thread-safe; pure.
class FormChoice {
 public:
  // Whether a launch may take one task a block: by how long the rest of its grid takes to leave,
  // and because short tasks always pay more for asking. `task_ns`: what a task takes, 0: not known.
  static bool allowed(uint32_t tasks, uint32_t block_threads, uint64_t task_ns, bool in_order,
                      const LoopSettings& settings);
  static constexpr uint64_t kShortTaskNs = 3000;
  // Windows of at most settings.window_us, or of what the GPU holds at once (`resident` blocks)
  // where that takes up to kLongWindow times as long; at least kFewWindows in the grid. Of no tasks
  // where windows do not help: nothing is known of the task yet, the grid is too small, or one row
  // (or plane) of it is larger than a window may be.
  static WindowPlan windows(const uint32_t grid[3], uint32_t resident, uint64_t task_ns,
                            const LoopSettings& settings);
  static constexpr uint32_t kFewWindows = 3, kLongWindow = 4;
  // The form of the next launch, of those in `may` (bits 1 << FormKind; the loop's is always
  // there): until one is known the loop, or those in order in one task a block; then the fastest
  // that is known, and each other one again every kAgain launches. One that is not known is tried
  // once in kUnknownAgain launches only: programs queue hundreds before the first has ended.
  FormKind next(unsigned may, bool in_order);
  static constexpr uint32_t kAgain = 256, kUnknownAgain = 32;
  // Whether the launch that next() was asked for last should be timed, where that costs something:
  // one whose form is not the one before's, and now and then. In windows it costs two events.
  bool timed() const { return timed_; }
  static constexpr uint32_t kTimed = 8;
  // A launch of `tasks` tasks has run for `ns` without an eviction.
  void observe(FormKind form, uint32_t tasks, uint64_t ns);

 private:
  FormKind pick(unsigned may, bool in_order);

  double task_ns_[kForms] = {};  // GPU time a task; 0: not known
  uint32_t launches_ = 0;
  uint32_t asked_[kForms] = {};  // launches that could have tried it, not known
  FormKind last_ = FormKind::kLoop;
  uint32_t same_ = 0;  // launches in a row of this form
  bool timed_ = true;
};

// Device memory for what the blocks of a resumable launch save; 0: more than a launch may have.
uint64_t resume_bytes(uint32_t tasks, uint32_t block_threads, uint32_t state_bytes);
inline constexpr uint64_t kMaxResumeBytes = uint64_t{64} << 20;

// Hardware blocks of a launch that runs one task in each, of which `tasks_left` tasks remain.
uint32_t once_blocks(uint32_t tasks_left, bool proxy);

// The parameters that follow from the shape alone: grid, tasks, divisors, chunks. The rest is 0.
sluice_preempt_params make_params(const uint32_t grid[3], uint32_t tasks, const Geometry& geometry,
                                  const LoopSettings& settings);

// Learns how long a task of a function takes and from that how many tickets a worker should draw
// first; from there the kernel adapts by itself. One per function and block size; not thread-safe.
class ChunkModel {
 public:
  explicit ChunkModel(uint32_t target_us) : target_ns_(uint64_t{target_us} * 1000) {}
  // A launch of `tasks` tasks ran on `blocks` blocks for `ns`, without an eviction.
  void observe(uint32_t tasks, uint32_t blocks, uint64_t ns);
  uint32_t chunk() const;  // 1 until something was observed
  uint64_t task_ns() const { return task_ns_; }

 private:
  uint64_t target_ns_;
  uint64_t task_ns_ = 0;  // running mean; 0: not known
};

// The share of the latency target that a chunk takes, in 1/4. Longer chunks scatter the tasks that
// run at one time over the grid: neighbours no longer meet in the L2 cache (an H200, a 3-D stencil:
// 0.93 of the original's time with 20 us, 1.4 with 80 us).
inline constexpr uint32_t kChunkQuarters = 3;
// What a worker's first chunk may be; larger ones are found by the kernel itself.
inline constexpr uint32_t kMaxChunk = 1024;

}  // namespace sluice::worker
