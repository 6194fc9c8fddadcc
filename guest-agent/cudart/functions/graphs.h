// SPDX-License-Identifier: Apache-2.0
// Graphs and stream capture. One row each; functions.h says what the columns mean.
#pragma once

// clang-format off
#define SLUICE_CUDART_GRAPHS(F, S, D, T, A, P, H) \
  D(cudaDeviceGetGraphMemAttribute, kContext, (int device, cudaGraphMemAttributeType attr, void* \
    value), (device, attr, value), cuDeviceGetGraphMemAttribute) \
  D(cudaDeviceGraphMemTrim, kContext, (int device), (device), cuDeviceGraphMemTrim) \
  D(cudaDeviceSetGraphMemAttribute, kContext, (int device, cudaGraphMemAttributeType attr, void* \
    value), (device, attr, value), cuDeviceSetGraphMemAttribute) \
  D(cudaGraphAddChildGraphNode, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, size_t num_dependencies, cudaGraph_t child_graph), \
    (graph_node, graph, dependencies, num_dependencies, child_graph), cuGraphAddChildGraphNode) \
  D(cudaGraphAddEmptyNode, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, size_t num_dependencies), (graph_node, graph, dependencies, \
    num_dependencies), cuGraphAddEmptyNode) \
  D(cudaGraphAddEventRecordNode, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, \
    const cudaGraphNode_t* dependencies, size_t num_dependencies, cudaEvent_t event), \
    (graph_node, graph, dependencies, num_dependencies, event), cuGraphAddEventRecordNode) \
  D(cudaGraphAddEventWaitNode, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, size_t num_dependencies, cudaEvent_t event), (graph_node, \
    graph, dependencies, num_dependencies, event), cuGraphAddEventWaitNode) \
  D(cudaGraphAddExternalSemaphoresSignalNode, kContext, (cudaGraphNode_t* graph_node, \
    cudaGraph_t graph, const cudaGraphNode_t* dependencies, size_t num_dependencies, const \
    cudaExternalSemaphoreSignalNodeParams* node_params), (graph_node, graph, dependencies, \
    num_dependencies, node_params), cuGraphAddExternalSemaphoresSignalNode) \
  D(cudaGraphAddExternalSemaphoresWaitNode, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t \
    graph, const cudaGraphNode_t* dependencies, size_t num_dependencies, const \
    cudaExternalSemaphoreWaitNodeParams* node_params), (graph_node, graph, dependencies, \
    num_dependencies, node_params), cuGraphAddExternalSemaphoresWaitNode) \
  D(cudaGraphAddHostNode, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, size_t num_dependencies, const cudaHostNodeParams* \
    node_params), (graph_node, graph, dependencies, num_dependencies, node_params), \
    cuGraphAddHostNode) \
  F(cudaGraphAddKernelNode, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, size_t num_dependencies, const cudaKernelNodeParams* \
    node_params), (graph_node, graph, dependencies, num_dependencies, node_params)) \
  D(cudaGraphAddMemAllocNode, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, size_t num_dependencies, cudaMemAllocNodeParams* \
    node_params), (graph_node, graph, dependencies, num_dependencies, node_params), \
    cuGraphAddMemAllocNode) \
  D(cudaGraphAddMemFreeNode, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, size_t num_dependencies, void* dptr), (graph_node, graph, \
    dependencies, num_dependencies, dptr), cuGraphAddMemFreeNode) \
  F(cudaGraphAddMemcpyNode, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, size_t num_dependencies, const cudaMemcpy3DParms* \
    copy_params), (graph_node, graph, dependencies, num_dependencies, copy_params)) \
  F(cudaGraphAddMemcpyNode1D, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, size_t num_dependencies, void* dst, const void* src, size_t \
    count, cudaMemcpyKind kind), (graph_node, graph, dependencies, num_dependencies, dst, src, \
    count, kind)) \
  F(cudaGraphAddMemcpyNodeFromSymbol, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, \
    const cudaGraphNode_t* dependencies, size_t num_dependencies, void* dst, const void* symbol, \
    size_t count, size_t offset, cudaMemcpyKind kind), (graph_node, graph, dependencies, \
    num_dependencies, dst, symbol, count, offset, kind)) \
  F(cudaGraphAddMemcpyNodeToSymbol, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, \
    const cudaGraphNode_t* dependencies, size_t num_dependencies, const void* symbol, const \
    void* src, size_t count, size_t offset, cudaMemcpyKind kind), (graph_node, graph, \
    dependencies, num_dependencies, symbol, src, count, offset, kind)) \
  F(cudaGraphAddMemsetNode, kContext, (cudaGraphNode_t* graph_node, cudaGraph_t graph, const \
    cudaGraphNode_t* dependencies, size_t num_dependencies, const cudaMemsetParams* \
    memset_params), (graph_node, graph, dependencies, num_dependencies, memset_params)) \
  D(cudaGraphChildGraphNodeGetGraph, kContext, (cudaGraphNode_t node, cudaGraph_t* graph), \
    (node, graph), cuGraphChildGraphNodeGetGraph) \
  D(cudaGraphClone, kContext, (cudaGraph_t* graph_clone, cudaGraph_t original_graph), \
    (graph_clone, original_graph), cuGraphClone) \
  F(cudaGraphConditionalHandleCreate, kContext, (cudaGraphConditionalHandle* handle_out, \
    cudaGraph_t graph, unsigned int default_launch_value, unsigned int flags), (handle_out, \
    graph, default_launch_value, flags)) \
  D(cudaGraphCreate, kContext, (cudaGraph_t* graph, unsigned int flags), (graph, flags), \
    cuGraphCreate) \
  D(cudaGraphDebugDotPrint, kContext, (cudaGraph_t graph, const char* path, unsigned int flags), \
    (graph, path, flags), cuGraphDebugDotPrint) \
  D(cudaGraphDestroy, kContext, (cudaGraph_t graph), (graph), cuGraphDestroy) \
  D(cudaGraphDestroyNode, kContext, (cudaGraphNode_t node), (node), cuGraphDestroyNode) \
  D(cudaGraphEventRecordNodeGetEvent, kContext, (cudaGraphNode_t node, cudaEvent_t* event_out), \
    (node, event_out), cuGraphEventRecordNodeGetEvent) \
  D(cudaGraphEventRecordNodeSetEvent, kContext, (cudaGraphNode_t node, cudaEvent_t event), \
    (node, event), cuGraphEventRecordNodeSetEvent) \
  D(cudaGraphEventWaitNodeGetEvent, kContext, (cudaGraphNode_t node, cudaEvent_t* event_out), \
    (node, event_out), cuGraphEventWaitNodeGetEvent) \
  D(cudaGraphEventWaitNodeSetEvent, kContext, (cudaGraphNode_t node, cudaEvent_t event), (node, \
    event), cuGraphEventWaitNodeSetEvent) \
  D(cudaGraphExecChildGraphNodeSetParams, kContext, (cudaGraphExec_t h_graph_exec, \
    cudaGraphNode_t node, cudaGraph_t child_graph), (h_graph_exec, node, child_graph), \
    cuGraphExecChildGraphNodeSetParams) \
  D(cudaGraphExecDestroy, kContext, (cudaGraphExec_t graph_exec), (graph_exec), \
    cuGraphExecDestroy) \
  D(cudaGraphExecEventRecordNodeSetEvent, kContext, (cudaGraphExec_t h_graph_exec, \
    cudaGraphNode_t h_node, cudaEvent_t event), (h_graph_exec, h_node, event), \
    cuGraphExecEventRecordNodeSetEvent) \
  D(cudaGraphExecEventWaitNodeSetEvent, kContext, (cudaGraphExec_t h_graph_exec, cudaGraphNode_t \
    h_node, cudaEvent_t event), (h_graph_exec, h_node, event), cuGraphExecEventWaitNodeSetEvent) \
  D(cudaGraphExecExternalSemaphoresSignalNodeSetParams, kContext, (cudaGraphExec_t h_graph_exec, \
    cudaGraphNode_t h_node, const cudaExternalSemaphoreSignalNodeParams* node_params), \
    (h_graph_exec, h_node, node_params), cuGraphExecExternalSemaphoresSignalNodeSetParams) \
  D(cudaGraphExecExternalSemaphoresWaitNodeSetParams, kContext, (cudaGraphExec_t h_graph_exec, \
    cudaGraphNode_t h_node, const cudaExternalSemaphoreWaitNodeParams* node_params), \
    (h_graph_exec, h_node, node_params), cuGraphExecExternalSemaphoresWaitNodeSetParams) \
  D(cudaGraphExecGetFlags, kContext, (cudaGraphExec_t graph_exec, unsigned long long* flags), \
    (graph_exec, flags), cuGraphExecGetFlags) \
  D(cudaGraphExecHostNodeSetParams, kContext, (cudaGraphExec_t h_graph_exec, cudaGraphNode_t \
    node, const cudaHostNodeParams* node_params), (h_graph_exec, node, node_params), \
    cuGraphExecHostNodeSetParams) \
  F(cudaGraphExecKernelNodeSetParams, kContext, (cudaGraphExec_t h_graph_exec, cudaGraphNode_t \
    node, const cudaKernelNodeParams* node_params), (h_graph_exec, node, node_params)) \
  F(cudaGraphExecMemcpyNodeSetParams, kContext, (cudaGraphExec_t h_graph_exec, cudaGraphNode_t \
    node, const cudaMemcpy3DParms* node_params), (h_graph_exec, node, node_params)) \
  F(cudaGraphExecMemcpyNodeSetParams1D, kContext, (cudaGraphExec_t h_graph_exec, cudaGraphNode_t \
    node, void* dst, const void* src, size_t count, cudaMemcpyKind kind), (h_graph_exec, node, \
    dst, src, count, kind)) \
  F(cudaGraphExecMemcpyNodeSetParamsFromSymbol, kContext, (cudaGraphExec_t h_graph_exec, \
    cudaGraphNode_t node, void* dst, const void* symbol, size_t count, size_t offset, \
    cudaMemcpyKind kind), (h_graph_exec, node, dst, symbol, count, offset, kind)) \
  F(cudaGraphExecMemcpyNodeSetParamsToSymbol, kContext, (cudaGraphExec_t h_graph_exec, \
    cudaGraphNode_t node, const void* symbol, const void* src, size_t count, size_t offset, \
    cudaMemcpyKind kind), (h_graph_exec, node, symbol, src, count, offset, kind)) \
  F(cudaGraphExecMemsetNodeSetParams, kContext, (cudaGraphExec_t h_graph_exec, cudaGraphNode_t \
    node, const cudaMemsetParams* node_params), (h_graph_exec, node, node_params)) \
  F(cudaGraphExecNodeSetParams, kContext, (cudaGraphExec_t graph_exec, cudaGraphNode_t node, \
    cudaGraphNodeParams* node_params), (graph_exec, node, node_params)) \
  D(cudaGraphExecUpdate, kContext, (cudaGraphExec_t h_graph_exec, cudaGraph_t h_graph, \
    cudaGraphExecUpdateResultInfo* result_info), (h_graph_exec, h_graph, result_info), \
    cuGraphExecUpdate_v2) \
  D(cudaGraphExternalSemaphoresSignalNodeGetParams, kContext, (cudaGraphNode_t h_node, \
    cudaExternalSemaphoreSignalNodeParams* params_out), (h_node, params_out), \
    cuGraphExternalSemaphoresSignalNodeGetParams) \
  D(cudaGraphExternalSemaphoresSignalNodeSetParams, kContext, (cudaGraphNode_t h_node, const \
    cudaExternalSemaphoreSignalNodeParams* node_params), (h_node, node_params), \
    cuGraphExternalSemaphoresSignalNodeSetParams) \
  D(cudaGraphExternalSemaphoresWaitNodeGetParams, kContext, (cudaGraphNode_t h_node, \
    cudaExternalSemaphoreWaitNodeParams* params_out), (h_node, params_out), \
    cuGraphExternalSemaphoresWaitNodeGetParams) \
  D(cudaGraphExternalSemaphoresWaitNodeSetParams, kContext, (cudaGraphNode_t h_node, const \
    cudaExternalSemaphoreWaitNodeParams* node_params), (h_node, node_params), \
    cuGraphExternalSemaphoresWaitNodeSetParams) \
  D(cudaGraphGetNodes, kContext, (cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* num_nodes), \
    (graph, nodes, num_nodes), cuGraphGetNodes) \
  D(cudaGraphGetRootNodes, kContext, (cudaGraph_t graph, cudaGraphNode_t* root_nodes, size_t* \
    num_root_nodes), (graph, root_nodes, num_root_nodes), cuGraphGetRootNodes) \
  D(cudaGraphHostNodeGetParams, kContext, (cudaGraphNode_t node, cudaHostNodeParams* \
    node_params), (node, node_params), cuGraphHostNodeGetParams) \
  D(cudaGraphHostNodeSetParams, kContext, (cudaGraphNode_t node, const cudaHostNodeParams* \
    node_params), (node, node_params), cuGraphHostNodeSetParams) \
  D(cudaGraphInstantiate, kContext, (cudaGraphExec_t* graph_exec, cudaGraph_t graph, unsigned \
    long long flags), (graph_exec, graph, flags), cuGraphInstantiateWithFlags) \
  D(cudaGraphInstantiateWithFlags, kContext, (cudaGraphExec_t* graph_exec, cudaGraph_t graph, \
    unsigned long long flags), (graph_exec, graph, flags), cuGraphInstantiateWithFlags) \
  T(cudaGraphInstantiateWithParams, ptsz, kContext, (cudaGraphExec_t* graph_exec, cudaGraph_t \
    graph, cudaGraphInstantiateParams* instantiate_params), (graph_exec, graph, \
    instantiate_params), cuGraphInstantiateWithParams) \
  D(cudaGraphKernelNodeCopyAttributes, kContext, (cudaGraphNode_t h_dst, cudaGraphNode_t h_src), \
    (h_dst, h_src), cuGraphKernelNodeCopyAttributes) \
  D(cudaGraphKernelNodeGetAttribute, kContext, (cudaGraphNode_t h_node, cudaLaunchAttributeID \
    attr, cudaLaunchAttributeValue* value_out), (h_node, attr, value_out), \
    cuGraphKernelNodeGetAttribute) \
  F(cudaGraphKernelNodeGetParams, kContext, (cudaGraphNode_t node, cudaKernelNodeParams* \
    node_params), (node, node_params)) \
  D(cudaGraphKernelNodeSetAttribute, kContext, (cudaGraphNode_t h_node, cudaLaunchAttributeID \
    attr, const cudaLaunchAttributeValue* value), (h_node, attr, value), \
    cuGraphKernelNodeSetAttribute) \
  F(cudaGraphKernelNodeSetParams, kContext, (cudaGraphNode_t node, const cudaKernelNodeParams* \
    node_params), (node, node_params)) \
  T(cudaGraphLaunch, ptsz, kContext, (cudaGraphExec_t graph_exec, cudaStream_t stream), \
    (graph_exec, stream), cuGraphLaunch) \
  D(cudaGraphMemAllocNodeGetParams, kContext, (cudaGraphNode_t node, cudaMemAllocNodeParams* \
    params_out), (node, params_out), cuGraphMemAllocNodeGetParams) \
  D(cudaGraphMemFreeNodeGetParams, kContext, (cudaGraphNode_t node, void* dptr_out), (node, \
    dptr_out), cuGraphMemFreeNodeGetParams) \
  F(cudaGraphMemcpyNodeGetParams, kContext, (cudaGraphNode_t node, cudaMemcpy3DParms* \
    node_params), (node, node_params)) \
  F(cudaGraphMemcpyNodeSetParams, kContext, (cudaGraphNode_t node, const cudaMemcpy3DParms* \
    node_params), (node, node_params)) \
  F(cudaGraphMemcpyNodeSetParams1D, kContext, (cudaGraphNode_t node, void* dst, const void* src, \
    size_t count, cudaMemcpyKind kind), (node, dst, src, count, kind)) \
  F(cudaGraphMemcpyNodeSetParamsFromSymbol, kContext, (cudaGraphNode_t node, void* dst, const \
    void* symbol, size_t count, size_t offset, cudaMemcpyKind kind), (node, dst, symbol, count, \
    offset, kind)) \
  F(cudaGraphMemcpyNodeSetParamsToSymbol, kContext, (cudaGraphNode_t node, const void* symbol, \
    const void* src, size_t count, size_t offset, cudaMemcpyKind kind), (node, symbol, src, \
    count, offset, kind)) \
  D(cudaGraphMemsetNodeGetParams, kContext, (cudaGraphNode_t node, cudaMemsetParams* \
    node_params), (node, node_params), cuGraphMemsetNodeGetParams) \
  D(cudaGraphMemsetNodeSetParams, kContext, (cudaGraphNode_t node, const cudaMemsetParams* \
    node_params), (node, node_params), cuGraphMemsetNodeSetParams) \
  D(cudaGraphNodeFindInClone, kContext, (cudaGraphNode_t* node, cudaGraphNode_t original_node, \
    cudaGraph_t cloned_graph), (node, original_node, cloned_graph), cuGraphNodeFindInClone) \
  D(cudaGraphNodeGetEnabled, kContext, (cudaGraphExec_t h_graph_exec, cudaGraphNode_t h_node, \
    unsigned int* is_enabled), (h_graph_exec, h_node, is_enabled), cuGraphNodeGetEnabled) \
  D(cudaGraphNodeGetType, kContext, (cudaGraphNode_t node, cudaGraphNodeType* type), (node, \
    type), cuGraphNodeGetType) \
  D(cudaGraphNodeSetEnabled, kContext, (cudaGraphExec_t h_graph_exec, cudaGraphNode_t h_node, \
    unsigned int is_enabled), (h_graph_exec, h_node, is_enabled), cuGraphNodeSetEnabled) \
  F(cudaGraphNodeSetParams, kContext, (cudaGraphNode_t node, cudaGraphNodeParams* node_params), \
    (node, node_params)) \
  D(cudaGraphReleaseUserObject, kContext, (cudaGraph_t graph, cudaUserObject_t object, unsigned \
    int count), (graph, object, count), cuGraphReleaseUserObject) \
  D(cudaGraphRetainUserObject, kContext, (cudaGraph_t graph, cudaUserObject_t object, unsigned \
    int count, unsigned int flags), (graph, object, count, flags), cuGraphRetainUserObject) \
  T(cudaGraphUpload, ptsz, kContext, (cudaGraphExec_t graph_exec, cudaStream_t stream), \
    (graph_exec, stream), cuGraphUpload) \
  D(cudaGraphicsMapResources, kContext, (int count, cudaGraphicsResource_t* resources, \
    cudaStream_t stream), (count, resources, stream), cuGraphicsMapResources) \
  D(cudaGraphicsResourceGetMappedPointer, kContext, (void** dev_ptr, size_t* size, \
    cudaGraphicsResource_t resource), (dev_ptr, size, resource), \
    cuGraphicsResourceGetMappedPointer_v2) \
  D(cudaGraphicsResourceSetMapFlags, kContext, (cudaGraphicsResource_t resource, unsigned int \
    flags), (resource, flags), cuGraphicsResourceSetMapFlags_v2) \
  D(cudaGraphicsUnmapResources, kContext, (int count, cudaGraphicsResource_t* resources, \
    cudaStream_t stream), (count, resources, stream), cuGraphicsUnmapResources) \
  D(cudaGraphicsUnregisterResource, kContext, (cudaGraphicsResource_t resource), (resource), \
    cuGraphicsUnregisterResource) \
  T(cudaStreamBeginCapture, ptsz, kContext, (cudaStream_t stream, cudaStreamCaptureMode \
    capture_mode), (stream, capture_mode), cuStreamBeginCapture_v2) \
  T(cudaStreamBeginCaptureToGraph, ptsz, kContext, (cudaStream_t stream, cudaGraph_t graph, \
    const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* dependency_data, size_t \
    num_dependencies, cudaStreamCaptureMode capture_mode), (stream, graph, dependencies, \
    dependency_data, num_dependencies, capture_mode), cuStreamBeginCaptureToGraph) \
  T(cudaStreamEndCapture, ptsz, kContext, (cudaStream_t stream, cudaGraph_t* graph), (stream, \
    graph), cuStreamEndCapture) \
  D(cudaThreadExchangeStreamCaptureMode, kContext, (cudaStreamCaptureMode* mode), (mode), \
    cuThreadExchangeStreamCaptureMode) \
  D(cudaUserObjectCreate, kContext, (cudaUserObject_t* object_out, void* ptr, cudaHostFn_t \
    destroy, unsigned int initial_refcount, unsigned int flags), (object_out, ptr, destroy, \
    initial_refcount, flags), cuUserObjectCreate) \
  D(cudaUserObjectRelease, kContext, (cudaUserObject_t object, unsigned int count), (object, \
    count), cuUserObjectRelease) \
  D(cudaUserObjectRetain, kContext, (cudaUserObject_t object, unsigned int count), (object, \
    count), cuUserObjectRetain)
// clang-format on
