// SPDX-License-Identifier: Apache-2.0
// A copy of a function in which generic addresses name their state space where that is known, for
// analyses of what else is written there. Unoptimised text reads and writes everything by generic
// addresses.
//
//   counted from             space
//   a kernel's parameter     global: a launch has no other addresses to pass
//   a variable in shared     shared
//   anything else            stays generic
//
// Owner: gather_waits(), one function, one thread; refers to the function. The copy is for analysis
// only and never printed: it has as many statements as the function, at the same places.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "kernels/ptx/module.h"

namespace sluice::passes {

class AddressSpaces {
 public:
  // `shared`: whether a variable of the module is in shared memory.
  AddressSpaces(const ptx::Function& function, const std::function<bool(std::string_view)>& shared);
  AddressSpaces(const AddressSpaces&) = delete;
  AddressSpaces& operator=(const AddressSpaces&) = delete;

  // Whether the copy differs. function() is only of use then.
  bool any() const { return !names_.empty(); }
  const ptx::Function& function() const { return copy_; }

 private:
  ptx::Function copy_;
  std::deque<std::string> names_;  // opcodes that the copy's statements refer to
};

}  // namespace sluice::passes
