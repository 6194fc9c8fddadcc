// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/plan/planner.h"

#include <algorithm>

#include "mediator/worker/launch/driver_calls.h"
#include "mediator/worker/limits.h"

namespace sluice::worker {

namespace {
// What of the blocks that the whole GPU holds at once this many of its SMs do.
uint32_t held_by(const FunctionObject& f, uint32_t resident, uint32_t sms) {
  return resident / static_cast<uint32_t>(f.module->context->shape.multiprocessors) * sms;
}
}  // namespace

uint32_t LaunchPlanner::variant_of(const LaunchWork& w) {
  FunctionObject& f = *w.request.function;
  const uint32_t block_threads = w.request.block[0] * w.request.block[1] * w.request.block[2];
  const uint32_t dynamic_shared = w.request.dynamic_shared;
  for (uint32_t i = 0; i < f.variants.size(); ++i) {
    if (f.variants[i].block_threads == block_threads &&
        f.variants[i].dynamic_shared == dynamic_shared) {
      return i;
    }
  }
  LaunchVariant v{.block_threads = block_threads,
                  .dynamic_shared = dynamic_shared,
                  .clone_dynamic_shared = dynamic_shared,
                  .chunks = ChunkModel(all_.settings.target_us)};
  if (f.slot_dynamic) v.clone_dynamic_shared = dynamic_shared + SLUICE_PREEMPT_DYNAMIC_BYTES;
  if (f.clone) {
    // Where it does not fit the original is launched, and says itself what is wrong.
    const ChosenForm form = choose_form(all_.api, {f.original, f.clone, f.clamped}, block_threads,
                                        dynamic_shared, v.clone_dynamic_shared);
    v.clone = form.function;
    const auto sms = static_cast<uint32_t>(f.module->context->shape.multiprocessors);
    v.resident = form.blocks_per_sm * sms;
    take_other_forms(f, v);
  }
  // A program that varies its block size endlessly only loses what was learnt.
  constexpr size_t kMaxVariants = 64;
  if (f.variants.size() >= kMaxVariants) {
    const uint32_t victim = static_cast<uint32_t>(all_.next_launch_id % kMaxVariants);
    f.variants[victim] = v;
    return victim;
  }
  f.variants.push_back(v);
  return static_cast<uint32_t>(f.variants.size() - 1);
}

// Those that have no slots.
void LaunchPlanner::take_other_forms(const FunctionObject& f, LaunchVariant& v) {
  const auto beside = [&](CUfunction clone, CUfunction clamped, uint32_t* resident) -> CUfunction {
    if (!clone) return nullptr;
    const ChosenForm form = choose_form(all_.api, {f.original, clone, clamped}, v.block_threads,
                                        v.dynamic_shared, v.dynamic_shared);
    *resident =
        form.blocks_per_sm * static_cast<uint32_t>(f.module->context->shape.multiprocessors);
    return *resident != 0 ? form.function : nullptr;
  };
  v.one_task = beside(f.one_task, f.one_task_clamped, &v.one_task_resident);
  v.window = beside(f.window, nullptr, &v.window_resident);
}

void LaunchPlanner::take_other_forms(FunctionObject& f) {
  for (LaunchVariant& v : f.variants) take_other_forms(f, v);
}

void LaunchPlanner::plan(LaunchWork& w, bool contended) {
  FunctionObject& f = *w.request.function;
  w.plan.tasks = task_count(w.request.grid[0], w.request.grid[1], w.request.grid[2]);
  w.plan.geometry = Geometry{};
  if (!f.clone || w.plan.tasks == 0 || w.request.flags != 0 ||
      (f.one_row && (w.request.grid[1] != 1 || w.request.grid[2] != 1))) {
    if (w.request.flags & SLUICE_LAUNCHED_AT_ONCE) ++whole_;
    if (learns_originals() && w.plan.tasks != 0) expect_whole(w);
    return;
  }
  if (make_current(all_.api, f.module->context->cu) != CUDA_SUCCESS) return;
  w.plan.variant = variant_of(w);
  LaunchVariant& v = f.variants[w.plan.variant];
  // Where parts may be granted the other forms are for those that the hardware confines: known when
  // it is issued (fit_to).
  const auto sms = static_cast<uint32_t>(f.module->context->shape.multiprocessors);
  if (turns_ && runs_whole(w, v)) {
    take_opaque_record(w);
    ++whole_;
    return;
  }
  const WindowPlan windows = parts_   ? WindowPlan{}
                             : turns_ ? take_turn_form(w, v)
                                      : take_form(w, v, sms, !contended);
  w.plan.geometry = form_geometry(w, v, sms);
  if (parts_) plan_for_parts(w);
  if (w.plan.geometry.evictable && f.form.resumable) {
    const uint64_t bytes = resume_bytes(w.plan.tasks, v.block_threads, f.form.state_bytes);
    if (bytes != 0) w.state = f.module->context->pools.states->take(bytes);
    if (w.state.address == 0) w.plan.geometry = Geometry{};
  }
  if (!w.plan.geometry.evictable && !f.form.resumable) ++whole_;
  // sluiced predicts from the record how long the launch will take before it lets it run.
  if (w.plan.geometry.evictable) all_.take_record(w, true);
  // A launch that others interrupt is not timed.
  if (w.plan.form == FormKind::kWindows) take_windows(w, v, windows, sms, !contended);
}

// The form of a launch that has `sms` SMs to itself.
WindowPlan LaunchPlanner::take_form(LaunchWork& w, LaunchVariant& v, uint32_t sms,
                                    bool windows_may) const {
  const FunctionObject& f = *w.request.function;
  WindowPlan windows;
  unsigned may = 0;
  // On fewer SMs the blocks that are not admitted take longer to come and go.
  const uint64_t tasks = uint64_t{w.plan.tasks} *
                         static_cast<uint32_t>(f.module->context->shape.multiprocessors) / sms;
  if (v.one_task && tasks < 1u << 31 &&
      FormChoice::allowed(static_cast<uint32_t>(tasks), v.block_threads, v.chunks.task_ns(),
                          f.form.in_order, all_.settings))
    may |= 1u << static_cast<int>(FormKind::kOneTask);
  if (v.window && windows_may)
    windows = FormChoice::windows(w.request.grid, held_by(f, v.window_resident, sms),
                                  v.chunks.task_ns(), all_.settings);
  if (windows.tasks != 0) may |= 1u << static_cast<int>(FormKind::kWindows);
  w.plan.form = may == 0 ? FormKind::kLoop : v.choice.next(may, f.form.in_order);
  return windows;
}

// Where turns are priorities, the GPU is taken from the original's blocks at their ends, by the
// hardware. So a launch that is known to be short is the original, whole.
bool LaunchPlanner::runs_whole(LaunchWork& w, const LaunchVariant& v) {
  const uint64_t longest_ns = uint64_t{all_.settings.whole_us} * 1000;
  w.plan.expected_ns = v.whole.expected_ns(w.plan.tasks);
  // Times of originals that seem to be too long may hold those of others.
  if (w.plan.expected_ns == 0 || w.plan.expected_ns > longest_ns) {
    const uint32_t resident = v.window ? v.window_resident : v.resident;
    const uint64_t task_ns = v.chunks.task_ns();
    if (task_ns == 0 || resident == 0) return false;
    w.plan.expected_ns = std::max<uint64_t>(task_ns, task_ns * w.plan.tasks / resident);
  }
  return w.plan.expected_ns <= longest_ns;
}

// One that nothing can evict.
void LaunchPlanner::expect_whole(LaunchWork& w) {
  FunctionObject& f = *w.request.function;
  if (make_current(all_.api, f.module->context->cu) != CUDA_SUCCESS) return;
  w.plan.variant = variant_of(w);
  w.plan.expected_ns = f.variants[w.plan.variant].whole.expected_ns(w.plan.tasks);
  if (turns_) take_opaque_record(w);
}

// As take_form() will ask, by the loop's blocks.
bool LaunchPlanner::may_gain_by_other_forms(const LaunchWork& w, const LaunchVariant& v) const {
  const FunctionObject& f = *w.request.function;
  if (w.plan.tasks < 1u << 31 &&
      FormChoice::allowed(w.plan.tasks, v.block_threads, v.chunks.task_ns(), f.form.in_order,
                          all_.settings))
    return true;
  return !f.form.in_order &&
         FormChoice::windows(w.request.grid, v.resident, v.chunks.task_ns(), all_.settings).tasks !=
             0;
}

bool LaunchPlanner::wants_clones(const LaunchWork& w) const {
  const FunctionObject& f = *w.request.function;
  if (f.others_later)
    return f.loop_ns >= kWorthOtherFormsNs && w.plan.geometry.evictable &&
           w.plan.variant < f.variants.size() &&
           may_gain_by_other_forms(w, f.variants[w.plan.variant]);
  return turns_ && f.clone == nullptr && w.request.flags == 0 &&
         w.plan.variant < f.variants.size() &&
         f.variants[w.plan.variant].seems_long >= kCertainlyLong;
}

// While others wait, the time holds theirs, so that short launches may seem long for a while.
void LaunchPlanner::see_length(LaunchVariant& v, uint64_t takes_ns, bool contended) const {
  const uint64_t whole_ns = uint64_t{all_.settings.whole_us} * 1000;
  if (takes_ns <= whole_ns)
    v.seems_long = 0;
  else if (v.seems_long < kCertainlyLong)
    v.seems_long += !contended || takes_ns / 10 > whole_ns ? kCertainlyLong / 2 : 1;
}

// So that sluiced knows a visit when it comes.
void LaunchPlanner::take_opaque_record(LaunchWork& w) {
  all_.take_record(w, true);
  if (w.record >= 0) all_.records.set_opaque(w.record);
}

// A longer one runs in windows, whose blocks are the original's too. A loop's workers stay on their
// SMs until they are evicted: that is for what is not known yet (a first launch), kernels that have
// no windows, and blocks that take longer than a window may.
WindowPlan LaunchPlanner::take_turn_form(LaunchWork& w, const LaunchVariant& v) const {
  const WindowPlan windows = v.window ? FormChoice::windows(w.request.grid, v.window_resident,
                                                            v.chunks.task_ns(), all_.settings)
                                      : WindowPlan{};
  w.plan.form = windows.tasks != 0 ? FormKind::kWindows : FormKind::kLoop;
  return windows;
}

uint64_t LaunchPlanner::original_ns(const LaunchWork& w) const {
  const auto& variants = w.request.function->variants;
  return w.plan.variant < variants.size() ? variants[w.plan.variant].whole.expected_ns(w.plan.tasks)
                                          : 0;
}

// An original that took much longer than its kernel did before: the next one is timed again. While
// others have turns that says little. sluiced hears how long one took, unless it may have waited
// for others' blocks.
void LaunchPlanner::original_ended(LaunchWork& w, bool contended, uint64_t from_ns,
                                   uint64_t took_ns) {
  if (w.plan.variant >= w.request.function->variants.size()) return;
  LaunchVariant& v = w.request.function->variants[w.plan.variant];
  v.whole.observe(w.plan.tasks, took_ns, contended);
  see_length(v, v.whole.expected_ns(w.plan.tasks), contended);
  const uint64_t expected_ns = w.plan.expected_ns;
  if (w.record >= 0 && (!contended || expected_ns == 0 || took_ns < expected_ns))
    all_.records.set_ran(w.record, from_ns, from_ns + took_ns);
  if (expected_ns == 0 || took_ns < (contended ? kForgetContendedNs : kForgetAfterNs) ||
      took_ns < kForgetFactor * expected_ns)
    return;
  if (++v.long_launches % kForgetEach == 1) {
    v.chunks = ChunkModel(all_.settings.target_us);
    v.whole = {};
  }
}

// What its form comes to on this many SMs. Of a launch in windows: what it is where these cannot be
// (take_windows).
Geometry LaunchPlanner::form_geometry(LaunchWork& w, LaunchVariant& v, uint32_t sms) {
  CloneForm form = w.request.function->form;
  const bool one_task = w.plan.form == FormKind::kOneTask;
  w.plan.clone = one_task ? v.one_task : v.clone;
  form.once |= one_task;
  const uint32_t resident =
      held_by(*w.request.function, one_task ? v.one_task_resident : v.resident, sms);
  w.plan.one_task = form.once;
  if (w.plan.one_task) w.submission.workers = std::min(w.plan.tasks, resident);
  return plan_launch(w.plan.tasks, resident, v.chunks.chunk(), all_.proxy, all_.settings, form);
}

// Windows are for launches that are not whole at once, and by its record it is known when one of
// them has come so far that the next one may follow.
void LaunchPlanner::take_windows(LaunchWork& w, LaunchVariant& v, const WindowPlan& windows,
                                 uint32_t sms, bool timed) {
  if (!w.plan.geometry.evictable || w.record < 0) {
    w.plan.form = FormKind::kLoop;
    return;
  }
  w.plan.clone = v.window;
  w.plan.window_plan = windows;
  w.submission.workers =
      std::min(w.plan.tasks, held_by(*w.request.function, v.window_resident, sms));
  w.plan.timed = timed && v.choice.timed();
}

// Any grid of a clone, so that it can be kept to SMs, also one that fits on the GPU at once.
void LaunchPlanner::plan_for_parts(LaunchWork& w) {
  const FunctionObject& f = *w.request.function;
  const uint32_t resident = f.variants[w.plan.variant].resident;
  w.plan.per_sm =
      std::max(1u, resident / static_cast<uint32_t>(f.module->context->shape.multiprocessors));
  const uint32_t proxy = all_.proxy ? 1 : 0;
  if (!w.plan.geometry.evictable && resident > proxy && !f.form.once && !f.form.resumable) {
    w.plan.geometry.evictable = true;
    w.plan.geometry.chunk = all_.settings.fixed_chunk != 0 ? all_.settings.fixed_chunk : 1;
    const uint32_t chunks = (w.plan.tasks + w.plan.geometry.chunk - 1) / w.plan.geometry.chunk;
    w.plan.geometry.blocks = std::min(resident - proxy, chunks) + proxy;
  }
  // A worker whose SM is not the session's takes no ticket, so none can be given by its number.
  w.plan.geometry.first_tickets = 0;
}

// Plans the next physical launch for so many SMs. False: it needs more.
bool LaunchPlanner::fit_to(LaunchWork& w, uint32_t sms) {
  FunctionObject& f = *w.request.function;
  const uint32_t proxy = all_.proxies_of(w);
  if (w.plan.per_sm * sms <= proxy) return false;
  if (f.form.once || f.form.resumable) {
    w.submission.on_sms = w.plan.geometry;
    w.submission.workers = std::min(w.plan.tasks, w.plan.per_sm * sms);
    return true;
  }
  uint32_t chunk = w.plan.geometry.chunk;
  // Its form is that of its first physical launch.
  if (w.control.address == 0) {
    w.plan.variant = variant_of(w);
    LaunchVariant& v = f.variants[w.plan.variant];
    chunk = v.chunks.chunk();
    w.plan.form = FormKind::kLoop;
    // Also while others wait for the GPU: sets change rarely, and no window is wasted then.
    const bool whole_at_once = w.plan.tasks <= w.plan.per_sm * sms;
    const WindowPlan windows = whole_at_once ? WindowPlan{} : take_form(w, v, sms, true);
    w.submission.on_sms = form_geometry(w, v, sms);
    if (w.plan.form == FormKind::kOneTask && !w.submission.on_sms.evictable) {
      w.plan.form = FormKind::kLoop;
      w.submission.on_sms = form_geometry(w, v, sms);
    }
    if (w.plan.form == FormKind::kWindows) take_windows(w, v, windows, sms, true);
  }
  if (w.plan.form != FormKind::kLoop) return true;
  const uint32_t resident = w.plan.per_sm * sms;
  w.submission.on_sms =
      plan_launch(w.plan.tasks, resident, chunk, all_.proxy, all_.settings, f.form);
  if (!w.submission.on_sms.evictable) {  // it is whole there at once
    w.submission.on_sms.evictable = true;
    w.submission.on_sms.chunk = all_.settings.fixed_chunk != 0 ? all_.settings.fixed_chunk : 1;
    const uint32_t chunks =
        (w.plan.tasks + w.submission.on_sms.chunk - 1) / w.submission.on_sms.chunk;
    w.submission.on_sms.blocks = std::min(resident - proxy, chunks) + proxy;
  }
  return true;
}

// Blocks of an original that the whole GPU holds at once may wait for each other, declared or not;
// in a partition that does not hold them all, some would never start. Blocks of a larger grid can
// wait for earlier ones only. Clusters need adjacent SMs, which groups of the smallest size do not
// guarantee.
bool LaunchPlanner::may_confine_original(LaunchWork& w, uint32_t sms) {
  if (SLUICE_LAUNCHED_CLUSTER_DIM(w.request.flags, 0) != 0) return false;
  FunctionObject& f = *w.request.function;
  // Or the kernel requires them, by itself or by an attribute.
  for (const CUfunction_attribute side :
       {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH}) {
    int blocks = 0;
    if (all_.api.cuFuncGetAttribute(&blocks, side, f.original) == CUDA_SUCCESS && blocks > 1)
      return false;
  }
  const uint32_t threads = w.request.block[0] * w.request.block[1] * w.request.block[2];
  if (f.fits == 0 || f.fits_threads != threads || f.fits_shared != w.request.dynamic_shared) {
    int blocks = 0;
    if (all_.api.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, f.original, static_cast<int>(threads), w.request.dynamic_shared) !=
            CUDA_SUCCESS ||
        blocks <= 0)
      return false;
    f.fits = static_cast<uint32_t>(blocks);
    f.fits_threads = threads;
    f.fits_shared = w.request.dynamic_shared;
  }
  const uint64_t tasks = uint64_t{w.request.grid[0]} * w.request.grid[1] * w.request.grid[2];
  if (tasks <= uint64_t{f.fits} * sms) return true;
  return !(w.request.flags & SLUICE_LAUNCHED_COOPERATIVE) &&
         tasks > uint64_t{f.fits} * static_cast<uint32_t>(f.module->context->shape.multiprocessors);
}

// Beside a neighbour that has turns all the time no launch may ever be done without an eviction,
// and would stay in the slowest form.
void LaunchPlanner::observe_piece(LaunchWork& w, uint32_t tasks, uint64_t ns) {
  if (!turns_ || w.plan.one_task) return;
  ChunkModel& chunks = w.request.function->variants[w.plan.variant].chunks;
  if (chunks.task_ns() == 0) chunks.observe(tasks, w.submission.workers, ns);
}

void LaunchPlanner::observe(LaunchWork& w, uint64_t ns) {
  LaunchVariant& v = w.request.function->variants[w.plan.variant];
  // Where a block runs one task, the only form of some kernels, the time ends when the last one
  // begins.
  const uint32_t tasks = w.plan.one_task
                             ? w.plan.tasks - std::min(w.submission.workers, w.plan.tasks - 1)
                             : w.plan.tasks;
  v.chunks.observe(tasks, w.submission.workers, ns);
  w.request.function->loop_ns += ns;
  // As if it had had the whole GPU, so that those of different parts can be compared.
  const auto sms =
      static_cast<uint32_t>(w.request.function->module->context->shape.multiprocessors);
  const uint32_t had = w.submission.confined_sms != 0 ? w.submission.confined_sms
                       : w.submission.part            ? w.submission.sms.count()
                                                      : sms;
  v.choice.observe(w.plan.form, tasks, ns * had / sms);
}

}  // namespace sluice::worker
