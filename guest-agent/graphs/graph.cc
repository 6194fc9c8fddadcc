// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/graphs/graph.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>
#include <set>

CUgraph_st::~CUgraph_st() {
  for (const auto& item : nodes) sluice::graphs::registry().nodes.erase(item.second.get());
  sluice::graphs::registry().graphs.erase(this);
  auto* watcher = sluice::graphs::registry().watcher;
  if (watcher != nullptr) watcher->ends(this);
}

namespace sluice::graphs {

Registry& registry() {
  static auto* it = new Registry;
  return *it;
}

std::unique_ptr<CUgraph_st> new_graph() {
  auto graph = std::make_unique<CUgraph_st>();
  graph->id = registry().next_id++;
  registry().graphs.insert(graph.get());
  return graph;
}

CUgraphNode new_node(CUgraph graph, WorkPtr work, const std::vector<Edge>& dependencies) {
  auto made = std::make_unique<CUgraphNode_st>();
  const CUgraphNode node = made.get();
  node->id = registry().next_id++;
  node->graph = graph;
  node->work = std::move(work);
  node->dependencies = dependencies;
  for (const Edge& edge : dependencies) edge.node->dependents.push_back({node, edge.data});
  graph->nodes[node->id] = std::move(made);
  registry().nodes.insert(node);
  return node;
}

CUgraphNode new_child(CUgraph graph, std::unique_ptr<CUgraph_st> child,
                      const std::vector<Edge>& dependencies) {
  static const auto work = std::make_shared<const Work>(ChildWork{});
  const CUgraphNode node = new_node(graph, work, dependencies);
  child->parent = node;
  node->children.push_back(std::move(child));
  return node;
}

std::unique_ptr<CUgraph_st> clone_graph(const CUgraph_st& from) {
  auto clone = new_graph();
  clone->cloned_from = from.id;
  std::unordered_map<CUgraphNode, CUgraphNode> copies;
  for (const auto& [id, node] : from.nodes) {
    const CUgraphNode copy = !node->children.empty()
                                 ? new_child(clone.get(), clone_graph(*node->children[0]), {})
                                 : new_node(clone.get(), node->work, {});
    copy->cloned_from = id;
    copies[node.get()] = copy;
  }
  for (const auto& [id, node] : from.nodes) {
    const CUgraphNode copy = copies[node.get()];
    for (const Edge& edge : node->dependencies)
      copy->dependencies.push_back({copies[edge.node], edge.data});
    for (const Edge& edge : node->dependents)
      copy->dependents.push_back({copies[edge.node], edge.data});
  }
  clone->objects = from.objects;
  retain_user_objects(clone->objects);
  return clone;
}

bool is_plain(const CUgraphEdgeData& data) {
  constexpr CUgraphEdgeData kPlain{};
  return std::memcmp(&data, &kPlain, sizeof kPlain) == 0;
}

CUresult read_dependencies(CUgraph graph, const CUgraphNode* from, const CUgraphEdgeData* data,
                           size_t count, std::vector<Edge>* to) {
  if (count != 0 && from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::unordered_set<CUgraphNode> seen;
  for (size_t i = 0; i < count; ++i) {
    if (!registry().live(from[i]) || from[i]->graph != graph || !seen.insert(from[i]).second)
      return CUDA_ERROR_INVALID_VALUE;
    Edge edge{from[i], {}};
    if (data != nullptr) edge.data = data[i];
    // Programmatic order is for kernels; here it is full order.
    constexpr CUgraphEdgeData kPlain{};
    if (!is_plain(edge.data) &&
        (!std::holds_alternative<KernelWork>(*from[i]->work) || edge.data.to_port != 0 ||
         edge.data.type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC || edge.data.from_port > 2 ||
         std::memcmp(edge.data.reserved, kPlain.reserved, sizeof kPlain.reserved) != 0))
      return CUDA_ERROR_INVALID_VALUE;
    to->push_back(edge);
  }
  return CUDA_SUCCESS;
}

bool has_memory(const CUgraph_st& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& item) {
    const CUgraphNode_st& node = *item.second;
    return std::holds_alternative<AllocWork>(*node.work) ||
           std::holds_alternative<FreeWork>(*node.work) ||
           std::any_of(node.children.begin(), node.children.end(),
                       [](const auto& child) { return has_memory(*child); });
  });
}

bool has_conditions(const CUgraph_st& graph) {
  return !graph.handles.empty() ||
         std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& item) {
           const auto& children = item.second->children;
           return std::any_of(children.begin(), children.end(),
                              [](const auto& child) { return has_conditions(*child); });
         });
}

void gather_objects(const CUgraph_st& graph, UserReferences* to) {
  for (const auto& [object, count] : graph.objects) (*to)[object] += count;
  for (const auto& [id, node] : graph.nodes)
    for (const auto& child : node->children) gather_objects(*child, to);
}

void gather_works(const CUgraph_st& graph, std::vector<WorkPtr>* to) {
  for (const auto& [handle, condition] : graph.handles) to->push_back(condition);
  for (const auto& [id, node] : graph.nodes) {
    to->push_back(node->work);
    for (const auto& child : node->children) gather_works(*child, to);
  }
}

namespace {

// Each node behind what it depends on, as in a walk from the last nodes: two graphs whose edges
// were added in the same order give the same, whatever the order in which their nodes were made.
std::vector<CUgraphNode> canonical_order(const CUgraph_st& graph) {
  std::vector<CUgraphNode> order;
  std::unordered_set<CUgraphNode> seen;
  std::vector<std::pair<CUgraphNode, size_t>> walk;  // with the next dependency to visit
  for (const auto& [id, last] : graph.nodes) {
    if (!last->dependents.empty()) continue;
    walk.emplace_back(last.get(), 0);
    seen.insert(last.get());
    while (!walk.empty()) {
      auto& [node, next] = walk.back();
      if (next < node->dependencies.size()) {
        const CUgraphNode before = node->dependencies[next++].node;
        if (seen.insert(before).second) walk.emplace_back(before, 0);
      } else {
        order.push_back(node);
        walk.pop_back();
      }
    }
  }
  return order;
}

}  // namespace

// The order in which they run: of the nodes that may, the one that was made first. What was
// captured so runs in the order of the capture.
std::optional<ExecGraph> make_exec(const CUgraph_st& graph) {
  ExecGraph exec;
  std::unordered_map<CUgraphNode, size_t> missing;
  std::unordered_map<CUgraphNode, uint32_t> position;
  std::priority_queue<cuuint64_t, std::vector<cuuint64_t>, std::greater<>> ready;
  for (const auto& [id, node] : graph.nodes) {
    missing[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) ready.push(id);
  }
  exec.nodes.reserve(graph.nodes.size());
  while (!ready.empty()) {
    const CUgraphNode node = graph.nodes.at(ready.top()).get();
    ready.pop();
    ExecNode made;
    made.id = node->id;
    made.work = node->work;
    for (const Edge& edge : node->dependencies) made.dependencies.push_back(position[edge.node]);
    for (const auto& child : node->children) {
      auto inside = make_exec(*child);
      if (!inside) return std::nullopt;
      made.children.push_back(std::move(*inside));
    }
    position[node] = static_cast<uint32_t>(exec.nodes.size());
    exec.nodes.push_back(std::move(made));
    for (const Edge& edge : node->dependents)
      if (--missing[edge.node] == 0) ready.push(edge.node->id);
  }
  if (exec.nodes.size() != graph.nodes.size()) return std::nullopt;
  for (const CUgraphNode node : canonical_order(graph)) exec.canonical.push_back(position[node]);
  return exec;
}

}  // namespace sluice::graphs

using namespace sluice::graphs;

CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
  const Caller e = enter();
  if (!e) return e.status;
  if (graph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(registry().mutex);
  *graph = new_graph().release();
  return CUDA_SUCCESS;
}

// Also when the driver's session has ended: the program's objects have to be released.
CUresult cuGraphDestroy(CUgraph graph) {
  const Caller e = enter();
  if (!e.initialised) return e.status;
  UserReferences objects;
  std::vector<WorkPtr> works;
  {
    std::lock_guard lock(registry().mutex);
    if (!registry().live(graph) || graph->parent != nullptr || graph->captures != 0)
      return CUDA_ERROR_INVALID_VALUE;
    gather_objects(*graph, &objects);
    gather_works(*graph, &works);
    delete graph;
  }
  release_user_objects(objects);
  return e.status;
}

CUresult cuGraphClone(CUgraph* clone, CUgraph original) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (clone == nullptr || !registry().live(original)) return CUDA_ERROR_INVALID_VALUE;
  if (has_memory(*original) || has_conditions(*original)) return CUDA_ERROR_NOT_SUPPORTED;
  *clone = clone_graph(*original).release();
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* found, CUgraphNode original, CUgraph clone) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (found == nullptr || !registry().live(original) || !registry().live(clone))
    return CUDA_ERROR_INVALID_VALUE;
  if (clone->cloned_from != original->graph->id) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& [id, node] : clone->nodes) {
    if (node->cloned_from != original->id) continue;
    *found = node.get();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;  // added since, or taken out of the clone
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (type == nullptr || !registry().live(node)) return CUDA_ERROR_INVALID_VALUE;
  *type = type_of(*node->work);
  return CUDA_SUCCESS;
}

namespace {

// Room beyond what there is is filled with null, as CUDA does it; without an array only the number
// is given.
CUresult give_nodes(const std::vector<CUgraphNode>& has, CUgraphNode* nodes, size_t* count) {
  if (nodes != nullptr) {
    for (size_t i = 0; i < *count; ++i) nodes[i] = i < has.size() ? has[i] : nullptr;
    *count = std::min(*count, has.size());
  } else {
    *count = has.size();
  }
  return CUDA_SUCCESS;
}

// A caller that gets no edge data must not take edges for plain ones.
CUresult give_edges(const std::vector<Edge>& edges, CUgraphNode* nodes, CUgraphEdgeData* data,
                    size_t* count) {
  if (data != nullptr && nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodes != nullptr && data == nullptr &&
      !std::all_of(edges.begin(), edges.end(),
                   [](const Edge& edge) { return is_plain(edge.data); }))
    return CUDA_ERROR_LOSSY_QUERY;
  std::vector<CUgraphNode> only;
  for (const Edge& edge : edges) only.push_back(edge.node);
  if (data != nullptr)
    for (size_t i = 0; i < *count; ++i)
      data[i] = i < edges.size() ? edges[i].data : CUgraphEdgeData{};
  return give_nodes(only, nodes, count);
}

}  // namespace

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (!registry().live(graph) || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> has;
  for (const auto& [id, node] : graph->nodes) has.push_back(node.get());
  return give_nodes(has, nodes, count);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (!registry().live(graph) || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> has;
  for (const auto& [id, node] : graph->nodes)
    if (node->dependencies.empty()) has.push_back(node.get());
  return give_nodes(has, nodes, count);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* data, size_t* count) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (!registry().live(graph) || count == nullptr || (from == nullptr) != (to == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<Edge> edges;
  std::vector<CUgraphNode> ends;
  for (const auto& [id, node] : graph->nodes) {
    for (const Edge& edge : node->dependents) {
      edges.push_back({node.get(), edge.data});
      ends.push_back(edge.node);
    }
  }
  size_t room = *count;
  if (const CUresult r = give_edges(edges, from, data, count); r != CUDA_SUCCESS) return r;
  return to == nullptr ? CUDA_SUCCESS : give_nodes(ends, to, &room);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data,
                                       size_t* count) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (!registry().live(node) || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return give_edges(node->dependencies, nodes, data, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes,
                                         CUgraphEdgeData* data, size_t* count) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (!registry().live(node) || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return give_edges(node->dependents, nodes, data, count);
}

namespace {

auto find_edge(std::vector<Edge>& edges, CUgraphNode node) {
  return std::find_if(edges.begin(), edges.end(),
                      [node](const Edge& edge) { return edge.node == node; });
}

// All of them or none: `from`, `to` and data are of one graph, no node before itself, no edge named
// twice.
CUresult check_edges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                     const CUgraphEdgeData* data, size_t count, bool there) {
  if (!registry().live(graph) || (count != 0 && (from == nullptr || to == nullptr)))
    return CUDA_ERROR_INVALID_VALUE;
  std::set<std::pair<CUgraphNode, CUgraphNode>> seen;
  for (size_t i = 0; i < count; ++i) {
    std::vector<Edge> edge;
    const CUresult r =
        read_dependencies(graph, from + i, data == nullptr ? nullptr : data + i, 1, &edge);
    if (r != CUDA_SUCCESS) return r;
    if (!registry().live(to[i]) || to[i]->graph != graph || from[i] == to[i] ||
        !seen.emplace(from[i], to[i]).second)
      return CUDA_ERROR_INVALID_VALUE;
    if ((find_edge(to[i]->dependencies, from[i]) != to[i]->dependencies.end()) != there)
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

void remove_edge(CUgraphNode from, CUgraphNode to) {
  to->dependencies.erase(find_edge(to->dependencies, from));
  from->dependents.erase(find_edge(from->dependents, to));
}

}  // namespace

// A cycle is refused when the graph is instantiated.
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, size_t count) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (const CUresult r = check_edges(graph, from, to, data, count, false); r != CUDA_SUCCESS)
    return r;
  for (size_t i = 0; i < count; ++i) {
    const CUgraphEdgeData plain{};
    to[i]->dependencies.push_back({from[i], data == nullptr ? plain : data[i]});
    from[i]->dependents.push_back({to[i], data == nullptr ? plain : data[i]});
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* data, size_t count) {
  const Caller e = enter();
  if (!e) return e.status;
  std::lock_guard lock(registry().mutex);
  if (const CUresult r = check_edges(graph, from, to, data, count, true); r != CUDA_SUCCESS)
    return r;
  if (count != 0 && has_memory(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  for (size_t i = 0; i < count; ++i) remove_edge(from[i], to[i]);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode node) {
  const Caller e = enter();
  if (!e) return e.status;
  UserReferences objects;
  std::vector<WorkPtr> works;
  std::unique_ptr<CUgraphNode_st> gone;
  {
    std::lock_guard lock(registry().mutex);
    if (!registry().live(node)) return CUDA_ERROR_INVALID_VALUE;
    if (has_memory(*node->graph)) return CUDA_ERROR_NOT_SUPPORTED;
    while (!node->dependencies.empty()) remove_edge(node->dependencies.back().node, node);
    while (!node->dependents.empty()) remove_edge(node, node->dependents.back().node);
    if (registry().watcher != nullptr) registry().watcher->ends(node);
    registry().nodes.erase(node);
    for (const auto& child : node->children)
      gather_objects(*child, &objects), gather_works(*child, &works);
    const auto it = node->graph->nodes.find(node->id);
    gone = std::move(it->second);
    node->graph->nodes.erase(it);
    gone->children.clear();  // they are in the lists
  }
  release_user_objects(objects);
  return CUDA_SUCCESS;
}
