// The one table of calls that cross the channel.
//
//   X(opcode, function, status, tags...)   generic: marshalled by its tags (abi/cuda_tags.h), the
//                                          signature is abi/cuda_driver.h's by decltype
//   Y(opcode, name)                        custom: argument structs in abi/wire.h, code by hand
//
// Everything else is derived: the guest's stubs, the worker's dispatch, names for tracing and
// statistics. A row whose number of tags differs from the function's number of parameters does not
// compile. Opcodes never change their meaning; new rows take new numbers.
//
// What has no row is answered in the guest (current contexts, pointer attributes, error texts,
// function layouts) or does not exist yet. C++.
#pragma once

#include <cstdint>
#include <string_view>

#include "abi/cuda_driver.h"
#include "abi/cuda_tags.h"
#include "abi/wire.h"

/* clang-format off */
#define SLUICE_GENERIC_CALLS(X) \
  /* start and devices */ \
  X(0x001, cuInit, kReply, In) \
  X(0x002, cuDriverGetVersion, kReply, Out) \
  X(0x003, cuDeviceGetCount, kReply, Out) \
  X(0x004, cuDeviceGet, kReply, Out, In) \
  X(0x005, cuDeviceGetName, kReply, OutBuf<1>, In, In) \
  X(0x006, cuDeviceGetUuid_v2, kReply, Out, In) \
  X(0x007, cuDeviceTotalMem_v2, kReply, Out, In) \
  X(0x008, cuDeviceGetAttribute, kReply, Out, In, In) \
  X(0x00a, cuDeviceGetByPCIBusId, kReply, Out, CStr) \
  X(0x00b, cuDeviceGetPCIBusId, kReply, OutBuf<1>, In, In) \
  X(0x00c, cuDeviceGetProperties, kReply, Out, In) \
  /* contexts; the current one is the record's */ \
  X(0x020, cuDevicePrimaryCtxRetain, kReply, HOut<SLUICE_HANDLE_CONTEXT>, In) \
  X(0x021, cuDevicePrimaryCtxRelease_v2, kReply, In) \
  X(0x022, cuDevicePrimaryCtxSetFlags_v2, kReply, In, In) \
  X(0x023, cuDevicePrimaryCtxGetState, kReply, In, Out, Out) \
  X(0x024, cuDevicePrimaryCtxReset_v2, kReply, In) \
  X(0x025, cuCtxCreate_v2, kReply, HOut<SLUICE_HANDLE_CONTEXT>, In, In) \
  X(0x026, cuCtxDestroy_v2, kReply, HEnd<SLUICE_HANDLE_CONTEXT>) \
  X(0x027, cuCtxGetFlags, kReply, Out) \
  X(0x028, cuCtxSetFlags, kReply, In) \
  X(0x029, cuCtxGetId, kReply, HInOrNull<SLUICE_HANDLE_CONTEXT>, Out) \
  X(0x02a, cuCtxSetLimit, kReply, In, In) \
  X(0x02b, cuCtxGetLimit, kReply, Out, In) \
  X(0x02c, cuCtxGetCacheConfig, kReply, Out) \
  X(0x02d, cuCtxSetCacheConfig, kReply, In) \
  X(0x02e, cuCtxGetApiVersion, kReply, HInOrNull<SLUICE_HANDLE_CONTEXT>, Out) \
  X(0x02f, cuCtxGetStreamPriorityRange, kReply, Out, Out) \
  X(0x030, cuCtxResetPersistingL2Cache, kReply, ) \
  X(0x031, cuCtxGetSharedMemConfig, kReply, Out) \
  X(0x032, cuCtxSetSharedMemConfig, kReply, In) \
  /* modules and functions */ \
  X(0x040, cuModuleUnload, kReply, HEnd<SLUICE_HANDLE_MODULE>) \
  X(0x041, cuModuleGetGlobal_v2, kReply, Out, Out, HIn<SLUICE_HANDLE_MODULE>, CStr) \
  X(0x043, cuFuncGetAttribute, kReply, Out, In, HIn<SLUICE_HANDLE_FUNCTION>) \
  X(0x044, cuFuncSetAttribute, kReply, HIn<SLUICE_HANDLE_FUNCTION>, In, In) \
  X(0x045, cuFuncSetCacheConfig, kReply, HIn<SLUICE_HANDLE_FUNCTION>, In) \
  X(0x046, cuFuncSetSharedMemConfig, kReply, HIn<SLUICE_HANDLE_FUNCTION>, In) \
  X(0x047, cuOccupancyMaxActiveBlocksPerMultiprocessor, kReply, Out, HIn<SLUICE_HANDLE_FUNCTION>, In, In) \
  X(0x048, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, kReply, Out, HIn<SLUICE_HANDLE_FUNCTION>, In, In, In) \
  X(0x049, cuOccupancyAvailableDynamicSMemPerBlock, kReply, Out, HIn<SLUICE_HANDLE_FUNCTION>, In, In) \
  /* memory; the addresses that come back belong to the session from then on */ \
  X(0x060, cuMemGetInfo_v2, kReply, Out, Out) \
  X(0x061, cuMemAlloc_v2, kReply, Out, In) \
  X(0x062, cuMemAllocPitch_v2, kReply, Out, Out, In, In, In) \
  X(0x063, cuMemFree_v2, kReply, Dev) \
  X(0x065, cuMemAllocAsync, kReply, Out, In, HInOrNull<SLUICE_HANDLE_STREAM>) \
  X(0x066, cuMemFreeAsync, kReply, Dev, HInOrNull<SLUICE_HANDLE_STREAM>) \
  /* virtual memory management; the session does all of it (mediator/worker/calls/virtual_memory.cc) */ \
  X(0x067, cuMemAddressReserve, kReply, Out, In, In, In, In) \
  X(0x068, cuMemAddressFree, kReply, In, In) \
  X(0x069, cuMemCreate, kReply, Out, In, InStruct, In) \
  X(0x06a, cuMemRelease, kReply, In) \
  X(0x06b, cuMemMap, kReply, In, In, In, In, In) \
  X(0x06c, cuMemUnmap, kReply, In, In) \
  X(0x06d, cuMemSetAccess, kReply, In, In, InArray<3>, In) \
  X(0x06e, cuMemGetAccess, kReply, Out, InStruct, In) \
  X(0x06f, cuMemGetAllocationGranularity, kReply, Out, InStruct, In) \
  X(0x070, cuMemGetAllocationPropertiesFromHandle, kReply, Out, In) \
  X(0x071, cuMemRetainAllocationHandle, kReply, Out, Address) \
  /* tensor maps: the driver's arithmetic; it looks at no memory behind the address */ \
  X(0x0a0, cuTensorMapEncodeTiled, kReply, Out, In, In, Address, InArray<2>, InArray<2, 1>, InArray<2>, InArray<2>, In, In, In, In) \
  X(0x0a1, cuTensorMapEncodeIm2col, kReply, Out, In, In, Address, InArray<2>, InArray<2, 1>, InArray<2, 2>, InArray<2, 2>, In, In, InArray<2>, In, In, In, In) \
  X(0x0a2, cuTensorMapEncodeIm2colWide, kReply, Out, In, In, Address, InArray<2>, InArray<2, 1>, In, In, In, In, InArray<2>, In, In, In, In, In) \
  X(0x0a3, cuTensorMapReplaceAddress, kReply, InOut, Address) \
  /* streams and events; recording, waiting and synchronising are custom */ \
  X(0x080, cuStreamCreate, kReply, HOut<SLUICE_HANDLE_STREAM>, In) \
  X(0x081, cuStreamCreateWithPriority, kReply, HOut<SLUICE_HANDLE_STREAM>, In, In) \
  X(0x082, cuStreamDestroy_v2, kQueued, HEnd<SLUICE_HANDLE_STREAM>) \
  X(0x083, cuStreamGetPriority, kReply, HInOrNull<SLUICE_HANDLE_STREAM>, Out) \
  X(0x085, cuStreamGetId, kReply, HInOrNull<SLUICE_HANDLE_STREAM>, Out) \
  X(0x090, cuEventCreate, kReply, HOut<SLUICE_HANDLE_EVENT>, In) \
  X(0x091, cuEventDestroy_v2, kQueued, HEnd<SLUICE_HANDLE_EVENT>) \
  X(0x092, cuEventElapsedTime_v2, kReply, Out, HIn<SLUICE_HANDLE_EVENT>, HIn<SLUICE_HANDLE_EVENT>)

#define SLUICE_CUSTOM_CALLS(Y) \
  Y(SLUICE_CALL_MODULE_LOAD, module_load) \
  Y(SLUICE_CALL_FUNCTION_GET, function_get) \
  Y(SLUICE_CALL_LAUNCH, launch) \
  Y(SLUICE_CALL_COPY, copy) \
  Y(SLUICE_CALL_MEMSET, memset) \
  Y(SLUICE_CALL_SYNCHRONIZE, synchronize) \
  Y(SLUICE_CALL_EVENT_RECORD, event_record) \
  Y(SLUICE_CALL_STREAM_WAIT, stream_wait) \
  Y(SLUICE_CALL_QUERY, query) \
  Y(SLUICE_CALL_EXTENT_ALLOC, extent_alloc) \
  Y(SLUICE_CALL_EXTENT_FREE, extent_free) \
  Y(SLUICE_CALL_STREAM_VALUE, stream_value) \
  Y(SLUICE_CALL_HOST_FUNC, host_func) \
  Y(SLUICE_CALL_HOST_FUNC_DONE, host_func_done)
/* clang-format on */

namespace sluice::calls {

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

constexpr bool is_custom(uint16_t opcode) { return opcode >= SLUICE_CALL_MODULE_LOAD; }

// The call's name for logs, traces and statistics; "unknown" if there is no such opcode.
constexpr std::string_view call_name(uint16_t opcode) {
  switch (opcode) {
#define SLUICE_CALL_NAME(op, function, status, ...) \
  case op:                                          \
    return #function;
    SLUICE_GENERIC_CALLS(SLUICE_CALL_NAME)
#undef SLUICE_CALL_NAME
#define SLUICE_CALL_NAME(op, name) \
  case op:                         \
    return #name;
    SLUICE_CUSTOM_CALLS(SLUICE_CALL_NAME)
#undef SLUICE_CALL_NAME
  }
  return "unknown";
}

}  // namespace sluice::calls
