#include "guest-agent/shim/capture.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "abi/cuda_graph.h"
#include "guest-agent/shim/api.h"

struct CUgraphNode_st {
  sluice::guest::NodeKind kind;
  sluice::guest::NodeRun run;
};
// Nodes are shared by a graph and what was instantiated of it: they never change.
struct CUgraph_st {
  std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
};
struct CUgraphExec_st {
  std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
  // One launch of it runs at a time: one in another stream waits for the one before.
  CUstream last = nullptr;
  bool launched = false;
  CUevent order = nullptr;
};

namespace sluice::guest {

namespace {

// How many of each stream's captured operations are before a point: what joins forks again.
using Clock = std::map<CUstream, uint64_t>;

struct Capture {
  cuuint64_t id = 0;
  CUstream origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id owner;
  uint64_t context = 0;
  bool spoilt = false;
  std::map<CUstream, Clock> streams;  // those that take part
  std::map<CUevent, Clock> events;
  CUgraph_st graph;
};

struct Captures {
  std::mutex mutex;
  std::vector<std::shared_ptr<Capture>> under_way;
  cuuint64_t next_id = 1;
  std::set<CUgraph> graphs;
  std::set<CUgraphExec> execs;
};
Captures& all() {
  static auto* it = new Captures;
  return *it;
}
std::atomic<uint32_t> g_under_way{0};

Capture* of_stream(Captures& c, CUstream stream) {
  for (const auto& one : c.under_way)
    if (one->streams.count(stream)) return one.get();
  return nullptr;
}
Capture* of_event(Captures& c, CUevent event) {
  for (const auto& one : c.under_way)
    if (one->events.count(event)) return one.get();
  return nullptr;
}
// CUDA's NULL stream would wait for every blocking stream, also one that captures.
bool is_legacy(CUstream stream) { return wire(stream) <= 1; }
Capture* with_blocking_stream(Captures& c) {
  for (const auto& one : c.under_way) {
    for (const auto& [stream, clock] : one->streams) {
      const StreamInfo* info = state().streams.find(wire(stream));
      if (info == nullptr || (info->flags & CU_STREAM_NON_BLOCKING) == 0) return one.get();
    }
  }
  return nullptr;
}
CUresult spoil(Capture& capture, CUresult why) {
  capture.spoilt = true;
  return why;
}
template <class Which>
void drop(Which which) {
  if (!capturing()) return;
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  const auto n = std::erase_if(c.under_way, [&](const auto& one) { return which(*one); });
  g_under_way.fetch_sub(static_cast<uint32_t>(n), std::memory_order_relaxed);
}
// What a call on a stream that does not capture means for those that do: nullopt, nothing.
std::optional<CUresult> beside_captures(Captures& c, CUstream stream) {
  Capture* other = is_legacy(stream) ? with_blocking_stream(c) : nullptr;
  if (other == nullptr) return std::nullopt;
  return spoil(*other, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}
void merge(Clock& into, const Clock& from) {
  for (const auto& [stream, n] : from) into[stream] = std::max(into[stream], n);
}

}  // namespace

bool capturing() { return g_under_way.load(std::memory_order_relaxed) != 0; }

std::optional<CUresult> capture_node(CUstream stream, NodeKind kind, NodeRun run) {
  if (!capturing()) return std::nullopt;
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  Capture* capture = of_stream(c, stream);
  if (capture == nullptr) return beside_captures(c, stream);
  if (capture->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  capture->graph.nodes.push_back(std::make_shared<CUgraphNode_st>(kind, std::move(run)));
  ++capture->streams[stream][stream];
  return CUDA_SUCCESS;
}

std::optional<CUresult> capture_record(CUstream stream, CUevent event, unsigned flags) {
  if (!capturing()) return std::nullopt;
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  Capture* capture = of_stream(c, stream);
  Capture* before = of_event(c, event);
  if (capture == nullptr) {
    if (before != nullptr) before->events.erase(event);
    return beside_captures(c, stream);
  }
  if (capture->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  // An external record would be a node that records when the graph runs.
  if (flags != 0) return spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (before != nullptr && before != capture) before->events.erase(event);
  capture->events[event] = capture->streams[stream];
  return CUDA_SUCCESS;
}

std::optional<CUresult> capture_wait(CUstream stream, CUevent event, unsigned flags) {
  if (!capturing()) return std::nullopt;
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  Capture* capture = of_stream(c, stream);
  Capture* from = of_event(c, event);
  if (capture == nullptr && from == nullptr) return std::nullopt;
  if ((capture != nullptr && capture->spoilt) || (from != nullptr && from->spoilt))
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (flags != 0 && capture != nullptr) return spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (from == nullptr) return spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  if (capture != nullptr && capture != from) {
    from->spoilt = true;
    return spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (capture == nullptr && is_legacy(stream)) return spoil(*from, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  merge(from->streams[stream], from->events[event]);  // a fork takes part from here on
  return CUDA_SUCCESS;
}

CUresult refuse_in_capture(CUstream stream) {
  if (!capturing()) return CUDA_SUCCESS;
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  Capture* capture = of_stream(c, stream);
  if (capture == nullptr && is_legacy(stream)) {
    capture = with_blocking_stream(c);
    if (capture != nullptr) return spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  return capture == nullptr ? CUDA_SUCCESS : spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult refuse_for_event(CUevent event) {
  if (!capturing()) return CUDA_SUCCESS;
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  Capture* capture = of_event(c, event);
  return capture == nullptr ? CUDA_SUCCESS : spoil(*capture, CUDA_ERROR_CAPTURED_EVENT);
}

CUresult refuse_for_context(uint64_t context) {
  if (!capturing()) return CUDA_SUCCESS;
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  CUresult r = CUDA_SUCCESS;
  for (const auto& one : c.under_way)
    if (one->context == context) r = spoil(*one, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return r;
}

void end_captures_of_stream(CUstream stream) {
  drop([stream](const Capture& one) { return one.origin == stream; });
}
void end_captures_of_context(uint64_t context) {
  drop([context](const Capture& one) { return one.context == context; });
}

CUstreamCaptureStatus capture_status(CUstream stream, cuuint64_t* id) {
  *id = 0;
  if (!capturing()) return CU_STREAM_CAPTURE_STATUS_NONE;
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  const Capture* capture = of_stream(c, stream);
  if (capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  *id = capture->id;
  return capture->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace sluice::guest

using namespace sluice::guest;

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (is_legacy(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  if (Capture* before = of_stream(c, stream)) return spoil(*before, CUDA_ERROR_ILLEGAL_STATE);
  auto capture = std::make_shared<Capture>();
  capture->id = c.next_id++;
  capture->origin = stream;
  capture->mode = mode;
  capture->owner = std::this_thread::get_id();
  const StreamInfo* info = state().streams.find(wire(stream));
  capture->context = info != nullptr ? info->context : e.context;
  capture->streams[stream];
  c.under_way.push_back(std::move(capture));
  g_under_way.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  const auto it = std::find_if(c.under_way.begin(), c.under_way.end(),
                               [&](const auto& one) { return one->streams.count(stream) != 0; });
  if (it == c.under_way.end()) return CUDA_ERROR_ILLEGAL_STATE;
  const std::shared_ptr<Capture> capture = *it;
  if (capture->origin != stream) return spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->owner != std::this_thread::get_id())
    return spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  c.under_way.erase(it);
  g_under_way.fetch_sub(1, std::memory_order_relaxed);
  if (capture->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Clock& joined = capture->streams[stream];
  for (auto& [forked, clock] : capture->streams)
    if (joined[forked] < clock[forked]) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = new CUgraph_st(std::move(capture->graph));
  c.graphs.insert(*graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  if (c.graphs.erase(graph) == 0) return CUDA_ERROR_INVALID_VALUE;
  delete graph;
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* num_nodes) {
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  if (c.graphs.count(graph) == 0 || num_nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& has = graph->nodes;
  if (nodes != nullptr) {
    // Room beyond the nodes is filled with null, as CUDA does it.
    for (size_t i = 0; i < *num_nodes; ++i) nodes[i] = i < has.size() ? has[i].get() : nullptr;
    *num_nodes = std::min(*num_nodes, has.size());
  } else {
    *num_nodes = has.size();
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  // AUTO_FREE_ON_LAUNCH is about allocations in graphs, USE_NODE_PRIORITY and UPLOAD are hints;
  // DEVICE_LAUNCH (4) asks for what is not here.
  constexpr unsigned long long kDeviceLaunch = 4, kKnown = 1 | 2 | kDeviceLaunch | 8;
  if (exec == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & kDeviceLaunch) != 0)
    return static_cast<CUresult>(not_supported("cuGraphInstantiate", "launches of graphs from the GPU"));
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  if (c.graphs.count(graph) == 0) return CUDA_ERROR_INVALID_VALUE;
  *exec = new CUgraphExec_st{.nodes = graph->nodes};
  c.execs.insert(*exec);
  return CUDA_SUCCESS;
}

// The same kinds of nodes in the same order can take the others' place.
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* result) {
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  if (c.execs.count(exec) == 0 || c.graphs.count(graph) == 0 || result == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  *result = {CU_GRAPH_EXEC_UPDATE_SUCCESS, nullptr, nullptr};
  if (!std::equal(exec->nodes.begin(), exec->nodes.end(), graph->nodes.begin(), graph->nodes.end(),
                  [](const auto& a, const auto& b) { return a->kind == b->kind; })) {
    result->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  exec->nodes = graph->nodes;
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  Captures& c = all();
  std::lock_guard lock(c.mutex);
  return c.execs.count(exec) == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
  CUstream before = stream;
  CUevent order = nullptr;
  {
    Captures& c = all();
    std::lock_guard lock(c.mutex);
    if (c.execs.count(exec) == 0) return CUDA_ERROR_INVALID_VALUE;
    nodes = exec->nodes;
    if (of_stream(c, stream) == nullptr) {
      if (exec->launched && valid_stream(exec->last)) before = exec->last;
      exec->last = stream;
      exec->launched = true;
      order = exec->order;
    }
  }
  if (before != stream) {
    if (order == nullptr) {
      if (const CUresult r = cuEventCreate(&order, CU_EVENT_DISABLE_TIMING); r != CUDA_SUCCESS) return r;
      Captures& c = all();
      std::lock_guard lock(c.mutex);
      if (c.execs.count(exec) != 0) exec->order = order;
    }
    CUresult r = cuEventRecord(order, before);
    if (r == CUDA_SUCCESS) r = cuStreamWaitEvent(stream, order, 0);
    if (r != CUDA_SUCCESS) return r;
  }
  // In a stream that captures they become nodes of that capture.
  for (const auto& node : nodes)
    if (const CUresult r = node->run(stream); r != CUDA_SUCCESS) return r;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  CUevent order = nullptr;
  {
    Captures& c = all();
    std::lock_guard lock(c.mutex);
    if (c.execs.erase(exec) == 0) return CUDA_ERROR_INVALID_VALUE;
    order = exec->order;
    delete exec;
  }
  if (order != nullptr) (void)cuEventDestroy(order);
  return CUDA_SUCCESS;
}
