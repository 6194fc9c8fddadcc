// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/evict_forwarder.h"

#include <algorithm>

#include "mediator/base/log.h"
#include "mediator/worker/launch/cuda_streams.h"

namespace sluice::worker {

CUresult EvictForwarder::send(Target& target, uint64_t word) {
  CUresult r =
      signal_ == worker_protocol::Signal::kWrite
          ? api_.cuStreamWriteValue64(target.stream, target.word, word, 0)
          // From the page itself: what the copy engine finds there is this word or a newer one.
          : api_.cuMemcpyHtoDAsync(target.word, &page_->evict, sizeof page_->evict, target.stream);
  if (r == CUDA_SUCCESS) target.sent = word;
  return r;
}

CUresult EvictForwarder::open(CUcontext context, CUdeviceptr* word) {
  *word = 0;
  if (!worker_protocol::is_forwarded(signal_)) return CUDA_SUCCESS;
  Target t;
  t.context = context;
  int least = 0, greatest = 0;
  CUresult r = api_.cuCtxGetStreamPriorityRange(&least, &greatest);
  if (r == CUDA_SUCCESS)
    r = api_.cuStreamCreateWithPriority(&t.stream, CU_STREAM_NON_BLOCKING, greatest);
  // The word, and what kernels read behind it (abi/preempt.h).
  const uint64_t zeros[2] = {};
  if (r == CUDA_SUCCESS) r = api_.cuMemAlloc(&t.word, sizeof zeros);
  if (r == CUDA_SUCCESS) r = api_.cuMemcpyHtoD(t.word, zeros, sizeof zeros);
  std::lock_guard lock(mutex_);
  if (r == CUDA_SUCCESS) r = send(t, __atomic_load_n(&page_->evict, __ATOMIC_SEQ_CST));
  if (r == CUDA_SUCCESS) r = api_.cuStreamSynchronize(t.stream);
  if (r != CUDA_SUCCESS) {
    // What was made goes with the context.
    log::warning("signal \"{}\": {}", worker_protocol::kSignalNames[static_cast<size_t>(signal_)],
                 gpu::describe(r));
    return r;
  }
  targets_.push_back(t);
  *word = t.word;
  return CUDA_SUCCESS;
}

void EvictForwarder::close(CUcontext context) {
  std::lock_guard lock(mutex_);
  std::erase_if(targets_, [&](const Target& t) { return t.context == context; });
}

void EvictForwarder::forward() {
  if (!worker_protocol::is_forwarded(signal_)) return;
  std::lock_guard lock(mutex_);
  const uint64_t word = __atomic_load_n(&page_->evict, __ATOMIC_SEQ_CST);
  for (Target& t : targets_) {
    if (t.sent == word) continue;
    CUresult r = make_current(api_, t.context);
    if (r == CUDA_SUCCESS) r = send(t, word);
    // Then the launches do not leave, and sluiced ends the session when they are due.
    if (r != CUDA_SUCCESS) {
      log::warning("an eviction does not reach the GPU: {}", gpu::describe(r));
      t.sent = word;
    }
  }
}

}  // namespace sluice::worker
