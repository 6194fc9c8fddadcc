// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/launcher.h"

#include <algorithm>

#include "mediator/worker/launch/driver_calls.h"

namespace sluice::worker {

namespace {
CUdeviceptr record_address(const ContextObject& c, const LaunchWork& w) {
  if (w.record < 0) return 0;
  return c.records + static_cast<uint64_t>(w.record) * sizeof(sluice_launch_record);
}
}  // namespace

CUresult Launcher::launch(StreamObject& s, LaunchWork& w, const Grant& grant, const Work* pred,
                          bool again, uint64_t now_ns) {
  ContextObject& c = *s.context;
  if (w.local && w.local->refused) return CUDA_ERROR_OUT_OF_MEMORY;
  if (CUresult r = make_current(all_.api, c.cu); r != CUDA_SUCCESS) return r;
  if (!again) {
    if (CUresult r = c.pools.controls->take(&w.control); r != CUDA_SUCCESS) return r;
    if (w.record < 0) all_.take_record(w, false);
  }

  return on_lane(s, w, [&] { return launch_in_lane(s, w, grant, pred, now_ns); });
}

CUresult Launcher::launch_whole(StreamObject& s, LaunchWork& w, uint64_t now_ns) {
  if (w.local && w.local->refused) return CUDA_ERROR_OUT_OF_MEMORY;
  return on_lane(s, w, [&] {
    w.submission.issued_ns = now_ns;
    return launch_original(all_.api, w.submission.lane->cu, w);
  });
}

// In the stream's tail.
CUresult Launcher::launch_in_lane(StreamObject& s, LaunchWork& w, const Grant& grant,
                                  const Work* pred, uint64_t now_ns) {
  FunctionObject& f = *w.request.function;
  ContextObject& c = *s.context;
  if (w.plan.form == FormKind::kWindows) {
    w.submission.generation = grant.generation;
    w.submission.issued_ns = now_ns;
    all_.records.set_state(w.record, SLUICE_LAUNCH_TORUN);
    return windows.begin(w, pred);
  }
  const Geometry& geometry = w.submission.confined_sms != 0 ? w.submission.on_sms : w.plan.geometry;
  if (!w.progress.begun) w.progress.first_tickets = geometry.first_tickets;
  if (s.left == 0) {
    if (CUresult r = c.pools.lefts->take(&s.left, &s.barred); r != CUDA_SUCCESS) return r;
  }
  sluice_preempt_params p = params_of(s, w, grant);
  p.pred = address_of_done(pred);
  const bool one_task = w.plan.one_task || f.form.resumable;  // in each hardware block
  if (w.plan.one_task) p.worker_base = w.progress.tasks_before;
  if (w.progress.begun) p.flags |= SLUICE_LAUNCH_RESUME;
  uint32_t launched = geometry.blocks;
  if (one_task)
    launched = once_blocks(w.plan.tasks - std::min(w.progress.tasks_before, w.plan.tasks),
                           all_.proxy && !f.form.resumable);
  if (!w.plan.one_task)
    w.submission.workers = geometry.blocks - (all_.proxy && !f.form.resumable ? 1 : 0);
  w.submission.part = grant.part && !w.plan.one_task && w.submission.confined_sms == 0;
  if (w.submission.part) {
    if (CUresult r = blocks.first_grid(s, w, grant.sms, &p, &launched); r != CUDA_SUCCESS) return r;
  }
  // An earlier physical launch may have had more workers, and what they left is in their slots.
  w.progress.most_blocks =
      std::max(w.progress.most_blocks, one_task ? w.plan.geometry.blocks : launched);
  p.left_slots = std::min(w.progress.most_blocks, c.pools.lefts->slots());

  w.submission.generation = grant.generation;
  w.submission.issued_ns = now_ns;
  if (w.record >= 0) all_.records.set_state(w.record, SLUICE_LAUNCH_TORUN);
  w.submission.first_workers = launched - (p.flags & SLUICE_LAUNCH_PROXY ? 1 : 0);
  w.submission.grown = w.submission.moved = false;
  w.submission.evict_word = 0;
  return launch_clone(all_.api, w.submission.lane->cu, w, p, launched);
}

CUresult Launcher::grow(StreamObject& s, LaunchWork& w, const Grant& grant, uint64_t now_ns) {
  return blocks.second_grid(s, w, grant, params_of(s, w, grant), now_ns);
}

// What the parameters of any physical launch of `w` have in common.
sluice_preempt_params Launcher::params_of(const StreamObject& s, const LaunchWork& w,
                                          const Grant& grant) const {
  const ContextObject& c = *s.context;
  const CloneForm& form = w.request.function->form;
  LoopSettings settings = all_.settings;
  settings.clock_khz = static_cast<uint32_t>(std::max(c.shape.clock_khz, 1));
  sluice_preempt_params p =
      make_params(w.request.grid, w.plan.tasks,
                  w.submission.confined_sms != 0 ? w.submission.on_sms : w.plan.geometry, settings);
  p.first_tickets = w.progress.first_tickets;
  p.control = w.control.address;
  p.signal = c.evict_word ? c.evict_word : c.signal;
  p.record = record_address(c, w);
  p.left = s.left;
  p.generation = grant.generation;
  if (all_.proxy) p.flags |= form.resumable ? SLUICE_LAUNCH_DUTY : SLUICE_LAUNCH_PROXY;
  if (form.resumable) {
    p.state = w.state.address;
    p.state_stride = static_cast<uint32_t>(SLUICE_RESUME_STRIDE(
        w.request.block[0] * w.request.block[1] * w.request.block[2], form.state_bytes));
  }
  return p;
}

// How far the launch has come by its launch record. False: the record does not say.
bool Launcher::read_record(const LaunchWork& w, Reached& at) {
  if (w.plan.form == FormKind::kWindows) {
    // The engine calls this only when all before it are done, so what was queued has run.
    at.tasks = w.windows.rest.end();
    at.done = !w.windows.rest.left();
    at.record = all_.records.read(w.record);
    all_.records.set_done(w.record, w.submission.generation, at.tasks);
    return true;
  }
  if (w.record < 0 || w.submission.grown) return false;
  // The stream has passed the launch, so what the last block out wrote is there.
  const RecordPool::Snapshot& record = at.record = all_.records.read(w.record);
  at.done = record.state == SLUICE_LAUNCH_DONE;
  at.tasks = record.tasks_done;
  return record.generation == w.submission.generation && record.tasks_total == w.plan.tasks &&
         ((at.done && at.tasks == w.plan.tasks) ||
          (record.state == SLUICE_LAUNCH_TOEVICT && at.tasks < w.plan.tasks));
}

// The same by its control block on the GPU. False: a fault.
bool Launcher::read_control(const LaunchWork& w, Reached& at) {
  ContextObject& c = *w.request.function->module->context;
  sluice_launch_control control;
  CUresult r = make_current(all_.api, c.cu);
  if (r == CUDA_SUCCESS)
    r = all_.api.cuMemcpyDtoHAsync(&control, w.control.address, sizeof control, c.transfers);
  if (r == CUDA_SUCCESS) r = all_.api.cuStreamSynchronize(c.transfers);
  if (r != CUDA_SUCCESS) return false;
  at.tasks =
      w.plan.one_task
          ? std::min(sluice_admitted(&control, w.submission.generation, w.progress.tasks_before),
                     w.plan.tasks)
          : control.finished;
  at.done = control.done == 1 && at.tasks == w.plan.tasks;
  return true;
}

LaunchEnd Launcher::end(LaunchWork& w) {
  Reached at;
  if (!read_record(w, at) && !read_control(w, at)) return LaunchEnd::kFault;
  const uint32_t tasks_done = at.tasks;
  w.progress.done = at.done;
  learn(w, w.record >= 0 ? &at.record : nullptr, tasks_done);
  if (at.done) {
    if (w.record >= 0) all_.records.set_state(w.record, SLUICE_LAUNCH_DONE);
    return LaunchEnd::kDone;
  }
  // The engine calls this only when all launches before it are done, so it has passed its
  // predecessor.
  w.progress.begun = true;
  if (all_.evicted() < w.submission.generation && tasks_done == w.progress.tasks_before)
    return w.submission.part ? LaunchEnd::kNoRoom : LaunchEnd::kStuck;
  w.progress.tasks_before = tasks_done;
  if (w.record >= 0) all_.records.set_state(w.record, SLUICE_LAUNCH_READY);
  if (all_.evicted() < w.submission.generation && w.submission.part &&
      w.request.function->form.resumable) {
    w.progress.in_waves = true;
    return LaunchEnd::kWave;
  }
  ++w.progress.evictions;
  if (w.record >= 0) all_.records.set_evictions(w.record, w.progress.evictions);
  return LaunchEnd::kLeft;
}

// From a launch that is done, or from the first part of one.
void Launcher::learn(LaunchWork& w, const RecordPool::Snapshot* record, uint32_t tasks_done) {
  if (w.progress.evictions != 0 || w.progress.in_waves || w.submission.moved ||
      w.plan.variant >= w.request.function->variants.size())
    return;
  // Only the GPU's own times: seen from here, a launch takes also what it waited behind.
  uint64_t ns = 0;
  if (w.plan.form == FormKind::kWindows && w.progress.done)
    ns = windows.measured_ns(w);
  else if (record && record->start_ns != 0 && record->left_ns > record->start_ns)
    ns = record->left_ns - record->start_ns;
  if (ns == 0) return;
  if (w.progress.done)
    planner.observe(w, ns);
  else
    planner.observe_piece(w, tasks_done, ns);
}

}  // namespace sluice::worker
