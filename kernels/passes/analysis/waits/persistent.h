// SPDX-License-Identifier: Apache-2.0
// Recognises blocks that hand out tiles among themselves by the grid's size: persistent kernels
// with a static schedule (`for (tile = blockIdx.x; tile < tiles; tile += gridDim.x)`). Those that
// draw from a counter are found by spin.h.
//
// Pure; any thread. By the shape of the loop: its step is made of %nctaid alone, and its counter
// does not come of the thread's number. A grid-stride loop over elements steps by %nctaid * %ntid,
// or begins at a number of the thread's own, and is no sign of anything.
#pragma once

#include "kernels/ptx/cfg.h"

namespace sluice::passes {

bool strides_by_grid(const ptx::Cfg& cfg);

}  // namespace sluice::passes
