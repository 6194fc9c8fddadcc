// Launches under a grant of a part of the GPU; the rest of the driver is in cuda_streams.cc.
#include <algorithm>
#include <cstddef>

#include "mediator/base/check.h"
#include "mediator/worker/cuda_streams.h"
#include "mediator/worker/parts.h"

namespace sluice::worker {

// A clone of the prologue form or a resumable one runs one task in each hardware block: blocks that leave at once would
// take tasks' places.
bool CudaStreams::confinable(const Work& work) const {
  const CloneForm& form = static_cast<const LaunchWork&>(work).function->form;
  return !form.once && !form.resumable;
}

// Any grid of a clone, so that it can be kept to SMs, also one that fits on the GPU at once.
void CudaStreams::plan_for_parts(LaunchWork& w) {
  const FunctionObject& f = *w.function;
  const uint32_t resident = f.variants[w.variant].resident;
  w.per_sm = std::max(1u, resident / static_cast<uint32_t>(f.module->context->multiprocessors));
  const uint32_t proxy = proxy_ ? 1 : 0;
  if (!w.geometry.evictable && resident > proxy && !f.form.once && !f.form.resumable) {
    w.geometry.evictable = true;
    w.geometry.chunk = settings_.fixed_chunk != 0 ? settings_.fixed_chunk : 1;
    const uint32_t chunks = (w.tasks + w.geometry.chunk - 1) / w.geometry.chunk;
    w.geometry.blocks = std::min(resident - proxy, chunks) + proxy;
  }
  // A worker whose SM is not the session's takes no ticket, so none can be given by its number.
  w.geometry.first_tickets = 0;
}

CUresult CudaStreams::keep_to_part(StreamObject& s, LaunchWork& w, const SmSet& granted,
                                   sluice_preempt_params* p, uint32_t* blocks) {
  const ContextObject& c = *s.context;
  const auto gpu_sms = static_cast<uint32_t>(c.multiprocessors);
  const SmSet sms = granted & SmSet(0, gpu_sms);
  SLUICE_CHECK(!sms.empty());  // sluiced's SMs are the context's: looked at when it was made
  const uint32_t proxy = proxy_ ? 1 : 0;
  const uint32_t chunks = (w.tasks + w.geometry.chunk - 1) / w.geometry.chunk;
  const Part part = plan_part(sms, gpu_sms, w.per_sm, chunks, c.lefts->slots() - proxy);
  p->flags |= SLUICE_LAUNCH_SPATIAL;
  p->sm_lo = static_cast<uint16_t>(part.lo);
  p->sm_hi = static_cast<uint16_t>(part.hi);
  p->sm_quota = static_cast<uint16_t>(part.quota);
  p->tail_shift = part.tail_shift;
  *blocks = part.blocks + proxy;
  w.workers = part.workers;
  if (s.barred == part.barred) return CUDA_SUCCESS;

  // In stream order: what ran before under another set has ended, and counted itself out.
  const auto fill = [&](const SmSet& these, uint32_t value) {
    for (SmSet::Range r = these.next_range(); r.lo < r.hi; r = these.next_range(r.hi)) {
      const CUdeviceptr at = s.left + offsetof(sluice_launch_left, sm_workers) + r.lo * sizeof(uint32_t);
      if (CUresult e = api_.cuMemsetD32Async(at, value, r.hi - r.lo, s.cu); e != CUDA_SUCCESS) return e;
    }
    return CUDA_SUCCESS;
  };
  if (CUresult r = fill(s.barred - part.barred, 0); r != CUDA_SUCCESS) return r;
  if (CUresult r = fill(part.barred - s.barred, SLUICE_LEFT_BARRED); r != CUDA_SUCCESS) return r;
  s.barred = part.barred;
  return CUDA_SUCCESS;
}

}  // namespace sluice::worker
