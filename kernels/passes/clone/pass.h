// SPDX-License-Identifier: Apache-2.0
// What a pass is: one step of turning a kernel into a form that can be evicted, or the reason why
// that is not possible.
//
// Owner: rewrite_module() (rewrite.h). For each entry it tries the forms in order (a loop over
// tasks, one task per block, nothing at all), and for a form runs the passes of plan.h over one
// Clone (clone.h), each of which edits what it knows about. The first form that all its passes
// agree to wins. A new pass is one file with one function, its declaration here and its row in
// plan.cc. Passes are pure functions: same module, same bytes; any thread. They run where programs
// load their modules (guest) and where the host checks them (worker).
#pragma once

#include <string>
#include <string_view>

#include "abi/preempt.h"
#include "kernels/passes/analysis/facts.h"
#include "kernels/ptx/module.h"

namespace sluice::passes {

class Clone;

// How a kernel can be taken off the GPU: the form, and the hardest thing that was in its way.
// Numbers go into logs: append only.
enum class Tier {
  kOpaque = 0,   // it cannot: gated at launch, or time-sliced by the hardware
  kPlain = 1,    // persistent loop over block-tasks (EffiSha, FLEP)
  kUnified = 2,  // loop; barriers that also threads pass that have returned (rule unified-barriers)
  kTwoPhase = 3,  // the same for kernels that reduce over barriers themselves (rule two-phase)
  kLaneMasks =
      4,          // loop; warp collectives name only lanes that have not returned (rule lane-masks)
  kInOrder = 5,   // loop; one ticket at a time, because tasks wait for lower ones (rule in-order)
  kPrologue = 6,  // no loop: a block polls the evict word once and runs at most one task
  kResumable = 7,  // its author says where a block can leave (preempt.cuh); one task per block
};
// "opaque", "plain", "unified", "two-phase", "lane-masks", "in-order", "prologue", "resumable"
const char* tier_name(Tier tier);

// Where the clone keeps its broadcast slots, and so what its launcher must do.
enum class SlotPlace {
  kNone = 0,        // no clone
  kStatic = 1,      // in static shared memory; nothing to do
  kDynamicEnd = 2,  // at the end of dynamic shared memory: see kSlotBytes
};
inline constexpr std::uint32_t kSlotBytes = SLUICE_PREEMPT_SHARED_BYTES;

enum class Form { kNone, kResumable, kLoop, kOneTask, kWindow };

struct PassInput {
  const ptx::Module& module;
  const ptx::Function& entry;  // has a body
  const KernelFacts& facts;
  std::string_view prefix;   // "sluice1_": no identifier of the module contains it
  std::uint32_t number = 0;  // of the clone in its module: makes names at module scope unique
  std::string_view suffix = SLUICE_CLONE_SUFFIX;  // of the clone's name
};

// Each returns nothing, or why the clone's form is not possible.
Finding check_form(Clone& clone);        // form.cc: what no pass can help with
Finding place_parameters(Clone& clone);  // parameters.cc: rules one-parameter, isa-version
Finding replace_index(Clone& clone);     // index.cc: rules block-index, returns, original-stays
Finding replace_index_in_calls(Clone& clone);  // index_calls.cc: rule index-in-calls
Finding place_slots(Clone& clone);             // slots.cc: rule slot-place
Finding keep_order(Clone& clone);              // in_order.cc: rule in-order
Finding unify_barriers(Clone& clone);          // unified.cc: rule unified-barriers
Finding split_barriers(Clone& clone);          // two_phase.cc: rule two-phase
Finding mask_lanes(Clone& clone);              // lane_masks.cc: rule lane-masks
Finding finish_copies(Clone& clone);           // clean_up.cc: rule clean-up
Finding give_registers_back(Clone& clone);     // register_pool.cc: rule register-pool
Finding loop_over_tasks(Clone& clone);         // plain.cc: rules two-slots, left-over
Finding run_one_task(Clone& clone);            // prologue.cc: tier C
Finding run_in_windows(Clone& clone);          // window.cc: both kinds
Finding place_author_points(Clone& clone);     // resumable.cc
Finding run_resumable_task(Clone& clone);      // resumable.cc

}  // namespace sluice::passes
