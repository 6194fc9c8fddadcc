// SPDX-License-Identifier: Apache-2.0
// Dominators: which block every path from the function's beginning to a block must pass;
// post-dominators: which one every path from a block to the function's end. One algorithm, in two
// directions.
//
// Owner: an analysis, one thread. Source: Cooper, Harvey, Kennedy, "A Simple, Fast Dominance
// Algorithm" (2001), for post-dominators on the reversed graph. Blocks that cannot reach the exit
// (they end in a trap, or never) have no post-dominator, and edges to them count for nothing: a
// trap ends the grid. So with blocks that nothing reaches, for dominators.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ptx/cfg.h"

namespace sluice::ptx {

// The core: the nearest dominator of each of `count` blocks; the root's is itself, kNoBlock where
// no path joins a block to the root. `away`, `towards`: edges that lead away from the root, and the
// same edges the other way. The algorithm is quadratic on graphs that no compiler makes; such a
// graph is an error. `post_order`, if given: the blocks that are joined to the root, each behind
// its subtree.
Result<std::vector<std::uint32_t>> immediate_dominators(
    std::uint32_t count, std::uint32_t root, const std::vector<std::vector<std::uint32_t>>& away,
    const std::vector<std::vector<std::uint32_t>>& towards,
    std::vector<std::uint32_t>* post_order = nullptr);

class DominatorTree {
 public:
  // The nearest block that every path between `block` and the root (the entry, or the exit) passes,
  // other than `block` itself; kNoBlock for the root and for blocks that no path joins to it.
  std::uint32_t immediate(std::uint32_t block) const { return immediate_[block]; }
  // Whether `a` dominates `b` (every block itself).
  bool dominates(std::uint32_t a, std::uint32_t b) const {
    return a == b || (begin_[a] <= begin_[b] && begin_[b] < end_[a]);
  }

 protected:
  using Edges = std::vector<std::uint32_t> Block::*;
  DominatorTree() = default;
  // `away`: the edges that lead away from the root; `towards`: the others.
  Result<void> find(const Cfg& cfg, std::uint32_t root, Edges away, Edges towards);

 private:
  std::vector<std::uint32_t> immediate_;
  std::vector<std::uint32_t> begin_,
      end_;  // each block's subtree, as an interval; none outside the tree
};

class Dominators : public DominatorTree {
 public:
  static Result<Dominators> build(const Cfg& cfg);
};

class PostDominators : public DominatorTree {
 public:
  static Result<PostDominators> build(const Cfg& cfg);
};

}  // namespace sluice::ptx
