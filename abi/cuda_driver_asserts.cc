/* SPDX-License-Identifier: Apache-2.0 */
// Compares abi/cuda_driver.h, cuda_graph.h and cuda_green.h with the CUDA Toolkit's own header at
// compile time: every value, every structure's size and offsets, every function's type. Built only
// where the toolkit is installed; no code runs. The toolkit's declarations stand in the global
// namespace, ours in sluice_declared.
#include <cuda.h>
#include <cudaProfiler.h>
#include <cudaTypedefs.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

// Exported but no longer declared in cuda.h; cudaTypedefs.h still has their types.
extern "C" std::remove_pointer_t<PFN_cuCtxCreate_v3020> cuCtxCreate_v2;
extern "C" std::remove_pointer_t<PFN_cuCtxCreate_v11040> cuCtxCreate_v3;

// Shown by cudaTypedefs.h only under macros that would change everything else.
typedef CUresult (*PFN_cuStreamBeginCapture_v10000)(CUstream);
typedef CUresult (*PFN_cuGraphInstantiate_v10000)(CUgraphExec*, CUgraph, CUgraphNode*, char*,
                                                  size_t);
typedef PFN_cuGraphInstantiate_v10000 PFN_cuGraphInstantiate_v11000;

// A macro there, which would take the name's place in ours.
enum { kCondAssignDefault = CU_GRAPH_COND_ASSIGN_DEFAULT };
#undef CU_GRAPH_COND_ASSIGN_DEFAULT
enum { CU_GRAPH_COND_ASSIGN_DEFAULT = kCondAssignDefault };

#define SLUICE_CUDA_DRIVER_COMPARE
namespace sluice_declared {
#include "abi/cuda_driver.h"
#include "abi/cuda_graph.h"
#include "abi/cuda_green.h"
#include "abi/cuda_texture.h"
}  // namespace sluice_declared

namespace {

namespace ours = sluice_declared;

// The tag of a structure or enumeration without its namespace, as this compiler spells it.
template <class T>
constexpr std::string_view tag_of() {
  const std::string_view spelled = __PRETTY_FUNCTION__;
  const size_t from = spelled.find("T = ") + 4;
  std::string_view name = spelled.substr(from, spelled.find_first_of(";]", from) - from);
  const size_t colons = name.rfind("::");
  return colons == std::string_view::npos ? name : name.substr(colons + 2);
}

// Whether a value of type A crosses a call exactly as one of type B does: the same arithmetic type,
// a structure or enumeration of the same tag (their contents are compared below), pointers to such,
// and functions of such.
template <class A, class B>
struct SameOnTheWire {
  static constexpr bool tagged(bool a, bool b) { return a && b && tag_of<A>() == tag_of<B>(); }
  static constexpr bool value =
      std::is_same_v<A, B> ||
      tagged(std::is_class_v<A> || std::is_union_v<A>, std::is_class_v<B> || std::is_union_v<B>) ||
      tagged(std::is_enum_v<A>, std::is_enum_v<B>);
};
template <class A, class B>
struct SameOnTheWire<A*, B*> {
  static constexpr bool value =
      std::is_const_v<A> == std::is_const_v<B> &&
      SameOnTheWire<std::remove_const_t<A>, std::remove_const_t<B>>::value;
};
template <class A, class B>
struct SameOnTheWire<A* const, B* const> : SameOnTheWire<A*, B*> {};
template <class R, class... A, class S, class... B>
struct SameOnTheWire<R(A...), S(B...)> {
  template <class... X>
  struct List {};
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) == sizeof...(B)) {
      return SameOnTheWire<R, S>::value && (SameOnTheWire<A, B>::value && ...);
    } else {
      return false;
    }
  }();
};

#define SAME_VALUE(name, value) \
  static_assert(static_cast<int>(ours::name) == static_cast<int>(::name), #name " differs");
#define SAME_ERROR(name, value, text) SAME_VALUE(name, value)
SLUICE_CUDA_ERRORS(SAME_ERROR)
SLUICE_CUDA_DEVICE_ATTRIBUTES(SAME_VALUE)
SLUICE_CUDA_FUNCTION_ATTRIBUTES(SAME_VALUE)
SLUICE_CUDA_POINTER_ATTRIBUTES(SAME_VALUE)
SLUICE_CUDA_JIT_OPTIONS(SAME_VALUE)
SLUICE_CUDA_JIT_INPUT_TYPES(SAME_VALUE)
SLUICE_CUDA_LIMITS(SAME_VALUE)
SLUICE_CUDA_LAUNCH_ATTRIBUTES(SAME_VALUE)

// clang-format off
#define SLUICE_SINGLE_VALUES(X) \
  X(CU_FUNC_CACHE_PREFER_NONE) X(CU_FUNC_CACHE_PREFER_SHARED) X(CU_FUNC_CACHE_PREFER_L1) \
  X(CU_FUNC_CACHE_PREFER_EQUAL) X(CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE) \
  X(CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE) X(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) \
  X(CU_MEMORYTYPE_HOST) X(CU_MEMORYTYPE_DEVICE) X(CU_MEMORYTYPE_ARRAY) X(CU_MEMORYTYPE_UNIFIED) \
  X(CU_CTX_SCHED_AUTO) X(CU_CTX_SCHED_SPIN) X(CU_CTX_SCHED_YIELD) X(CU_CTX_SCHED_BLOCKING_SYNC) \
  X(CU_CTX_BLOCKING_SYNC) X(CU_CTX_SCHED_MASK) X(CU_CTX_MAP_HOST) X(CU_CTX_LMEM_RESIZE_TO_MAX) \
  X(CU_CTX_COREDUMP_ENABLE) X(CU_CTX_USER_COREDUMP_ENABLE) X(CU_CTX_SYNC_MEMOPS) \
  X(CU_CTX_FLAGS_MASK) X(CU_STREAM_DEFAULT) X(CU_STREAM_NON_BLOCKING) X(CU_EVENT_DEFAULT) \
  X(CU_EVENT_BLOCKING_SYNC) X(CU_EVENT_DISABLE_TIMING) X(CU_EVENT_INTERPROCESS) \
  X(CU_EVENT_RECORD_DEFAULT) X(CU_EVENT_RECORD_EXTERNAL) X(CU_EVENT_WAIT_DEFAULT) \
  X(CU_EVENT_WAIT_EXTERNAL) X(CU_STREAM_WAIT_VALUE_GEQ) X(CU_STREAM_WAIT_VALUE_EQ) \
  X(CU_STREAM_WAIT_VALUE_AND) X(CU_STREAM_WAIT_VALUE_NOR) X(CU_STREAM_WAIT_VALUE_FLUSH) \
  X(CU_STREAM_WRITE_VALUE_DEFAULT) X(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) \
  X(CU_COMPUTEMODE_DEFAULT) X(CU_COMPUTEMODE_PROHIBITED) X(CU_COMPUTEMODE_EXCLUSIVE_PROCESS) \
  X(CU_GET_PROC_ADDRESS_SUCCESS) X(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) \
  X(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT) X(CU_GET_PROC_ADDRESS_DEFAULT) \
  X(CU_GET_PROC_ADDRESS_LEGACY_STREAM) X(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) \
  X(CU_STREAM_CAPTURE_STATUS_NONE) X(CU_STREAM_CAPTURE_STATUS_ACTIVE) \
  X(CU_STREAM_CAPTURE_STATUS_INVALIDATED) X(CU_STREAM_CAPTURE_MODE_GLOBAL) \
  X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) X(CU_STREAM_CAPTURE_MODE_RELAXED) \
  X(CU_MODULE_EAGER_LOADING) X(CU_MODULE_LAZY_LOADING) X(CU_FUNCTION_LOADING_STATE_UNLOADED) \
  X(CU_FUNCTION_LOADING_STATE_LOADED) X(CU_OCCUPANCY_DEFAULT) \
  X(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) X(CU_SHAREDMEM_CARVEOUT_DEFAULT) \
  X(CU_SHAREDMEM_CARVEOUT_MAX_SHARED) X(CU_SHAREDMEM_CARVEOUT_MAX_L1) X(CU_MEM_ATTACH_GLOBAL) \
  X(CU_MEM_ATTACH_HOST) X(CU_MEM_ATTACH_SINGLE) X(CU_MEM_ALLOCATION_TYPE_INVALID) \
  X(CU_MEM_ALLOCATION_TYPE_PINNED) X(CU_MEM_HANDLE_TYPE_NONE) \
  X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) X(CU_MEM_HANDLE_TYPE_WIN32) \
  X(CU_MEM_HANDLE_TYPE_WIN32_KMT) X(CU_MEM_HANDLE_TYPE_FABRIC) X(CU_MEM_LOCATION_TYPE_INVALID) \
  X(CU_MEM_LOCATION_TYPE_DEVICE) X(CU_MEM_LOCATION_TYPE_HOST) X(CU_MEM_LOCATION_TYPE_HOST_NUMA) \
  X(CU_MEM_ACCESS_FLAGS_PROT_NONE) X(CU_MEM_ACCESS_FLAGS_PROT_READ) \
  X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE) X(CU_MEM_ALLOC_GRANULARITY_MINIMUM) \
  X(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) X(CU_MEM_ALLOCATION_COMP_NONE) \
  X(CU_MEM_ALLOCATION_COMP_GENERIC) \
  X(CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE) X(CU_LIBRARY_BINARY_IS_PRESERVED) \
  X(CU_TENSOR_MAP_DATA_TYPE_FLOAT16) X(CU_TENSOR_MAP_DATA_TYPE_FLOAT32) X(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) \
  X(CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B) X(CU_TENSOR_MAP_INTERLEAVE_32B) X(CU_TENSOR_MAP_SWIZZLE_128B) \
  X(CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B) X(CU_TENSOR_MAP_L2_PROMOTION_L2_256B) \
  X(CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA) X(CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128)
// clang-format on
#define SAME_SINGLE(name) SAME_VALUE(name, 0)
SLUICE_SINGLE_VALUES(SAME_SINGLE)

#define SAME_SIZE(type) \
  static_assert(sizeof(ours::type) == sizeof(::type), #type " differs in size")
#define SAME_FIELD(type, field)                                           \
  static_assert(offsetof(ours::type, field) == offsetof(::type, field) && \
                    sizeof(ours::type::field) == sizeof(::type::field),   \
                #type "." #field " differs")
SAME_SIZE(CUuuid);
SAME_SIZE(CUtensorMap);
static_assert(alignof(ours::CUtensorMap) == alignof(::CUtensorMap));
SAME_SIZE(CUdevprop);
SAME_FIELD(CUdevprop, textureAlign);
SAME_SIZE(CUctxCreateParams);
SAME_SIZE(CUexecAffinityParam);
SAME_FIELD(CUexecAffinityParam, param);
SAME_SIZE(CUDA_LAUNCH_PARAMS);
SAME_FIELD(CUDA_LAUNCH_PARAMS, sharedMemBytes);
SAME_FIELD(CUDA_LAUNCH_PARAMS, kernelParams);
SAME_FIELD(CUctxCreateParams, numExecAffinityParams);
SAME_FIELD(CUctxCreateParams, cigParams);
SAME_SIZE(CUDA_MEMCPY2D);
SAME_FIELD(CUDA_MEMCPY2D, srcXInBytes);
SAME_FIELD(CUDA_MEMCPY2D, srcY);
SAME_FIELD(CUDA_MEMCPY2D, srcMemoryType);
SAME_FIELD(CUDA_MEMCPY2D, srcHost);
SAME_FIELD(CUDA_MEMCPY2D, srcDevice);
SAME_FIELD(CUDA_MEMCPY2D, srcArray);
SAME_FIELD(CUDA_MEMCPY2D, srcPitch);
SAME_FIELD(CUDA_MEMCPY2D, dstXInBytes);
SAME_FIELD(CUDA_MEMCPY2D, dstY);
SAME_FIELD(CUDA_MEMCPY2D, dstMemoryType);
SAME_FIELD(CUDA_MEMCPY2D, dstHost);
SAME_FIELD(CUDA_MEMCPY2D, dstDevice);
SAME_FIELD(CUDA_MEMCPY2D, dstArray);
SAME_FIELD(CUDA_MEMCPY2D, dstPitch);
SAME_FIELD(CUDA_MEMCPY2D, WidthInBytes);
SAME_FIELD(CUDA_MEMCPY2D, Height);
SAME_SIZE(CUlaunchAttributeValue);
SAME_FIELD(CUlaunchAttributeValue, clusterDim);
SAME_FIELD(CUlaunchAttributeValue, programmaticEvent);
SAME_SIZE(CUlaunchAttribute);
SAME_FIELD(CUlaunchAttribute, value);
SAME_SIZE(CUlaunchConfig);
SAME_FIELD(CUlaunchConfig, sharedMemBytes);
SAME_FIELD(CUlaunchConfig, hStream);
SAME_FIELD(CUlaunchConfig, attrs);
SAME_FIELD(CUlaunchConfig, numAttrs);
SAME_SIZE(CUgraphEdgeData);
SAME_SIZE(CUdevSmResource);
SAME_FIELD(CUdevSmResource, smCount);
SAME_FIELD(CUdevSmResource, minSmPartitionSize);
SAME_FIELD(CUdevSmResource, smCoscheduledAlignment);
SAME_SIZE(CUdevResource);
SAME_FIELD(CUdevResource, type);
SAME_FIELD(CUdevResource, sm);
SAME_VALUE(CU_GREEN_CTX_DEFAULT_STREAM, 0)
SAME_VALUE(CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 0)
SAME_VALUE(CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE, 0)
SAME_VALUE(CU_DEV_RESOURCE_TYPE_INVALID, 0)
SAME_VALUE(CU_DEV_RESOURCE_TYPE_SM, 0)
SAME_SIZE(CUgraphExecUpdateResultInfo);
SAME_FIELD(CUgraphExecUpdateResultInfo, result);
SAME_FIELD(CUgraphExecUpdateResultInfo, errorNode);
SAME_FIELD(CUgraphExecUpdateResultInfo, errorFromNode);
SLUICE_CUDA_GRAPH_NODE_TYPES(SAME_VALUE)
SLUICE_CUDA_GRAPH_UPDATE_RESULTS(SAME_VALUE)
SLUICE_CUDA_GRAPH_CONDITIONAL_TYPES(SAME_VALUE)
SLUICE_CUDA_GRAPH_INSTANTIATE_RESULTS(SAME_VALUE)
SLUICE_CUDA_GRAPH_CONSTANTS(SAME_VALUE)
SAME_VALUE(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, 0)
SAME_VALUE(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, 0)
SAME_VALUE(CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE, 0)
SAME_VALUE(CU_STREAM_MEM_OP_WAIT_VALUE_32, 0)
SAME_VALUE(CU_STREAM_MEM_OP_BARRIER, 0)
SAME_SIZE(CUDA_KERNEL_NODE_PARAMS_v1);
SAME_SIZE(CUDA_KERNEL_NODE_PARAMS);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, extra);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, kern);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, ctx);
SAME_SIZE(CUDA_MEMCPY3D);
SAME_FIELD(CUDA_MEMCPY3D, srcMemoryType);
SAME_FIELD(CUDA_MEMCPY3D, srcHeight);
SAME_FIELD(CUDA_MEMCPY3D, dstMemoryType);
SAME_FIELD(CUDA_MEMCPY3D, dstDevice);
SAME_FIELD(CUDA_MEMCPY3D, dstPitch);
SAME_FIELD(CUDA_MEMCPY3D, Depth);
SAME_SIZE(CUDA_MEMCPY_NODE_PARAMS);
SAME_FIELD(CUDA_MEMCPY_NODE_PARAMS, copyParams);
SAME_SIZE(CUDA_MEMSET_NODE_PARAMS);
SAME_FIELD(CUDA_MEMSET_NODE_PARAMS, elementSize);
SAME_FIELD(CUDA_MEMSET_NODE_PARAMS, height);
SAME_SIZE(CUDA_MEMSET_NODE_PARAMS_v2);
SAME_FIELD(CUDA_MEMSET_NODE_PARAMS_v2, ctx);
SAME_SIZE(CUDA_HOST_NODE_PARAMS);
SAME_SIZE(CUmemPoolProps);
SAME_FIELD(CUmemPoolProps, location);
SAME_FIELD(CUmemPoolProps, usage);
SAME_SIZE(CUmemAccessDesc);
SAME_FIELD(CUmemAccessDesc, flags);
SAME_SIZE(CUmemAllocationProp);
SAME_SIZE(CUipcMemHandle);
SAME_SIZE(CUipcEventHandle);
SAME_FIELD(CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(CUmemAllocationProp, location);
SAME_FIELD(CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(CUmemAllocationProp, allocFlags.usage);
SAME_FIELD(CUmemAllocationProp, allocFlags.reserved);
SAME_SIZE(CUDA_MEM_ALLOC_NODE_PARAMS);
SAME_FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
SAME_FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
SAME_SIZE(CUstreamBatchMemOpParams);
SAME_FIELD(CUstreamBatchMemOpParams, waitValue.value);
SAME_FIELD(CUstreamBatchMemOpParams, writeValue.flags);
SAME_SIZE(CUDA_BATCH_MEM_OP_NODE_PARAMS);
SAME_FIELD(CUDA_BATCH_MEM_OP_NODE_PARAMS, paramArray);
SAME_SIZE(CUgraphNodeParams);
SAME_FIELD(CUgraphNodeParams, kernel);
SAME_FIELD(CUgraphNodeParams, memcpy);
SAME_FIELD(CUgraphNodeParams, memset);
SAME_FIELD(CUgraphNodeParams, memOp);
SAME_SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS);
SAME_FIELD(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out);
SAME_VALUE(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 0)
SAME_VALUE(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0)
SAME_VALUE(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0)
SAME_VALUE(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
SAME_VALUE(CU_MEM_ADVISE_SET_READ_MOSTLY, 0)
SAME_VALUE(CU_MEM_ADVISE_UNSET_ACCESSED_BY, 0)
SAME_VALUE(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0)
SAME_VALUE(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID, 0)
SAME_VALUE(CU_MEMCPY_SRC_ACCESS_ORDER_ANY, 0)
SAME_SIZE(CUmemcpyAttributes);
SAME_FIELD(CUmemcpyAttributes, srcLocHint);
SAME_FIELD(CUmemcpyAttributes, flags);
SAME_VALUE(CU_MEMCPY_OPERAND_TYPE_POINTER, 0)
SAME_VALUE(CU_MEMCPY_OPERAND_TYPE_ARRAY, 0)
SAME_SIZE(CUmemcpy3DOperand);
SAME_FIELD(CUmemcpy3DOperand, op.ptr.layerHeight);
SAME_FIELD(CUmemcpy3DOperand, op.array.offset);
SAME_SIZE(CUDA_MEMCPY3D_BATCH_OP);
SAME_FIELD(CUDA_MEMCPY3D_BATCH_OP, dst);
SAME_FIELD(CUDA_MEMCPY3D_BATCH_OP, extent);
SAME_FIELD(CUDA_MEMCPY3D_BATCH_OP, srcAccessOrder);
SAME_SIZE(CUDA_MEMCPY3D_PEER);
SAME_FIELD(CUDA_MEMCPY3D_PEER, srcContext);
SAME_FIELD(CUDA_MEMCPY3D_PEER, dstContext);
SAME_FIELD(CUDA_MEMCPY3D_PEER, Depth);
SAME_VALUE(CU_AD_FORMAT_UNSIGNED_INT8, 0)
SAME_VALUE(CU_AD_FORMAT_FLOAT, 0)
SAME_VALUE(CU_AD_FORMAT_UNORM_INT8X1, 0)
SAME_VALUE(CU_AD_FORMAT_UNORM_INT8X2, 0)
SAME_VALUE(CU_AD_FORMAT_UNORM_INT8X4, 0)
SAME_VALUE(CU_AD_FORMAT_UNORM_INT16X1, 0)
SAME_VALUE(CU_AD_FORMAT_UNORM_INT16X2, 0)
SAME_VALUE(CU_AD_FORMAT_UNORM_INT16X4, 0)
SAME_VALUE(CU_AD_FORMAT_SNORM_INT8X1, 0)
SAME_VALUE(CU_AD_FORMAT_SNORM_INT8X2, 0)
SAME_VALUE(CU_AD_FORMAT_SNORM_INT8X4, 0)
SAME_VALUE(CU_AD_FORMAT_SNORM_INT16X1, 0)
SAME_VALUE(CU_AD_FORMAT_SNORM_INT16X2, 0)
SAME_VALUE(CU_AD_FORMAT_SNORM_INT16X4, 0)
SAME_VALUE(CU_TR_ADDRESS_MODE_BORDER, 0)
SAME_VALUE(CU_TR_FILTER_MODE_LINEAR, 0)
SAME_VALUE(CU_RESOURCE_TYPE_PITCH2D, 0)
SAME_SIZE(CUDA_ARRAY_DESCRIPTOR);
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR, NumChannels);
SAME_SIZE(CUDA_ARRAY3D_DESCRIPTOR);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, Format);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, Flags);
SAME_SIZE(CUDA_RESOURCE_DESC);
SAME_FIELD(CUDA_RESOURCE_DESC, res);
SAME_FIELD(CUDA_RESOURCE_DESC, flags);
SAME_FIELD(CUDA_RESOURCE_DESC, res.pitch2D.pitchInBytes);
SAME_FIELD(CUDA_RESOURCE_DESC, res.linear.sizeInBytes);
SAME_SIZE(CUDA_TEXTURE_DESC);
SAME_FIELD(CUDA_TEXTURE_DESC, flags);
SAME_FIELD(CUDA_TEXTURE_DESC, borderColor);
SAME_SIZE(CUDA_RESOURCE_VIEW_DESC);
SAME_FIELD(CUDA_RESOURCE_VIEW_DESC, depth);
SAME_FIELD(CUDA_RESOURCE_VIEW_DESC, firstMipmapLevel);
SAME_FIELD(CUDA_RESOURCE_VIEW_DESC, lastLayer);
SAME_VALUE(CU_RES_VIEW_FORMAT_FLOAT_4X32, 0)
SAME_VALUE(CU_RES_VIEW_FORMAT_UNSIGNED_BC1, 0)
SAME_VALUE(CU_RES_VIEW_FORMAT_UNSIGNED_BC7, 0)
SAME_SIZE(CUDA_ARRAY_MEMORY_REQUIREMENTS);
SAME_SIZE(CUDA_ARRAY_SPARSE_PROPERTIES);
SAME_FIELD(CUDA_ARRAY_SPARSE_PROPERTIES, miptailSize);

// The toolkit marks two of them deprecated; we only look at their types.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define SAME_FUNCTION(symbol, name, since, parameters)                            \
  static_assert(SameOnTheWire<decltype(ours::symbol), decltype(::symbol)>::value, \
                #symbol " differs");
SLUICE_CUDA_DRIVER_FUNCTIONS(SAME_FUNCTION)
SLUICE_CUDA_GRAPH_FUNCTIONS(SAME_FUNCTION)
SLUICE_CUDA_GREEN_FUNCTIONS(SAME_FUNCTION)
SLUICE_CUDA_GUEST_FUNCTIONS(SAME_FUNCTION)
SLUICE_CUDA_TEXTURE_FUNCTIONS(SAME_FUNCTION)
#define SAME_OLD_FUNCTION(function, symbol, name, since, parameters)                \
  static_assert(SameOnTheWire<decltype(ours::function),                             \
                              std::remove_pointer_t<PFN_##name##_v##since>>::value, \
                symbol " differs");
SLUICE_CUDA_GRAPH_OLD_FUNCTIONS(SAME_OLD_FUNCTION)

}  // namespace
