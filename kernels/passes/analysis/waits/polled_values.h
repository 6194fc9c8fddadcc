// SPDX-License-Identifier: Apache-2.0
// What a function looks like to analyses that follow values, and whether a called one hands on what
// it polls: as its result, or through memory that its caller may read.
//
// Owner: ModuleFacts, one function at a time, one thread. One that keeps to itself what it polls
// (an atomic whose result nobody asks for, a retry around a swap) ends no loop of its caller's.
// Errs towards handing on; through global memory nothing is followed.
#pragma once

#include <functional>
#include <string_view>

#include "kernels/passes/analysis/address_spaces.h"
#include "kernels/passes/analysis/stack_slots.h"
#include "kernels/ptx/module.h"

namespace sluice::passes {

// A function with its frame in registers and the spaces of its addresses, as far as they are known.
class FollowedText {
 public:
  // `shared`: whether a variable of the module is in shared memory.
  FollowedText(const ptx::Function& function, const std::function<bool(std::string_view)>& shared)
      : original_(function),
        slots_(function),
        spaces_(slots_.any() ? slots_.function() : function, shared) {}

  bool differs() const { return slots_.any() || spaces_.any(); }
  const ptx::Function& function() const {
    return spaces_.any() ? spaces_.function() : slots_.any() ? slots_.function() : original_;
  }

 private:
  const ptx::Function& original_;
  const StackSlots slots_;
  const AddressSpaces spaces_;
};

bool hands_on_polled(const ptx::Function& function,
                     const std::function<bool(std::string_view)>& shared);

}  // namespace sluice::passes
