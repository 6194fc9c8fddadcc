// SPDX-License-Identifier: Apache-2.0
// A kernel's clones, where the host wants them when it is first launched
// (SLUICE_JOINED_LAZY_CLONES) or has turned out to take long: the kernel is taken out of its
// module, rewritten and sent as a module of its own. Its variables stay those of the program's
// module (kernels/ptx/separate.h).
//
//   ClonesState  a launch                                  leaves for
//   kAbsent      asks for them, goes on as in kAsked;      kAsked
//                with SLUICE_JOINED_CLONES_ON_REQUEST it
//                is the original until the worker wants
//                them
//   kAsked       waits for them, for kPatience at most,    kSettled, kLate
//                or not at all: streams_wait_for_the_program()
//   kLate        is the original, which cannot be evicted  kSettled
//   kSettled     takes the form that the worker chooses
//
// With SLUICE_JOINED_ORIGINALS_AT_ONCE a launch whose blocks the GPU holds at once does not ask: it
// would be the original all the same, unless its author says where its blocks can leave.
//
// Where the host takes forms apart (SLUICE_JOINED_FORMS_APART), only the first is made then,
// without the original beside it: what is never launched would have to be assembled, too. The
// others are made when the worker wants them; no launch waits for those.
//
// A thread of ours makes them, one kernel after the other; it starts with the first. That a launch
// waits no longer is because NVIDIA's driver loads a module only when its context has nothing
// queued (seen on an H200), and what is queued may wait for the program. A kernel whose clones
// cannot be made runs as its original from then on, and the log says why. Any thread may launch.
#pragma once

#include "guest-agent/shim/state/state.h"

namespace sluice::guest {

void wait_for_clones(const Entered& entered, FunctionInfo& function);
// The program queues what it ends itself later (cuStreamWaitValue32).
void streams_wait_for_the_program();

inline bool may_do_without_clones(const FunctionInfo& function) {
  return function.at_once && function.clones.load(std::memory_order_acquire) < ClonesState::kLate;
}
// Asks for the forms beside the first.
void ask_for_other_forms(const Entered& entered, FunctionInfo& function);

inline void settle_clones(const Entered& entered, FunctionInfo& function) {
  if (function.clones.load(std::memory_order_acquire) < ClonesState::kLate &&
      entered.link->channel().wants_clones(function.handle))
    wait_for_clones(entered, function);
  else if (function.others_later.load(std::memory_order_relaxed) &&
           entered.link->channel().wants_other_forms(function.handle))
    ask_for_other_forms(entered, function);
}

}  // namespace sluice::guest
