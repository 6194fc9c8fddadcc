/* SPDX-License-Identifier: Apache-2.0 */
// The one table of calls that cross the channel.
//
//   X(opcode, function, status, tags...)   generic: marshalled by its tags (abi/cuda_tags.h), the
//                                          signature is abi/cuda_driver.h's by decltype
//   Y(opcode, name, struct, tail)          custom: the record is this struct of abi/wire.h; `tail`
//                                          is its field that counts the bytes behind it, or
//                                          kNoTail. The worker's handler is handle_NAME in
//                                          mediator/worker/calls
//
// `status`, of a generic call, says who waits for it and when the worker makes it:
//   kReply      the caller waits; made by the job thread, in order
//   kAtOnce     the caller waits; the decoder makes it without waiting for a job: it only reads, or
//               becomes a job where the driver may take its time
//   kAfterWork  the caller waits; made when all that the context has queued is complete, as CUDA's
//               implicit synchronisation has it
//   kQueued     nobody waits; an error surfaces at the next synchronising call
//
// Everything else is derived: the guest's stubs, the worker's dispatch, names for tracing and
// statistics. A row whose number of tags differs from the function's number of parameters does not
// compile. Opcodes never change their meaning; new rows take new numbers.
//
// What has no row is answered in the guest (current contexts, pointer attributes, error texts,
// function layouts) or does not exist yet. C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "abi/cuda_driver.h"
#include "abi/cuda_green.h"
#include "abi/cuda_tags.h"
#include "abi/cuda_texture.h"
#include "abi/wire.h"

/* clang-format off */
#define SLUICE_GENERIC_CALLS(X) \
  /* start and devices */ \
  X(0x001, cuInit, kAtOnce, In) \
  X(0x002, cuDriverGetVersion, kAtOnce, Out) \
  X(0x003, cuDeviceGetCount, kAtOnce, Out) \
  X(0x004, cuDeviceGet, kAtOnce, Out, In) \
  X(0x005, cuDeviceGetName, kAtOnce, OutBuf<1>, In, In) \
  X(0x006, cuDeviceGetUuid_v2, kAtOnce, Out, In) \
  X(0x007, cuDeviceTotalMem_v2, kAtOnce, Out, In) \
  X(0x008, cuDeviceGetAttribute, kAtOnce, Out, In, In) \
  X(0x00a, cuDeviceGetByPCIBusId, kAtOnce, Out, CStr) \
  X(0x00b, cuDeviceGetPCIBusId, kAtOnce, OutBuf<1>, In, In) \
  X(0x00c, cuDeviceGetProperties, kAtOnce, Out, In) \
  /* contexts; the current one is the record's */ \
  X(0x020, cuDevicePrimaryCtxRetain, kReply, HOut<SLUICE_HANDLE_CONTEXT>, In) \
  X(0x021, cuDevicePrimaryCtxRelease_v2, kReply, In) \
  X(0x022, cuDevicePrimaryCtxSetFlags_v2, kReply, In, In) \
  X(0x023, cuDevicePrimaryCtxGetState, kAtOnce, In, Out, Out) \
  X(0x024, cuDevicePrimaryCtxReset_v2, kReply, In) \
  X(0x025, cuCtxCreate_v2, kReply, HOut<SLUICE_HANDLE_CONTEXT>, In, In) \
  X(0x026, cuCtxDestroy_v2, kReply, HEnd<SLUICE_HANDLE_CONTEXT>) \
  X(0x027, cuCtxGetFlags, kAtOnce, Out) \
  X(0x028, cuCtxSetFlags, kReply, In) \
  X(0x029, cuCtxGetId, kAtOnce, HInOrNull<SLUICE_HANDLE_CONTEXT>, Out) \
  X(0x02a, cuCtxSetLimit, kReply, In, In) \
  X(0x02b, cuCtxGetLimit, kAtOnce, Out, In) \
  X(0x02c, cuCtxGetCacheConfig, kAtOnce, Out) \
  X(0x02d, cuCtxSetCacheConfig, kReply, In) \
  X(0x02e, cuCtxGetApiVersion, kAtOnce, HInOrNull<SLUICE_HANDLE_CONTEXT>, Out) \
  X(0x02f, cuCtxGetStreamPriorityRange, kAtOnce, Out, Out) \
  X(0x030, cuCtxResetPersistingL2Cache, kReply, ) \
  X(0x031, cuCtxGetSharedMemConfig, kAtOnce, Out) \
  X(0x032, cuCtxSetSharedMemConfig, kReply, In) \
  /* modules and functions */ \
  X(0x040, cuModuleUnload, kAfterWork, HEnd<SLUICE_HANDLE_MODULE>) \
  X(0x041, cuModuleGetGlobal_v2, kReply, Out, Out, HIn<SLUICE_HANDLE_MODULE>, CStr) \
  X(0x043, cuFuncGetAttribute, kAtOnce, Out, In, HIn<SLUICE_HANDLE_FUNCTION>) \
  X(0x044, cuFuncSetAttribute, kReply, HIn<SLUICE_HANDLE_FUNCTION>, In, In) \
  X(0x045, cuFuncSetCacheConfig, kReply, HIn<SLUICE_HANDLE_FUNCTION>, In) \
  X(0x046, cuFuncSetSharedMemConfig, kReply, HIn<SLUICE_HANDLE_FUNCTION>, In) \
  X(0x047, cuOccupancyMaxActiveBlocksPerMultiprocessor, kAtOnce, Out, HIn<SLUICE_HANDLE_FUNCTION>, In, In) \
  X(0x048, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, kAtOnce, Out, HIn<SLUICE_HANDLE_FUNCTION>, In, In, In) \
  X(0x049, cuOccupancyAvailableDynamicSMemPerBlock, kAtOnce, Out, HIn<SLUICE_HANDLE_FUNCTION>, In, In) \
  /* memory; the addresses that come back belong to the session from then on */ \
  X(0x060, cuMemGetInfo_v2, kAtOnce, Out, Out) \
  X(0x061, cuMemAlloc_v2, kReply, Out, In) \
  X(0x062, cuMemAllocPitch_v2, kReply, Out, Out, In, In, In) \
  X(0x063, cuMemFree_v2, kAfterWork, Dev) \
  X(0x065, cuMemAllocAsync, kAtOnce, Out, In, HInOrNull<SLUICE_HANDLE_STREAM>) \
  X(0x066, cuMemFreeAsync, kAtOnce, Dev, HInOrNull<SLUICE_HANDLE_STREAM>) \
  /* memory of several programs */ \
  X(0x0d0, cuIpcGetMemHandle, kReply, Out, In) \
  X(0x0d1, cuIpcOpenMemHandle_v2, kReply, Out, In, In) \
  X(0x0d2, cuIpcCloseMemHandle, kAfterWork, In) \
  /* virtual memory management; the session does all of it (mediator/worker/calls/virtual_memory.cc) */ \
  X(0x067, cuMemAddressReserve, kReply, Out, In, In, In, In) \
  X(0x068, cuMemAddressFree, kReply, In, In) \
  X(0x069, cuMemCreate, kReply, Out, In, InStruct, In) \
  X(0x06a, cuMemRelease, kReply, In) \
  X(0x06b, cuMemMap, kReply, In, In, In, In, In) \
  X(0x06c, cuMemUnmap, kAfterWork, In, In) \
  X(0x06d, cuMemSetAccess, kReply, In, In, InArray<3>, In) \
  X(0x06e, cuMemGetAccess, kReply, Out, InStruct, In) \
  X(0x06f, cuMemGetAllocationGranularity, kReply, Out, InStruct, In) \
  X(0x070, cuMemGetAllocationPropertiesFromHandle, kReply, Out, In) \
  X(0x071, cuMemRetainAllocationHandle, kReply, Out, Address) \
  /* tensor maps: the driver's arithmetic; it reads no memory behind the address */ \
  X(0x0a0, cuTensorMapEncodeTiled, kAtOnce, Out, In, In, Address, InArray<2>, InArray<2, 1>, InArray<2>, InArray<2>, In, In, In, In) \
  X(0x0a1, cuTensorMapEncodeIm2col, kAtOnce, Out, In, In, Address, InArray<2>, InArray<2, 1>, InArray<2, 2>, InArray<2, 2>, In, In, InArray<2>, In, In, In, In) \
  X(0x0a2, cuTensorMapEncodeIm2colWide, kAtOnce, Out, In, In, Address, InArray<2>, InArray<2, 1>, In, In, In, In, InArray<2>, In, In, In, In, In) \
  X(0x0a3, cuTensorMapReplaceAddress, kAtOnce, InOut, Address) \
  /* arrays and what kernels read and write them by; copies are custom, descriptions the guest's. The names of texture
   * and surface objects are the driver's own, because kernels get them. 0x0b2 was a texture without a view. */ \
  X(0x0b0, cuArray3DCreate_v2, kReply, HOut<SLUICE_HANDLE_ARRAY>, InStruct) \
  X(0x0b1, cuArrayDestroy, kAfterWork, HEnd<SLUICE_HANDLE_ARRAY>) \
  X(0x0b3, cuTexObjectDestroy, kAfterWork, In) \
  X(0x0b4, cuSurfObjectCreate, kReply, Out, InStruct) \
  X(0x0b5, cuSurfObjectDestroy, kAfterWork, In) \
  X(0x0b6, cuMipmappedArrayCreate, kReply, HOut<SLUICE_HANDLE_MIPMAP>, InStruct, In) \
  X(0x0b7, cuMipmappedArrayGetLevel, kReply, HOut<SLUICE_HANDLE_ARRAY>, HIn<SLUICE_HANDLE_MIPMAP>, In) \
  X(0x0b8, cuMipmappedArrayDestroy, kAfterWork, HEnd<SLUICE_HANDLE_MIPMAP>) \
  X(0x0b9, cuTexObjectCreate, kReply, Out, InStruct, InStruct, InStructOrNull) \
  /* green contexts; splits of SMs and contexts of them are custom */ \
  X(0x0c0, cuGreenCtxDestroy, kReply, HEnd<SLUICE_HANDLE_GREEN>) \
  X(0x0c1, cuGreenCtxStreamCreate, kReply, HOut<SLUICE_HANDLE_STREAM>, HIn<SLUICE_HANDLE_GREEN>, In, In) \
  /* streams and events; recording, waiting and synchronising are custom */ \
  X(0x080, cuStreamCreate, kReply, HOut<SLUICE_HANDLE_STREAM>, In) \
  X(0x081, cuStreamCreateWithPriority, kReply, HOut<SLUICE_HANDLE_STREAM>, In, In) \
  X(0x082, cuStreamDestroy_v2, kQueued, HEnd<SLUICE_HANDLE_STREAM>) \
  X(0x083, cuStreamGetPriority, kAtOnce, HInOrNull<SLUICE_HANDLE_STREAM>, Out) \
  X(0x085, cuStreamGetId, kAtOnce, HInOrNull<SLUICE_HANDLE_STREAM>, Out) \
  X(0x090, cuEventCreate, kAtOnce, HOut<SLUICE_HANDLE_EVENT>, In) \
  X(0x091, cuEventDestroy_v2, kQueued, HEnd<SLUICE_HANDLE_EVENT>) \
  X(0x092, cuEventElapsedTime_v2, kAtOnce, Out, HIn<SLUICE_HANDLE_EVENT>, HIn<SLUICE_HANDLE_EVENT>)

#define SLUICE_CUSTOM_CALLS(Y) \
  Y(SLUICE_CALL_MODULE_LOAD, module_load, sluice_module_load, &sluice_module_load::inline_bytes) \
  Y(SLUICE_CALL_FUNCTION_GET, function_get, sluice_function_get, &sluice_function_get::name_bytes) \
  Y(SLUICE_CALL_FUNCTION_CLONES, function_clones, sluice_function_clones, &sluice_function_clones::address_bytes) \
  Y(SLUICE_CALL_LAUNCH, launch, sluice_launch, &sluice_launch::param_bytes) \
  Y(SLUICE_CALL_COPY, copy, sluice_copy, kNoTail) \
  Y(SLUICE_CALL_MEMSET, memset, sluice_memset, kNoTail) \
  Y(SLUICE_CALL_SYNCHRONIZE, synchronize, sluice_synchronize, kNoTail) \
  Y(SLUICE_CALL_EVENT_RECORD, event_record, sluice_stream_event, kNoTail) \
  Y(SLUICE_CALL_STREAM_WAIT, stream_wait, sluice_stream_event, kNoTail) \
  Y(SLUICE_CALL_QUERY, query, sluice_synchronize, kNoTail) \
  Y(SLUICE_CALL_EXTENT_ALLOC, extent_alloc, sluice_extent, kNoTail) \
  Y(SLUICE_CALL_EXTENT_FREE, extent_free, sluice_bulk, kNoTail) \
  Y(SLUICE_CALL_STREAM_VALUE, stream_value, sluice_stream_value, kNoTail) \
  Y(SLUICE_CALL_HOST_FUNC, host_func, sluice_synchronize, kNoTail) \
  Y(SLUICE_CALL_COPY_BOX, copy_box, sluice_copy_box, kNoTail) \
  Y(SLUICE_CALL_HOST_FUNC_DONE, host_func_done, uint64_t, kNoTail) \
  Y(SLUICE_CALL_CLUSTERS, clusters, sluice_clusters, kNoTail) \
  Y(SLUICE_CALL_GREEN_SPLIT, green_split, sluice_green, kNoTail) \
  Y(SLUICE_CALL_GREEN_CREATE, green_create, sluice_green, kNoTail) \
  Y(SLUICE_CALL_STREAM_VALUE64, stream_value64, sluice_stream_value64, kNoTail)
/* clang-format on */

namespace sluice::calls {

inline constexpr std::nullptr_t kNoTail = nullptr;

// A row as a type: Call<opcode>::Function, ::Tags, ::kStatus, ::kName.
template <uint16_t Opcode>
struct Call;

#define SLUICE_CALL_ROW(opcode, function, status, ...) \
  template <>                                          \
  struct Call<opcode> {                                \
    using Function = decltype(&::function);            \
    using Tags = TagList<__VA_ARGS__>;                 \
    static constexpr Status kStatus = Status::status;  \
    static constexpr const char* kName = #function;    \
  };
SLUICE_GENERIC_CALLS(SLUICE_CALL_ROW)
#undef SLUICE_CALL_ROW

// Opcode of a generic call by the function's name: kOpcode_cuMemAlloc_v2.
#define SLUICE_CALL_OPCODE(opcode, function, status, ...) \
  inline constexpr uint16_t kOpcode_##function = opcode;
SLUICE_GENERIC_CALLS(SLUICE_CALL_OPCODE)
#undef SLUICE_CALL_OPCODE

namespace internal {
template <class Function, class Tags>
struct CountMatches;
template <class... A, class Tags>
struct CountMatches<CUresult (*)(A...), Tags> {
  static constexpr bool kValue = sizeof...(A) == Tags::kCount;
};
}  // namespace internal

#define SLUICE_CALL_CHECK(opcode, function, status, ...)                                    \
  static_assert(internal::CountMatches<Call<opcode>::Function, Call<opcode>::Tags>::kValue, \
                #function ": the number of tags is not the number of parameters");          \
  static_assert((opcode) < SLUICE_CALL_MODULE_LOAD, #function ": opcode is in the custom range");
SLUICE_GENERIC_CALLS(SLUICE_CALL_CHECK)
#undef SLUICE_CALL_CHECK

// Blocks of opcodes.
// Devices: need no context, and are answered after a fault, too.
constexpr bool is_device_call(uint16_t opcode) { return opcode < 0x020; }
// Virtual memory management: likewise, but the context's own state may be spoilt.
constexpr bool is_virtual_memory_call(uint16_t opcode) { return opcode >= 0x067 && opcode < 0x080; }
constexpr bool is_custom(uint16_t opcode) { return opcode >= SLUICE_CALL_MODULE_LOAD; }

// The call's name for logs, traces and statistics; "unknown" if there is no such opcode.
constexpr std::string_view call_name(uint16_t opcode) {
  switch (opcode) {
#define SLUICE_CALL_NAME(op, function, status, ...) \
  case op:                                          \
    return #function;
    SLUICE_GENERIC_CALLS(SLUICE_CALL_NAME)
#undef SLUICE_CALL_NAME
#define SLUICE_CALL_NAME(op, name, ...) \
  case op:                              \
    return #name;
    SLUICE_CUSTOM_CALLS(SLUICE_CALL_NAME)
#undef SLUICE_CALL_NAME
  }
  return "unknown";
}

constexpr bool is_call(uint16_t opcode) { return call_name(opcode) != "unknown"; }

// The column `status` of a generic call; kReply if there is no such opcode.
constexpr Status call_status(uint16_t opcode) {
  switch (opcode) {
#define SLUICE_CALL_STATUS(op, function, status, ...) \
  case op:                                            \
    return Status::status;
    SLUICE_GENERIC_CALLS(SLUICE_CALL_STATUS)
#undef SLUICE_CALL_STATUS
  }
  return Status::kReply;
}

}  // namespace sluice::calls
