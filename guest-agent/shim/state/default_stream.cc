// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/state/default_stream.h"

#include <vector>

#include "guest-agent/shim/state/api.h"

namespace sluice::guest {

namespace {

thread_local bool null_is_per_thread = false;

// The thread's own stream in one context, until the context is reset.
struct OwnStream {
  uint64_t context = 0, resets = 0;
  CUstream stream = nullptr;
};

struct OwnStreams {
  std::vector<OwnStream> all;

  ~OwnStreams() {
    CUresult why = CUDA_SUCCESS;
    WorkerLink* link = WorkerLink::current(&why);
    if (link == nullptr || link->dead() != CUDA_SUCCESS) return;
    for (const OwnStream& own : all)
      if (is_valid(own) && state().streams.remove(wire(own.stream)))
        (void)SLUICE_CALL(cuStreamDestroy_v2, *link, own.context, own.stream);
  }

  static bool is_valid(const OwnStream& own) {
    const auto context = state().context(own.context);
    return context && context->resets == own.resets;
  }
};

CUresult own_stream(CUstream& stream) {
  thread_local OwnStreams streams;
  const Entered e = enter_context();
  if (!e) return e.status;
  std::erase_if(streams.all, [](const OwnStream& own) { return !OwnStreams::is_valid(own); });
  for (const OwnStream& own : streams.all) {
    if (own.context != e.context) continue;
    stream = own.stream;
    return CUDA_SUCCESS;
  }
  const auto context = state().context(e.context);
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  OwnStream own{e.context, context->resets, nullptr};
  const CUresult r =
      SLUICE_CALL(cuStreamCreate, *e.link, e.context, &own.stream, unsigned{CU_STREAM_DEFAULT});
  if (r != CUDA_SUCCESS) return r;
  const bool kept = state().streams.add(wire(own.stream), [&](StreamInfo& info) {
    info.context = e.context;
    info.flags = CU_STREAM_DEFAULT;
  });
  if (!kept) return CUDA_ERROR_OUT_OF_MEMORY;
  streams.all.push_back(own);
  stream = own.stream;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult resolve_stream(CUstream& stream) {
  if (stream == CU_STREAM_PER_THREAD || (stream == nullptr && null_is_per_thread))
    return current_green() != 0 ? CUDA_ERROR_INVALID_HANDLE : own_stream(stream);
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return CUDA_SUCCESS;
  const StreamInfo* info = state().streams.find(wire(stream));
  if (info == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return info->green == 0 || state().greens.find(info->green) != nullptr
             ? CUDA_SUCCESS
             : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

NullIsPerThread::NullIsPerThread() : before_(null_is_per_thread) { null_is_per_thread = true; }
NullIsPerThread::~NullIsPerThread() { null_is_per_thread = before_; }

}  // namespace sluice::guest
