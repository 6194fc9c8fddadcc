// SPDX-License-Identifier: Apache-2.0
// Launches under a grant of a part of the GPU; the rest of the driver is in launch/cuda_streams.cc.
#include <algorithm>
#include <cstddef>

#include "mediator/base/check.h"
#include "mediator/worker/launch/cuda_streams.h"
#include "mediator/worker/launch/sm_part.h"

namespace sluice::worker {

namespace {
// Of so many workers that are to stay, those that the others wait for
// (sluice_preempt_params.place): a proxy or a waiting block of somebody else may have a worker's
// room.
uint32_t workers_in_place(uint32_t workers) { return workers - workers / 8; }
}  // namespace

// Workers of a launch that a part can use at most, and its proxy.
uint32_t CudaStreams::chunks_of(const LaunchWork& w) const {
  if (w.request.function->form.resumable)
    return std::max(w.plan.tasks - std::min(w.progress.tasks_before, w.plan.tasks), 1u);
  return (w.plan.tasks + w.plan.geometry.chunk - 1) / w.plan.geometry.chunk;
}
uint32_t CudaStreams::proxies_of(const LaunchWork& w) const {
  return proxy_ && !w.request.function->form.resumable ? 1 : 0;
}

// Any grid of a clone, so that it can be kept to SMs, also one that fits on the GPU at once.
void CudaStreams::plan_for_parts(LaunchWork& w) {
  const FunctionObject& f = *w.request.function;
  const uint32_t resident = f.variants[w.plan.variant].resident;
  w.plan.per_sm =
      std::max(1u, resident / static_cast<uint32_t>(f.module->context->multiprocessors));
  const uint32_t proxy = proxy_ ? 1 : 0;
  if (!w.plan.geometry.evictable && resident > proxy && !f.form.once && !f.form.resumable) {
    w.plan.geometry.evictable = true;
    w.plan.geometry.chunk = settings_.fixed_chunk != 0 ? settings_.fixed_chunk : 1;
    const uint32_t chunks = (w.plan.tasks + w.plan.geometry.chunk - 1) / w.plan.geometry.chunk;
    w.plan.geometry.blocks = std::min(resident - proxy, chunks) + proxy;
  }
  // A worker whose SM is not the session's takes no ticket, so none can be given by its number.
  w.plan.geometry.first_tickets = 0;
}

CUresult CudaStreams::keep_to_part(StreamObject& s, LaunchWork& w, const SmSet& granted,
                                   sluice_preempt_params* p, uint32_t* blocks) {
  const ContextObject& c = *s.context;
  const auto gpu_sms = static_cast<uint32_t>(c.multiprocessors);
  const SmSet sms = granted & SmSet(0, gpu_sms);
  SLUICE_CHECK(!sms.empty());  // sluiced's SMs are the context's: checked when it was made
  const uint32_t proxy = proxies_of(w);
  const uint32_t chunks = chunks_of(w);
  const Part part = plan_part(sms, gpu_sms, w.plan.per_sm, chunks, c.lefts->slots() - proxy);
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

CUresult CudaStreams::bar(const StreamObject& s, CUstream in, const SmSet& sms, uint32_t value) {
  for (SmSet::Range r = sms.next_range(); r.lo < r.hi; r = sms.next_range(r.hi)) {
    const CUdeviceptr at =
        s.left + offsetof(sluice_launch_left, sm_workers) + r.lo * sizeof(uint32_t);
    if (CUresult e = api_.cuMemsetD32Async(at, value, r.hi - r.lo, in); e != CUDA_SUCCESS) return e;
  }
  return CUDA_SUCCESS;
}

// ---- launches that stay while their SMs change
// --------------------------------------------------------------------

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
CUresult CudaStreams::look_at_sms(ContextObject& c, std::span<const Running> running,
                                  const SmSet& lost, bool* left) {
  if (CUresult r = make_current(api_, c.cu); r != CUDA_SUCCESS) return r;
  if (!c.seen) {
    void* memory = nullptr;
    if (api_.cuMemHostAlloc(&memory, sizeof(SeenWorkers), 0) != CUDA_SUCCESS)
      return CUDA_ERROR_NOT_SUPPORTED;
    c.seen = static_cast<SeenWorkers*>(memory);
  }
  const uint64_t word = __atomic_load_n(&signal_->evict, __ATOMIC_SEQ_CST);
  const uint32_t lo = lost.next_range().lo;
  uint32_t hi = lo;
  for (SmSet::Range r = lost.next_range(); r.lo < r.hi; r = lost.next_range(r.hi)) hi = r.hi;
  CUresult e = CUDA_SUCCESS;
  const auto run = [&](CUresult result) { e = e == CUDA_SUCCESS ? result : e; };
  // From the page itself: what the copy engine finds there is this word or a newer one.
  if (c.evict_word)
    run(api_.cuMemcpyHtoDAsync(c.evict_word, &signal_->evict, sizeof word, c.transfers));
  size_t n = 0;
  for (const Running& l : running) {
    StreamObject& s = *streams_.at(l.stream);
    if (s.context.get() != &c) continue;
    auto& w = static_cast<LaunchWork&>(*l.work);
    const CUdeviceptr evict = w.control.address + offsetof(sluice_launch_control, evict);
    if (proxy_ && w.submission.evict_word != word) {
      run(api_.cuMemcpyHtoDAsync(evict, &signal_->evict, sizeof word, c.transfers));
      w.submission.evict_word = word;
    }
    w.submission.moved = true;
    w.submission.sms = w.submission.sms - lost;
    run(api_.cuMemcpyDtoHAsync(
        &c.seen->workers[n][lo],
        s.left + offsetof(sluice_launch_left, sm_workers) + lo * sizeof(uint32_t),
        (hi - lo) * sizeof(uint32_t), c.transfers));
    c.seen->evict[n] = word;
    if (proxy_) run(api_.cuMemcpyDtoHAsync(&c.seen->evict[n], evict, sizeof word, c.transfers));
    ++n;
  }
  run(api_.cuStreamSynchronize(c.transfers));
  if (e != CUDA_SUCCESS) return e;
  for (size_t k = 0; k < n; ++k) {
    *left &= c.seen->evict[k] == word;
    for (SmSet::Range r = lost.next_range(); r.lo < r.hi; r = lost.next_range(r.hi))
      for (uint32_t sm = r.lo; sm < r.hi; ++sm)
        // Barred, and perhaps counted out of by some that came too late: nobody stays there.
        *left &= c.seen->workers[k][sm] == 0 || c.seen->workers[k][sm] > SLUICE_LEFT_BARRED / 2;
  }
  return CUDA_SUCCESS;
}

CUresult CudaStreams::narrow(std::span<const Running> running, const SmSet& lost, bool* left) {
  if (running.size() > SeenWorkers::kMost) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t word = __atomic_load_n(&signal_->evict, __ATOMIC_SEQ_CST);
  *left = true;
  std::vector<ContextObject*> looked;
  for (const Running& l : running) {
    ContextObject* c = streams_.at(l.stream)->context.get();
    if (std::find(looked.begin(), looked.end(), c) != looked.end()) continue;
    looked.push_back(c);
    if (CUresult r = look_at_sms(*c, running, lost, left); r != CUDA_SUCCESS) return r;
  }
  if (*left && proxy_ && left_once_ != word) {
    left_once_ = word;
    *left = false;
  }
  return CUDA_SUCCESS;
}

CUresult CudaStreams::grow(StreamId stream, Work& work, const Grant& grant, uint64_t now_ns) {
  auto& w = static_cast<LaunchWork&>(work);
  StreamObject& s = *streams_.at(stream);
  ContextObject& c = *s.context;
  if (!w.submission.part || w.submission.grown) return CUDA_ERROR_NOT_SUPPORTED;
  const auto gpu_sms = static_cast<uint32_t>(c.multiprocessors);
  const SmSet sms = grant.sms & SmSet(0, gpu_sms);
  // An SM that is barred in the list cannot be set free while blocks of the first grid may still
  // count on it.
  if (sms.empty() || sms.meets(s.barred)) return CUDA_ERROR_NOT_SUPPORTED;
  const uint32_t proxy = proxies_of(w);
  // One for each SM at least, or some might stay empty.
  if (w.submission.first_workers + gpu_sms + proxy > c.lefts->slots())
    return CUDA_ERROR_NOT_SUPPORTED;
  if (CUresult r = make_current(api_, c.cu); r != CUDA_SUCCESS) return r;
  if (CUresult r = make_second(s); r != CUDA_SUCCESS) return r;
  const Part part = plan_part(sms, gpu_sms, w.plan.per_sm, chunks_of(w),
                              c.lefts->slots() - w.submission.first_workers - proxy);
  sluice_preempt_params p = params_of(s, w, grant);
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
  p.left_slots = std::min(w.progress.most_blocks, c.lefts->slots());
  const SmSet more = part.barred - s.barred;
  if (CUresult r = bar(s, s.second, more, SLUICE_LEFT_BARRED); r != CUDA_SUCCESS) return r;
  s.barred = s.barred | more;
  w.submission.sms = sms;
  w.submission.grown = w.submission.moved = true;
  w.submission.issued_ns = now_ns;
  CUresult r = launch_clone(s.second, w, p, part.blocks + proxy);
  if (r == CUDA_SUCCESS) r = api_.cuEventRecord(s.joined, s.second);
  if (r == CUDA_SUCCESS) r = api_.cuStreamWaitEvent(s.cu, s.joined, 0);
  return r;
}

}  // namespace sluice::worker
