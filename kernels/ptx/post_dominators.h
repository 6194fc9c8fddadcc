// Post-dominators: which block every path from a block to the function's end must pass.
//
// Owner: an analysis, one thread. Source: Cooper, Harvey, Kennedy, "A Simple, Fast Dominance
// Algorithm" (2001), on the reversed graph. Blocks that cannot reach the exit (they end in a trap,
// or never) have no post-dominator, and edges to them count for nothing: a trap ends the grid.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ptx/cfg.h"

namespace sluice::ptx {

class PostDominators {
 public:
  // The algorithm is quadratic on graphs that no compiler makes; such a graph is an error.
  static Result<PostDominators> build(const Cfg& cfg);

  // The nearest block that every path from `block` to the exit passes, other than `block` itself;
  // kNoBlock for the exit and for blocks that do not reach it.
  std::uint32_t immediate(std::uint32_t block) const { return immediate_[block]; }
  // Whether `a` post-dominates `b` (every block itself). Walks the tree up from b.
  bool dominates(std::uint32_t a, std::uint32_t b) const;

 private:
  std::vector<std::uint32_t> immediate_;
};

}  // namespace sluice::ptx
