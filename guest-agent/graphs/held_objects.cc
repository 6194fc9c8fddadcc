// SPDX-License-Identifier: Apache-2.0
// A graph's references on the program's objects: cuGraphRetainUserObject and
// cuGraphReleaseUserObject. The objects themselves are user_objects.h's.
#include "guest-agent/graphs/graph.h"

using namespace sluice::graphs;

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                 unsigned flags) {
  const Caller caller = enter();
  if (!caller) return caller.status;
  std::lock_guard lock(registry().mutex);
  if (!registry().live(graph) || !is_user_object(object) || !valid_reference_count(count) ||
      (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0)
    retain_user_objects({{object, count}});
  else if (!owns_references(object, count))
    return CUDA_ERROR_INVALID_VALUE;
  graph->objects[object] += count;
  return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
  const Caller caller = enter();
  if (!caller) return caller.status;
  {
    std::lock_guard lock(registry().mutex);
    if (!registry().live(graph) || !valid_reference_count(count)) return CUDA_ERROR_INVALID_VALUE;
    const auto it = graph->objects.find(object);
    if (it == graph->objects.end() || it->second < count) return CUDA_ERROR_INVALID_VALUE;
    if ((it->second -= count) == 0) graph->objects.erase(it);
  }
  release_user_objects({{object, count}});
  return CUDA_SUCCESS;
}
