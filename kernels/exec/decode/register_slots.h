// SPDX-License-Identifier: Apache-2.0
// Where a function's registers lie: slots of 32 lanes, shared by registers that are not live at the
// same time. Linear scan (Poletto and Sarkar, 1999) over live intervals from a liveness analysis.
//
// Owner: one decoding of one body, one thread; refers to the body. Offsets in bytes. A slot is
// always of one width: lanes that have diverged may use the same slot for different registers, each
// its own lanes of it, which are at other places in a slot of another width.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/exec/decode/flow_graph.h"

namespace sluice::exec::detail {

// An operand of an instruction that names a virtual register.
struct Reference {
  uint32_t inst = 0;
  uint32_t field = 0;  // 0..4: d a b c e; from 5: aux[field - 5]
  uint32_t vreg = 0;
  bool def = false;
};

class RegisterSlots {
 public:
  // `width`: 4 or 8 bytes a lane, by register. Sorts `references` and numbers their registers anew.
  RegisterSlots(const Graph& graph, const std::vector<Inst>& code,
                std::vector<Reference>& references, const std::vector<uint8_t>& width);

  // Assigns slots from `base` on and appends them to `slots`, as Callable::slots has them. Returns
  // one past the last byte.
  uint32_t assign(uint32_t base, std::vector<uint32_t>& slots);
  uint32_t slot_of(const Reference& r) const { return slot_[r.vreg]; }

 private:
  // Bit sets of the registers that live in more than one block, one set for each block.
  class Sets {
   public:
    Sets(size_t words, uint32_t blocks) : words_(words), bits_(words * blocks) {}
    uint64_t* of(uint32_t block) { return bits_.data() + words_ * block; }

   private:
    size_t words_;
    std::vector<uint64_t> bits_;
  };

  void number_registers(const std::vector<uint8_t>& width);
  void find_registers_of_several_blocks();
  void find_uses_and_kills(Sets& uses, Sets& kills);
  void find_live(Sets& live_in, Sets& live_out);
  void find_intervals();
  void touch(uint32_t v, uint32_t at);

  const Graph& graph_;
  const std::vector<Inst>& code_;
  std::vector<Reference>& references_;
  // By register that is mentioned.
  std::vector<uint8_t> width_;
  std::vector<uint32_t> global_number_;  // of those of several blocks; kNone: of one
  std::vector<uint32_t> begin_, end_;    // first and last instruction of its life
  std::vector<uint32_t> slot_;
  uint32_t globals_ = 0;
  size_t words_ = 0;      // of one set
  bool analysed_ = true;  // false: too much to analyse, so each of several blocks keeps its slot
};

}  // namespace sluice::exec::detail
