// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/plan.h"

namespace sluice::passes {

namespace {

bool always(const KernelFacts&) { return true; }
bool has_index_functions(const KernelFacts& f) { return !f.index_functions.empty(); }
bool waits(const KernelFacts& f) { return f.waits.for_lower_tasks; }
bool one_phase(const KernelFacts& f) { return f.divergent_barrier && !f.sync.reduction; }
bool two_phases(const KernelFacts& f) { return f.divergent_barrier && f.sync.reduction; }
bool lanes_return(const KernelFacts& f) { return static_cast<bool>(f.divergent_collective); }
bool has_author_points(const KernelFacts& f) { return f.author.any; }
bool hands_registers(const KernelFacts& f) { return f.register_pool.any; }
bool copies(const KernelFacts& f) {
  return f.sync.cp_async || f.memory_barriers.any || f.memory_barriers.bulk;
}

constexpr Step kLoop[] = {
    {"form", check_form, always},
    {"parameters", place_parameters, always},
    {"slots", place_slots, always},
    {"in-order", keep_order, waits},
    {"unified", unify_barriers, one_phase},
    {"two-phase", split_barriers, two_phases},
    {"lane-masks", mask_lanes, lanes_return},
    {"clean-up", finish_copies, copies},
    {"registers", give_registers_back, hands_registers},
    {"index", replace_index, always},
    {"index-in-calls", replace_index_in_calls, has_index_functions},
    {"plain", loop_over_tasks, always},
};

constexpr Step kResumable[] = {
    {"form", check_form, always},
    {"parameters", place_parameters, always},
    {"slots", place_slots, always},
    {"author-points", place_author_points, has_author_points},
    {"index", replace_index, always},
    {"index-in-calls", replace_index_in_calls, has_index_functions},
    {"resumable", run_resumable_task, always},
};

constexpr Step kPrologue[] = {
    {"form", check_form, always},
    {"parameters", place_parameters, always},
    {"index", replace_index, always},
    {"index-in-calls", replace_index_in_calls, has_index_functions},
    {"prologue", run_one_task, always},
};

constexpr Step kWindow[] = {
    {"form", check_form, always},
    {"parameters", place_parameters, always},
    {"index", replace_index, always},
    {"index-in-calls", replace_index_in_calls, has_index_functions},
    {"window", run_in_windows, always},
};

}  // namespace

bool always_wanted(const Step& step) { return step.wanted == always; }

std::span<const Step> steps_of(Form form) {
  if (form == Form::kLoop) return kLoop;
  if (form == Form::kOneTask) return kPrologue;
  if (form == Form::kResumable) return kResumable;
  if (form == Form::kWindow) return kWindow;
  return {};
}

}  // namespace sluice::passes
