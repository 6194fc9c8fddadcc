// SPDX-License-Identifier: Apache-2.0
// The passes in their order.
#pragma once

#include <span>

#include "kernels/passes/clone/pass.h"

namespace sluice::passes {

struct Step {
  const char* name;  // as `sluice-ptx print --after-each` and reports call it
  Finding (*run)(Clone& clone);
  // Whether the kernel needs it at all.
  bool (*wanted)(const KernelFacts& facts);
};

// Every clone of its form goes through it.
bool always_wanted(const Step& step);

// What makes a clone of this form, in order.
std::span<const Step> steps_of(Form form);

}  // namespace sluice::passes
