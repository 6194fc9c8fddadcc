// SPDX-License-Identifier: Apache-2.0
// What must hold when a decoded program runs, whatever it computes: it touches only what it was
// given, and it stops when its steps are used up.
#pragma once

#include <memory>

#include "kernels/exec/program/program.h"

namespace sluice::fuzz {

// Runs a block of each of the first entries for a bounded number of steps, its parameters full of
// addresses of memory that it may use, with a texture and a surface; then once more under the
// checker. Sanitizers see what it touches.
void run_entries(const std::shared_ptr<const exec::Program>& program);

}  // namespace sluice::fuzz
