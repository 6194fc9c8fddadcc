// SPDX-License-Identifier: Apache-2.0
// What libcudart.so.12 has beside the rows that are the same in 12 and 13: names of versions, older
// forms, functions that 13 no longer has. Facts from the public headers of CUDA 12. functions.h
// says what the columns mean.
#pragma once

// clang-format off
#define SLUICE_CUDART_TWELVE(F, S, D, T, A, P, H) \
  F(cudaGetDeviceProperties, kDriver, (void* properties, int device), (properties, device)) \
  F(cudaGetDeviceProperties_v2, kDriver, (void* properties, int device), (properties, device)) \
  F(cudaChooseDevice, kDriver, (int* device, const void* properties), (device, properties)) \
  T(cudaStreamGetCaptureInfo, ptsz, kContext, (cudaStream_t stream, cudaStreamCaptureStatus* \
    status, unsigned long long* id), (stream, status, id), cuStreamGetCaptureInfo) \
  T(cudaStreamGetCaptureInfo_v2, ptsz, kContext, (cudaStream_t stream, cudaStreamCaptureStatus* \
    status, unsigned long long* id, cudaGraph_t* graph, const cudaGraphNode_t** dependencies, \
    size_t* num_dependencies), (stream, status, id, graph, dependencies, num_dependencies), \
    cuStreamGetCaptureInfo_v2) \
  T(cudaStreamGetCaptureInfo_v3, ptsz, kContext, (cudaStream_t stream, cudaStreamCaptureStatus* \
    capture_status_out, unsigned long long* id_out, cudaGraph_t* graph_out, const \
    cudaGraphNode_t** dependencies_out, const cudaGraphEdgeData** edge_data_out, size_t* \
    num_dependencies_out), (stream, capture_status_out, id_out, graph_out, dependencies_out, \
    edge_data_out, num_dependencies_out), cuStreamGetCaptureInfo_v3) \
  T(cudaStreamUpdateCaptureDependencies, ptsz, kContext, (cudaStream_t stream, cudaGraphNode_t* \
    dependencies, size_t num_dependencies, unsigned int flags), (stream, dependencies, \
    num_dependencies, flags), cuStreamUpdateCaptureDependencies) \
  T(cudaStreamUpdateCaptureDependencies_v2, ptsz, kContext, (cudaStream_t stream, \
    cudaGraphNode_t* dependencies, const cudaGraphEdgeData* dependency_data, size_t \
    num_dependencies, unsigned int flags), (stream, dependencies, dependency_data, \
    num_dependencies, flags), cuStreamUpdateCaptureDependencies_v2) \
  D(cudaGraphGetEdges, kContext, (cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, \
    size_t* num_edges), (graph, from, to, num_edges), cuGraphGetEdges) \
  D(cudaGraphGetEdges_v2, kContext, (cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* \
    to, cudaGraphEdgeData* edge_data, size_t* num_edges), (graph, from, to, edge_data, \
    num_edges), cuGraphGetEdges_v2) \
  D(cudaGraphNodeGetDependencies, kContext, (cudaGraphNode_t node, cudaGraphNode_t* \
    dependencies, size_t* num_dependencies), (node, dependencies, num_dependencies), \
    cuGraphNodeGetDependencies) \
  D(cudaGraphNodeGetDependencies_v2, kContext, (cudaGraphNode_t node, cudaGraphNode_t* \
    dependencies, cudaGraphEdgeData* edge_data, size_t* num_dependencies), (node, dependencies, \
    edge_data, num_dependencies), cuGraphNodeGetDependencies_v2) \
  D(cudaGraphNodeGetDependentNodes, kContext, (cudaGraphNode_t node, cudaGraphNode_t* \
    dependents, size_t* num_dependents), (node, dependents, num_dependents), \
    cuGraphNodeGetDependentNodes) \
  D(cudaGraphNodeGetDependentNodes_v2, kContext, (cudaGraphNode_t node, cudaGraphNode_t* \
    dependent_nodes, cudaGraphEdgeData* edge_data, size_t* num_dependent_nodes), (node, \
    dependent_nodes, edge_data, num_dependent_nodes), cuGraphNodeGetDependentNodes_v2) \
  D(cudaGraphAddDependencies, kContext, (cudaGraph_t graph, const cudaGraphNode_t* from, const \
    cudaGraphNode_t* to, size_t num_dependencies), (graph, from, to, num_dependencies), \
    cuGraphAddDependencies) \
  D(cudaGraphAddDependencies_v2, kContext, (cudaGraph_t graph, const cudaGraphNode_t* from, \
    const cudaGraphNode_t* to, const cudaGraphEdgeData* edge_data, size_t num_dependencies), \
    (graph, from, to, edge_data, num_dependencies), cuGraphAddDependencies_v2) \
  D(cudaGraphRemoveDependencies, kContext, (cudaGraph_t graph, const cudaGraphNode_t* from, \
    const cudaGraphNode_t* to, size_t num_dependencies), (graph, from, to, num_dependencies), \
    cuGraphRemoveDependencies) \
  D(cudaGraphRemoveDependencies_v2, kContext, (cudaGraph_t graph, const cudaGraphNode_t* from, \
    const cudaGraphNode_t* to, const cudaGraphEdgeData* edge_data, size_t num_dependencies), \
    (graph, from, to, edge_data, num_dependencies), cuGraphRemoveDependencies_v2) \
  F(cudaGraphAddNode, kContext, (cudaGraphNode_t* node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, size_t num_dependencies, cudaGraphNodeParams* params), (node, \
    graph, dependencies, num_dependencies, params)) \
  F(cudaGraphAddNode_v2, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, const cudaGraphEdgeData* dependency_data, size_t \
    num_dependencies, cudaGraphNodeParams* node_params), (graph_node, graph, dependencies, \
    dependency_data, num_dependencies, node_params)) \
  D(cudaMemAdvise, kContext, (const void* dev_ptr, size_t count, cudaMemoryAdvise advice, int \
    device), (dev_ptr, count, advice, device), cuMemAdvise) \
  D(cudaMemAdvise_v2, kContext, (const void* dev_ptr, size_t count, cudaMemoryAdvise advice, \
    cudaMemLocation location), (dev_ptr, count, advice, location), cuMemAdvise_v2) \
  T(cudaMemPrefetchAsync, ptsz, kContext, (const void* dev_ptr, size_t count, int device, \
    cudaStream_t stream), (dev_ptr, count, device, stream), cuMemPrefetchAsync) \
  T(cudaMemPrefetchAsync_v2, ptsz, kContext, (const void* dev_ptr, size_t count, cudaMemLocation \
    location, unsigned int flags, cudaStream_t stream), (dev_ptr, count, location, flags, \
    stream), cuMemPrefetchAsync_v2) \
  T(cudaMemcpyBatchAsync, ptsz, kContext, (void** dsts, void** srcs, size_t* sizes, size_t \
    count, cudaMemcpyAttributes* attrs, size_t* attrs_idxs, size_t num_attrs, size_t* fail_idx, \
    cudaStream_t stream), (dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs, fail_idx, \
    stream), cuMemcpyBatchAsync) \
  T(cudaMemcpy3DBatchAsync, ptsz, kContext, (size_t num_ops, cudaMemcpy3DBatchOp* op_list, \
    size_t* fail_idx, unsigned long long flags, cudaStream_t stream), (num_ops, op_list, \
    fail_idx, flags, stream), cuMemcpy3DBatchAsync) \
  D(cudaEventElapsedTime_v2, kContext, (float* ms, cudaEvent_t start, cudaEvent_t end), (ms, \
    start, end), cuEventElapsedTime_v2) \
  P(cudaSignalExternalSemaphoresAsync_v2, ptsz, (const cudaExternalSemaphore_t* semaphores, \
    const void* params, unsigned int count, cudaStream_t stream)) \
  P(cudaWaitExternalSemaphoresAsync_v2, ptsz, (const cudaExternalSemaphore_t* semaphores, const \
    void* params, unsigned int count, cudaStream_t stream)) \
  A(cudaLaunchCooperativeKernelMultiDevice, (void* launches, unsigned int count, unsigned int \
    flags)) \
  F(cudaThreadExit, kDriver, (void), ()) \
  D(cudaThreadSynchronize, kContext, (void), (), cuCtxSynchronize) \
  D(cudaThreadSetLimit, kContext, (cudaLimit limit, size_t value), (limit, value), \
    cuCtxSetLimit) \
  D(cudaThreadGetLimit, kContext, (size_t* value, cudaLimit limit), (value, limit), \
    cuCtxGetLimit) \
  D(cudaThreadGetCacheConfig, kContext, (cudaFuncCache* config), (config), cuCtxGetCacheConfig) \
  D(cudaThreadSetCacheConfig, kContext, (cudaFuncCache config), (config), cuCtxSetCacheConfig) \
  A(cudaSetDoubleForDevice, (double* value)) \
  A(cudaSetDoubleForHost, (double* value))
// clang-format on
