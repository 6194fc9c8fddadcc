// SPDX-License-Identifier: Apache-2.0
// A function with the variables of its stack frame in registers, for analyses that follow values.
// Unoptimised text (clang -O0) keeps every variable in local memory and reads it by a generic
// address, which is otherwise taken for memory that other blocks write.
//
// Owner: gather_waits(), one function, one thread; refers to the function and the module. The copy
// is for analysis only and never printed: it has as many statements as the function, at the same
// places. A slot becomes a register only where every access of its frame is understood and the
// frame's address goes nowhere else, or into slots from where it goes nowhere else either: calls
// that are written in place leave variables by reference and objects that hold references.
// Otherwise accesses of the frame are marked as local.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <string_view>

#include "kernels/ptx/module.h"

namespace sluice::passes {

class StackSlots {
 public:
  explicit StackSlots(const ptx::Function& function);
  StackSlots(const StackSlots&) = delete;
  StackSlots& operator=(const StackSlots&) = delete;

  // Whether the copy differs. function() is only of use then.
  bool any() const { return any_; }
  const ptx::Function& function() const { return copy_; }

 private:
  class Rounds;

  bool any_ = false;
  ptx::Function copy_;
  // What the copy's statements refer to.
  std::deque<std::string> names_;
  std::deque<std::array<std::string_view, 2>> operands_;
};

}  // namespace sluice::passes
