// SPDX-License-Identifier: Apache-2.0
// GridWindows: a grid cut into *windows*, runs of its blocks that are launched as grids of their
// own (kernels/passes/steps/window.cc). A window is a box that the hardware numbers as the whole
// grid's blocks are numbered, so windows are runs of planes where there are several, otherwise of
// rows, otherwise of blocks. WindowPace: when to queue the next one.
//
// Values; pure arithmetic. Used by whoever launches clones in windows: the worker, the benchmarks,
// the tests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "abi/preempt.h"

namespace sluice {

class GridWindows {
 public:
  GridWindows() = default;
  // `grid`: the whole, of less than 2^31 blocks and none 0. `window_tasks`: of a window, rounded to
  // whole rows or planes, at least one. `from`: tasks below which everything has run: 0, or an
  // earlier window's `end`.
  GridWindows(const uint32_t grid[3], uint32_t window_tasks, uint32_t from = 0)
      : grid_{grid[0], grid[1], grid[2]},
        axis_(grid[2] > 1   ? 2
              : grid[1] > 1 ? 1
                            : 0) {
    for (int d = 0; d < axis_; ++d) row_ *= grid[d];
    next_ = from / row_;
    rows_ = std::max(1u, window_tasks / row_);
  }
  bool left() const { return next_ < grid_[axis_]; }
  uint32_t tasks() const { return row_ * grid_[axis_]; }
  uint32_t row_tasks() const { return row_; }         // no window is smaller
  uint32_t end() const { return next_ * row_; }       // tasks of the windows so far
  uint32_t newest() const { return newest_ * row_; }  // tasks of the newest one
  // Which of two streams the newest window belongs into; they alternate from 0.
  int stream() const { return static_cast<int>(count_ - 1) % 2; }

  // The next window: the grid to launch it with, and where it lies. `pred` stays 0.
  sluice_window_params next(uint32_t its_grid[3]) {
    const uint32_t n = std::min(rows_, grid_[axis_] - next_);
    sluice_window_params p{};
    uint32_t first[3] = {};
    first[axis_] = next_;
    for (int d = 0; d < 3; ++d) its_grid[d] = d == axis_ ? n : grid_[d];
    newest_ = n;
    next_ += n;
    p.grid_x = grid_[0];
    p.grid_y = grid_[1];
    p.grid_z = grid_[2];
    p.first_x = first[0];
    p.first_y = first[1];
    p.first_z = first[2];
    ++count_;
    return p;
  }

 private:
  uint32_t grid_[3] = {1, 1, 1};
  int axis_ = 0;
  uint32_t row_ = 1;   // tasks of one step along the axis
  uint32_t rows_ = 1;  // of a window
  uint32_t next_ = 0;
  uint32_t count_ = 0;  // windows so far
  uint32_t newest_ = 0;
};

// How a grid is cut, and what is expected of it.
struct WindowPlan {
  uint32_t tasks = 0;      // of a window; 0: no windows
  uint64_t window_ns = 0;  // from one window's last block's start to the next one's
  uint64_t early_ns = 0;   // what a task takes, and what queueing takes
};

// When to queue the next window: of two in the streams one runs, and the newest takes the
// places that it leaves. If the one before the newest has ended, the newest has had the GPU for
// itself since about a task before; the next must be in the stream when the newest one's last block
// has begun, and no earlier than that takes, for the sake of evictions.
class WindowPace {
 public:
  explicit WindowPace(const WindowPlan& plan = {})
      : window_ns_(plan.window_ns), early_ns_(plan.early_ns) {}
  // The window before the newest has been seen to have ended. Once for each.
  void ended(uint64_t now_ns) {
    // A gap makes the next one look longer than it is; what lies between two ends without one does
    // not.
    if (last_ns_ != 0) window_ns_ = std::min(window_ns_, now_ns - last_ns_);
    last_ns_ = now_ns;
    waits_ = true;
  }
  bool ended() const { return waits_; }
  bool due(uint64_t now_ns) const {
    return waits_ && now_ns >= last_ns_ + (window_ns_ > early_ns_ ? window_ns_ - early_ns_ : 0);
  }
  void queued() { waits_ = false; }

 private:
  uint64_t window_ns_, early_ns_;
  uint64_t last_ns_ = 0;  // when the newest ended() was; 0: none
  bool waits_ = false;    // ended(), and nothing queued since
};

}  // namespace sluice
