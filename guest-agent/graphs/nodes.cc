// SPDX-License-Identifier: Apache-2.0
// Adding nodes by hand, and their parameters: one way for all kinds (CUgraphNodeParams), the API's
// functions for each kind in front of it.
#include "guest-agent/graphs/works.h"

#include <cstring>

#include "guest-agent/graphs/conditional.h"

using namespace sluice::graphs;

namespace {

CUresult add_child(CUgraphNode* node, CUgraph graph, const std::vector<Edge>& edges,
                   const CUDA_CHILD_GRAPH_NODE_PARAMS& p) {
  const CUgraph child = p.graph;
  if (!registry().live(child) || child == graph) return CUDA_ERROR_INVALID_VALUE;
  if (p.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
    return driver().refuse("cuGraphAddNode", "child graphs that are moved");
  if (p.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) return CUDA_ERROR_INVALID_VALUE;
  if (has_memory(*child) || has_conditions(*child)) return CUDA_ERROR_NOT_SUPPORTED;
  *node = new_child(graph, clone_graph(*child), edges);
  return CUDA_SUCCESS;
}

// Memory may be freed once in a graph.
bool freed_before(CUgraph graph, const Work& work) {
  const auto* free = std::get_if<FreeWork>(&work);
  if (free == nullptr) return false;
  for (const auto& [id, node] : graph->nodes) {
    const auto* other = std::get_if<FreeWork>(node->work.get());
    if (other != nullptr && other->memory == free->memory) return true;
  }
  return false;
}

CUresult add(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
             const CUgraphEdgeData* data, size_t count, CUgraphNodeParams& params) {
  const Caller e = enter();
  if (!e) return e.status;
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto check = [&](std::vector<Edge>* edges) {
    if (!registry().live(graph)) return CUDA_ERROR_INVALID_VALUE;
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && graph->parent != nullptr)
      return CUDA_ERROR_NOT_SUPPORTED;
    return read_dependencies(graph, dependencies, data, count, edges);
  };
  WorkPtr work;
  {
    std::lock_guard lock(registry().mutex);
    std::vector<Edge> edges;
    if (const CUresult r = check(&edges); r != CUDA_SUCCESS) return r;
    if (params.type == CU_GRAPH_NODE_TYPE_GRAPH) return add_child(node, graph, edges, params.graph);
    if (params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
      return new_conditional(node, graph, edges, params.conditional);
  }
  if (const CUresult r = make_work(params, nullptr, &work); r != CUDA_SUCCESS) return r;
  std::lock_guard lock(registry().mutex);
  std::vector<Edge> edges;
  if (const CUresult r = check(&edges); r != CUDA_SUCCESS) return r;  // again: the lock was free
  if (freed_before(graph, *work)) return CUDA_ERROR_INVALID_VALUE;
  *node = new_node(graph, std::move(work), edges);
  return CUDA_SUCCESS;
}

// The work of a live node of this type.
CUresult work_of(CUgraphNode node, CUgraphNodeType type, WorkPtr* to) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (!registry().live(node) || type_of(*node->work) != type) return CUDA_ERROR_INVALID_VALUE;
  *to = node->work;
  return CUDA_SUCCESS;
}
template <class W>
CUresult work_of(CUgraphNode node, CUgraphNodeType type, const W** to, WorkPtr* keep) {
  const CUresult r = work_of(node, type, keep);
  if (r == CUDA_SUCCESS) *to = &std::get<W>(**keep);
  return r;
}

CUresult set(CUgraphNode node, CUgraphNodeParams& params) {
  WorkPtr before, work;
  if (const CUresult r = work_of(node, params.type, &before); r != CUDA_SUCCESS) return r;
  if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
      params.type == CU_GRAPH_NODE_TYPE_GRAPH || params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = make_work(params, before.get(), &work); r != CUDA_SUCCESS) return r;
  std::lock_guard lock(registry().mutex);
  if (!registry().live(node)) return CUDA_ERROR_INVALID_VALUE;
  node->work.swap(work);
  return CUDA_SUCCESS;
}

CUgraphNodeParams of_type(CUgraphNodeType type) {
  CUgraphNodeParams params;
  std::memset(&params, 0, sizeof params);
  params.type = type;
  return params;
}

// From each kind's own structure, which may be missing, to the common one.
bool fill(CUgraphNodeParams& to, const CUDA_KERNEL_NODE_PARAMS* p) {
  return p != nullptr && (to.kernel = *p, true);
}
bool fill(CUgraphNodeParams& to, const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  if (p != nullptr) std::memcpy(&to.kernel, p, sizeof *p);
  return p != nullptr;
}
bool fill(CUgraphNodeParams& to, const CUDA_HOST_NODE_PARAMS* p) {
  return p != nullptr && (to.host = *p, true);
}
bool fill(CUgraphNodeParams& to, const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  return p != nullptr && (to.memOp = *p, true);
}
bool fill(CUgraphNodeParams& to, const CUDA_MEMCPY3D* p, CUcontext ctx = nullptr) {
  if (p != nullptr) to.memcpy.copyParams = *p;
  to.memcpy.copyCtx = ctx;
  return p != nullptr;
}
bool fill(CUgraphNodeParams& to, const CUDA_MEMSET_NODE_PARAMS* p, CUcontext ctx = nullptr) {
  if (p != nullptr) std::memcpy(&to.memset, p, sizeof *p);
  to.memset.ctx = ctx;
  return p != nullptr;
}
bool fill(CUgraphNodeParams& to, CUevent event) { return (to.eventRecord.event = event, true); }

template <class... P>
CUresult add_kind(CUgraphNodeType type, CUgraphNode* node, CUgraph graph,
                  const CUgraphNode* dependencies, size_t count, P... p) {
  CUgraphNodeParams params = of_type(type);
  if (!fill(params, p...)) return CUDA_ERROR_INVALID_VALUE;
  return add(node, graph, dependencies, nullptr, count, params);
}
template <class... P>
CUresult set_kind(CUgraphNodeType type, CUgraphNode node, P... p) {
  CUgraphNodeParams params = of_type(type);
  if (!fill(params, p...)) return CUDA_ERROR_INVALID_VALUE;
  return set(node, params);
}
template <class... P>
CUresult set_in_exec(CUgraphNodeType type, CUgraphExec exec, CUgraphNode node, P... p) {
  CUgraphNodeParams params = of_type(type);
  if (!fill(params, p...)) return CUDA_ERROR_INVALID_VALUE;
  return cuGraphExecNodeSetParams(exec, node, &params);
}

// What a node's work has as the program gave it.
template <class W, class P>
CUresult get(CUgraphNodeType type, CUgraphNode node, P W::*member, P* to) {
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  WorkPtr keep;
  const W* work = nullptr;
  const CUresult r = work_of(node, type, &work, &keep);
  if (r == CUDA_SUCCESS) *to = work->*member;
  return r;
}

// The node's own copy: its work belongs to executables and clones, too. Null: there are none.
void** give_params(CUgraphNode node, const KernelWork& work) {
  std::lock_guard lock(registry().mutex);
  if (work.pointers.empty() || !registry().live(node)) return nullptr;
  const auto& params = work.launch.params;
  node->given_params.assign(params.begin(), params.end());
  node->given_pointers.clear();
  for (const void* pointer : work.pointers)
    node->given_pointers.push_back(node->given_params.data() +
                                   (static_cast<const std::byte*>(pointer) - params.data()));
  return node->given_pointers.data();
}

template <class P>
CUresult kernel_params(CUgraphNode node, P* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  WorkPtr keep;
  const KernelWork* work = nullptr;
  const CUresult r = work_of(node, CU_GRAPH_NODE_TYPE_KERNEL, &work, &keep);
  if (r != CUDA_SUCCESS) return r;
  CUDA_KERNEL_NODE_PARAMS whole{};
  const KernelLaunch& l = work->launch;
  whole.func = work->func;
  whole.gridDimX = l.grid[0], whole.gridDimY = l.grid[1], whole.gridDimZ = l.grid[2];
  whole.blockDimX = l.block[0], whole.blockDimY = l.block[1], whole.blockDimZ = l.block[2];
  whole.sharedMemBytes = l.shared_bytes;
  whole.kernelParams = give_params(node, *work);
  whole.kern = work->kern;
  whole.ctx = reinterpret_cast<CUcontext>(l.context);
  std::memcpy(p, &whole, sizeof *p);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* data, size_t count, CUgraphNodeParams* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add(node, graph, dependencies, data, count, *params);
}
CUresult sluice_add_node_v1(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                            size_t count, CUgraphNodeParams* params) {
  return cuGraphAddNode_v2(node, graph, dependencies, nullptr, count, params);
}
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* params) {
  return params == nullptr ? CUDA_ERROR_INVALID_VALUE : set(node, *params);
}

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                             size_t count) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_EMPTY);
  return add(node, graph, dependencies, nullptr, count, params);
}

// ---- kernels ----

CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  return add_kind(CU_GRAPH_NODE_TYPE_KERNEL, node, graph, dependencies, count, params);
}
CUresult sluice_add_kernel_node_v1(CUgraphNode* node, CUgraph graph,
                                   const CUgraphNode* dependencies, size_t count,
                                   const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return add_kind(CU_GRAPH_NODE_TYPE_KERNEL, node, graph, dependencies, count, params);
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* params) {
  return kernel_params(node, params);
}
CUresult sluice_kernel_node_get_v1(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return kernel_params(node, params);
}
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
  return set_kind(CU_GRAPH_NODE_TYPE_KERNEL, node, params);
}
CUresult sluice_kernel_node_set_v1(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return set_kind(CU_GRAPH_NODE_TYPE_KERNEL, node, params);
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* params) {
  return set_in_exec(CU_GRAPH_NODE_TYPE_KERNEL, exec, node, params);
}
CUresult sluice_exec_kernel_node_set_v1(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return set_in_exec(CU_GRAPH_NODE_TYPE_KERNEL, exec, node, params);
}

namespace {

CUresult set_attributes(CUgraphNode node, const WorkPtr& before,
                        std::vector<CUlaunchAttribute> attributes) {
  KernelWork work = std::get<KernelWork>(*before);
  work.launch.attributes = std::move(attributes);
  const CUresult r = driver().read_attributes(&work.launch);
  if (r != CUDA_SUCCESS) return r;
  if (const CUresult refused = driver().check(work.launch); refused != CUDA_SUCCESS) return refused;
  WorkPtr made = kernel_work(std::move(work.launch), work.func, work.kern);
  std::lock_guard lock(registry().mutex);
  if (!registry().live(node)) return CUDA_ERROR_INVALID_VALUE;
  node->work.swap(made);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue* value) {
  WorkPtr keep;
  const KernelWork* work = nullptr;
  if (const CUresult r = work_of(node, CU_GRAPH_NODE_TYPE_KERNEL, &work, &keep); r != CUDA_SUCCESS)
    return r;
  constexpr int kLastAttribute = CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;
  if (value == nullptr || attr < CU_LAUNCH_ATTRIBUTE_IGNORE || attr > kLastAttribute)
    return CUDA_ERROR_INVALID_VALUE;
  std::memset(value, 0, sizeof *value);  // an attribute that was never set
  if (attr == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) value->clusterDim = {1, 1, 1};
  for (const CUlaunchAttribute& one : work->launch.attributes)
    if (one.id == attr) *value = one.value;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue* value) {
  WorkPtr keep;
  const KernelWork* work = nullptr;
  if (const CUresult r = work_of(node, CU_GRAPH_NODE_TYPE_KERNEL, &work, &keep); r != CUDA_SUCCESS)
    return r;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto attributes = work->launch.attributes;
  std::erase_if(attributes, [attr](const CUlaunchAttribute& one) { return one.id == attr; });
  attributes.push_back({attr, {}, *value});
  return set_attributes(node, keep, std::move(attributes));
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  WorkPtr keep_src, keep_dst;
  const KernelWork* from = nullptr;
  const KernelWork* to = nullptr;
  CUresult r = work_of(src, CU_GRAPH_NODE_TYPE_KERNEL, &from, &keep_src);
  if (r == CUDA_SUCCESS) r = work_of(dst, CU_GRAPH_NODE_TYPE_KERNEL, &to, &keep_dst);
  return r != CUDA_SUCCESS ? r : set_attributes(dst, keep_dst, from->launch.attributes);
}

// ---- copies and fills ----

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMCPY3D* copy, CUcontext ctx) {
  return add_kind(CU_GRAPH_NODE_TYPE_MEMCPY, node, graph, dependencies, count, copy, ctx);
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* params) {
  return get(CU_GRAPH_NODE_TYPE_MEMCPY, node, &CopyWork::copy, params);
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* params) {
  return set_kind(CU_GRAPH_NODE_TYPE_MEMCPY, node, params);
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D* copy, CUcontext ctx) {
  return set_in_exec(CU_GRAPH_NODE_TYPE_MEMCPY, exec, node, copy, ctx);
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS* params, CUcontext ctx) {
  return add_kind(CU_GRAPH_NODE_TYPE_MEMSET, node, graph, dependencies, count, params, ctx);
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* params) {
  return get(CU_GRAPH_NODE_TYPE_MEMSET, node, &FillWork::fill, params);
}
CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
  return set_kind(CU_GRAPH_NODE_TYPE_MEMSET, node, params);
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* params, CUcontext ctx) {
  return set_in_exec(CU_GRAPH_NODE_TYPE_MEMSET, exec, node, params, ctx);
}

// ---- the program's functions, values, events ----

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                            size_t count, const CUDA_HOST_NODE_PARAMS* params) {
  return add_kind(CU_GRAPH_NODE_TYPE_HOST, node, graph, dependencies, count, params);
}
CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* params) {
  return get(CU_GRAPH_NODE_TYPE_HOST, node, &HostWork::host, params);
}
CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
  return set_kind(CU_GRAPH_NODE_TYPE_HOST, node, params);
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS* params) {
  return set_in_exec(CU_GRAPH_NODE_TYPE_HOST, exec, node, params);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return add_kind(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, node, graph, dependencies, count, params);
}
CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  WorkPtr keep;
  const ValuesWork* work = nullptr;
  const CUresult r = work_of(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &work, &keep);
  if (r != CUDA_SUCCESS) return r;
  *params = {reinterpret_cast<CUcontext>(work->context), static_cast<unsigned>(work->values.size()),
             const_cast<CUstreamBatchMemOpParams*>(work->values.data()), work->flags};
  return CUDA_SUCCESS;
}
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return set_kind(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, node, params);
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return set_in_exec(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, exec, node, params);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph,
                                   const CUgraphNode* dependencies, size_t count, CUevent event) {
  return add_kind(CU_GRAPH_NODE_TYPE_EVENT_RECORD, node, graph, dependencies, count, event);
}
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
  return get(CU_GRAPH_NODE_TYPE_EVENT_RECORD, node, &EventWork::event, event);
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return set_kind(CU_GRAPH_NODE_TYPE_EVENT_RECORD, node, event);
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return set_in_exec(CU_GRAPH_NODE_TYPE_EVENT_RECORD, exec, node, event);
}
CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, CUevent event) {
  return add_kind(CU_GRAPH_NODE_TYPE_WAIT_EVENT, node, graph, dependencies, count, event);
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
  return get(CU_GRAPH_NODE_TYPE_WAIT_EVENT, node, &EventWork::event, event);
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return set_kind(CU_GRAPH_NODE_TYPE_WAIT_EVENT, node, event);
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return set_in_exec(CU_GRAPH_NODE_TYPE_WAIT_EVENT, exec, node, event);
}

// ---- child graphs ----

CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, CUgraph child) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_GRAPH);
  params.graph.graph = child;
  return add(node, graph, dependencies, nullptr, count, params);
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (graph == nullptr || !registry().live(node) || !std::holds_alternative<ChildWork>(*node->work))
    return CUDA_ERROR_INVALID_VALUE;
  *graph = node->children[0].get();
  return CUDA_SUCCESS;
}

// ---- memory ----

CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  params.alloc = *p;
  const CUresult r = add(node, graph, dependencies, nullptr, count, params);
  if (r == CUDA_SUCCESS) p->dptr = params.alloc.dptr;
  return r;
}
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  return get(CU_GRAPH_NODE_TYPE_MEM_ALLOC, node, &AllocWork::params, params);
}
CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                               size_t count, CUdeviceptr dptr) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEM_FREE);
  params.free.dptr = dptr;
  return add(node, graph, dependencies, nullptr, count, params);
}
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* dptr) {
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  WorkPtr keep;
  const FreeWork* work = nullptr;
  const CUresult r = work_of(node, CU_GRAPH_NODE_TYPE_MEM_FREE, &work, &keep);
  if (r == CUDA_SUCCESS) *dptr = work->memory->address();
  return r;
}

// ---- older symbols ----

CUresult sluice_graph_edges_v1(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return cuGraphGetEdges_v2(graph, from, to, nullptr, count);
}
CUresult sluice_node_dependencies_v1(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return cuGraphNodeGetDependencies_v2(node, nodes, nullptr, count);
}
CUresult sluice_node_dependents_v1(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return cuGraphNodeGetDependentNodes_v2(node, nodes, nullptr, count);
}
CUresult sluice_add_dependencies_v1(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                    size_t count) {
  return cuGraphAddDependencies_v2(graph, from, to, nullptr, count);
}
CUresult sluice_remove_dependencies_v1(CUgraph graph, const CUgraphNode* from,
                                       const CUgraphNode* to, size_t count) {
  return cuGraphRemoveDependencies_v2(graph, from, to, nullptr, count);
}
