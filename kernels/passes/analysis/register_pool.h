// SPDX-License-Identifier: Apache-2.0
// Kernels whose warps hand registers to one another (setmaxnreg), and whether a block can put them
// back behind each task, so that the next one begins with this many a thread as a new block's (rule
// register-pool).
//
// PTX ISA, "setmaxnreg": a warp's count falls by `.dec` and rises by `.inc`, which waits until the
// block's pool has enough; between two of them the warps of a warpgroup synchronise. So when all
// warps have come to the task's end, those that hold more than at the launch give it back, which
// never waits, and those that hold less take it, which then finds enough, because nothing else was
// taken from the pool.
//
// How many there are at the launch must be known: `.maxnreg`, or what the bounds leave, which the
// assembler then gives such a kernel in full (checked with ptxas 13.0 for 96 to 1,024 threads, one
// and two blocks). Without either the assembler ignores setmaxnreg. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/passes/analysis/finding.h"
#include "kernels/ptx/module.h"

namespace sluice::passes {

struct RegisterPool {
  bool any = false;
  std::uint32_t at_launch = 0;  // registers of a thread
  struct HandOver {
    std::uint32_t statement = 0;
    std::uint32_t registers = 0;  // what a thread has behind it
  };
  std::vector<HandOver> hand_overs;
  Finding no_loop;  // they cannot be put back
};

RegisterPool find_register_pool(const ptx::Function& entry);

}  // namespace sluice::passes
