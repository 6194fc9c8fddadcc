// SPDX-License-Identifier: Apache-2.0
// The end of a session's GPU work by an error; the rest of the engine is in streams/engine.cc.
//
// Everything that is queued completes with the error at once, as the program expects it. The gate
// hears only what the driver confirms: an error of one context does not end the kernels of
// another, and an error that the engine found itself (a clone that never gets anywhere) ends no
// kernel at all. Until they have ended the session holds the GPU, and can be ended for it.
#include "mediator/worker/streams/engine.h"

namespace sluice::worker {

bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

void StreamEngine::fail(CUresult error, uint64_t now_ns) {
  if (error_ != CUDA_SUCCESS) return;
  error_ = error;
  for (auto& s : streams_.all) {
    // Its own context's error may have ended them; another's has not, nor has one that the engine
    // found itself.
    for (size_t i = s->ended; i < s->next && !s->lingers; ++i)
      s->lingers = s->ops[i].needs_grant() && s->ops[i].in_flight();
    lingering_ += s->lingers ? 1 : 0;
    s->queue.forget_markers();
    s->next = s->ended = 0;
    s->launches_issued = 0;
    s->retry_ns = 0;
    s->flow = Flow::kFlowing;
    while (!s->ops.empty()) {
      s->ops.front().status = CUDA_SUCCESS;
      finish(*s, error, now_ns);
    }
    if (s->removed && !s->lingers) driver_.drained(s->id);
  }
  std::erase_if(streams_.all, [this](const auto& s) {
    const bool over = s->removed && !s->lingers;
    if (over) streams_.by_id.erase(s->id);
    return over;
  });
  physical_ = pacing_ = 0;
  opaque_.clear();
  slice_queue_.clear();
  bulk_.clear();
  host_funcs_waiting_ = 0;
  held_by_gate_ = retrying_ = waits_for_hardware_ = false;
  demand_.update(streams_, now_ns);  // nothing is queued any more
  if (lingering_ == 0) return gate_.reset(now_ns);
  linger(now_ns);
}

// The session has failed, and launches may still run: it has left when the driver's streams have
// ended, not before.
void StreamEngine::linger(uint64_t now_ns) {
  if (lingering_ == 0) return;
  std::erase_if(streams_.all, [this](const auto& s) {
    if (!s->lingers || s->drained || driver_.idle(s->id) == CUDA_ERROR_NOT_READY) return false;
    s->lingers = false;
    --lingering_;
    if (!s->removed) return false;
    driver_.drained(s->id);
    streams_.by_id.erase(s->id);
    return true;
  });
  if (lingering_ == 0) gate_.reset(now_ns);
}

void StreamEngine::context_ends(ContextId context) {
  for (auto& s : streams_.all) {
    if (!s->lingers || s->drained || s->context != context) continue;
    s->drained = true;
    driver_.drained(s->id);
  }
}

void StreamEngine::context_gone(ContextId context, uint64_t now_ns) {
  if (lingering_ == 0) return;
  std::erase_if(streams_.all, [&](const auto& s) {
    if (!s->drained || s->context != context) return false;
    --lingering_;
    streams_.by_id.erase(s->id);
    return true;
  });
  if (lingering_ == 0) gate_.reset(now_ns);
}

}  // namespace sluice::worker
