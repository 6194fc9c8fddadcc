// SPDX-License-Identifier: Apache-2.0
// Which registers each statement of a function reads and writes, in numbers: what all questions
// about one function's flow of values have in common.
//
// Owner: an analysis pass, one thread; immutable once made, so that many questions may share one.
// Refers to the function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ptx/cfg.h"

namespace sluice::ptx {

class ValueFlow {
 public:
  // An error where the function is too large for its dominators.
  static Result<ValueFlow> of(const Cfg& cfg);

  // Registers are numbered from 0; one of them is the carry flag.
  std::uint32_t registers() const { return static_cast<std::uint32_t>(def_count_.size()); }
  // The statement's result differs between threads whatever its inputs.
  bool source(std::uint32_t statement) const { return source_[statement]; }
  // The statement writes the same for all threads of a block (a barrier's reduction).
  bool uniform(std::uint32_t statement) const { return uniform_[statement]; }
  // The register that guards the statement; RegisterTable::kNone: there is no guard, or what
  // stands there is no register.
  std::uint32_t guard(std::uint32_t statement) const { return guards_[statement]; }
  std::span<const std::uint32_t> uses(std::uint32_t statement) const {
    return row(uses_, uses_begin_, statement);
  }
  std::span<const std::uint32_t> defs(std::uint32_t statement) const {
    return row(defs_, defs_begin_, statement);
  }
  // Statements that read the register.
  std::span<const std::uint32_t> readers(std::uint32_t r) const {
    return row(readers_, readers_begin_, r);
  }
  // Statements that write it.
  std::uint32_t def_count(std::uint32_t r) const { return def_count_[r]; }
  // Written in one place, but read where that has not always been passed: in a loop a thread that
  // goes round it keeps what an earlier turn wrote. Compilers do not write so.
  bool kept(std::uint32_t r) const { return kept_[r]; }
  // Those that hold the arguments of a .func.
  const std::vector<std::uint32_t>& parameter_registers() const { return parameter_registers_; }

 private:
  class Reader;

  static std::span<const std::uint32_t> row(const std::vector<std::uint32_t>& all,
                                            const std::vector<std::uint32_t>& begin,
                                            std::uint32_t i) {
    return {all.data() + begin[i], begin[i + 1] - begin[i]};
  }
  void count_registers(std::uint32_t registers);
  Result<void> find_kept(const Cfg& cfg);

  std::vector<std::uint32_t> uses_, defs_, uses_begin_, defs_begin_;  // by statement
  std::vector<std::uint32_t> readers_, readers_begin_;                // by register
  std::vector<std::uint32_t> def_count_, parameter_registers_;
  std::vector<std::uint32_t> guards_;
  std::vector<bool> source_, uniform_, kept_;
};

}  // namespace sluice::ptx
