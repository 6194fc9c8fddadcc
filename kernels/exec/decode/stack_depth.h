// SPDX-License-Identifier: Apache-2.0
// How much local memory a kernel's calls take: the deepest chain of frames, where that is known.
// Internal to kernels/exec; part of decode().
#pragma once

#include "kernels/exec/decode/decoder.h"

namespace sluice::exec::detail {

// Needs every body decoded and every initialiser read. Sets Callable::recursive, the kernels'
// local_bytes and dynamic_stack. A call through a pointer may reach every function of that
// signature whose address is taken.
void measure_stacks(ModuleContext& module);

}  // namespace sluice::exec::detail
