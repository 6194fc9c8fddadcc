// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: addresses, physical memory and mappings are the worker's, which checks
// everything; here only which addresses are the GPU's, so that copies know them without asking. No
// context needs to be current, as with CUDA. Memory cannot leave the vGPU: the
// handle types of an allocation are stored and returned, exporting is refused.
#include "guest-agent/shim/state/api.h"

using namespace sluice::guest;

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  const Entered e = enter();
  if (!e) return e.status;
  if (ptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult r =
      SLUICE_CALL(cuMemAddressReserve, *e.link, e.context, ptr, size, alignment, addr, flags);
  if (r == CUDA_SUCCESS) state().pointers.add_reserved(*ptr, size);
  return r;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  const Entered e = enter();
  if (!e) return e.status;
  // Before the worker: it may give the addresses to another thread at once.
  const uint64_t bytes = state().pointers.take_reserved(ptr);
  const CUresult r = SLUICE_CALL(cuMemAddressFree, *e.link, e.context, ptr, size);
  if (r != CUDA_SUCCESS && bytes != 0) state().pointers.add_reserved(ptr, bytes);
  return r;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  const Entered e = enter();
  if (!e) return e.status;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuMemCreate, *e.link, e.context, handle, size, prop, flags);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Entered e = enter();
  if (!e) return e.status;
  return SLUICE_CALL(cuMemRelease, *e.link, e.context, handle);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  const Entered e = enter();
  if (!e) return e.status;
  const CUresult r = SLUICE_CALL(cuMemMap, *e.link, e.context, ptr, size, offset, handle, flags);
  if (r != CUDA_SUCCESS) return r;
  Range range;
  range.base = ptr;
  range.bytes = size;
  range.static_global = true;  // nothing that cuMemFree could free
  range.mapped = true;
  state().pointers.add(range);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  const Entered e = enter();
  if (!e) return e.status;
  const auto ranges = state().pointers.take_mapped(ptr, size);
  const CUresult r = SLUICE_CALL(cuMemUnmap, *e.link, e.context, ptr, size);
  if (r != CUDA_SUCCESS)
    for (const Range& range : ranges) state().pointers.add(range);
  return r;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  const Entered e = enter();
  if (!e) return e.status;
  const CUresult r = SLUICE_CALL(cuMemSetAccess, *e.link, e.context, ptr, size, desc, count);
  if (r != CUDA_SUCCESS) return r;
  int access = 0;
  for (size_t i = 0; i < count; ++i) access |= desc[i].flags;
  state().pointers.set_access(ptr, size, access);
  return r;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  const Entered e = enter();
  if (!e) return e.status;
  return SLUICE_CALL(cuMemGetAccess, *e.link, e.context, flags, location, ptr);
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  const Entered e = enter();
  if (!e) return e.status;
  return SLUICE_CALL(cuMemGetAllocationGranularity, *e.link, e.context, granularity, prop, option);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  const Entered e = enter();
  if (!e) return e.status;
  return SLUICE_CALL(cuMemGetAllocationPropertiesFromHandle, *e.link, e.context, prop, handle);
}

// As the driver says it of a kind of handle that cuMemCreate was not asked for; with one, it is we
// who do not offer it.
CUresult cuMemExportToShareableHandle(void* shareable_handle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handle_type,
                                      unsigned long long flags) {
  const Entered e = enter();
  if (!e) return e.status;
  CUmemAllocationProp prop{};
  if (shareable_handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult r =
      SLUICE_CALL(cuMemGetAllocationPropertiesFromHandle, *e.link, e.context, &prop, handle);
  if (r != CUDA_SUCCESS) return r;
  if (handle_type == CU_MEM_HANDLE_TYPE_NONE ||
      (prop.requestedHandleTypes & handle_type) != handle_type)
    return CUDA_ERROR_INVALID_VALUE;
  return static_cast<CUresult>(
      not_supported("cuMemExportToShareableHandle", "memory does not leave its program"));
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  const Entered e = enter();
  if (!e) return e.status;
  return SLUICE_CALL(cuMemRetainAllocationHandle, *e.link, e.context, handle, addr);
}
