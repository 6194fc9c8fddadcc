// SPDX-License-Identifier: Apache-2.0
// A kernel's clones, where the host wants them when it is first launched
// (SLUICE_JOINED_LAZY_CLONES): the kernel is taken out of its module, rewritten and sent as a
// module of its own. Its variables stay those of the program's module (kernels/ptx/separate.h).
//
// Any thread. The first launch of a kernel waits until they are assembled, like a first launch
// under CUDA's lazy loading; a kernel whose clones cannot be made runs as its original from then
// on, which cannot be evicted, and the log says why. One kernel at a time, under
// all_modules().mutex.
#pragma once

#include "guest-agent/shim/state/state.h"

namespace sluice::guest {

void make_clones(const Entered& entered, FunctionInfo& function);

inline void settle_clones(const Entered& entered, FunctionInfo& function) {
  if (function.clones.load(std::memory_order_acquire) == ClonesState::kAbsent)
    make_clones(entered, function);
}

}  // namespace sluice::guest
