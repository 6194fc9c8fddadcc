// SPDX-License-Identifier: Apache-2.0
// CUDA graphs, in the guest alone: built node by node or captured from streams (capture.h), it is
// one object. A node's work is fixed when it is made and shared by its graph, that graph's clones
// and what was instantiated of it; to change a node is to give it another work. An executable graph
// is a list of works in an order that the dependencies allow, earlier nodes first; launching it
// queues them in this order into the launch's stream, as the plain calls that the worker knows. So
// what CUDA may run at one time runs one after another, and everything else is as CUDA has it:
// parameters as the node has them, memory as it is when the node runs. Rules: NVIDIA, CUDA Driver
// API, "Graph Management"; CUDA C++ Programming Guide, "CUDA Graphs".
//
// Any thread. All graphs, nodes, executables and captures are under one lock (registry().mutex),
// which is never held while a node runs, while the session is asked or while the program's
// functions are called.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "abi/cuda_graph.h"
#include "guest-agent/graphs/driver.h"
#include "guest-agent/graphs/memory.h"
#include "guest-agent/graphs/user_objects.h"

namespace sluice::graphs {

struct KernelWork {
  KernelLaunch launch;
  CUfunction func = nullptr;  // as the program named it: one of the two
  CUkernel kern = nullptr;
  std::vector<void*> pointers;  // into launch.params
};
struct CopyWork {
  CUDA_MEMCPY3D copy;
  uint64_t context;
};
struct FillWork {
  CUDA_MEMSET_NODE_PARAMS fill;
  uint64_t context;
};
struct HostWork {
  CUDA_HOST_NODE_PARAMS host;
  uint64_t context;
};
struct EventWork {
  CUevent event;
  bool wait;
};
struct ValuesWork {
  std::vector<CUstreamBatchMemOpParams> values;
  unsigned flags;
  uint64_t context;
};
struct AllocWork {
  std::shared_ptr<GraphMemory> memory;
  CUDA_MEM_ALLOC_NODE_PARAMS params;
  std::vector<CUmemAccessDesc> access;
};
struct FreeWork {
  std::shared_ptr<GraphMemory> memory;
};
struct ChildWork {};  // the node has the graph
// The node has the graphs that may run; graph_conditional.h.
struct ConditionalWork {
  std::shared_ptr<GraphMemory> value;  // 32 bits on the device, whose address is the handle
  unsigned start = 0;
  bool assign = false;  // `start` at each launch
  CUgraphConditionalNodeType kind = CU_GRAPH_COND_TYPE_IF;
};
struct EmptyWork {};
using Work = std::variant<EmptyWork, KernelWork, CopyWork, FillWork, HostWork, EventWork,
                          ValuesWork, AllocWork, FreeWork, ChildWork, ConditionalWork>;
using WorkPtr = std::shared_ptr<const Work>;

CUgraphNodeType type_of(const Work& work);
WorkPtr kernel_work(KernelLaunch launch, CUfunction func = nullptr, CUkernel kern = nullptr);
// Queues it in `stream`, in its own context. Not for what has graphs of its own.
CUresult run_work(const Work& work, CUstream stream);

}  // namespace sluice::graphs

struct CUgraphNode_st {
  struct Edge {
    CUgraphNode node;
    CUgraphEdgeData data;
  };
  cuuint64_t id = 0;  // unique in the process, growing
  CUgraph graph = nullptr;
  cuuint64_t cloned_from = 0;
  sluice::graphs::WorkPtr work;
  std::vector<std::unique_ptr<CUgraph_st>>
      children;                 // a child node's one, a conditional node's bodies
  std::vector<CUgraph> bodies;  // a conditional node's, as the program was given them
  // A kernel's parameters as the program was given them. Programs write to them, and set them again
  // after the node has got others: they stay where they are.
  std::vector<std::byte> given_params;
  std::vector<void*> given_pointers;
  std::vector<Edge> dependencies, dependents;  // in the order in which they were added
};

struct CUgraph_st {
  cuuint64_t id = 0;
  cuuint64_t cloned_from = 0;
  CUgraphNode parent = nullptr;  // of a child graph or a body
  std::map<cuuint64_t, std::unique_ptr<CUgraphNode_st>> nodes;
  sluice::graphs::UserReferences objects;
  std::map<CUgraphConditionalHandle, sluice::graphs::WorkPtr>
      handles;            // made for it: ConditionalWork
  unsigned captures = 0;  // that add to it
  ~CUgraph_st();
};

namespace sluice::graphs {

using Edge = CUgraphNode_st::Edge;

struct ExecNode {
  cuuint64_t id = 0;  // of the node that it was made of
  WorkPtr work;
  bool enabled = true;
  std::vector<struct ExecGraph> children;  // as the node's
  std::vector<uint32_t> dependencies;      // in ExecGraph::nodes
};
struct ExecGraph {
  std::vector<ExecNode> nodes;      // in the order in which they run
  std::vector<uint32_t> canonical;  // the order in which two graphs are compared
};

}  // namespace sluice::graphs

struct CUgraphExec_st {
  sluice::graphs::ExecGraph graph;
  cuuint64_t flags = 0;
  sluice::graphs::UserReferences objects;
  std::unordered_map<cuuint64_t, sluice::graphs::ExecNode*> nodes;  // its children's, too
  std::vector<std::shared_ptr<sluice::graphs::GraphMemory>> memory;
  // One launch of it runs at a time: one in another stream waits for the one before.
  std::shared_ptr<std::mutex> launching = std::make_shared<std::mutex>();
  CUstream last = nullptr;
  bool launched = false;
  CUevent order = nullptr;
};

namespace sluice::graphs {

// Hears, under the lock, of nodes and graphs that end. The captures are one (capture.cc).
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void ends(CUgraphNode node) = 0;
  virtual void ends(CUgraph graph) = 0;
};

struct Registry {
  std::mutex mutex;
  cuuint64_t next_id = 1;
  std::unordered_set<CUgraph> graphs;  // all that programs may name, children too
  std::unordered_set<CUgraphNode> nodes;
  std::unordered_set<CUgraphExec> execs;
  Watcher* watcher = nullptr;

  bool live(CUgraph graph) const { return graphs.count(graph) != 0; }
  bool live(CUgraphNode node) const { return nodes.count(node) != 0; }
  bool live(CUgraphExec exec) const { return execs.count(exec) != 0; }
};
Registry& registry();

// Under the lock, with live arguments:
std::unique_ptr<CUgraph_st> new_graph();
CUgraphNode new_node(CUgraph graph, WorkPtr work,
                     const std::vector<CUgraphNode_st::Edge>& dependencies);
// A copy with everything in it, children too; its nodes know what they were copied from.
std::unique_ptr<CUgraph_st> clone_graph(const CUgraph_st& from);
bool is_plain(const CUgraphEdgeData& data);
// Checked edges from a program's arrays (`data` may be null): INVALID_VALUE for what is not of this
// graph or stands there twice.
CUresult read_dependencies(CUgraph graph, const CUgraphNode* from, const CUgraphEdgeData* data,
                           size_t count, std::vector<CUgraphNode_st::Edge>* to);
// Nothing: it has a cycle.
std::optional<ExecGraph> make_exec(const CUgraph_st& graph);
// A child node, with its own copy.
CUgraphNode new_child(CUgraph graph, std::unique_ptr<CUgraph_st> child,
                      const std::vector<CUgraphNode_st::Edge>& dependencies);
bool has_memory(const CUgraph_st& graph);
bool has_conditions(const CUgraph_st& graph);
// References of a graph and its children, to be released when it is gone.
void gather_objects(const CUgraph_st& graph, UserReferences* to);
// The same of works: memory among them is freed without the lock.
void gather_works(const CUgraph_st& graph, std::vector<WorkPtr>* to);

}  // namespace sluice::graphs
