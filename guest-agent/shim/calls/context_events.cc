// SPDX-License-Identifier: Apache-2.0
// Events of a whole context: recorded behind, or waited for by, all of its streams.
//
// The legacy stream stands for all blocking streams, as CUDA orders them; the others are named one
// by one, those of green contexts among them, but not these contexts' default streams. A green
// context has no order of its own, so it is all of its streams. A non-blocking stream that is made
// after cuCtxWaitEvent does not wait.
#include <vector>

#include "abi/cuda_graph.h"
#include "guest-agent/graphs/in_context.h"
#include "guest-agent/shim/calls/green_contexts.h"
#include "guest-agent/shim/state/api.h"

using namespace sluice::guest;
namespace graphs = sluice::graphs;

namespace {

std::vector<CUstream> streams_to_order(uint64_t context) {
  if (state().greens.find(context) != nullptr) return streams_of_green(context);
  std::vector<CUstream> all{CU_STREAM_LEGACY};
  state().streams.for_each([&](uint64_t handle, const StreamInfo& info) {
    const bool by_itself = info.green != 0 ? state().greens.find(info.green) != nullptr
                                           : (info.flags & CU_STREAM_NON_BLOCKING) != 0;
    if (info.context == context && by_itself) all.push_back(reinterpret_cast<CUstream>(handle));
  });
  return all;
}

CUresult check(CUcontext context, CUevent event) {
  const Entered e = enter();
  if (!e) return e.status;
  if (!state().context(wire(context))) return CUDA_ERROR_INVALID_CONTEXT;
  const EventInfo* info = state().events.find(wire(event));
  if (info == nullptr || info->context != current_context()) return CUDA_ERROR_INVALID_HANDLE;
  for (const CUstream stream : streams_to_order(wire(context))) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE)
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
  const graphs::InContext here(wire(context));
  if (here.status != CUDA_SUCCESS) return here.status;
  if (const CUresult r = check(context, event); r != CUDA_SUCCESS) return r;
  const std::vector<CUstream> streams = streams_to_order(wire(context));
  CUstream all = nullptr;
  CUevent one = nullptr;
  CUresult r = cuStreamCreate(&all, CU_STREAM_NON_BLOCKING);
  if (r != CUDA_SUCCESS) return r;
  r = cuEventCreate(&one, CU_EVENT_DISABLE_TIMING);
  for (size_t i = 0; i < streams.size() && r == CUDA_SUCCESS; ++i) {
    r = cuEventRecord(one, streams[i]);
    if (r == CUDA_SUCCESS) r = cuStreamWaitEvent(all, one, 0);
  }
  if (r == CUDA_SUCCESS) r = cuEventRecord(event, all);
  if (one != nullptr) (void)cuEventDestroy(one);
  (void)cuStreamDestroy(all);
  return r;
}

CUresult cuCtxWaitEvent(CUcontext context, CUevent event) {
  const graphs::InContext here(wire(context));
  if (here.status != CUDA_SUCCESS) return here.status;
  CUresult r = check(context, event);
  if (r != CUDA_SUCCESS) return r;
  for (const CUstream stream : streams_to_order(wire(context)))
    if (r = cuStreamWaitEvent(stream, event, 0); r != CUDA_SUCCESS) return r;
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event) {
  CUcontext view = nullptr;
  const CUresult r = cuCtxFromGreenCtx(&view, green);
  return r == CUDA_SUCCESS ? cuCtxRecordEvent(view, event) : r;
}
CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event) {
  CUcontext view = nullptr;
  const CUresult r = cuCtxFromGreenCtx(&view, green);
  return r == CUDA_SUCCESS ? cuCtxWaitEvent(view, event) : r;
}
