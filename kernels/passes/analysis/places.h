// SPDX-License-Identifier: Apache-2.0
// What an address, or a number, is made of: a sum of parts times constants, found by following
// registers backwards through integer arithmetic. So two addresses can be proved to name the
// same place, or places a fixed step apart.
//
// Owner: find_waiting(), one function, one thread; refers to the module. Each part is written as
// text that is the same where the same is computed again: a parameter, a special register, a load
// from such an address, an operation on such sums. Overflow is not considered. Time and memory are
// bounded: what is too long, or has several definitions, is a part of its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/ptx/module.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

// What a part begins with that is a kernel's parameter.
inline constexpr std::string_view kParameter = "param(";
// What parts begin with that are the result of an atomic, a load from shared memory, or any other
// load but one of a parameter.
inline constexpr std::string_view kAtomic = "atom%", kSharedLoad = "ld.shared", kLoad = "ld(";

// parts' factors by their text, and a constant; modulo 2^64.
struct Sum {
  std::map<std::string, std::int64_t> parts;
  std::int64_t constant = 0;
  bool operator==(const Sum&) const = default;
  bool is_constant() const { return parts.empty(); }
  // Above 0 whatever the launch: a constant, or the block's size times constants.
  bool is_positive() const;
};

enum class Places : std::uint8_t { kSame, kOther, kUnknown };

class Sums {
 public:
  Sums(const ptx::Function& function, ptx::RegisterTable& registers);

  // Of an operand, `%r1`, `-4` or `[%rd1+8]`, of statement `in`.
  Sum of(std::string_view operand, const ptx::Statement& in) { return of_text(operand, in, 0); }
  // `a` - `b`.
  static Sum difference(const Sum& a, const Sum& b);
  // The same for the same sum; others share one only where both are very long.
  static std::string text(const Sum& s);
  // What an address is counted from: its only part that is taken once, if that is a variable or a
  // parameter.
  static std::optional<std::string> root(const Sum& address);
  // Whether two addresses name one place. Unknown where they differ by registers that have several
  // values in turn.
  static Places compare(const Sum& a, const Sum& b);
  // The part that a local variable's address is: its name, and the scope if that is an inner one.
  static std::string local_part(std::string_view name, std::uint32_t scope);

 private:
  // The lowest bit of a part times its factor that may be 1.
  std::int64_t lowest_bit(const std::pair<const std::string, std::int64_t>& part) const;
  std::string symbol_part(std::string_view name, const ptx::Statement& in) const;
  Sum of_text(std::string_view operand, const ptx::Statement& in, int depth);
  Sum of_register(std::uint32_t number, int depth);
  Sum of_definition(std::uint32_t number, const ptx::Statement& s, int depth);
  // What an integer instruction makes, where it is a sum of its operands.
  std::optional<Sum> linear(const ptx::Statement& s, int depth);

  const ptx::Function& function_;
  ptx::RegisterTable& registers_;
  // What writes each register, listed at the first question.
  using ByRegister = std::unordered_map<std::uint32_t, std::vector<const ptx::Statement*>>;
  const ByRegister& definitions() { return find_definitions(), known_definitions_; }
  void find_definitions();
  bool knows_definitions_ = false;
  ByRegister known_definitions_;
  std::unordered_map<std::string_view, std::vector<std::uint32_t>>
      locals_;                                               // inner scopes, by name
  std::unordered_map<std::string, std::int64_t> alignment_;  // of local variables, by their part
  std::unordered_map<std::uint32_t, Sum> known_;
};

}  // namespace sluice::passes
