// SPDX-License-Identifier: Apache-2.0
// cuGraphDebugDotPrint: a graph as a picture's text (Graphviz). What the file holds is nobody's
// interface; CUDA's own differs between versions.
#include <cstdio>

#include "guest-agent/graphs/graph.h"
#include "guest-agent/graphs/in_context.h"

using namespace sluice::graphs;

namespace {

constexpr const char* kNames[] = {
    "kernel", "memcpy", "memset",          "host",      "graph",    "empty",        "wait",
    "record", "signal", "wait semaphores", "mem alloc", "mem free", "batch mem op", "conditional"};

void print(std::string* to, const CUgraph_st& graph) {
  char line[128];
  for (const auto& [id, node] : graph.nodes) {
    std::snprintf(line, sizeof line, "  n%llu [label=\"%s %llu\"];\n",
                  static_cast<unsigned long long>(id), kNames[type_of(*node->work)],
                  static_cast<unsigned long long>(id));
    *to += line;
    for (const auto& edge : node->dependents) {
      std::snprintf(line, sizeof line, "  n%llu -> n%llu;\n", static_cast<unsigned long long>(id),
                    static_cast<unsigned long long>(edge.node->id));
      *to += line;
    }
    for (const auto& child : node->children) {
      std::snprintf(line, sizeof line, "  subgraph cluster_%llu {\n",
                    static_cast<unsigned long long>(child->id));
      *to += line;
      print(to, *child);
      *to += "  }\n";
    }
  }
}

}  // namespace

CUresult cuGraphDebugDotPrint(CUgraph graph, const char* path, unsigned) {
  const Caller e = enter();
  if (!e) return e.status;
  std::string text = "digraph graph_of_cuda {\n";
  {
    std::lock_guard lock(registry().mutex);
    if (path == nullptr || !registry().live(graph)) return CUDA_ERROR_INVALID_VALUE;
    print(&text, *graph);
  }
  text += "}\n";
  std::FILE* file = std::fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
