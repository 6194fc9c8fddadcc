// SPDX-License-Identifier: Apache-2.0
// The control-flow graph of one function: basic blocks over its statements.
//
// Owner: an analysis, one thread; refers to the function and must not outlive its module. It knows
// the instructions that move control (bra, brx.idx, ret, exit, trap) and no others; a call is
// straight-line code. No recursion; linear in the function's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/ptx/module.h"

namespace sluice::ptx {

inline constexpr std::uint32_t kNoBlock = 0xffffffff;
inline constexpr std::uint32_t kNoStatement = 0xffffffff;

struct Block {
  std::uint32_t begin = 0, end = 0;         // statement indices [begin, end)
  std::uint32_t terminator = kNoStatement;  // the instruction that ends it, if one moves control
  std::vector<std::uint32_t> successors;    // no duplicates
  std::vector<std::uint32_t> predecessors;
  bool traps = false;  // ends in `trap`, which ends the whole grid: no edge for it
};

class Cfg {
 public:
  // An error where a branch's target is not known: then nothing can be said about the function.
  static Result<Cfg> build(const Function& function);

  const Function& function() const { return *function_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  std::uint32_t entry() const { return 0; }
  // The virtual block where every ret, exit and the end of the body lead; no statements.
  std::uint32_t exit() const { return static_cast<std::uint32_t>(blocks_.size() - 1); }
  std::uint32_t block_of(std::uint32_t statement) const { return block_of_[statement]; }
  bool reachable(std::uint32_t block) const { return reachable_[block]; }
  // A reachable block from which neither the exit nor a trap can be reached: an endless loop.
  bool has_endless_loop() const { return endless_; }

 private:
  const Function* function_ = nullptr;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> block_of_;
  std::vector<bool> reachable_;
  bool endless_ = false;
};

// The instructions of these blocks, block by block. Of more than `most` the first `most` + 1: who
// only wants short loops does not pay for long ones.
std::vector<const Statement*> instructions_of(
    const Cfg& cfg, const std::vector<std::uint32_t>& blocks,
    std::size_t most = std::numeric_limits<std::size_t>::max());

// Strongly connected components. Returns for each block the number of its component; blocks that
// lie on no cycle are alone in theirs. Tarjan (1972), without recursion. With `edge` only of the
// edges (from, to) for which it is true.
std::vector<std::uint32_t> strong_components(
    const Cfg& cfg, const std::function<bool(std::uint32_t, std::uint32_t)>& edge = {});

// The loops of one depth of nesting: blocks of one loop have the same number, which no block
// outside has.
struct LoopLevel {
  std::vector<std::uint32_t> loop;  // by block
  std::vector<bool> in_loop;        // by block; false: the number says nothing
};

// All loops, the outermost first: the loops inside a loop are what is left of it without the edges
// to its entries (Steensgaard's loop forest, 1993; irreducible loops have several entries). At
// least one level. An error where the nest is too deep to be analysed in reasonable time.
Result<std::vector<LoopLevel>> loop_levels(const Cfg& cfg);

// Loops of `level` whose one entry several edges lead back to hold a loop for each of these edges,
// which the nest above does not tell apart: `for (..) { while (poll) {} .. }` where both begin at
// one place. Each edge's loop, where it is less than all of its loop; a few for each, and within a
// budget of blocks to visit, which it counts down.
std::vector<LoopLevel> ways_round(const Cfg& cfg, const LoopLevel& level, std::uint64_t& budget);

}  // namespace sluice::ptx
