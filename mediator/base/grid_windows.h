// GridWindows: a grid cut into *windows*, runs of its blocks that are launched as grids of their own
// (kernels/passes/window.cc). A window is a box that the hardware numbers as the whole grid's blocks are
// numbered, so windows are runs of planes where there are several, otherwise of rows, otherwise of blocks.
//
// A value; pure arithmetic. Used by whoever launches clones in windows: the worker, the benchmarks, the tests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "abi/preempt.h"

namespace sluice {

struct WindowSize {
  uint32_t tasks = 0;  // of a window; 0: no windows
  uint32_t lead = 1;   // of those, from its mark on
};

class GridWindows {
 public:
  GridWindows() = default;
  // `grid`: the whole, of less than 2^31 blocks and none 0. `size`: rounded to whole rows or planes, at least one.
  // `from`: tasks below which everything has run: 0, or an earlier window's `end`.
  GridWindows(const uint32_t grid[3], WindowSize size, uint32_t from = 0)
      : grid_{grid[0], grid[1], grid[2]}, axis_(grid[2] > 1 ? 2 : grid[1] > 1 ? 1 : 0) {
    for (int d = 0; d < axis_; ++d) row_ *= grid[d];
    next_ = from / row_;
    rows_ = std::max(1u, size.tasks / row_);
    lead_ = size.lead / row_;
  }
  bool left() const { return next_ < grid_[axis_]; }
  uint32_t tasks() const { return row_ * grid_[axis_]; }
  uint32_t row_tasks() const { return row_; }  // no window is smaller
  uint32_t end() const { return next_ * row_; }  // tasks of the windows so far

  // The next window: the grid to launch it with, and where it lies. What is the launch's own (control, record,
  // pred, looks, generation) stays 0. `odd` alternates from 0.
  // The block at the mark is the first one of the first window (the launch has begun), the last one of the last
  // (everything has begun), and of others one that has `lead` tasks from itself on: time for what is launched at
  // that sign to be there before the window ends.
  sluice_window_params next(uint32_t its_grid[3]) {
    const uint32_t n = std::min(rows_, grid_[axis_] - next_);
    sluice_window_params p{};
    uint32_t mark[3] = {};
    if (next_ + n == grid_[axis_]) {
      for (int d = 0; d < axis_; ++d) mark[d] = grid_[d] - 1;
      mark[axis_] = n - 1;
    } else if (next_ != 0) {
      mark[axis_] = n - std::min(n, std::max(1u, lead_));
    }
    uint32_t first[3] = {};
    first[axis_] = next_;
    for (int d = 0; d < 3; ++d) its_grid[d] = d == axis_ ? n : grid_[d];
    p.grid_x = grid_[0];
    p.grid_y = grid_[1];
    p.grid_z = grid_[2];
    p.first_x = first[0];
    p.first_y = first[1];
    p.first_z = first[2];
    p.mark_x = mark[0];
    p.mark_y = mark[1];
    p.mark_z = mark[2];
    p.begun = (next_ + mark[axis_]) * row_ + (mark[1] * (axis_ == 2) * grid_[0]) + mark[0] * (axis_ != 0) + 1;
    p.tasks = tasks();
    next_ += n;
    p.end = end();
    p.odd = odd_;
    odd_ ^= 1;
    return p;
  }

 private:
  uint32_t grid_[3] = {1, 1, 1};
  int axis_ = 0;
  uint32_t row_ = 1;   // tasks of one step along the axis
  uint32_t rows_ = 1;  // of a window
  uint32_t lead_ = 1;  // of those, behind the mark
  uint32_t next_ = 0;
  uint32_t odd_ = 0;
};

}  // namespace sluice
