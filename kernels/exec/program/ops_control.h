// SPDX-License-Identifier: Apache-2.0
// The operations that the warp loop itself carries out (kernels/exec/run/warp_loop.cc): what
// changes a program counter, waits, or needs more than one lane's registers. X(name).
#pragma once

// clang-format off
#define SLUICE_EXEC_CONTROL_OPS(X) \
  X(bra) \
  X(brx) \
  X(call) \
  X(ret) \
  X(exit) \
  X(trap) \
  X(join) \
  X(bar) \
  X(barwarp) \
  X(barcluster) \
  X(nanosleep) \
  X(shfl) \
  X(vote) \
  X(match) \
  X(redux) \
  X(elect) \
  X(builtin) \
  X(activemask) \
  X(results) \
  X(alloca)
// clang-format on
