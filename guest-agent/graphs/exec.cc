// SPDX-License-Identifier: Apache-2.0
// Executable graphs: made of a graph, changed node by node or as a whole, queued.
#include <algorithm>
#include <cstring>

#include "guest-agent/graphs/capture.h"
#include "guest-agent/graphs/conditional.h"
#include "guest-agent/graphs/in_context.h"
#include "guest-agent/graphs/works.h"

using namespace sluice::graphs;

namespace {

void index_nodes(ExecGraph& graph, CUgraphExec exec) {
  for (ExecNode& node : graph.nodes) {
    exec->nodes[node.id] = &node;
    for (ExecGraph& child : node.children) index_nodes(child, exec);
    if (const auto* alloc = std::get_if<AllocWork>(node.work.get()))
      exec->memory.push_back(alloc->memory);
    if (const auto* condition = std::get_if<ConditionalWork>(node.work.get()))
      if (std::find(exec->memory.begin(), exec->memory.end(), condition->value) ==
          exec->memory.end())
        exec->memory.push_back(condition->value);
  }
}

// With all that CUDA tells of a failure; `error_node` and `result` may be null.
CUresult instantiate(CUgraphExec* to, CUgraph graph, cuuint64_t flags, CUgraphNode* error_node,
                     CUgraphInstantiateResult* result) {
  const auto report = [&](CUgraphInstantiateResult what, CUresult r) {
    if (result != nullptr) *result = what;
    return r;
  };
  if (error_node != nullptr) *error_node = nullptr;
  const Caller e = enter_context();
  if (!e) return report(CUDA_GRAPH_INSTANTIATE_ERROR, e.status);
  // USE_NODE_PRIORITY and UPLOAD are hints; DEVICE_LAUNCH asks for what is not here.
  constexpr cuuint64_t kKnown =
      CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
      CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (to == nullptr || (flags & ~kKnown) != 0)
    return report(CUDA_GRAPH_INSTANTIATE_ERROR, CUDA_ERROR_INVALID_VALUE);
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
    return report(CUDA_GRAPH_INSTANTIATE_ERROR,
                  driver().refuse("cuGraphInstantiate", "launches of graphs from the GPU"));
  std::lock_guard lock(registry().mutex);
  if (!registry().live(graph))
    return report(CUDA_GRAPH_INSTANTIATE_ERROR, CUDA_ERROR_INVALID_VALUE);
  auto made = make_exec(*graph);
  if (!made) return report(CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, CUDA_ERROR_INVALID_VALUE);
  auto exec = std::make_unique<CUgraphExec_st>();
  exec->graph = std::move(*made);
  exec->flags = flags;
  index_nodes(exec->graph, exec.get());
  // An allocation, or a condition's value, is one address: two executables could hold it at a time.
  for (size_t i = 0; i < exec->memory.size(); ++i) {
    if (exec->memory[i]->take_for_exec()) continue;
    for (size_t j = 0; j < i; ++j) exec->memory[j]->give_back();
    if (has_conditions(*graph))
      (void)driver().refuse("cuGraphInstantiate", "two executables of a conditional node");
    return report(CUDA_GRAPH_INSTANTIATE_ERROR, CUDA_ERROR_NOT_SUPPORTED);
  }
  gather_objects(*graph, &exec->objects);
  retain_user_objects(exec->objects);
  registry().execs.insert(exec.get());
  *to = exec.release();
  return report(CUDA_GRAPH_INSTANTIATE_SUCCESS, CUDA_SUCCESS);
}

CUresult instantiate_logged(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                            size_t bytes) {
  CUgraphInstantiateResult result;
  const CUresult r = instantiate(exec, graph, 0, error_node, &result);
  if (log != nullptr && bytes != 0) {
    const char* text =
        result == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE ? "the graph has a cycle" : "";
    *std::copy_n(text, std::min(std::strlen(text), bytes - 1), log) = 0;
  }
  return r;
}

// ---- changes ----

// Whether `b` may take the place of `a`: what CUDA allows, as far as a queue of plain calls can
// tell the difference.
CUgraphExecUpdateResult change(const Work& a, const Work& b) {
  if (type_of(a) != type_of(b)) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  if (const auto* kernel = std::get_if<KernelWork>(&a)) {
    if (kernel->launch.context != std::get<KernelWork>(b).launch.context)
      return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
  } else if (const auto* copy = std::get_if<CopyWork>(&a)) {
    const auto& other = std::get<CopyWork>(b);
    if (copy->copy.srcMemoryType != other.copy.srcMemoryType ||
        copy->copy.dstMemoryType != other.copy.dstMemoryType || copy->context != other.context)
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  } else if (const auto* fill = std::get_if<FillWork>(&a)) {
    if (fill->context != std::get<FillWork>(b).context)
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  } else if (const auto* alloc = std::get_if<AllocWork>(&a)) {
    if (alloc->memory != std::get<AllocWork>(b).memory)
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  } else if (const auto* free = std::get_if<FreeWork>(&a)) {
    if (free->memory != std::get<FreeWork>(b).memory)
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  } else if (const auto* condition = std::get_if<ConditionalWork>(&a)) {
    const auto& other = std::get<ConditionalWork>(b);
    if (condition->value != other.value || condition->kind != other.kind)
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

struct Mismatch {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  cuuint64_t node = 0, from = 0;  // ids in the newer graph
};

Mismatch compare(const ExecGraph& old, const ExecGraph& now) {
  const auto ranks = [](const ExecGraph& graph) {
    std::vector<uint32_t> rank(graph.nodes.size());
    for (uint32_t i = 0; i < graph.canonical.size(); ++i) rank[graph.canonical[i]] = i;
    return rank;
  };
  if (old.nodes.size() != now.nodes.size()) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED};
  const auto old_rank = ranks(old), now_rank = ranks(now);
  for (size_t i = 0; i < old.canonical.size(); ++i) {
    const ExecNode& a = old.nodes[old.canonical[i]];
    const ExecNode& b = now.nodes[now.canonical[i]];
    if (a.dependencies.size() != b.dependencies.size())
      return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b.id};
    for (size_t k = 0; k < a.dependencies.size(); ++k)
      if (old_rank[a.dependencies[k]] != now_rank[b.dependencies[k]])
        return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b.id, now.nodes[b.dependencies[k]].id};
    if (const auto r = change(*a.work, *b.work); r != CU_GRAPH_EXEC_UPDATE_SUCCESS)
      return {r, b.id};
    if (a.children.size() != b.children.size())
      return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b.id};
    for (size_t k = 0; k < a.children.size(); ++k)
      if (const Mismatch inside = compare(a.children[k], b.children[k]);
          inside.result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return {inside.result, b.id};
  }
  return {};
}

// What compare() has found alike.
void take_works(ExecGraph& old, const ExecGraph& now) {
  for (size_t i = 0; i < old.canonical.size(); ++i) {
    ExecNode& a = old.nodes[old.canonical[i]];
    const ExecNode& b = now.nodes[now.canonical[i]];
    a.work = b.work;
    for (size_t k = 0; k < a.children.size(); ++k) take_works(a.children[k], b.children[k]);
  }
}

// The node of a live executable that was made of this live node; null: none.
ExecNode* find(CUgraphExec exec, CUgraphNode node) {
  if (!registry().live(exec) || !registry().live(node)) return nullptr;
  const auto it = exec->nodes.find(node->id);
  return it == exec->nodes.end() ? nullptr : it->second;
}

}  // namespace

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return instantiate(exec, graph, flags, nullptr, nullptr);
}
CUresult sluice_instantiate_v1(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                               size_t bytes) {
  return instantiate_logged(exec, graph, error_node, log, bytes);
}
CUresult sluice_instantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                               size_t bytes) {
  return instantiate_logged(exec, graph, error_node, log, bytes);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return instantiate(exec, graph, params->flags, &params->hErrNode_out, &params->result_out);
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t* flags) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (flags == nullptr || !registry().live(exec)) return CUDA_ERROR_INVALID_VALUE;
  // As NVIDIA's driver 580 does it: a hint is not reported.
  *flags = exec->flags & ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY};
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo* result) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (!registry().live(exec) || !registry().live(graph) || result == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  *result = {CU_GRAPH_EXEC_UPDATE_SUCCESS, nullptr, nullptr};
  const auto now = make_exec(*graph);
  if (!now) {
    result->result = CU_GRAPH_EXEC_UPDATE_ERROR;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  const Mismatch m = compare(exec->graph, *now);
  if (m.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    const auto named = [graph](cuuint64_t id) {
      return id == 0 ? nullptr : graph->nodes.at(id).get();
    };
    *result = {m.result, named(m.node), named(m.from)};
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  take_works(exec->graph, *now);
  return CUDA_SUCCESS;
}
CUresult sluice_exec_update_v1(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                               CUgraphExecUpdateResult* result) {
  CUgraphExecUpdateResultInfo info{CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  const CUresult r = cuGraphExecUpdate_v2(exec, graph, &info);
  if (error_node != nullptr) *error_node = info.errorNode;
  if (result != nullptr) *result = info.result;
  return r;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  ExecNode* const found = find(exec, node);
  if (found == nullptr || !std::holds_alternative<ChildWork>(*found->work) ||
      !registry().live(child))
    return CUDA_ERROR_INVALID_VALUE;
  const auto now = make_exec(*child);
  if (!now || compare(found->children[0], *now).result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  take_works(found->children[0], *now);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* params) {
  const Caller e = enter();
  if (!e) return e.status;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
    return cuGraphExecChildGraphNodeSetParams(exec, node, params->graph.graph);
  WorkPtr before, work;
  {
    std::lock_guard lock(registry().mutex);
    ExecNode* const found = find(exec, node);
    if (found == nullptr || type_of(*found->work) != params->type ||
        params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        params->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
      return CUDA_ERROR_INVALID_VALUE;
    before = found->work;
  }
  if (const CUresult r = make_work(*params, before.get(), &work); r != CUDA_SUCCESS) return r;
  if (change(*before, *work) != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(registry().mutex);
  ExecNode* const found = find(exec, node);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  found->work.swap(work);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  ExecNode* const found = find(exec, node);
  if (found == nullptr || type_of(*found->work) > CU_GRAPH_NODE_TYPE_MEMSET)
    return CUDA_ERROR_INVALID_VALUE;
  found->enabled = enabled != 0;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned* enabled) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  ExecNode* const found = find(exec, node);
  if (enabled == nullptr || found == nullptr || type_of(*found->work) > CU_GRAPH_NODE_TYPE_MEMSET)
    return CUDA_ERROR_INVALID_VALUE;
  *enabled = found->enabled ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  const Caller e = enter_context();
  if (!e) return e.status;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult r = refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
  std::lock_guard lock(registry().mutex);
  return registry().live(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- launches ----

namespace {

// What a launch queues, one after the other: a child's works are among their graph's.
void gather_steps(const ExecGraph& graph, std::vector<Step>* to) {
  for (const ExecNode& node : graph.nodes) {
    if (std::holds_alternative<ChildWork>(*node.work)) {
      gather_steps(node.children[0], to);
      continue;
    }
    if (!node.enabled) continue;
    to->push_back({node.work, {}});
    for (const ExecGraph& body : node.children)
      gather_steps(body, &to->back().bodies.emplace_back());
  }
}

// Behind what the stream that had the last launch has queued.
CUresult wait_for_last(CUgraphExec exec, CUstream last, CUevent order, CUstream stream) {
  if (order == nullptr) {
    if (const CUresult r = cuEventCreate(&order, CU_EVENT_DISABLE_TIMING); r != CUDA_SUCCESS)
      return r;
    std::lock_guard lock(registry().mutex);
    if (registry().live(exec)) exec->order = order;
  }
  return driver().order(last, order, stream);  // `last` may be capturing by now
}

}  // namespace

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  const Caller e = enter_context();
  if (!e) return e.status;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  // Neither does NVIDIA's driver 580 capture launches of graphs.
  if (const CUresult r = refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
  std::shared_ptr<std::mutex> launching;
  {
    std::lock_guard lock(registry().mutex);
    if (!registry().live(exec)) return CUDA_ERROR_INVALID_VALUE;
    launching = exec->launching;
  }
  // Two threads' launches queue one after the other, so that the second can wait for all of the
  // first.
  std::lock_guard one_at_a_time(*launching);
  std::vector<Step> steps;
  bool first = false;
  CUstream last = stream;
  CUevent order = nullptr;
  {
    std::lock_guard lock(registry().mutex);
    if (!registry().live(exec)) return CUDA_ERROR_INVALID_VALUE;
    // Before anything is written down: a launch that is refused is not the last one.
    const bool free_first = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    for (const auto& one : exec->memory)
      if (one->allocated() && !(free_first && one->set_allocated(false)))
        return CUDA_ERROR_INVALID_VALUE;
    gather_steps(exec->graph, &steps);
    first = !exec->launched;
    if (exec->launched && valid_stream(exec->last)) last = exec->last;
    exec->last = stream;
    exec->launched = true;
    order = exec->order;
  }
  if (last != stream)
    if (const CUresult r = wait_for_last(exec, last, order, stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = start_conditions(steps, first, stream); r != CUDA_SUCCESS) return r;
  return run_steps(steps, stream);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  std::unique_ptr<CUgraphExec_st> gone;
  {
    std::lock_guard lock(registry().mutex);
    if (registry().execs.erase(exec) == 0) return CUDA_ERROR_INVALID_VALUE;
    gone.reset(exec);
  }
  for (const auto& memory : gone->memory) memory->give_back();
  if (gone->order != nullptr) (void)cuEventDestroy(gone->order);
  if (gone->objects.empty()) return CUDA_SUCCESS;
  if (!gone->launched) {
    release_user_objects(gone->objects);
    return CUDA_SUCCESS;
  }
  // Its last launch may still use them. A stream that has been destroyed cannot be asked; its
  // context can.
  auto* objects = new UserReferences(std::move(gone->objects));
  const CUstreamCallback release = [](CUstream, CUresult, void* references) {
    const std::unique_ptr<UserReferences> mine(static_cast<UserReferences*>(references));
    release_user_objects(*mine);
  };
  if (driver().call_back(gone->last, release, objects) != CUDA_SUCCESS) {
    driver().synchronize();
    release(gone->last, CUDA_SUCCESS, objects);
  }
  return CUDA_SUCCESS;
}
