// SPDX-License-Identifier: Apache-2.0
// Which registers an instruction reads and writes, as far as analyses must know it.
//
// Owner: an analysis, one thread; refers to the module. It knows the names of the pure arithmetic
// instructions; of an instruction that it does not know it says so, and the analysis then takes the
// worst.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/ptx/module.h"

namespace sluice::ptx {

// The next identifier of `text` at or after `at`, with `.x`-like suffix for special registers
// ("%tid.x"); skips numbers, brackets and strings. Empty at the end; `at` moves behind it.
std::string_view next_identifier(std::string_view text, std::size_t& at);

// What an instruction does with registers.
enum class Effect : std::uint8_t {
  kPure,     // writes operand 0 from the others, the same for the same inputs
  kUniform,  // writes operand 0; the result is the same for all threads (barrier reductions)
  kLoad,     // writes operand 0 from memory; kPure for parameters and constants
  kOpaque,   // writes operand 0; may differ between threads (atomics, shuffles, votes)
  kNone,     // writes no register (stores, barriers, branches)
  kUnknown,  // not known: may write any register it names
};
Effect effect_of(const Statement& statement);

// Bits of the register that `name` means in a statement: the innermost declaration's. 0: a
// predicate, a vector, or not declared.
std::uint32_t register_bits(const Function& function, std::string_view name, const Statement& in);

// Numbers the registers of one function: 0 .. size()-1.
class RegisterTable {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  // Refers to the function.
  explicit RegisterTable(const Function& function);
  // The register that `name` means in the function's outermost scope, or kNone where it is a
  // special register, a symbol or a label.
  std::uint32_t number(std::string_view name) { return number_in(0, name, kNone); }
  // The same in a statement: what an inner scope has declared before hides what is outside.
  std::uint32_t number(std::string_view name, const Statement& in);
  std::uint32_t size() const { return size_; }

 private:
  struct Set {
    std::string_view prefix;  // `%r<5>`: "%r"
    std::uint32_t count = 0;  // 5
    std::uint32_t begin = 0;  // where it is declared
    std::uint32_t most = 0;   // of them have their numbers here, as far as they were seen, or kNone
    std::vector<std::uint32_t> numbers;
  };
  struct Names {
    std::vector<Set> sets;  // a few
    // `%r1<5>` declares %r10 .. %r14, which `%r<20>` does, too: a name says not which set it is of.
    bool ambiguous = false;
    std::unordered_map<std::string_view, std::uint32_t> singles;  // `.reg .b32 x;`: where
    std::unordered_map<std::string_view, std::uint32_t> numbers;  // of others that were seen
  };
  // Declared before this byte of the text.
  static bool declared(const Names& names, std::string_view name, std::uint32_t before);
  // The place of the number of `name`: by its set, where it can be of one only.
  static std::uint32_t* place_of(Names& names, std::string_view name);
  std::uint32_t number_in(Names& names, bool outermost, std::string_view name,
                          std::uint32_t before);
  std::uint32_t number_in(std::uint32_t scope, std::string_view name, std::uint32_t before) {
    Names* const names = names_[scope];
    return names == nullptr ? kNone : number_in(*names, scope == 0, name, before);
  }

  const Function& function_;
  std::unordered_map<std::uint32_t, Names> scopes_;
  std::vector<Names*> names_;  // by scope; null: it declares no registers
  std::uint32_t size_ = 0;
};

// Calls `found` with the number of each register that `operand` of statement `in` names.
template <typename Found>
void for_each_register(RegisterTable& registers, std::string_view operand, const Statement& in,
                       const Found& found) {
  std::size_t at = 0;
  for (std::string_view name = next_identifier(operand, at); !name.empty();
       name = next_identifier(operand, at)) {
    const std::uint32_t r = registers.number(name, in);
    if (r != RegisterTable::kNone) found(r);
  }
}

}  // namespace sluice::ptx
