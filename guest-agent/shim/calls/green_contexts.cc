// SPDX-License-Identifier: Apache-2.0
// Green contexts of the program. Their streams: streams.cc; their events: context_events.cc.
#include "guest-agent/shim/calls/green_contexts.h"

#include "abi/cuda_graph.h"
#include "guest-agent/graphs/capture.h"

using namespace sluice::guest;
namespace graphs = sluice::graphs;

CUresult cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc handle, CUdevice device,
                          unsigned int flags) {
  Entered e = enter();
  if (!e) return e.status;
  if (out == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  sluice_green source;
  if (!find_desc(handle, &source)) return CUDA_ERROR_INVALID_VALUE;
  if (source.device != device) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext primary = nullptr;
  if (const CUresult r = cuDevicePrimaryCtxRetain(&primary, device); r != CUDA_SUCCESS) return r;
  e.context = wire(primary);
  sluice_green_reply reply{};
  CUresult r = ask_for_green(e, SLUICE_CALL_GREEN_CREATE, source, &reply);
  if (r == CUDA_SUCCESS && !state().greens.add(reply.handle, [&](GreenInfo& info) {
        info = {e.context, device, reply.all};
      }))
    r = CUDA_ERROR_OUT_OF_MEMORY;
  if (r != CUDA_SUCCESS) {
    (void)cuDevicePrimaryCtxRelease(device);
    return r;
  }
  *out = reinterpret_cast<CUgreenCtx>(reply.handle);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  const Entered e = enter();
  if (!e) return e.status;
  const GreenInfo* info = state().greens.find(wire(green));
  if (info == nullptr) return no_green(green);
  const GreenInfo was = *info;
  for (const CUstream stream : streams_of_green(wire(green)))
    graphs::end_captures_of_stream(stream);
  if (!state().greens.remove(wire(green))) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const CUresult r = SLUICE_CALL(cuGreenCtxDestroy, *e.link, was.context, green);
  // Where it is current still, records are in the name of its context from now on.
  if (GreenScope& scope = green_scope(); scope.green == wire(green)) scope.green = scope.context;
  const CUresult released = cuDevicePrimaryCtxRelease(was.device);
  return r != CUDA_SUCCESS ? r : released;
}

CUresult cuCtxFromGreenCtx(CUcontext* out, CUgreenCtx green) {
  const Entered e = enter();
  if (!e) return e.status;
  if (state().greens.find(wire(green)) == nullptr) return no_green(green);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUcontext>(green);
  return CUDA_SUCCESS;
}

// Its handle: no two have had the same.
CUresult cuGreenCtxGetId(CUgreenCtx green, unsigned long long* id) {
  const Entered e = enter();
  if (!e) return e.status;
  if (green == nullptr) green = reinterpret_cast<CUgreenCtx>(current_green());
  if (state().greens.find(wire(green)) == nullptr) return no_green(green);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = wire(green);
  return CUDA_SUCCESS;
}

namespace sluice::guest {

std::vector<CUstream> streams_of_green(uint64_t green) {
  std::vector<CUstream> all{CU_STREAM_LEGACY};
  state().streams.for_each([&](uint64_t handle, const StreamInfo& info) {
    if (info.green == green) all.push_back(reinterpret_cast<CUstream>(handle));
  });
  return all;
}

CUresult synchronize_green(uint64_t green) {
  const graphs::RelaxedHere here;
  for (const CUstream stream : streams_of_green(green))
    if (const CUresult r = cuStreamSynchronize(stream); r != CUDA_SUCCESS) return r;
  return CUDA_SUCCESS;
}

bool has_green_contexts(CUdevice device) {
  bool any = false;
  state().greens.for_each(
      [&](uint64_t, const GreenInfo& info) { any = any || info.device == device; });
  return any;
}

}  // namespace sluice::guest
