// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/graphs/conditional.h"

#include "guest-agent/graphs/in_context.h"
#include "guest-agent/graphs/works.h"

namespace sluice::graphs {

namespace {

constexpr unsigned kMostBodies = 1u << 16;  // of a SWITCH; CUDA names no limit

// The condition of this handle, which was made for the graph or for one that it is a body in.
WorkPtr find_condition(CUgraph graph, CUgraphConditionalHandle handle) {
  for (; graph != nullptr; graph = graph->parent == nullptr ? nullptr : graph->parent->graph)
    if (const auto it = graph->handles.find(handle); it != graph->handles.end()) return it->second;
  return nullptr;
}

bool valid_size(CUgraphConditionalNodeType kind, unsigned size) {
  switch (kind) {
    case CU_GRAPH_COND_TYPE_IF:
      return size == 1 || size == 2;  // the second: else
    case CU_GRAPH_COND_TYPE_WHILE:
      return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return size != 0 && size <= kMostBodies;
  }
  return false;
}

// Waits until the stream has come here.
CUresult read_value(const ConditionalWork& c, CUstream stream, uint32_t* value) {
  if (c.value->lost()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const InContext here(c.value->context());
  if (here.status != CUDA_SUCCESS) return here.status;
  return driver().read_word(c.value->address(), stream, value);
}

CUresult run_conditional(const ConditionalWork& c, const Step& step, CUstream stream) {
  for (;;) {
    uint32_t value = 0;
    if (const CUresult r = read_value(c, stream, &value); r != CUDA_SUCCESS) return r;
    const size_t body = c.kind == CU_GRAPH_COND_TYPE_SWITCH ? value : value != 0 ? 0 : 1;
    if (body >= step.bodies.size()) return CUDA_SUCCESS;
    const CUresult r = run_steps(step.bodies[body], stream);
    if (r != CUDA_SUCCESS || c.kind != CU_GRAPH_COND_TYPE_WHILE) return r;
  }
}

}  // namespace

CUresult new_conditional(CUgraphNode* node, CUgraph graph,
                         const std::vector<CUgraphNode_st::Edge>& dependencies,
                         CUDA_CONDITIONAL_NODE_PARAMS& params) {
  const WorkPtr condition = find_condition(graph, params.handle);
  if (condition == nullptr || !valid_size(params.type, params.size))
    return CUDA_ERROR_INVALID_VALUE;
  ConditionalWork work = std::get<ConditionalWork>(*condition);
  if (params.ctx != nullptr && number(params.ctx) != work.value->context())
    return CUDA_ERROR_INVALID_VALUE;
  work.kind = params.type;
  *node = new_node(graph, std::make_shared<const Work>(std::move(work)), dependencies);
  for (unsigned i = 0; i < params.size; ++i) {
    auto body = new_graph();
    body->parent = *node;
    (*node)->bodies.push_back(body.get());
    (*node)->children.push_back(std::move(body));
  }
  params.phGraph_out = (*node)->bodies.data();
  return CUDA_SUCCESS;
}

CUresult start_conditions(const std::vector<Step>& steps, bool first, CUstream stream) {
  for (const Step& step : steps) {
    const auto* c = std::get_if<ConditionalWork>(step.work.get());
    if (c == nullptr) continue;
    if (c->value->lost()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    // Without a value to assign CUDA leaves it open what the first launch finds.
    if (c->assign || first) {
      const auto fill = fill_work({c->value->address(), 0, c->assign ? c->start : 0, 4, 1, 1},
                                  c->value->context());
      if (const CUresult r = run_work(*fill, stream); r != CUDA_SUCCESS) return r;
    }
    for (const auto& body : step.bodies)
      if (const CUresult r = start_conditions(body, first, stream); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult run_steps(const std::vector<Step>& steps, CUstream stream) {
  for (const Step& step : steps) {
    const auto* condition = std::get_if<ConditionalWork>(step.work.get());
    const CUresult r = condition != nullptr ? run_conditional(*condition, step, stream)
                                            : run_work(*step.work, stream);
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

}  // namespace sluice::graphs

using namespace sluice::graphs;

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle_out, CUgraph graph,
                                        CUcontext ctx, unsigned default_launch_value,
                                        unsigned flags) {
  const Caller e = enter_context();
  if (!e) return e.status;
  if (handle_out == nullptr || (flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  ConditionalWork work;
  work.start = default_launch_value;
  work.assign = flags != 0;
  const InContext here(ctx == nullptr ? e.context : number(ctx));
  if (here.status != CUDA_SUCCESS) return here.status;
  if (const CUresult r = GraphMemory::make(sizeof(uint32_t), &work.value); r != CUDA_SUCCESS)
    return r;
  const CUgraphConditionalHandle handle = work.value->address();
  const auto made = std::make_shared<const Work>(
      std::move(work));  // outlives the lock, also where the graph is gone
  std::lock_guard lock(registry().mutex);
  if (!registry().live(graph)) return CUDA_ERROR_INVALID_VALUE;
  graph->handles[handle] = made;
  *handle_out = handle;
  return CUDA_SUCCESS;
}
