// SPDX-License-Identifier: Apache-2.0
// Conditional nodes (IF, WHILE, SWITCH): bodies that run, or run again, by a value that kernels set
// while the graph runs. The value is a word on the device, its address the handle;
// cudaGraphSetConditional in a kernel stores there (device_runtime.h). Since a launch queues plain
// calls, cuGraphLaunch waits at each such node until the stream has come there, reads the word and
// queues a body or none: it returns when the last condition is decided, where CUDA returns at once.
// Rules: NVIDIA, CUDA Driver API, "Graph Management"; CUDA C++ Programming Guide, "Conditional
// Graph Nodes".
//
// A value belongs to one graph: that is not cloned, nor made a child, and has one executable at a
// time.
#pragma once

#include "guest-agent/graphs/graph.h"

namespace sluice::graphs {

// Under the lock, of a live graph and its checked edges. Bodies are empty graphs for the program to
// fill, which belong to the node; `params.phGraph_out` names them while it lives.
CUresult new_conditional(CUgraphNode* node, CUgraph graph,
                         const std::vector<CUgraphNode_st::Edge>& dependencies,
                         CUDA_CONDITIONAL_NODE_PARAMS& params);

// One thing that a launch queues; bodies only of a conditional node.
struct Step {
  WorkPtr work;
  std::vector<std::vector<Step>> bodies;
};
// What the values are when a launch begins; `first`: of this executable. In stream order.
CUresult start_conditions(const std::vector<Step>& steps, bool first, CUstream stream);
CUresult run_steps(const std::vector<Step>& steps, CUstream stream);

}  // namespace sluice::graphs
