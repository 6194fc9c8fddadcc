// SPDX-License-Identifier: Apache-2.0
// Compiles only where CUDA 13's toolkit is installed, and only checks: our declarations of the
// runtime API against the toolkit's headers. A function's parameters have to be the same words to a
// caller.
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

#define SLUICE_NONE(...)

#include "guest-agent/cudart/functions.h"
#include "guest-agent/cudart/properties.h"
#include "guest-agent/cudart/types.h"

namespace {

namespace ours_ns = sluice::cudart;

template <class A, class B>
constexpr bool same_words() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    return true;  // to what: the sizes of structures are compared below
  } else if constexpr (std::is_class_v<A> || std::is_class_v<B>) {
    return std::is_class_v<A> && std::is_class_v<B> && sizeof(A) == sizeof(B);
  } else {
    return sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
           std::is_floating_point_v<A> == std::is_floating_point_v<B>;
  }
}
template <class A, class B>
struct SameCall : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<R(A...), S(B...)>
    : std::bool_constant<same_words<R, S>() && (same_words<A, B>() && ...)> {
};

}  // namespace

namespace sluice::cudart {
#define SLUICE_TYPE_F(symbol, need, parameters, arguments) \
  using Call_##symbol = cudaError_t parameters;
#define SLUICE_TYPE_S(symbol, suffix, need, parameters, arguments) \
  using Call_##symbol = cudaError_t parameters;
#define SLUICE_TYPE_D(symbol, need, parameters, arguments, driver) \
  using Call_##symbol = cudaError_t parameters;
#define SLUICE_TYPE_T(symbol, suffix, need, parameters, arguments, driver) \
  using Call_##symbol = cudaError_t parameters;
#define SLUICE_TYPE_A(symbol, parameters) using Call_##symbol = cudaError_t parameters;
#define SLUICE_TYPE_P(symbol, suffix, parameters) using Call_##symbol = cudaError_t parameters;
#define SLUICE_TYPE_H(symbol, result, parameters) using Call_##symbol = result parameters;
SLUICE_CUDART_TYPED(SLUICE_TYPE_F, SLUICE_TYPE_S, SLUICE_TYPE_D, SLUICE_TYPE_T, SLUICE_TYPE_A,
                    SLUICE_TYPE_P, SLUICE_TYPE_H)
}  // namespace sluice::cudart

// The toolkit marks some deprecated, and declares two for the linker only.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
extern "C" cudaError_t cudaGetExportTable(const void**, const cudaUUID_t*);

#define SLUICE_COMPARE(symbol, ...)                                                         \
  static_assert(                                                                            \
      SameCall<ours_ns::Call_##symbol, std::remove_reference_t<decltype(::symbol)>>::value, \
      #symbol " differs");
SLUICE_CUDART_TYPED(SLUICE_COMPARE, SLUICE_COMPARE, SLUICE_COMPARE, SLUICE_COMPARE, SLUICE_COMPARE,
                    SLUICE_COMPARE, SLUICE_COMPARE)

#define SLUICE_VALUE(name, value, text) \
  static_assert(static_cast<int>(ours_ns::name) == static_cast<int>(::name), #name " differs");
SLUICE_CUDA_RUNTIME_ERRORS(SLUICE_VALUE)

#define SAME_SIZE(type)                                    \
  static_assert(sizeof(ours_ns::type) == sizeof(::type) && \
                alignof(ours_ns::type) == alignof(::type))
#define SAME_FIELD(type, field)                                              \
  static_assert(offsetof(ours_ns::type, field) == offsetof(::type, field) && \
                sizeof(ours_ns::type::field) == sizeof(::type::field))
SAME_SIZE(cudaUUID_t);
SAME_SIZE(dim3);
SAME_SIZE(cudaExtent);
SAME_SIZE(cudaPos);
SAME_SIZE(cudaPitchedPtr);
SAME_FIELD(cudaPitchedPtr, ysize);
SAME_SIZE(cudaChannelFormatDesc);
SAME_SIZE(cudaMemcpy3DParms);
SAME_FIELD(cudaMemcpy3DParms, srcPtr);
SAME_FIELD(cudaMemcpy3DParms, dstPos);
SAME_FIELD(cudaMemcpy3DParms, extent);
SAME_FIELD(cudaMemcpy3DParms, kind);
SAME_SIZE(cudaMemcpy3DPeerParms);
SAME_FIELD(cudaMemcpy3DPeerParms, dstDevice);
SAME_FIELD(cudaMemcpy3DPeerParms, extent);
SAME_SIZE(cudaMemcpyNodeParams);
SAME_SIZE(cudaMemsetParams);
SAME_FIELD(cudaMemsetParams, height);
SAME_SIZE(cudaHostNodeParams);
SAME_SIZE(cudaKernelNodeParams);
SAME_FIELD(cudaKernelNodeParams, sharedMemBytes);
SAME_FIELD(cudaKernelNodeParams, extra);
SAME_SIZE(cudaMemLocation);
SAME_SIZE(cudaMemAccessDesc);
SAME_SIZE(cudaMemPoolProps);
SAME_FIELD(cudaMemPoolProps, usage);
SAME_SIZE(cudaMemPoolPtrExportData);
SAME_SIZE(cudaMemAllocNodeParams);
SAME_FIELD(cudaMemAllocNodeParams, dptr);
SAME_SIZE(cudaPointerAttributes);
SAME_FIELD(cudaPointerAttributes, hostPointer);
SAME_SIZE(cudaFuncAttributes);
SAME_FIELD(cudaFuncAttributes, maxThreadsPerBlock);
SAME_FIELD(cudaFuncAttributes, nonPortableClusterSizeAllowed);
SAME_SIZE(cudaIpcEventHandle_t);
SAME_SIZE(cudaIpcMemHandle_t);
SAME_SIZE(cudaLaunchAttribute);
SAME_FIELD(cudaLaunchAttribute, val);
SAME_SIZE(cudaLaunchConfig_t);
SAME_FIELD(cudaLaunchConfig_t, dynamicSmemBytes);
SAME_FIELD(cudaLaunchConfig_t, numAttrs);
SAME_SIZE(cudaGraphEdgeData);
SAME_SIZE(cudaGraphExecUpdateResultInfo);
SAME_SIZE(cudaGraphInstantiateParams);
SAME_FIELD(cudaGraphInstantiateParams, result_out);
SAME_SIZE(cudaConditionalNodeParams);
SAME_FIELD(cudaConditionalNodeParams, phGraph_out);
SAME_SIZE(cudaGraphNodeParams);
SAME_FIELD(cudaGraphNodeParams, kernel);
SAME_FIELD(cudaGraphNodeParams, conditional);
SAME_SIZE(cudaResourceDesc);
SAME_FIELD(cudaResourceDesc, res);
SAME_FIELD(cudaResourceDesc, flags);
SAME_SIZE(cudaTextureDesc);
SAME_FIELD(cudaTextureDesc, borderColor);
SAME_FIELD(cudaTextureDesc, seamlessCubemap);
SAME_SIZE(cudaResourceViewDesc);
SAME_FIELD(cudaResourceViewDesc, depth);
SAME_FIELD(cudaResourceViewDesc, lastLayer);
SAME_SIZE(cudaDeviceProp);
SAME_FIELD(cudaDeviceProp, totalGlobalMem);
#define SAME_PROPERTY(type, field, ...) SAME_FIELD(cudaDeviceProp, field);
SLUICE_CUDART_PROPERTIES(SAME_PROPERTY, SAME_PROPERTY, SAME_PROPERTY, SLUICE_NONE, SAME_PROPERTY)
