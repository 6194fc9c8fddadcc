// SPDX-License-Identifier: Apache-2.0
// Device memory of other programs of this VM. The worker and sluiced do all of it
// (mediator/worker/calls/ipc_calls.cc); here only which addresses are the GPU's.
#include <cstring>

#include "guest-agent/graphs/capture.h"
#include "guest-agent/shim/memory/shared_memory.h"
#include "guest-agent/shim/state/api.h"

namespace sluice::guest {

CUresult open_shared_memory(const Entered& e, const CUipcMemHandle& handle, CUmemoryPool pool,
                            CUdeviceptr* dptr) {
  constexpr unsigned kFlags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
  const CUresult r = SLUICE_CALL(cuIpcOpenMemHandle_v2, *e.link, e.context, dptr, handle, kFlags);
  if (r != CUDA_SUCCESS) return r;
  sluice_ipc_handle inside;
  std::memcpy(&inside, &handle, sizeof inside);
  if (const auto known = state().pointers.find(*dptr); known && known->imports != 0) {
    Range again = *known;
    ++again.imports;
    state().pointers.remove(again.base);
    state().pointers.add(again);
    return r;
  }
  Range range;
  range.base = *dptr;
  range.bytes = inside.bytes;
  range.context = e.context;
  range.pool = pool;
  range.static_global = true;  // nothing that cuMemFree could free
  range.imports = 1;
  state().pointers.add(range);
  return r;
}

CUresult close_shared_memory(const Entered& e, const Range& range) {
  // Before the worker: it may give the addresses to another thread at once.
  state().pointers.remove(range.base);
  if (range.imports > 1) {
    Range rest = range;
    --rest.imports;
    state().pointers.add(rest);
  }
  return SLUICE_CALL(cuIpcCloseMemHandle, *e.link, range.context, range.base);
}

}  // namespace sluice::guest

using namespace sluice::guest;

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr dptr) {
  const Entered e = enter_context();
  if (!e) return e.status;
  const auto range = state().pointers.find(dptr);
  // What cannot leave its program: of pools, of modules, mapped, or itself of another program.
  if (handle == nullptr || !range || !may_be_exported(*range)) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuIpcGetMemHandle, *e.link, range->context, handle, dptr);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* dptr, CUipcMemHandle handle, unsigned int flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (dptr == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return CUDA_ERROR_INVALID_VALUE;
  return open_shared_memory(e, handle, nullptr, dptr);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  const Entered e = enter_context();
  if (!e) return e.status;
  const auto range = state().pointers.find(dptr);
  if (!range || range->imports == 0 || range->pool != nullptr) return CUDA_ERROR_INVALID_VALUE;
  return close_shared_memory(e, *range);
}
