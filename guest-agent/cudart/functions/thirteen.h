// SPDX-License-Identifier: Apache-2.0
// What has another form in libcudart.so.12 (twelve.h). One row each; functions.h says what the
// columns mean.
#pragma once

// clang-format off
#define SLUICE_CUDART_THIRTEEN(F, S, D, T, A, P, H) \
  D(cudaMemAdvise, kContext, (const void* dev_ptr, size_t count, cudaMemoryAdvise advice, \
    cudaMemLocation location), (dev_ptr, count, advice, location), cuMemAdvise_v2) \
  T(cudaMemPrefetchAsync, ptsz, kContext, (const void* dev_ptr, size_t count, cudaMemLocation \
    location, unsigned int flags, cudaStream_t stream), (dev_ptr, count, location, flags, \
    stream), cuMemPrefetchAsync_v2) \
  T(cudaMemcpy3DBatchAsync, ptsz, kContext, (size_t num_ops, cudaMemcpy3DBatchOp* op_list, \
    unsigned long long flags, cudaStream_t stream), (num_ops, op_list, flags, stream), \
    cuMemcpy3DBatchAsync_v2) \
  T(cudaMemcpyBatchAsync, ptsz, kContext, (void* const* dsts, const void* const* srcs, const \
    size_t* sizes, size_t count, cudaMemcpyAttributes* attrs, size_t* attrs_idxs, size_t \
    num_attrs, cudaStream_t stream), (dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs, \
    stream), cuMemcpyBatchAsync_v2) \
  F(cudaChooseDevice, kDriver, (int* device, const cudaDeviceProp* prop), (device, prop)) \
  F(cudaGetDeviceProperties, kDriver, (cudaDeviceProp* prop, int device), (prop, device)) \
  D(cudaGraphAddDependencies, kContext, (cudaGraph_t graph, const cudaGraphNode_t* from, const \
    cudaGraphNode_t* to, const cudaGraphEdgeData* edge_data, size_t num_dependencies), (graph, \
    from, to, edge_data, num_dependencies), cuGraphAddDependencies_v2) \
  F(cudaGraphAddNode, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, const cudaGraphEdgeData* dependency_data, size_t \
    num_dependencies, cudaGraphNodeParams* node_params), (graph_node, graph, dependencies, \
    dependency_data, num_dependencies, node_params)) \
  D(cudaGraphGetEdges, kContext, (cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, \
    cudaGraphEdgeData* edge_data, size_t* num_edges), (graph, from, to, edge_data, num_edges), \
    cuGraphGetEdges_v2) \
  D(cudaGraphNodeGetDependencies, kContext, (cudaGraphNode_t node, cudaGraphNode_t* \
    dependencies, cudaGraphEdgeData* edge_data, size_t* num_dependencies), (node, dependencies, \
    edge_data, num_dependencies), cuGraphNodeGetDependencies_v2) \
  D(cudaGraphNodeGetDependentNodes, kContext, (cudaGraphNode_t node, cudaGraphNode_t* \
    dependent_nodes, cudaGraphEdgeData* edge_data, size_t* num_dependent_nodes), (node, \
    dependent_nodes, edge_data, num_dependent_nodes), cuGraphNodeGetDependentNodes_v2) \
  D(cudaGraphRemoveDependencies, kContext, (cudaGraph_t graph, const cudaGraphNode_t* from, \
    const cudaGraphNode_t* to, const cudaGraphEdgeData* edge_data, size_t num_dependencies), \
    (graph, from, to, edge_data, num_dependencies), cuGraphRemoveDependencies_v2) \
  T(cudaStreamGetCaptureInfo, ptsz, kContext, (cudaStream_t stream, cudaStreamCaptureStatus* \
    capture_status_out, unsigned long long* id_out, cudaGraph_t* graph_out, const \
    cudaGraphNode_t** dependencies_out, const cudaGraphEdgeData** edge_data_out, size_t* \
    num_dependencies_out), (stream, capture_status_out, id_out, graph_out, dependencies_out, \
    edge_data_out, num_dependencies_out), cuStreamGetCaptureInfo_v3) \
  T(cudaStreamUpdateCaptureDependencies, ptsz, kContext, (cudaStream_t stream, cudaGraphNode_t* \
    dependencies, const cudaGraphEdgeData* dependency_data, size_t num_dependencies, unsigned \
    int flags), (stream, dependencies, dependency_data, num_dependencies, flags), \
    cuStreamUpdateCaptureDependencies_v2)
// clang-format on
