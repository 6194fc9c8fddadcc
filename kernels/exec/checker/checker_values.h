// SPDX-License-Identifier: Apache-2.0
// ValueShadow: which registers and predicates of a block hold values made of memory that nobody has
// written. Reading such memory is no mistake yet: programs read one element too many and throw it
// away, copy padding, load a whole tile of which only a part is there. It is one where the value
// decides something: an address, a branch, what goes to global memory. So the checker follows it.
//
// Internal to kernels/exec; owned by BlockChecker, the thread in Block::run. A lane of a register
// is undefined or not, as a whole. Approximations: results of warp-wide, matrix and texture
// instructions count as defined.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/exec/block/warp.h"
#include "kernels/exec/program/inst.h"

namespace sluice::exec::detail {

class ValueShadow {
 public:
  // Where an undefined value was read.
  struct Origin {
    uint32_t line = 0;
    uint32_t space = 0;  // kSpace...
    uint32_t bytes = 0;
    uint64_t address = 0;
  };

  void start(uint32_t warps, uint32_t register_bytes, uint32_t predicates);
  // Executes an instruction that neither reads memory nor moves control, and follows its values.
  Flow execute(Warp& warp, const Inst& inst, Handler handler);
  // A register (byte offset) gets a value from elsewhere: undefined in these lanes, defined in the
  // others of Warp::exec.
  void set(const Warp& warp, uint32_t reg, uint32_t lanes, const Origin& origin);
  // What a control instruction writes is defined.
  void define_results(const Warp& warp, const Inst& inst);

  // Lanes of Warp::exec in which the operand is undefined; `origin`: of the last such value.
  uint32_t undefined(const Warp& warp, uint32_t operand, Origin& origin) const;
  uint32_t undefined_predicate(const Warp& warp, uint32_t operand, Origin& origin) const;
  bool any(const Warp& warp) const { return dirty_[warp.index]; }

 private:
  struct Cell {
    uint32_t lanes = 0;
    Origin origin;
  };
  Cell* register_cell(uint32_t warp, uint32_t offset);
  const Cell* register_cell(uint32_t warp, uint32_t offset) const;

  uint32_t slots_ = 0, predicates_count_ = 0;
  std::vector<Cell> registers_, predicates_;  // by warp, then slot
  std::vector<bool> dirty_;                   // the warp has had an undefined value
};

// Whether execute() is the one to run this operation.
bool follows_values(uint16_t op);

}  // namespace sluice::exec::detail
