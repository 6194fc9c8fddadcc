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

// Numbers the registers of one function: 0 .. size()-1.
class RegisterTable {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  explicit RegisterTable(const Function& function);
  // The register's number, or kNone where `name` is a special register, a symbol or a label.
  // Registers of the same name in different scopes share one number.
  std::uint32_t number(std::string_view name);
  std::uint32_t size() const { return static_cast<std::uint32_t>(numbers_.size()); }

 private:
  bool declared(std::string_view name) const;

  std::unordered_map<std::string_view, std::uint32_t> sets_;     // `%r<5>`: "%r" -> 5
  std::unordered_map<std::string_view, std::uint32_t> numbers_;  // every register seen
  std::unordered_map<std::string_view, bool> singles_;           // `.reg .b32 x;`
};

}  // namespace sluice::ptx
