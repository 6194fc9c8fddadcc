// SPDX-License-Identifier: Apache-2.0
// GenericCalls: what calls/dispatch.h needs of a session for one call, and the rows that the
// session does itself instead of passing them to the driver: whatever makes or ends an object of
// the guest, holds memory, or would show the real device where the guest has a part of it.
//
// One per call, on the stack of the decoder (rows that are quick) or of the job thread (the
// others). Methods lock the session for its tables, never across a driver call that may take long.
#pragma once

#include <optional>

#include "mediator/worker/calls/dispatch.h"
#include "mediator/worker/session/worker_session.h"

namespace sluice::worker {

// The call is not answered now: it was parked (a lease is asked for) and will run again.
// No CUresult, but within the values that the enumeration can hold (999 needs ten bits): a load of
// anything outside them is undefined.
inline constexpr CUresult kParked = static_cast<CUresult>(1023);

struct GenericCalls {
  using ContextHandle = calls::WireHandle<SLUICE_HANDLE_CONTEXT>;
  using ModuleHandle = calls::WireHandle<SLUICE_HANDLE_MODULE>;
  using FunctionHandle = calls::WireHandle<SLUICE_HANDLE_FUNCTION>;
  using StreamHandle = calls::WireHandle<SLUICE_HANDLE_STREAM>;
  using EventHandle = calls::WireHandle<SLUICE_HANDLE_EVENT>;
  using ArrayHandle = calls::WireHandle<SLUICE_HANDLE_ARRAY>;
  using MipmapHandle = calls::WireHandle<SLUICE_HANDLE_MIPMAP>;
  using GreenHandle = calls::WireHandle<SLUICE_HANDLE_GREEN>;

  WorkerSession& s;
  const Call& call;
  std::span<const std::byte> body;

  // The table as calls/dispatch.h wants it. Every row that makes or ends a handle is a method
  // below, so adding and removing never comes here.
  struct Handles {
    WorkerSession& s;
    std::optional<void*> driver_object(sluice_handle_kind kind, uint64_t guest_handle);
    bool has_room(sluice_handle_kind kind);
    uint64_t add(sluice_handle_kind kind, void* object);
    void remove(uint64_t guest_handle);
  };
  Handles handles() { return {s}; }
  bool owns_device_address(CUdeviceptr guest_address);

  // devices (calls/generic_calls.cc)
  CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev);
  CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice dev);
  // contexts (calls/context_calls.cc)
  CUresult cuDevicePrimaryCtxRetain(ContextHandle* out, CUdevice dev);
  CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev);
  CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev);
  CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags);
  CUresult cuCtxSetFlags(unsigned flags);
  CUresult cuCtxResetPersistingL2Cache();
  CUresult cuCtxCreate_v2(ContextHandle* out, unsigned flags, CUdevice dev);
  CUresult cuCtxDestroy_v2(ContextHandle context);
  CUresult cuCtxSetLimit(CUlimit limit, size_t value);
  // modules and functions (calls/function_calls.cc)
  CUresult cuModuleUnload(ModuleHandle module);
  CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, ModuleHandle module,
                                const char* name);
  CUresult cuFuncSetAttribute(FunctionHandle function, CUfunction_attribute attribute, int value);
  CUresult cuFuncSetCacheConfig(FunctionHandle function, CUfunc_cache config);
  CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, FunctionHandle function,
                                                   int blocks, int threads);
  CUresult cuFuncSetSharedMemConfig(FunctionHandle function, CUsharedconfig config);
  // memory (calls/memory_calls.cc)
  CUresult cuMemGetInfo_v2(size_t* free, size_t* total);
  CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes);
  CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                              unsigned element_bytes);
  CUresult cuMemFree_v2(CUdeviceptr address);
  CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, StreamHandle stream);
  CUresult cuMemFreeAsync(CUdeviceptr address, StreamHandle stream);
  // memory of several programs (calls/ipc_calls.cc)
  CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address);
  CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags);
  CUresult cuIpcCloseMemHandle(CUdeviceptr address);
  // virtual memory management (calls/virtual_memory.cc)
  CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                               unsigned long long flags);
  CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size);
  CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                       const CUmemAllocationProp* prop, unsigned long long flags);
  CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
  CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags);
  CUresult cuMemUnmap(CUdeviceptr ptr, size_t size);
  CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count);
  CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                          CUdeviceptr ptr);
  CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                         CUmemAllocationGranularity_flags option);
  CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                  CUmemGenericAllocationHandle handle);
  CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* guest_address);
  // arrays, textures, surfaces (calls/arrays.cc)
  CUresult cuArray3DCreate_v2(ArrayHandle* out, const CUDA_ARRAY3D_DESCRIPTOR* descriptor);
  CUresult cuArrayDestroy(ArrayHandle array);
  CUresult cuMipmappedArrayCreate(MipmapHandle* out, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                  unsigned levels);
  CUresult cuMipmappedArrayGetLevel(ArrayHandle* out, MipmapHandle array, unsigned level);
  CUresult cuMipmappedArrayDestroy(MipmapHandle array);
  CUresult cuTexObjectCreate(CUtexObject* object, const CUDA_RESOURCE_DESC* resource,
                             const CUDA_TEXTURE_DESC* texture, const CUDA_RESOURCE_VIEW_DESC* view);
  CUresult cuTexObjectDestroy(CUtexObject object);
  CUresult cuSurfObjectCreate(CUsurfObject* object, const CUDA_RESOURCE_DESC* resource);
  CUresult cuSurfObjectDestroy(CUsurfObject object);
  // green contexts (calls/green_calls.cc)
  CUresult cuGreenCtxDestroy(GreenHandle green);
  CUresult cuGreenCtxStreamCreate(StreamHandle* out, GreenHandle green, unsigned flags,
                                  int priority);
  // streams and events (calls/stream_objects.cc)
  CUresult cuStreamCreate(StreamHandle* out, unsigned flags);
  CUresult cuStreamCreateWithPriority(StreamHandle* out, unsigned flags, int priority);
  CUresult cuStreamDestroy_v2(StreamHandle stream);
  CUresult cuStreamGetPriority(StreamHandle stream, int* priority);
  CUresult cuStreamGetId(StreamHandle stream, unsigned long long* id);
  CUresult cuEventCreate(EventHandle* out, unsigned flags);
  CUresult cuEventDestroy_v2(EventHandle event);
  CUresult cuEventElapsedTime_v2(float* milliseconds, EventHandle start, EventHandle end);

 private:
  CUresult make_stream(StreamHandle* out, StreamKind kind, unsigned flags, int priority,
                       const std::shared_ptr<GreenObject>& green);
  CUresult not_made(CUresult why);
  CUresult allocate(CUdeviceptr* address, size_t bytes,
                    const std::function<CUresult(CUdeviceptr*)>& by_driver);
  // With the session's lock held. False: a lease is asked for, after which the call runs again.
  bool charge_or_park(uint64_t charge, ChargeKind kind = ChargeKind::kAllocations);
  // The same for a context: leave to open one, and its memory.
  bool open_or_park();
  CUresult close_after_sync(std::shared_ptr<ContextObject> c);
  void park(worker_protocol::Resource resource, uint64_t lacking);
  // Makes the call once more on the job thread, where it may wait. kParked.
  CUresult as_job();
  CUresult ask_for_token(CUdeviceptr address, uint64_t bytes);
  CUresult park_for_sluiced(worker_protocol::Message question);
  CUresult open_again(const SharedMemory::Wire& wire, uint64_t guest_offset, CUdeviceptr* address);
  CUresult end_import(const SharedMemory::Import& import);
  void drop_if_unused(const std::shared_ptr<MemoryObject>& memory);
  std::shared_ptr<MemoryObject> memory(CUmemGenericAllocationHandle guest_handle);
  CUresult granularity(int device, size_t* unit);
  std::shared_ptr<FunctionObject> function(FunctionHandle handle);
  CUresult make_array(sluice_handle_kind kind, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                      unsigned levels, uint64_t* handle);
  CUresult end_array(sluice_handle_kind kind, uint64_t handle);
  std::vector<std::shared_ptr<ArrayObject>> unused_arrays(ContextObject& context);
  void destroy_arrays(const std::vector<std::shared_ptr<ArrayObject>>& arrays);
  CUresult resource(const CUDA_RESOURCE_DESC& guest, bool surface, CUDA_RESOURCE_DESC* to,
                    std::shared_ptr<ArrayObject>* array);
  CUresult make_texture(unsigned long long* out, const CUDA_RESOURCE_DESC& guest,
                        const CUDA_TEXTURE_DESC* texture, const CUDA_RESOURCE_VIEW_DESC* view);
  CUresult destroy_texture(unsigned long long object, bool surface);
};

}  // namespace sluice::worker
