/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA graphs: the functions of the driver API that the guest's libcuda.so.1 has of them, one row
 * each as in abi/cuda_driver_functions.h: X(symbol, name, since, (parameters)). Facts from the CUDA
 * Toolkit 13.0; where the toolkit is installed, cuda_driver_asserts.cc compares every row with it.
 * A row without a definition answers CUDA_ERROR_NOT_SUPPORTED
 * (guest-agent/shim/calls/unsupported.cc).
 */
#ifndef SLUICE_ABI_CUDA_GRAPH_FUNCTIONS_H
#define SLUICE_ABI_CUDA_GRAPH_FUNCTIONS_H

/* clang-format off */
#define SLUICE_CUDA_GRAPH_FUNCTIONS(X) \
  X(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, (CUstream stream, CUstreamCaptureMode mode)) \
  X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, (CUstream stream, CUgraph graph, const \
    CUgraphNode* dependencies, const CUgraphEdgeData* dependency_data, size_t num_dependencies, \
    CUstreamCaptureMode mode)) \
  X(cuStreamEndCapture, cuStreamEndCapture, 10000, (CUstream stream, CUgraph* graph)) \
  X(cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies, 12030, (CUstream stream, \
    CUgraphNode* dependencies, const CUgraphEdgeData* dependency_data, size_t num_dependencies, unsigned int \
    flags)) \
  X(cuGraphCreate, cuGraphCreate, 10000, (CUgraph* graph, unsigned int flags)) \
  X(cuGraphAddKernelNode_v2, cuGraphAddKernelNode, 12000, (CUgraphNode* node, CUgraph graph, const CUgraphNode* \
    dependencies, size_t num_dependencies, const CUDA_KERNEL_NODE_PARAMS* node_params)) \
  X(cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeGetParams, 12000, (CUgraphNode node, \
    CUDA_KERNEL_NODE_PARAMS* node_params)) \
  X(cuGraphKernelNodeSetParams_v2, cuGraphKernelNodeSetParams, 12000, (CUgraphNode node, const \
    CUDA_KERNEL_NODE_PARAMS* node_params)) \
  X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000, (CUgraphNode* node, CUgraph graph, const CUgraphNode* \
    dependencies, size_t num_dependencies, const CUDA_MEMCPY3D* copy_params, CUcontext ctx)) \
  X(cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeGetParams, 10000, (CUgraphNode node, CUDA_MEMCPY3D* \
    node_params)) \
  X(cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 10000, (CUgraphNode node, const CUDA_MEMCPY3D* \
    node_params)) \
  X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000, (CUgraphNode* node, CUgraph graph, const CUgraphNode* \
    dependencies, size_t num_dependencies, const CUDA_MEMSET_NODE_PARAMS* memset_params, CUcontext ctx)) \
  X(cuGraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, 10000, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* \
    node_params)) \
  X(cuGraphMemsetNodeSetParams, cuGraphMemsetNodeSetParams, 10000, (CUgraphNode node, const \
    CUDA_MEMSET_NODE_PARAMS* node_params)) \
  X(cuGraphAddHostNode, cuGraphAddHostNode, 10000, (CUgraphNode* node, CUgraph graph, const CUgraphNode* \
    dependencies, size_t num_dependencies, const CUDA_HOST_NODE_PARAMS* node_params)) \
  X(cuGraphHostNodeGetParams, cuGraphHostNodeGetParams, 10000, (CUgraphNode node, CUDA_HOST_NODE_PARAMS* \
    node_params)) \
  X(cuGraphHostNodeSetParams, cuGraphHostNodeSetParams, 10000, (CUgraphNode node, const CUDA_HOST_NODE_PARAMS* \
    node_params)) \
  X(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000, (CUgraphNode* node, CUgraph graph, const \
    CUgraphNode* dependencies, size_t num_dependencies, CUgraph child_graph)) \
  X(cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000, (CUgraphNode node, CUgraph* graph)) \
  X(cuGraphAddEmptyNode, cuGraphAddEmptyNode, 10000, (CUgraphNode* node, CUgraph graph, const CUgraphNode* \
    dependencies, size_t num_dependencies)) \
  X(cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, 11010, (CUgraphNode* node, CUgraph graph, const \
    CUgraphNode* dependencies, size_t num_dependencies, CUevent event)) \
  X(cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeGetEvent, 11010, (CUgraphNode node, CUevent* \
    event_out)) \
  X(cuGraphEventRecordNodeSetEvent, cuGraphEventRecordNodeSetEvent, 11010, (CUgraphNode node, CUevent event)) \
  X(cuGraphAddEventWaitNode, cuGraphAddEventWaitNode, 11010, (CUgraphNode* node, CUgraph graph, const \
    CUgraphNode* dependencies, size_t num_dependencies, CUevent event)) \
  X(cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeGetEvent, 11010, (CUgraphNode node, CUevent* event_out)) \
  X(cuGraphEventWaitNodeSetEvent, cuGraphEventWaitNodeSetEvent, 11010, (CUgraphNode node, CUevent event)) \
  X(cuGraphAddExternalSemaphoresSignalNode, cuGraphAddExternalSemaphoresSignalNode, 11020, (CUgraphNode* node, \
    CUgraph graph, const CUgraphNode* dependencies, size_t num_dependencies, const \
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* node_params)) \
  X(cuGraphExternalSemaphoresSignalNodeGetParams, cuGraphExternalSemaphoresSignalNodeGetParams, 11020, \
    (CUgraphNode node, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params_out)) \
  X(cuGraphExternalSemaphoresSignalNodeSetParams, cuGraphExternalSemaphoresSignalNodeSetParams, 11020, \
    (CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* node_params)) \
  X(cuGraphAddExternalSemaphoresWaitNode, cuGraphAddExternalSemaphoresWaitNode, 11020, (CUgraphNode* node, \
    CUgraph graph, const CUgraphNode* dependencies, size_t num_dependencies, const \
    CUDA_EXT_SEM_WAIT_NODE_PARAMS* node_params)) \
  X(cuGraphExternalSemaphoresWaitNodeGetParams, cuGraphExternalSemaphoresWaitNodeGetParams, 11020, (CUgraphNode \
    node, CUDA_EXT_SEM_WAIT_NODE_PARAMS* params_out)) \
  X(cuGraphExternalSemaphoresWaitNodeSetParams, cuGraphExternalSemaphoresWaitNodeSetParams, 11020, (CUgraphNode \
    node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS* node_params)) \
  X(cuGraphAddBatchMemOpNode, cuGraphAddBatchMemOpNode, 11070, (CUgraphNode* node, CUgraph graph, const \
    CUgraphNode* dependencies, size_t num_dependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS* node_params)) \
  X(cuGraphBatchMemOpNodeGetParams, cuGraphBatchMemOpNodeGetParams, 11070, (CUgraphNode node, \
    CUDA_BATCH_MEM_OP_NODE_PARAMS* node_params_out)) \
  X(cuGraphBatchMemOpNodeSetParams, cuGraphBatchMemOpNodeSetParams, 11070, (CUgraphNode node, const \
    CUDA_BATCH_MEM_OP_NODE_PARAMS* node_params)) \
  X(cuGraphExecBatchMemOpNodeSetParams, cuGraphExecBatchMemOpNodeSetParams, 11070, (CUgraphExec exec, \
    CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* node_params)) \
  X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, (CUgraphNode* node, CUgraph graph, const CUgraphNode* \
    dependencies, size_t num_dependencies, CUDA_MEM_ALLOC_NODE_PARAMS* node_params)) \
  X(cuGraphMemAllocNodeGetParams, cuGraphMemAllocNodeGetParams, 11040, (CUgraphNode node, \
    CUDA_MEM_ALLOC_NODE_PARAMS* params_out)) \
  X(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040, (CUgraphNode* node, CUgraph graph, const CUgraphNode* \
    dependencies, size_t num_dependencies, CUdeviceptr dptr)) \
  X(cuGraphMemFreeNodeGetParams, cuGraphMemFreeNodeGetParams, 11040, (CUgraphNode node, CUdeviceptr* dptr_out)) \
  X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (CUdevice device)) \
  X(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040, (CUdevice device, CUgraphMem_attribute \
    attr, void* value)) \
  X(cuDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute, 11040, (CUdevice device, CUgraphMem_attribute \
    attr, void* value)) \
  X(cuGraphClone, cuGraphClone, 10000, (CUgraph* clone, CUgraph original_graph)) \
  X(cuGraphNodeFindInClone, cuGraphNodeFindInClone, 10000, (CUgraphNode* node, CUgraphNode original_node, \
    CUgraph cloned_graph)) \
  X(cuGraphNodeGetType, cuGraphNodeGetType, 10000, (CUgraphNode node, CUgraphNodeType* type)) \
  X(cuGraphGetNodes, cuGraphGetNodes, 10000, (CUgraph graph, CUgraphNode* nodes, size_t* num_nodes)) \
  X(cuGraphGetRootNodes, cuGraphGetRootNodes, 10000, (CUgraph graph, CUgraphNode* root_nodes, size_t* \
    num_root_nodes)) \
  X(cuGraphGetEdges_v2, cuGraphGetEdges, 12030, (CUgraph graph, CUgraphNode* from, CUgraphNode* to, \
    CUgraphEdgeData* edge_data, size_t* num_edges)) \
  X(cuGraphNodeGetDependencies_v2, cuGraphNodeGetDependencies, 12030, (CUgraphNode node, CUgraphNode* \
    dependencies, CUgraphEdgeData* edge_data, size_t* num_dependencies)) \
  X(cuGraphNodeGetDependentNodes_v2, cuGraphNodeGetDependentNodes, 12030, (CUgraphNode node, CUgraphNode* \
    dependent_nodes, CUgraphEdgeData* edge_data, size_t* num_dependent_nodes)) \
  X(cuGraphAddDependencies_v2, cuGraphAddDependencies, 12030, (CUgraph graph, const CUgraphNode* from, const \
    CUgraphNode* to, const CUgraphEdgeData* edge_data, size_t num_dependencies)) \
  X(cuGraphRemoveDependencies_v2, cuGraphRemoveDependencies, 12030, (CUgraph graph, const CUgraphNode* from, \
    const CUgraphNode* to, const CUgraphEdgeData* edge_data, size_t num_dependencies)) \
  X(cuGraphDestroyNode, cuGraphDestroyNode, 10000, (CUgraphNode node)) \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, (CUgraphExec* exec, CUgraph graph, unsigned \
    long long flags)) \
  X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, (CUgraphExec* exec, CUgraph graph, \
    CUDA_GRAPH_INSTANTIATE_PARAMS* instantiate_params)) \
  X(cuGraphExecGetFlags, cuGraphExecGetFlags, 12000, (CUgraphExec exec, cuuint64_t* flags)) \
  X(cuGraphExecKernelNodeSetParams_v2, cuGraphExecKernelNodeSetParams, 12000, (CUgraphExec exec, CUgraphNode \
    node, const CUDA_KERNEL_NODE_PARAMS* node_params)) \
  X(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 10020, (CUgraphExec exec, CUgraphNode node, \
    const CUDA_MEMCPY3D* copy_params, CUcontext ctx)) \
  X(cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, 10020, (CUgraphExec exec, CUgraphNode node, \
    const CUDA_MEMSET_NODE_PARAMS* memset_params, CUcontext ctx)) \
  X(cuGraphExecHostNodeSetParams, cuGraphExecHostNodeSetParams, 10020, (CUgraphExec exec, CUgraphNode node, \
    const CUDA_HOST_NODE_PARAMS* node_params)) \
  X(cuGraphExecChildGraphNodeSetParams, cuGraphExecChildGraphNodeSetParams, 11010, (CUgraphExec exec, \
    CUgraphNode node, CUgraph child_graph)) \
  X(cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, 11010, (CUgraphExec exec, \
    CUgraphNode node, CUevent event)) \
  X(cuGraphExecEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent, 11010, (CUgraphExec exec, CUgraphNode \
    node, CUevent event)) \
  X(cuGraphExecExternalSemaphoresSignalNodeSetParams, cuGraphExecExternalSemaphoresSignalNodeSetParams, 11020, \
    (CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* node_params)) \
  X(cuGraphExecExternalSemaphoresWaitNodeSetParams, cuGraphExecExternalSemaphoresWaitNodeSetParams, 11020, \
    (CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS* node_params)) \
  X(cuGraphNodeSetEnabled, cuGraphNodeSetEnabled, 11060, (CUgraphExec exec, CUgraphNode node, unsigned int \
    is_enabled)) \
  X(cuGraphNodeGetEnabled, cuGraphNodeGetEnabled, 11060, (CUgraphExec exec, CUgraphNode node, unsigned int* \
    is_enabled)) \
  X(cuGraphUpload, cuGraphUpload, 11010, (CUgraphExec exec, CUstream stream)) \
  X(cuGraphLaunch, cuGraphLaunch, 10000, (CUgraphExec exec, CUstream stream)) \
  X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (CUgraphExec exec)) \
  X(cuGraphDestroy, cuGraphDestroy, 10000, (CUgraph graph)) \
  X(cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000, (CUgraphExec exec, CUgraph graph, \
    CUgraphExecUpdateResultInfo* result_info)) \
  X(cuGraphKernelNodeCopyAttributes, cuGraphKernelNodeCopyAttributes, 11000, (CUgraphNode dst, CUgraphNode src)) \
  X(cuGraphKernelNodeGetAttribute, cuGraphKernelNodeGetAttribute, 11000, (CUgraphNode node, CUkernelNodeAttrID \
    attr, CUkernelNodeAttrValue* value_out)) \
  X(cuGraphKernelNodeSetAttribute, cuGraphKernelNodeSetAttribute, 11000, (CUgraphNode node, CUkernelNodeAttrID \
    attr, const CUkernelNodeAttrValue* value)) \
  X(cuGraphDebugDotPrint, cuGraphDebugDotPrint, 11030, (CUgraph graph, const char* path, unsigned int flags)) \
  X(cuUserObjectCreate, cuUserObjectCreate, 11030, (CUuserObject* object_out, void* ptr, CUhostFn destroy, \
    unsigned int initial_refcount, unsigned int flags)) \
  X(cuUserObjectRetain, cuUserObjectRetain, 11030, (CUuserObject object, unsigned int count)) \
  X(cuUserObjectRelease, cuUserObjectRelease, 11030, (CUuserObject object, unsigned int count)) \
  X(cuGraphRetainUserObject, cuGraphRetainUserObject, 11030, (CUgraph graph, CUuserObject object, unsigned int \
    count, unsigned int flags)) \
  X(cuGraphReleaseUserObject, cuGraphReleaseUserObject, 11030, (CUgraph graph, CUuserObject object, unsigned int \
    count)) \
  X(cuGraphAddNode_v2, cuGraphAddNode, 12030, (CUgraphNode* node, CUgraph graph, const CUgraphNode* \
    dependencies, const CUgraphEdgeData* dependency_data, size_t num_dependencies, CUgraphNodeParams* \
    node_params)) \
  X(cuGraphNodeSetParams, cuGraphNodeSetParams, 12020, (CUgraphNode node, CUgraphNodeParams* node_params)) \
  X(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020, (CUgraphExec exec, CUgraphNode node, \
    CUgraphNodeParams* node_params)) \
  X(cuGraphConditionalHandleCreate, cuGraphConditionalHandleCreate, 12030, (CUgraphConditionalHandle* \
    handle_out, CUgraph graph, CUcontext ctx, unsigned int default_launch_value, unsigned int flags))

/* Older symbols whose signature is their own: Z(function, "exported symbol", name, since, (parameters)). The
 * function's name here is ours, because cuda_graph.h turns the plain name into the newest symbol. */
#define SLUICE_CUDA_GRAPH_OLD_FUNCTIONS(Z) \
  Z(sluice_begin_capture_v1, "cuStreamBeginCapture", cuStreamBeginCapture, 10000, (CUstream stream)) \
  Z(sluice_capture_info_v1, "cuStreamGetCaptureInfo", cuStreamGetCaptureInfo, 10010, (CUstream stream, \
    CUstreamCaptureStatus* status_out, cuuint64_t* id_out)) \
  Z(sluice_capture_info_v2, "cuStreamGetCaptureInfo_v2", cuStreamGetCaptureInfo, 11030, (CUstream stream, \
    CUstreamCaptureStatus* status_out, cuuint64_t* id_out, CUgraph* graph_out, const CUgraphNode** \
    dependencies_out, size_t* num_dependencies_out)) \
  Z(sluice_capture_dependencies_v1, "cuStreamUpdateCaptureDependencies", cuStreamUpdateCaptureDependencies, \
    11030, (CUstream stream, CUgraphNode* dependencies, size_t num_dependencies, unsigned int flags)) \
  Z(sluice_add_kernel_node_v1, "cuGraphAddKernelNode", cuGraphAddKernelNode, 10000, (CUgraphNode* node, CUgraph \
    graph, const CUgraphNode* dependencies, size_t num_dependencies, const CUDA_KERNEL_NODE_PARAMS_v1* \
    node_params)) \
  Z(sluice_kernel_node_get_v1, "cuGraphKernelNodeGetParams", cuGraphKernelNodeGetParams, 10000, (CUgraphNode \
    node, CUDA_KERNEL_NODE_PARAMS_v1* node_params)) \
  Z(sluice_kernel_node_set_v1, "cuGraphKernelNodeSetParams", cuGraphKernelNodeSetParams, 10000, (CUgraphNode \
    node, const CUDA_KERNEL_NODE_PARAMS_v1* node_params)) \
  Z(sluice_exec_kernel_node_set_v1, "cuGraphExecKernelNodeSetParams", cuGraphExecKernelNodeSetParams, 10010, \
    (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* node_params)) \
  Z(sluice_graph_edges_v1, "cuGraphGetEdges", cuGraphGetEdges, 10000, (CUgraph graph, CUgraphNode* from, \
    CUgraphNode* to, size_t* num_edges)) \
  Z(sluice_node_dependencies_v1, "cuGraphNodeGetDependencies", cuGraphNodeGetDependencies, 10000, (CUgraphNode \
    node, CUgraphNode* dependencies, size_t* num_dependencies)) \
  Z(sluice_node_dependents_v1, "cuGraphNodeGetDependentNodes", cuGraphNodeGetDependentNodes, 10000, \
    (CUgraphNode node, CUgraphNode* dependent_nodes, size_t* num_dependent_nodes)) \
  Z(sluice_add_dependencies_v1, "cuGraphAddDependencies", cuGraphAddDependencies, 10000, (CUgraph graph, const \
    CUgraphNode* from, const CUgraphNode* to, size_t num_dependencies)) \
  Z(sluice_remove_dependencies_v1, "cuGraphRemoveDependencies", cuGraphRemoveDependencies, 10000, (CUgraph \
    graph, const CUgraphNode* from, const CUgraphNode* to, size_t num_dependencies)) \
  Z(sluice_instantiate_v1, "cuGraphInstantiate", cuGraphInstantiate, 10000, (CUgraphExec* exec, CUgraph graph, \
    CUgraphNode* error_node, char* log_buffer, size_t buffer_size)) \
  Z(sluice_instantiate_v2, "cuGraphInstantiate_v2", cuGraphInstantiate, 11000, (CUgraphExec* exec, CUgraph \
    graph, CUgraphNode* error_node, char* log_buffer, size_t buffer_size)) \
  Z(sluice_exec_update_v1, "cuGraphExecUpdate", cuGraphExecUpdate, 10020, (CUgraphExec exec, CUgraph graph, \
    CUgraphNode* error_node_out, CUgraphExecUpdateResult* update_result_out)) \
  Z(sluice_add_node_v1, "cuGraphAddNode", cuGraphAddNode, 12020, (CUgraphNode* node, CUgraph graph, const \
    CUgraphNode* dependencies, size_t num_dependencies, CUgraphNodeParams* node_params)) \
  Z(sluice_mem_advise_v1, "cuMemAdvise", cuMemAdvise, 8000, (CUdeviceptr address, size_t count, CUmem_advise \
    advice, CUdevice device)) \
  Z(sluice_mem_prefetch_v1, "cuMemPrefetchAsync", cuMemPrefetchAsync, 8000, (CUdeviceptr address, size_t count, \
    CUdevice device, CUstream stream)) \
  Z(sluice_batch_mem_op_v1, "cuStreamBatchMemOp", cuStreamBatchMemOp, 8000, (CUstream stream, unsigned int \
    count, CUstreamBatchMemOpParams* params, unsigned int flags)) \
  Z(sluice_memcpy_batch_v1, "cuMemcpyBatchAsync", cuMemcpyBatchAsync, 12080, (CUdeviceptr* dsts, CUdeviceptr* srcs, \
    size_t* sizes, size_t count, CUmemcpyAttributes* attrs, size_t* attr_indices, size_t attr_count, size_t* \
    failed, CUstream stream)) \
  Z(sluice_memcpy_3d_batch_v1, "cuMemcpy3DBatchAsync", cuMemcpy3DBatchAsync, 12080, (size_t count, \
    CUDA_MEMCPY3D_BATCH_OP* ops, size_t* failed, unsigned long long flags, CUstream stream))

/* Names that mean one of them from a version on. */
#define SLUICE_CUDA_GRAPH_ALIASES(Y) Y(cuGraphInstantiateWithFlags, "cuGraphInstantiate", 12000)
/* clang-format on */

#endif /* SLUICE_ABI_CUDA_GRAPH_FUNCTIONS_H */
