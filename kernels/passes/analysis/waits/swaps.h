// SPDX-License-Identifier: Apache-2.0
// What loops around compare-and-swap and exchange wait for: nothing where they retry or take a lock
// whose holder runs and gives it back, another block where they take a token that this kernel's
// block does not put back.
//
// Owner: find_waiting(), one function, one thread; refers to the control-flow graph. Shapes, not
// proofs; each function says to which side it errs. Turns and counts are in swap_turns.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernels/passes/analysis/places.h"
#include "kernels/ptx/cfg.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

class Swaps {
 public:
  Swaps(const ptx::Cfg& cfg, ptx::RegisterTable& registers, Sums& sums);

  // Whether statement `atom` (a swap in global memory in the loop `blocks`) waits for the same
  // thing at the same place each turn, and nothing that can run behind it may put it back there,
  // or the kernel may end without that where other blocks' data or the block's number decides so.
  // False where that is not known.
  bool takes_token(std::uint32_t atom, const std::vector<std::uint32_t>& blocks) const;
  // Whether the value that `load` reads only ever is what a compare-and-swap of the same place in
  // the loop compares with, or makes its new value of, or that it is read again only where that
  // swap has failed: a swap fails only because another one succeeded. False where that is
  // not known.
  bool only_compared(std::uint32_t load, const std::vector<std::uint32_t>& blocks) const;
  // Whether a compare-and-swap compares with what statement `load` has read; only then the others
  // need to be checked.
  bool may_be_compared(std::uint32_t load) const;
  // Whether the loop only ever puts the value that `load` reads, or what it makes of it, somewhere
  // by a swap: the new head of a list. False where that is not known.
  bool only_put(std::uint32_t load, const std::vector<std::uint32_t>& blocks) const;
  // Whether the value that `load` reads is only ever asked whether it is the block's own number
  // (`is_index`), and the block passes the turn on to a higher one behind the loop: serial split-K
  // and the like. False where that is not known.
  using IsIndex = std::function<bool(std::string_view, const ptx::Statement&)>;
  bool waits_for_turn(std::uint32_t load, const std::vector<std::uint32_t>& blocks,
                      const IsIndex& is_index) const;
  // Whether the loop ends as soon as the count that `load` reads comes up to the block's number in
  // the grid less something, and each block counts itself behind the loop, one by one or, OpenMP's
  // reduction over teams, as many at once as the number may be ahead:
  //
  //   while (number >= count + kMany) count = read(counter);
  //   ...
  //   if (atomicInc(&arrived, kMany - 1) == kMany - 1) atomicAdd(&counter, kMany);
  //
  // All lower blocks have counted themselves once they have ended. False where that is not known.
  bool waits_for_count(std::uint32_t load, const std::vector<std::uint32_t>& blocks) const;
  // Whether something else in the loop `blocks` changes the place that atomic `atom` adds to.
  bool changed_beside(std::uint32_t atom, const std::vector<std::uint32_t>& blocks) const;

 private:
  // Whether `setp` asks if something is this operand, the block's own number, which `loop` leaves
  // as it is. Then *own is that number as a sum.
  bool compares_with_turn(const ptx::Statement& setp, std::size_t operand,
                          const std::vector<const ptx::Statement*>& loop, const IsIndex& is_index,
                          Sum& own) const;
  // By how much the block's number may be ahead of the count that `load` reads for the loop
  // `blocks` to end, and whether the loop asks nothing else of the count. 0: it is not known.
  std::int64_t most_ahead(std::uint32_t load, const std::vector<std::uint32_t>& blocks) const;
  // What a comparison of such a count (`on_the_left`, or on the right) asks: whether it is enough,
  // or too few, for a block whose number is `ahead` of it. ahead 0: something else.
  struct Asked {
    std::int64_t ahead = 0;
    bool whether_enough = false;
  };
  Asked asked_of_count(const ptx::Statement& setp, bool on_the_left, const Sum& count) const;
  // Whether the loop ends, by all branches that ask so, where a predicate of `enough` is true or
  // one of `too_few` is false.
  bool ends_by(const std::vector<std::uint32_t>& blocks,
               const std::unordered_set<std::uint32_t>& enough,
               const std::unordered_set<std::uint32_t>& too_few) const;
  // Whether the loop comes back to `load` only where a swap has failed; by predicates that say so.
  bool repeats_only_where(std::uint32_t load, const std::vector<std::uint32_t>& blocks,
                          const std::unordered_set<std::uint32_t>& failed,
                          const std::unordered_set<std::uint32_t>& passed) const;
  // Whether the kernel may end behind `atom` and nothing that is `what` has run. At branches that
  // neither data of other blocks nor the block's number decides, the way counts on which it runs:
  // whoever takes a lock as thread 0 returns it as thread 0.
  bool may_keep(std::uint32_t atom, const std::function<bool(std::uint32_t)>& what) const;
  // Blocks that have a statement that is `what`, and those from which one of them can be reached.
  struct Ways {
    std::vector<bool> has, leads;
  };
  Ways ways_to(const std::function<bool(std::uint32_t)>& what) const;
  // The registers that such data and numbers get into, but for what `atom` itself has found.
  std::unordered_set<std::uint32_t> decided_by_others(std::uint32_t atom) const;
  // What has been asked on every way to the swap is answered the same behind it.
  void leave_out_asked_before(std::uint32_t atom,
                              std::unordered_set<std::uint32_t>& registers) const;
  bool branches_by(const ptx::Block& block,
                   const std::unordered_set<std::uint32_t>& registers) const;
  bool uses_any(const ptx::Statement& s, const std::unordered_set<std::uint32_t>& registers) const;
  // Whether something is done with the value that a swap has found.
  bool looks_at(const ptx::Statement& swap) const;
  // Whether `what` is true of a statement that can run behind `statement`.
  bool follows(std::uint32_t statement, const std::function<bool(std::uint32_t)>& what) const;
  // The register that an operand is; kNone where it is none.
  std::uint32_t number(const ptx::Statement& s, std::string_view operand) const {
    return registers_.number(ptx::trimmed(operand), s);
  }
  // Whether a loop is as short as those are that wait; longer ones are not searched.
  bool is_short(const std::vector<std::uint32_t>& blocks) const;
  Places compare(const ptx::Statement& a, std::string_view address_of_a, const ptx::Statement& b,
                 std::string_view address_of_b) const;
  // Whether what statement `write` puts where `read` read is a higher number than `own`, one that
  // goes round included.
  bool passes_on(const ptx::Statement& write, const ptx::Statement& read, const Sum& own) const;
  bool is_higher(const ptx::Statement& s, std::string_view value, const ptx::Statement& read,
                 const Sum& own, int depth) const;

  static bool in_own_memory(const ptx::Statement& s);
  // Where a statement that writes to memory writes.
  static std::size_t address_operand(const ptx::Statement& s);

  // Definitions that a number is followed through; compilers need one or two.
  static constexpr int kDeepest = 8;
  // Statements that takes_token() may still look at; then it cannot tell.
  mutable std::uint64_t left_ = 4'000'000;
  const ptx::Cfg& cfg_;
  ptx::RegisterTable& registers_;
  Sums& sums_;
  using Statements = std::vector<const ptx::Statement*>;
  using ByRegister = std::unordered_map<std::uint32_t, Statements>;
  // What writes and reads each register, listed at the first question.
  const ByRegister& definitions() const { return find_uses(), known_definitions_; }
  const ByRegister& uses() const { return find_uses(), known_uses_; }
  void find_uses() const;
  mutable bool knows_uses_ = false;
  mutable ByRegister known_definitions_, known_uses_;
  std::unordered_set<std::uint32_t> compared_;  // registers, copied or not, that a swap compares
};

}  // namespace sluice::passes
