// SPDX-License-Identifier: Apache-2.0
// How launches will be done: which clone, in which form, with what geometry; the rest of the driver
// is in launch/cuda_streams.cc.
#include <algorithm>

#include "mediator/worker/launch/cuda_streams.h"

namespace sluice::worker {

uint32_t CudaStreams::variant_of(FunctionObject& f, uint32_t block_threads,
                                 uint32_t dynamic_shared) {
  for (uint32_t i = 0; i < f.variants.size(); ++i) {
    if (f.variants[i].block_threads == block_threads &&
        f.variants[i].dynamic_shared == dynamic_shared) {
      return i;
    }
  }
  LaunchVariant v{.block_threads = block_threads,
                  .dynamic_shared = dynamic_shared,
                  .clone_dynamic_shared = dynamic_shared,
                  .chunks = ChunkModel(settings_.target_us)};
  if (f.slot_dynamic) v.clone_dynamic_shared = dynamic_shared + SLUICE_PREEMPT_DYNAMIC_BYTES;
  if (f.clone) {
    // Where it does not fit the original is launched, and says itself what is wrong.
    const ChosenForm form = choose_form(api_, {f.original, f.clone, f.clamped}, block_threads,
                                        dynamic_shared, v.clone_dynamic_shared);
    v.clone = form.function;
    const auto sms = static_cast<uint32_t>(f.module->context->multiprocessors);
    v.resident = form.blocks_per_sm * sms;
    // Those that have no slots.
    const auto beside = [&](CUfunction clone, CUfunction clamped,
                            uint32_t* resident) -> CUfunction {
      if (!clone) return nullptr;
      const ChosenForm second = choose_form(api_, {f.original, clone, clamped}, block_threads,
                                            dynamic_shared, dynamic_shared);
      *resident = second.blocks_per_sm * sms;
      return *resident != 0 ? second.function : nullptr;
    };
    v.one_task = beside(f.one_task, f.one_task_clamped, &v.one_task_resident);
    v.window = beside(f.window, nullptr, &v.window_resident);
  }
  // A program that varies its block size endlessly only loses what was learnt.
  constexpr size_t kMaxVariants = 64;
  if (f.variants.size() >= kMaxVariants) {
    const uint32_t victim = static_cast<uint32_t>(next_launch_id_ % kMaxVariants);
    f.variants[victim] = v;
    return victim;
  }
  f.variants.push_back(v);
  return static_cast<uint32_t>(f.variants.size() - 1);
}

void CudaStreams::plan(LaunchWork& w, bool contended) {
  FunctionObject& f = *w.request.function;
  w.plan.tasks = task_count(w.request.grid[0], w.request.grid[1], w.request.grid[2]);
  w.plan.geometry = Geometry{};
  if (!f.clone || w.plan.tasks == 0 || w.request.flags != 0 ||
      (f.one_row && (w.request.grid[1] != 1 || w.request.grid[2] != 1)))
    return;
  if (make_current(api_, f.module->context->cu) != CUDA_SUCCESS) return;
  w.plan.variant = variant_of(f, w.request.block[0] * w.request.block[1] * w.request.block[2],
                              w.request.dynamic_shared);
  LaunchVariant& v = f.variants[w.plan.variant];
  // Where parts may be granted the other forms are for those that the hardware confines: known when
  // it is issued (fit_to).
  const auto sms = static_cast<uint32_t>(f.module->context->multiprocessors);
  const WindowPlan windows = parts_ ? WindowPlan{} : take_form(w, v, sms, !contended || turns_);
  w.plan.geometry = form_geometry(w, v, sms);
  if (parts_) plan_for_parts(w);
  if (w.plan.geometry.evictable && f.form.resumable) {
    const uint64_t bytes = resume_bytes(w.plan.tasks, v.block_threads, f.form.state_bytes);
    if (bytes != 0) w.state = f.module->context->states->take(bytes);
    if (w.state.address == 0) w.plan.geometry = Geometry{};
  }
  // So that sluiced can tell how long a launch will take before it lets it run.
  if (w.plan.geometry.evictable) take_record(w, true);
  if (w.plan.form == FormKind::kWindows) take_windows(w, v, windows, sms);
}

// What of the blocks that the whole GPU holds at once so many of its SMs do.
uint32_t CudaStreams::held_by(const FunctionObject& f, uint32_t resident, uint32_t sms) {
  return resident / static_cast<uint32_t>(f.module->context->multiprocessors) * sms;
}

// The form of a launch that has `sms` SMs to itself.
WindowPlan CudaStreams::take_form(LaunchWork& w, LaunchVariant& v, uint32_t sms,
                                  bool windows_may) const {
  const FunctionObject& f = *w.request.function;
  WindowPlan windows;
  unsigned may = 0;
  // On fewer SMs the blocks that are not admitted take longer to come and go.
  const uint64_t tasks =
      uint64_t{w.plan.tasks} * static_cast<uint32_t>(f.module->context->multiprocessors) / sms;
  if (v.one_task && tasks < 1u << 31 &&
      FormChoice::allowed(static_cast<uint32_t>(tasks), v.block_threads, v.chunks.task_ns(),
                          f.form.in_order, settings_))
    may |= 1u << static_cast<int>(FormKind::kOneTask);
  if (v.window && windows_may)
    windows = FormChoice::windows(w.request.grid, held_by(f, v.window_resident, sms),
                                  v.chunks.task_ns(), settings_);
  if (windows.tasks != 0) may |= 1u << static_cast<int>(FormKind::kWindows);
  w.plan.form = may == 0 ? FormKind::kLoop : v.choice.next(may, f.form.in_order);
  return windows;
}

// What its form comes to on so many SMs. Of a launch in windows: what it is where these cannot be
// (take_windows).
Geometry CudaStreams::form_geometry(LaunchWork& w, LaunchVariant& v, uint32_t sms) {
  CloneForm form = w.request.function->form;
  const bool one_task = w.plan.form == FormKind::kOneTask;
  w.plan.clone = one_task ? v.one_task : v.clone;
  form.once |= one_task;
  const uint32_t resident =
      held_by(*w.request.function, one_task ? v.one_task_resident : v.resident, sms);
  w.plan.one_task = form.once;
  if (w.plan.one_task) w.submission.workers = std::min(w.plan.tasks, resident);
  return plan_launch(w.plan.tasks, resident, v.chunks.chunk(), proxy_, settings_, form);
}

// Windows are for launches that are not whole at once, and by its record it is known when one of
// them has come so far that the next one may follow.
void CudaStreams::take_windows(LaunchWork& w, LaunchVariant& v, const WindowPlan& windows,
                               uint32_t sms) {
  if (!w.plan.geometry.evictable || w.record < 0) {
    w.plan.form = FormKind::kLoop;
    return;
  }
  w.plan.clone = v.window;
  w.plan.window_plan = windows;
  w.submission.workers =
      std::min(w.plan.tasks, held_by(*w.request.function, v.window_resident, sms));
  w.plan.timed = v.choice.timed() || w.plan.tasks / windows.tasks >= FormChoice::kManyWindows;
}

}  // namespace sluice::worker
