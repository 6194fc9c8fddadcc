// What loops around compare-and-swap and exchange wait for: nothing where they retry or take a lock
// whose holder runs and gives it back, another block where they take a token that this kernel's
// block does not put back.
//
// Owner: find_waiting(), one function, one thread; refers to the control-flow graph. Shapes, not
// proofs; each function says to which side it errs.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/ptx/cfg.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

class Swaps {
 public:
  Swaps(const ptx::Cfg& cfg, ptx::RegisterTable& registers);

  // Whether statement `atom` (a swap in global memory in the loop `blocks`) takes the same thing
  // from the same place each turn, and nothing that can run behind it may put it back. No where
  // that cannot be told.
  bool takes_token(std::uint32_t atom, const std::vector<std::uint32_t>& blocks) const;
  // Whether the value that `load` reads only ever is what a compare-and-swap of the same place in
  // the loop compares with, or makes its new value of: who fails, fails because another one got
  // through. No where that cannot be told.
  bool only_compared(std::uint32_t load, const std::vector<std::uint32_t>& blocks) const;
  // Whether the value that `load` reads is only ever asked whether it is the block's own number
  // (`is_index`), and the block passes the turn on behind the loop: serial split-K and the like. No
  // where that cannot be told.
  bool waits_for_turn(std::uint32_t load, const std::vector<std::uint32_t>& blocks,
                      const std::function<bool(std::string_view)>& is_index) const;

 private:
  // Whether `what` is true of a statement that can run behind `statement`.
  bool follows(std::uint32_t statement, const std::function<bool(std::uint32_t)>& what) const;
  // The parameters and variables that an address is made of; false where it may be anything.
  bool roots(std::string_view operand, std::vector<std::string_view>& out, int depth) const;
  bool may_be_same_place(std::string_view a, std::string_view b) const;

  // Statements that takes_token() may still look at; then it cannot tell.
  mutable std::uint64_t left_ = 4'000'000;
  const ptx::Cfg& cfg_;
  ptx::RegisterTable& registers_;
  std::unordered_map<std::string_view, std::vector<const ptx::Statement*>> definitions_;
};

}  // namespace sluice::passes
