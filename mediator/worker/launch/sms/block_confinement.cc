// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/sms/block_confinement.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "mediator/base/check.h"
#include "mediator/worker/launch/driver_calls.h"
#include "mediator/worker/launch/sms/sm_part.h"

namespace sluice::worker {

namespace {
// Of this many workers that are to stay, those that the others wait for
// (sluice_preempt_params.place): a proxy or a waiting block of somebody else may have a worker's
// room.
uint32_t workers_in_place(uint32_t workers) { return workers - workers / 8; }

// Workers of a launch that a part can use at most.
uint32_t chunks_of(const LaunchWork& w) {
  if (w.request.function->form.resumable)
    return std::max(w.plan.tasks - std::min(w.progress.tasks_before, w.plan.tasks), 1u);
  return (w.plan.tasks + w.plan.geometry.chunk - 1) / w.plan.geometry.chunk;
}
}  // namespace

CUresult BlockConfinement::first_grid(StreamObject& s, LaunchWork& w, const SmSet& granted,
                                      sluice_preempt_params* p, uint32_t* blocks) {
  const ContextObject& c = *s.context;
  const auto gpu_sms = static_cast<uint32_t>(c.shape.multiprocessors);
  const SmSet sms = granted & SmSet(0, gpu_sms);
  SLUICE_CHECK(!sms.empty());  // sluiced's SMs are the context's: checked when it was made
  const uint32_t proxy = all_.proxies_of(w);
  const uint32_t chunks = chunks_of(w);
  const Part part = plan_part(sms, gpu_sms, w.plan.per_sm, chunks, c.pools.lefts->slots() - proxy);
  p->flags |= SLUICE_LAUNCH_SPATIAL;
  p->sm_lo = static_cast<uint16_t>(part.lo);
  p->sm_hi = static_cast<uint16_t>(part.hi);
  p->sm_quota = static_cast<uint16_t>(part.quota);
  p->tail_shift = part.tail_shift;
  p->place = workers_in_place(part.workers);
  *blocks = part.blocks + proxy;
  // Each block of a resumable clone runs one task. Where others fill their SMs, the blocks beyond
  // the first wave come to ours, one after the other; where they do not, those go home from theirs,
  // and there is another launch (kWave).
  if (w.request.function->form.resumable) *blocks += chunks - part.workers;
  w.submission.workers = part.workers;
  w.submission.sms = sms;
  if (s.barred == part.barred) return CUDA_SUCCESS;

  // In stream order: what ran before under another set has ended, and counted itself out.
  if (CUresult r = bar(s, s.cu, s.barred - part.barred, 0); r != CUDA_SUCCESS) return r;
  if (CUresult r = bar(s, s.cu, part.barred - s.barred, SLUICE_LEFT_BARRED); r != CUDA_SUCCESS)
    return r;
  s.barred = part.barred;
  return CUDA_SUCCESS;
}

CUresult BlockConfinement::bar(const StreamObject& s, CUstream in, const SmSet& sms,
                               uint32_t value) {
  for (SmSet::Range r = sms.next_range(); r.lo < r.hi; r = sms.next_range(r.hi)) {
    const CUdeviceptr at =
        s.left + offsetof(sluice_launch_left, sm_workers) + r.lo * sizeof(uint32_t);
    if (CUresult e = all_.api.cuMemsetD32Async(at, value, r.hi - r.lo, in); e != CUDA_SUCCESS)
      return e;
  }
  return CUDA_SUCCESS;
}

// ---- launches that stay while their SMs change -----------------------------------------------

struct SeenWorkers {
  static constexpr size_t kMost = 64;  // launches; beyond any EngineLimits::most_kept
  uint32_t workers[kMost][SLUICE_LEFT_SMS];
  uint64_t evict[kMost];
};

// Two things have to be so: each launch's blocks read the evict word before they begin a task,
// those too that are not there yet; and none is on the SMs. A block counts itself in on its SM
// (sm_workers) before it checks the word. So: the word first, to where they check, then the
// counts. A proxy that read the page before the word was there may put the older one over it for
// the time of one poll across the bus; hence the second check (narrow()).
CUresult BlockConfinement::check_sms(ContextObject& c, std::span<const Running> running,
                                     const SmSet& lost, bool* left) {
  if (CUresult r = make_current(all_.api, c.cu); r != CUDA_SUCCESS) return r;
  if (!c.pools.seen) {
    void* memory = nullptr;
    if (all_.api.cuMemHostAlloc(&memory, sizeof(SeenWorkers), 0) != CUDA_SUCCESS)
      return CUDA_ERROR_NOT_SUPPORTED;
    c.pools.seen = static_cast<SeenWorkers*>(memory);
  }
  const uint64_t word = __atomic_load_n(&all_.signal->evict, __ATOMIC_SEQ_CST);
  const uint32_t lo = lost.next_range().lo;
  uint32_t hi = lo;
  for (SmSet::Range r = lost.next_range(); r.lo < r.hi; r = lost.next_range(r.hi)) hi = r.hi;
  CUresult e = CUDA_SUCCESS;
  const auto run = [&](CUresult result) { e = e == CUDA_SUCCESS ? result : e; };
  // From the page itself: what the copy engine finds there is this word or a newer one.
  if (c.evict_word)
    run(all_.api.cuMemcpyHtoDAsync(c.evict_word, &all_.signal->evict, sizeof word, c.transfers));
  size_t n = 0;
  for (const Running& l : running) {
    StreamObject& s = *l.stream;
    if (s.context.get() != &c) continue;
    LaunchWork& w = *l.work;
    const CUdeviceptr evict = w.control.address + offsetof(sluice_launch_control, evict);
    if (all_.proxy && w.submission.evict_word != word) {
      run(all_.api.cuMemcpyHtoDAsync(evict, &all_.signal->evict, sizeof word, c.transfers));
      w.submission.evict_word = word;
    }
    w.submission.moved = true;
    w.submission.sms = w.submission.sms - lost;
    run(all_.api.cuMemcpyDtoHAsync(
        &c.pools.seen->workers[n][lo],
        s.left + offsetof(sluice_launch_left, sm_workers) + lo * sizeof(uint32_t),
        (hi - lo) * sizeof(uint32_t), c.transfers));
    c.pools.seen->evict[n] = word;
    if (all_.proxy)
      run(all_.api.cuMemcpyDtoHAsync(&c.pools.seen->evict[n], evict, sizeof word, c.transfers));
    ++n;
  }
  run(all_.api.cuStreamSynchronize(c.transfers));
  if (e != CUDA_SUCCESS) return e;
  for (size_t k = 0; k < n; ++k) {
    *left &= c.pools.seen->evict[k] == word;
    for (SmSet::Range r = lost.next_range(); r.lo < r.hi; r = lost.next_range(r.hi))
      for (uint32_t sm = r.lo; sm < r.hi; ++sm)
        // Barred, and perhaps counted out of by some that came too late: nobody stays there.
        *left &= c.pools.seen->workers[k][sm] == 0 ||
                 c.pools.seen->workers[k][sm] > SLUICE_LEFT_BARRED / 2;
  }
  return CUDA_SUCCESS;
}

CUresult BlockConfinement::narrow(std::span<const Running> running, const SmSet& lost, bool* left) {
  if (running.size() > SeenWorkers::kMost) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t word = __atomic_load_n(&all_.signal->evict, __ATOMIC_SEQ_CST);
  *left = true;
  std::vector<ContextObject*> checked;
  for (const Running& l : running) {
    ContextObject* c = l.stream->context.get();
    if (std::find(checked.begin(), checked.end(), c) != checked.end()) continue;
    checked.push_back(c);
    if (CUresult r = check_sms(*c, running, lost, left); r != CUDA_SUCCESS) return r;
  }
  if (*left && all_.proxy && left_once_ != word) {
    left_once_ = word;
    *left = false;
  }
  return CUDA_SUCCESS;
}

CUresult BlockConfinement::second_grid(StreamObject& s, LaunchWork& w, const Grant& grant,
                                       sluice_preempt_params p, uint64_t now_ns) {
  ContextObject& c = *s.context;
  if (!w.submission.part || w.submission.grown) return CUDA_ERROR_NOT_SUPPORTED;
  const auto gpu_sms = static_cast<uint32_t>(c.shape.multiprocessors);
  const SmSet sms = grant.sms & SmSet(0, gpu_sms);
  // An SM that is barred in the list cannot be set free while blocks of the first grid may still
  // count on it.
  if (sms.empty() || sms.meets(s.barred)) return CUDA_ERROR_NOT_SUPPORTED;
  const uint32_t proxy = all_.proxies_of(w);
  // One for each SM at least, or some might stay empty.
  if (w.submission.first_workers + gpu_sms + proxy > c.pools.lefts->slots())
    return CUDA_ERROR_NOT_SUPPORTED;
  if (CUresult r = make_current(all_.api, c.cu); r != CUDA_SUCCESS) return r;
  if (CUresult r = lanes_.make_second(s); r != CUDA_SUCCESS) return r;
  const Part part = plan_part(sms, gpu_sms, w.plan.per_sm, chunks_of(w),
                              c.pools.lefts->slots() - w.submission.first_workers - proxy);
  p.flags |= SLUICE_LAUNCH_SPATIAL | SLUICE_LAUNCH_RESUME;
  p.grid = 1;
  p.worker_base = w.submission.first_workers;
  p.sm_lo = static_cast<uint16_t>(part.lo);
  p.sm_hi = static_cast<uint16_t>(part.hi);
  p.sm_quota = static_cast<uint16_t>(part.quota);
  p.tail_shift = part.tail_shift;
  p.place = workers_in_place((sms - w.submission.sms).count() * part.quota);
  w.progress.most_blocks =
      std::max(w.progress.most_blocks, w.submission.first_workers + part.blocks + proxy);
  p.left_slots = std::min(w.progress.most_blocks, c.pools.lefts->slots());
  const SmSet more = part.barred - s.barred;
  if (CUresult r = bar(s, s.second, more, SLUICE_LEFT_BARRED); r != CUDA_SUCCESS) return r;
  s.barred = s.barred | more;
  w.submission.sms = sms;
  w.submission.grown = w.submission.moved = true;
  w.submission.issued_ns = now_ns;
  CUresult r = launch_clone(all_.api, s.second, w, p, part.blocks + proxy);
  if (r == CUDA_SUCCESS) r = all_.api.cuEventRecord(s.joined, s.second);
  if (r == CUDA_SUCCESS) r = all_.api.cuStreamWaitEvent(s.cu, s.joined, 0);
  return r;
}

}  // namespace sluice::worker
