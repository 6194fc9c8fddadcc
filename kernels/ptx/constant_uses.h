// SPDX-License-Identifier: Apache-2.0
// Constants of a module that are read by their addresses in global memory, where the driver keeps
// them, instead of through a bank, which belongs to one module:
//
//   mov.u64 %rd1, table;                   mov.u64 %rd1, ADDRESS;
//   add.s64 %rd2, %rd1, %rd3;         ->   add.s64 %rd2, %rd1, %rd3;
//   ld.const.f32 %f1, [%rd2+8];            ld.global.nc.f32 %f1, [%rd2+8];
//
// That is the same where an address of the constants' space is nothing but a name, what is counted
// on from it, and where something is loaded: it is not stored, passed on, or compared with others.
//
// Pure; any thread; linear in the function's text but for moves between registers, which are
// followed a few times. The text may be a guest's.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>

#include "kernels/ptx/module.h"

namespace sluice::ptx {

// Whether all of `function`'s uses of the constants of these names, and all that it loads of their
// space, are so.
bool reads_constants_by_name(const Function& function,
                             const std::unordered_set<std::string_view>& constants);

// A text whose functions all are, with what reads constants' space reading global memory.
std::string constants_from_global(std::string_view text);

}  // namespace sluice::ptx
