// SPDX-License-Identifier: Apache-2.0
// Whether an address names something that belongs to a lower-numbered block: the block's index, or
// a ticket that the kernel drew itself, less something.
//
// Owner: find_waiting(), one function, one thread; refers to the module. It follows the registers
// backwards through arithmetic and keeps signs only, so it answers "yes" to shapes, not to proofs;
// "no" where the sum is known (places.h) and leads to a higher one.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernels/passes/analysis/places.h"
#include "kernels/ptx/module.h"

namespace sluice::passes {

class LowerIndex {
 public:
  LowerIndex(const ptx::Function& function, ptx::RegisterTable& registers, Sums& sums);
  // `address`: an operand such as "[%rd5+256]" of statement `in`. `columns`: set where it is lower
  // only in grids of one row, because the numbers may go down the columns; otherwise as it was.
  bool names_lower(std::string_view address, const ptx::Statement& in, bool& columns);
  // Whether an operand is the block's index, or a ticket, itself, or grows with it.
  bool names_own(std::string_view operand, const ptx::Statement& in);
  // Whether a register is made of the block's index, or of a ticket, and by nothing but `where`.
  bool index_from(std::string_view reg, const ptx::Statement& in,
                  const std::function<bool(const ptx::Statement&)>& where);
  // Whether two operands are the same sum.
  bool same(std::string_view a, std::string_view b, const ptx::Statement& in) const {
    return Sums::compare(sums_.of(a, in), sums_.of(b, in)) == Places::kSame;
  }
  // Whether an operand is a number, also one that a register only ever gets by `mov`.
  bool constant(std::string_view operand, const ptx::Statement& in, std::uint64_t& value) const;

 private:
  struct Terms {
    bool plus_index = false, minus_index = false;  // the index is added, subtracted
    bool negative = false;                         // something else is subtracted
    bool step_up = false;                          // a small number is added to the index
    bool plus_grid = false;                        // the grid's size is added: the way round a ring
    bool columns =
        false;  // x, which counts fastest, is multiplied: numbers that go down the columns
    bool jumbled = false;  // the index went through what keeps no order: a remainder, reversed bits
    bool has_x = false;
    bool elsewhere = false;  // or it is something that is neither the index nor a constant
    bool has_index() const { return plus_index || minus_index; }
    void merge(const Terms& t);
    Terms flipped() const;
    bool operator==(const Terms&) const = default;
  };
  Terms of_operand(std::string_view operand, const ptx::Statement& in);
  Terms of_register(std::uint32_t number);
  Terms of_register_once(std::uint32_t number);
  Terms of_statement(const ptx::Statement& s);
  Terms of_computation(const ptx::Statement& s);
  bool is_other(std::string_view operand, const ptx::Statement& in);
  bool leads_up(std::string_view operand, const ptx::Statement& in);

  const ptx::Function& function_;
  ptx::RegisterTable& registers_;
  Sums& sums_;
  // What writes each register, and whether tickets are drawn: found at the first question.
  using ByRegister = std::unordered_map<std::uint32_t, std::vector<const ptx::Statement*>>;
  const ByRegister& definitions() const { return find_definitions(), known_definitions_; }
  bool draws_tickets() const { return find_definitions(), draws_tickets_; }
  void find_definitions() const;
  mutable bool knows_definitions_ = false;
  mutable ByRegister known_definitions_;
  std::unordered_map<std::uint32_t, Terms> known_;
  std::unordered_set<std::uint32_t> settled_;  // whose known_ is not computed again
  std::vector<std::uint32_t> touched_;         // settled by the question that is being answered
  bool changed_ = false;                       // some known_ by that question
  mutable bool draws_tickets_ = false;
  int depth_ = 0;
};

}  // namespace sluice::passes
