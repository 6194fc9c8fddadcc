// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs whose parameters the runtime describes in its own way: kernels by their host
// address, copies and fills in the runtime's form.
#include <cstring>

#include "guest-agent/cudart/binaries.h"
#include "guest-agent/cudart/calls.h"
#include "guest-agent/cudart/memory/boxes.h"

namespace sluice::cudart {
namespace {

CUcontext context_now() {
  CUcontext context = nullptr;
  driver().cuCtxGetCurrent(&context);
  return context;
}

cudaError_t to_driver(const cudaKernelNodeParams* from, CUDA_KERNEL_NODE_PARAMS* to) {
  if (from == nullptr) return cudaErrorInvalidValue;
  CUkernel kernel = nullptr;
  if (const cudaError_t error = resolve_kernel(from->func, &kernel); error != cudaSuccess)
    return error;
  *to = {};
  // By the function of this context: old drivers do not read `kern`.
  if (const CUresult r = driver().cuKernelGetFunction(&to->func, kernel); r != CUDA_SUCCESS)
    return to_runtime(r);
  to->gridDimX = from->gridDim.x;
  to->gridDimY = from->gridDim.y;
  to->gridDimZ = from->gridDim.z;
  to->blockDimX = from->blockDim.x;
  to->blockDimY = from->blockDim.y;
  to->blockDimZ = from->blockDim.z;
  to->sharedMemBytes = from->sharedMemBytes;
  to->kernelParams = from->kernelParams;
  to->extra = from->extra;
  return cudaSuccess;
}

// What a node's kernel was registered as, by its name where the driver says only a function.
void* named_kernel(const CUDA_KERNEL_NODE_PARAMS& p) {
  if (p.kern != nullptr) {
    const void* host = host_of_kernel(p.kern);
    return host != nullptr ? const_cast<void*>(host) : static_cast<void*>(p.kern);
  }
  const void* host = host_of_function(p.func);
  return host != nullptr ? const_cast<void*>(host) : static_cast<void*>(p.func);
}

CUDA_MEMSET_NODE_PARAMS to_driver(const cudaMemsetParams& p) {
  return {reinterpret_cast<CUdeviceptr>(p.dst), p.pitch, p.value, p.elementSize, p.width, p.height};
}

enum class Direction { kToSymbol, kFromSymbol };
cudaError_t symbol_row(Direction direction, const void* symbol, const void* other, size_t bytes,
                       size_t offset, int kind, CUDA_MEMCPY3D* box) {
  if (!is_copy_kind(kind) || kind == cudaMemcpyHostToHost ||
      kind ==
          (direction == Direction::kToSymbol ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice)) {
    return cudaErrorInvalidMemcpyDirection;
  }
  CUdeviceptr address = 0;
  size_t size = 0;
  if (const cudaError_t error = address_of(symbol, &address, &size); error != cudaSuccess)
    return error;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  void* place = reinterpret_cast<void*>(address + offset);
  *box = direction == Direction::kToSymbol ? make_row(place, other, bytes, kind)
                                           : make_row(const_cast<void*>(other), place, bytes, kind);
  return cudaSuccess;
}

cudaError_t add_copy(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                     size_t count, const CUDA_MEMCPY3D& box) {
  return to_runtime(
      driver().cuGraphAddMemcpyNode(node, graph, dependencies, count, &box, context_now()));
}
cudaError_t set_copy(cudaGraphExec_t exec, cudaGraphNode_t node, const CUDA_MEMCPY3D& box) {
  return to_runtime(driver().cuGraphExecMemcpyNodeSetParams(exec, node, &box, context_now()));
}
cudaError_t row(void* to, const void* from, size_t bytes, int kind, CUDA_MEMCPY3D* box) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  *box = make_row(to, from, bytes, kind);
  return cudaSuccess;
}

// Any node's parameters: those of kernels, copies, fills and conditions differ, the others are the
// same words.
cudaError_t to_driver(const cudaGraphNodeParams* from, CUgraphNodeParams* to) {
  if (from == nullptr) return cudaErrorInvalidValue;
  static_assert(sizeof(*from) == sizeof(*to));
  *to = {};
  std::memcpy(static_cast<void*>(to), from, sizeof *to);
  switch (from->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS p;
      const cudaError_t error = to_driver(&from->kernel, &p);
      to->kernel = p;
      return error;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      to->memcpy.flags = from->memcpy.flags;
      to->memcpy.reserved = 0;
      to->memcpy.copyCtx = context_now();
      return make_box(from->memcpy.copyParams, &to->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      to->memset.ctx = context_now();
      return cudaSuccess;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      to->conditional.ctx = context_now();
      return cudaSuccess;
    default:
      return cudaSuccess;
  }
}
// What the driver answers in them.
void take_answers(const CUgraphNodeParams& from, cudaGraphNodeParams* to) {
  if (from.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    to->alloc.dptr = reinterpret_cast<void*>(from.alloc.dptr);
  if (from.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    to->conditional.phGraph_out = from.conditional.phGraph_out;
}

cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                     const cudaGraphEdgeData* edges, size_t count, cudaGraphNodeParams* params) {
  CUgraphNodeParams p;
  if (const cudaError_t error = to_driver(params, &p); error != cudaSuccess) return error;
  const CUresult r = driver().cuGraphAddNode_v2(
      node, graph, dependencies, reinterpret_cast<const CUgraphEdgeData*>(edges), count, &p);
  if (r == CUDA_SUCCESS) take_answers(p, params);
  return to_runtime(r);
}

}  // namespace

namespace impl {

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, size_t count,
                                   const cudaKernelNodeParams* params) {
  CUDA_KERNEL_NODE_PARAMS p;
  const cudaError_t error = to_driver(params, &p);
  return error != cudaSuccess
             ? error
             : to_runtime(driver().cuGraphAddKernelNode_v2(node, graph, dependencies, count, &p));
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* params) {
  if (params == nullptr) return cudaErrorInvalidValue;
  CUDA_KERNEL_NODE_PARAMS p = {};
  if (const CUresult r = driver().cuGraphKernelNodeGetParams_v2(node, &p); r != CUDA_SUCCESS)
    return to_runtime(r);
  *params = {named_kernel(p),
             {p.gridDimX, p.gridDimY, p.gridDimZ},
             {p.blockDimX, p.blockDimY, p.blockDimZ},
             p.sharedMemBytes,
             p.kernelParams,
             p.extra};
  return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* params) {
  CUDA_KERNEL_NODE_PARAMS p;
  const cudaError_t error = to_driver(params, &p);
  return error != cudaSuccess ? error
                              : to_runtime(driver().cuGraphKernelNodeSetParams_v2(node, &p));
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* params) {
  CUDA_KERNEL_NODE_PARAMS p;
  const cudaError_t error = to_driver(params, &p);
  return error != cudaSuccess
             ? error
             : to_runtime(driver().cuGraphExecKernelNodeSetParams_v2(exec, node, &p));
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, size_t count,
                                   const cudaMemcpy3DParms* params) {
  if (params == nullptr) return cudaErrorInvalidValue;
  CUDA_MEMCPY3D box;
  const cudaError_t error = make_box(*params, &box);
  return error != cudaSuccess ? error : add_copy(node, graph, dependencies, count, box);
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* dependencies, size_t count, void* dst,
                                     const void* src, size_t bytes, cudaMemcpyKind kind) {
  CUDA_MEMCPY3D box;
  const cudaError_t error = row(dst, src, bytes, kind, &box);
  return error != cudaSuccess ? error : add_copy(node, graph, dependencies, count, box);
}
cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t* node, cudaGraph_t graph,
                                           const cudaGraphNode_t* dependencies, size_t count,
                                           const void* symbol, const void* src, size_t bytes,
                                           size_t offset, cudaMemcpyKind kind) {
  CUDA_MEMCPY3D box;
  const cudaError_t error =
      symbol_row(Direction::kToSymbol, symbol, src, bytes, offset, kind, &box);
  return error != cudaSuccess ? error : add_copy(node, graph, dependencies, count, box);
}
cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t* node, cudaGraph_t graph,
                                             const cudaGraphNode_t* dependencies, size_t count,
                                             void* dst, const void* symbol, size_t bytes,
                                             size_t offset, cudaMemcpyKind kind) {
  CUDA_MEMCPY3D box;
  const cudaError_t error =
      symbol_row(Direction::kFromSymbol, symbol, dst, bytes, offset, kind, &box);
  return error != cudaSuccess ? error : add_copy(node, graph, dependencies, count, box);
}
cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* params) {
  if (params == nullptr) return cudaErrorInvalidValue;
  CUDA_MEMCPY3D box = {};
  const CUresult r = driver().cuGraphMemcpyNodeGetParams(node, &box);
  if (r == CUDA_SUCCESS) *params = make_parameters(box);
  return to_runtime(r);
}
cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* params) {
  if (params == nullptr) return cudaErrorInvalidValue;
  CUDA_MEMCPY3D box;
  const cudaError_t error = make_box(*params, &box);
  return error != cudaSuccess ? error : to_runtime(driver().cuGraphMemcpyNodeSetParams(node, &box));
}
cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* dst, const void* src,
                                           size_t bytes, cudaMemcpyKind kind) {
  CUDA_MEMCPY3D box;
  const cudaError_t error = row(dst, src, bytes, kind, &box);
  return error != cudaSuccess ? error : to_runtime(driver().cuGraphMemcpyNodeSetParams(node, &box));
}
cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void* symbol,
                                                 const void* src, size_t bytes, size_t offset,
                                                 cudaMemcpyKind kind) {
  CUDA_MEMCPY3D box;
  const cudaError_t error =
      symbol_row(Direction::kToSymbol, symbol, src, bytes, offset, kind, &box);
  return error != cudaSuccess ? error : to_runtime(driver().cuGraphMemcpyNodeSetParams(node, &box));
}
cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void* dst,
                                                   const void* symbol, size_t bytes, size_t offset,
                                                   cudaMemcpyKind kind) {
  CUDA_MEMCPY3D box;
  const cudaError_t error =
      symbol_row(Direction::kFromSymbol, symbol, dst, bytes, offset, kind, &box);
  return error != cudaSuccess ? error : to_runtime(driver().cuGraphMemcpyNodeSetParams(node, &box));
}
cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms* params) {
  if (params == nullptr) return cudaErrorInvalidValue;
  CUDA_MEMCPY3D box;
  const cudaError_t error = make_box(*params, &box);
  return error != cudaSuccess ? error : set_copy(exec, node, box);
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node,
                                               void* dst, const void* src, size_t bytes,
                                               cudaMemcpyKind kind) {
  CUDA_MEMCPY3D box;
  const cudaError_t error = row(dst, src, bytes, kind, &box);
  return error != cudaSuccess ? error : set_copy(exec, node, box);
}
cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                     const void* symbol, const void* src,
                                                     size_t bytes, size_t offset,
                                                     cudaMemcpyKind kind) {
  CUDA_MEMCPY3D box;
  const cudaError_t error =
      symbol_row(Direction::kToSymbol, symbol, src, bytes, offset, kind, &box);
  return error != cudaSuccess ? error : set_copy(exec, node, box);
}
cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                       void* dst, const void* symbol, size_t bytes,
                                                       size_t offset, cudaMemcpyKind kind) {
  CUDA_MEMCPY3D box;
  const cudaError_t error =
      symbol_row(Direction::kFromSymbol, symbol, dst, bytes, offset, kind, &box);
  return error != cudaSuccess ? error : set_copy(exec, node, box);
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, size_t count,
                                   const cudaMemsetParams* params) {
  if (params == nullptr) return cudaErrorInvalidValue;
  const CUDA_MEMSET_NODE_PARAMS p = to_driver(*params);
  return to_runtime(
      driver().cuGraphAddMemsetNode(node, graph, dependencies, count, &p, context_now()));
}
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemsetParams* params) {
  if (params == nullptr) return cudaErrorInvalidValue;
  const CUDA_MEMSET_NODE_PARAMS p = to_driver(*params);
  return to_runtime(driver().cuGraphExecMemsetNodeSetParams(exec, node, &p, context_now()));
}

#if SLUICE_CUDART_MAJOR == 12
cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph,
                             const cudaGraphNode_t* dependencies, size_t count,
                             cudaGraphNodeParams* params) {
  return add_node(node, graph, dependencies, nullptr, count, params);
}
cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t* node, cudaGraph_t graph,
                                const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* edges,
                                size_t count, cudaGraphNodeParams* params) {
  return add_node(node, graph, dependencies, edges, count, params);
}
#else
cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph,
                             const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* edges,
                             size_t count, cudaGraphNodeParams* params) {
  return add_node(node, graph, dependencies, edges, count, params);
}
#endif
cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams* params) {
  CUgraphNodeParams p;
  const cudaError_t error = to_driver(params, &p);
  return error != cudaSuccess ? error : to_runtime(driver().cuGraphNodeSetParams(node, &p));
}
cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                       cudaGraphNodeParams* params) {
  CUgraphNodeParams p;
  const cudaError_t error = to_driver(params, &p);
  return error != cudaSuccess ? error
                              : to_runtime(driver().cuGraphExecNodeSetParams(exec, node, &p));
}
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph,
                                             unsigned value, unsigned flags) {
  CUgraphConditionalHandle made = 0;
  if (handle == nullptr) return cudaErrorInvalidValue;
  const CUresult r =
      driver().cuGraphConditionalHandleCreate(&made, graph, context_now(), value, flags);
  if (r == CUDA_SUCCESS) *handle = made;
  return to_runtime(r);
}

}  // namespace impl
}  // namespace sluice::cudart
