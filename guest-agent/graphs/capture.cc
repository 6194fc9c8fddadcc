// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/graphs/capture.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace sluice::graphs {

namespace {

// What the next node of a stream comes behind, and what an event stands for.
using Edges = std::vector<Edge>;

constexpr unsigned char kProgrammaticPort = 1;  // CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC

struct Capture {
  cuuint64_t id = 0;
  CUstream origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id owner;
  uint64_t context = 0;
  bool invalidated = false;
  std::map<CUstream, Edges> streams;  // those that take part
  std::map<CUevent, Edges> events;
  CUgraph graph = nullptr;
  std::unique_ptr<CUgraph_st> own;  // nothing: it captures to a graph of the program's
  // What cuStreamGetCaptureInfo last gave pointers to.
  std::vector<CUgraphNode> reported_nodes;
  std::vector<CUgraphEdgeData> reported_edges;
};

// Under the graphs' lock.
std::vector<std::unique_ptr<Capture>>& captures() {
  static auto* it = new std::vector<std::unique_ptr<Capture>>;
  return *it;
}
std::atomic<uint32_t> g_under_way{0};

Capture* of_stream(CUstream stream) {
  for (const auto& one : captures())
    if (one->streams.count(stream)) return one.get();
  return nullptr;
}
Capture* of_event(CUevent event) {
  for (const auto& one : captures())
    if (one->events.count(event)) return one.get();
  return nullptr;
}
// CUDA's NULL stream would wait for every blocking stream, also one that captures.
bool is_legacy(CUstream stream) { return number(stream) <= 1; }
Capture* with_blocking_stream() {
  for (const auto& one : captures()) {
    for (const auto& [stream, edges] : one->streams) {
      const StreamFacts facts = driver().stream(stream);
      if (!facts.live || facts.blocking) return one.get();
    }
  }
  return nullptr;
}
CUresult invalidate(Capture& capture, CUresult why) {
  capture.invalidated = true;
  return why;
}
// What a call on a stream that does not capture means for those that do: nullopt, nothing.
std::optional<CUresult> beside_captures(CUstream stream) {
  Capture* other = is_legacy(stream) ? with_blocking_stream() : nullptr;
  if (other == nullptr) return std::nullopt;
  return invalidate(*other, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}
bool has(const Edges& edges, CUgraphNode node) {
  return std::any_of(edges.begin(), edges.end(),
                     [node](const Edge& edge) { return edge.node == node; });
}
void merge(Edges& into, const Edges& from) {
  for (const Edge& edge : from)
    if (!has(into, edge.node)) into.push_back(edge);
}

// A capture is over: what it captured to is the caller's.
std::unique_ptr<CUgraph_st> finish(std::vector<std::unique_ptr<Capture>>::iterator it) {
  const std::unique_ptr<Capture> capture = std::move(*it);
  captures().erase(it);
  g_under_way.fetch_sub(1, std::memory_order_relaxed);
  if (capture->graph != nullptr) --capture->graph->captures;
  return std::move(capture->own);
}
template <class Which>
void drop(Which which) {
  if (!capturing()) return;
  std::vector<WorkPtr> works;
  UserReferences objects;
  {
    std::lock_guard lock(registry().mutex);
    auto& all = captures();
    for (size_t i = all.size(); i-- > 0;) {
      if (!which(*all[i])) continue;
      const auto graph = finish(all.begin() + static_cast<ptrdiff_t>(i));
      if (graph == nullptr) continue;
      gather_objects(*graph, &objects);
      gather_works(*graph, &works);
    }
  }
  release_user_objects(objects);
}

// Whether everything that forks have captured comes before what the origin has now.
bool joined(const Capture& capture) {
  std::unordered_set<CUgraphNode> before;
  std::vector<CUgraphNode> walk;
  for (const Edge& edge : capture.streams.at(capture.origin)) walk.push_back(edge.node);
  while (!walk.empty()) {
    const CUgraphNode node = walk.back();
    walk.pop_back();
    if (!before.insert(node).second) continue;
    for (const Edge& edge : node->dependencies) walk.push_back(edge.node);
  }
  for (const auto& [stream, edges] : capture.streams)
    for (const Edge& edge : edges)
      if (before.count(edge.node) == 0) return false;
  return true;
}

// A kernel that may begin before the one before it has ended (CUDA C++ Programming Guide,
// "Programmatic Dependent Launch and Synchronization", its table of edges). Nothing runs otherwise.
void make_programmatic(const Work& work, Edges& behind) {
  const auto* const kernel = std::get_if<KernelWork>(&work);
  if (kernel == nullptr) return;
  const auto allows = [](const CUlaunchAttribute& a) {
    return a.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
           a.value.programmaticStreamSerializationAllowed != 0;
  };
  const auto& attributes = kernel->launch.attributes;
  if (std::none_of(attributes.begin(), attributes.end(), allows)) return;
  for (Edge& edge : behind) {
    if (!std::holds_alternative<KernelWork>(*edge.node->work)) continue;
    edge.data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    edge.data.from_port = kProgrammaticPort;
  }
}

}  // namespace

bool capturing() { return g_under_way.load(std::memory_order_relaxed) != 0; }

std::optional<CUresult> capture_status_for_work(CUstream stream) {
  std::lock_guard lock(registry().mutex);
  const Capture* capture = of_stream(stream);
  if (capture == nullptr) return beside_captures(stream);
  return capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

std::optional<CUresult> capture_work(CUstream stream, const WorkPtr& work) {
  if (work == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(registry().mutex);
  Capture* capture = of_stream(stream);
  if (capture == nullptr) return beside_captures(stream);
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Edges& edges = capture->streams[stream];
  make_programmatic(*work, edges);
  const CUgraphNode node = new_node(capture->graph, work, edges);
  edges.assign(1, {node, {}});
  return CUDA_SUCCESS;
}

std::optional<CUresult> capture_record(CUstream stream, CUevent event, unsigned flags) {
  if (!capturing()) return std::nullopt;
  if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  // An external record is a node: it records when the graph runs.
  if (flags != 0) return capture_node(stream, [event] { return event_work(event, false); });
  std::lock_guard lock(registry().mutex);
  Capture* capture = of_stream(stream);
  Capture* before = of_event(event);
  if (capture == nullptr) {
    if (before != nullptr) before->events.erase(event);
    return beside_captures(stream);
  }
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (before != nullptr && before != capture) before->events.erase(event);
  capture->events[event] = capture->streams[stream];
  return CUDA_SUCCESS;
}

std::optional<CUresult> capture_wait(CUstream stream, CUevent event, unsigned flags) {
  if (!capturing()) return std::nullopt;
  if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != 0) return capture_node(stream, [event] { return event_work(event, true); });
  std::lock_guard lock(registry().mutex);
  Capture* capture = of_stream(stream);
  Capture* from = of_event(event);
  if (capture == nullptr && from == nullptr) return std::nullopt;
  if ((capture != nullptr && capture->invalidated) || (from != nullptr && from->invalidated))
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (from == nullptr) return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  if (capture != nullptr && capture != from) {
    from->invalidated = true;
    return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (capture == nullptr && is_legacy(stream))
    return invalidate(*from, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  merge(from->streams[stream], from->events[event]);  // a fork takes part from here on
  return CUDA_SUCCESS;
}

namespace {

void forget(CUgraph graph) {
  for (const auto& one : captures()) {
    if (one->graph != graph) continue;
    one->graph = nullptr;
    one->invalidated = true;
    for (auto& [stream, edges] : one->streams) edges.clear();
    one->events.clear();
  }
}

void forget(CUgraphNode node) {
  const auto without = [node](auto& sets) {
    for (auto& [key, edges] : sets)
      std::erase_if(edges, [node](const Edge& edge) { return edge.node == node; });
  };
  for (const auto& one : captures()) {
    without(one->streams);
    without(one->events);
  }
}

// A capture forgets a node that it would add behind; one to a graph that ends is invalidated.
struct Forget : Watcher {
  void ends(CUgraphNode node) override { forget(node); }
  void ends(CUgraph graph) override { forget(graph); }
};

}  // namespace

CUresult refuse_in_capture(CUstream stream) {
  if (!capturing()) return CUDA_SUCCESS;
  std::lock_guard lock(registry().mutex);
  Capture* capture = of_stream(stream);
  if (capture == nullptr && is_legacy(stream)) {
    capture = with_blocking_stream();
    if (capture != nullptr) return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  return capture == nullptr ? CUDA_SUCCESS
                            : invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult refuse_for_event(CUevent event) {
  if (!capturing()) return CUDA_SUCCESS;
  std::lock_guard lock(registry().mutex);
  Capture* capture = of_event(event);
  return capture == nullptr ? CUDA_SUCCESS : invalidate(*capture, CUDA_ERROR_CAPTURED_EVENT);
}

CUresult refuse_for_context(uint64_t context) {
  if (!capturing()) return CUDA_SUCCESS;
  std::lock_guard lock(registry().mutex);
  CUresult r = CUDA_SUCCESS;
  for (const auto& one : captures())
    if (one->context == context) r = invalidate(*one, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return r;
}

CUstreamCaptureMode& thread_capture_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

CUresult refuse_unsafe() {
  const CUstreamCaptureMode here = thread_capture_mode();
  if (!capturing() || here == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  std::lock_guard lock(registry().mutex);
  CUresult r = CUDA_SUCCESS;
  for (const auto& one : captures()) {
    const bool own = one->owner == std::this_thread::get_id();
    const bool forbids =
        own ? one->mode != CU_STREAM_CAPTURE_MODE_RELAXED
            : one->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && here == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (forbids) r = invalidate(*one, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
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
  std::lock_guard lock(registry().mutex);
  const Capture* capture = of_stream(stream);
  if (capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  *id = capture->id;
  return capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                              : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace sluice::graphs

using namespace sluice::graphs;

namespace {

bool valid_mode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

// To `graph` behind `edges`, or to a new one.
CUresult begin(const Caller& e, CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
               Edges edges) {
  if (is_legacy(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (Capture* before = of_stream(stream)) return invalidate(*before, CUDA_ERROR_ILLEGAL_STATE);
  auto capture = std::make_unique<Capture>();
  capture->id = registry().next_id++;
  capture->origin = stream;
  capture->mode = mode;
  capture->owner = std::this_thread::get_id();
  const StreamFacts facts = driver().stream(stream);
  capture->context = facts.context != 0 ? facts.context : e.context;
  capture->streams[stream] = std::move(edges);
  if (graph == nullptr) capture->own = new_graph();
  capture->graph = graph == nullptr ? capture->own.get() : graph;
  ++capture->graph->captures;
  static Forget forget_ended;
  registry().watcher = &forget_ended;
  captures().push_back(std::move(capture));
  g_under_way.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  const Caller e = enter_context();
  if (!e) return e.status;
  if (!valid_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard lock(registry().mutex);
  return begin(e, stream, mode, nullptr, {});
}
CUresult sluice_begin_capture_v1(CUstream stream) {
  return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode* dependencies, const CUgraphEdgeData* data,
                                     size_t count, CUstreamCaptureMode mode) {
  const Caller e = enter_context();
  if (!e) return e.status;
  if (!valid_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard lock(registry().mutex);
  if (!registry().live(graph)) return CUDA_ERROR_INVALID_VALUE;
  Edges edges;
  if (const CUresult r = read_dependencies(graph, dependencies, data, count, &edges);
      r != CUDA_SUCCESS)
    return r;
  return begin(e, stream, mode, graph, std::move(edges));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  const Caller e = enter_context();
  if (!e) return e.status;
  if (graph != nullptr) *graph = nullptr;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  UserReferences objects;
  std::vector<WorkPtr> works;  // of a graph that nobody gets
  CUresult r = CUDA_SUCCESS;
  {
    std::lock_guard lock(registry().mutex);
    const auto it = std::find_if(captures().begin(), captures().end(),
                                 [&](const auto& one) { return one->streams.count(stream) != 0; });
    if (it == captures().end()) return CUDA_ERROR_ILLEGAL_STATE;
    Capture& capture = **it;
    // Who captures to a graph of its own has it already.
    if (graph == nullptr && capture.own != nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (capture.origin != stream) return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture.owner != std::this_thread::get_id())
      return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    if (capture.invalidated)
      r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(capture))
      r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    const CUgraph made = capture.graph;
    auto own = finish(it);
    if (r == CUDA_SUCCESS) {
      (void)own.release();
      if (graph != nullptr) *graph = made;
    } else if (own != nullptr) {
      gather_objects(*own, &objects);
      gather_works(*own, &works);
    }
  }
  release_user_objects(objects);
  return r;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  const Caller e = enter_context();
  if (!e) return e.status;
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (capturing() && is_legacy(stream)) {
    std::lock_guard lock(registry().mutex);
    if (with_blocking_stream() != nullptr) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  cuuint64_t id = 0;
  *status = capture_status(stream, &id);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* count) {
  const CUresult r = cuStreamIsCapturing(stream, status);
  if (r != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return r;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard lock(registry().mutex);
  Capture* capture = of_stream(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;  // ended in another thread meanwhile
  const Edges& behind = capture->streams[stream];
  const bool plain = std::all_of(behind.begin(), behind.end(),
                                 [](const Edge& edge) { return is_plain(edge.data); });
  if (dependencies != nullptr && edges == nullptr && !plain) return CUDA_ERROR_LOSSY_QUERY;
  capture->reported_nodes.clear();
  capture->reported_edges.clear();
  for (const Edge& edge : behind) {
    capture->reported_nodes.push_back(edge.node);
    capture->reported_edges.push_back(edge.data);
  }
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = capture->graph;
  if (dependencies != nullptr) *dependencies = capture->reported_nodes.data();
  if (edges != nullptr) *edges = capture->reported_edges.data();
  if (count != nullptr) *count = behind.size();
  return CUDA_SUCCESS;
}
CUresult sluice_capture_info_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                CUgraph* graph, const CUgraphNode** dependencies, size_t* count) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, nullptr, count);
}
CUresult sluice_capture_info_v1(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* data, size_t count,
                                              unsigned flags) {
  const Caller e = enter_context();
  if (!e) return e.status;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard lock(registry().mutex);
  Capture* capture = of_stream(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Edges edges;
  if (flags != CU_STREAM_ADD_CAPTURE_DEPENDENCIES && flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = read_dependencies(capture->graph, dependencies, data, count, &edges);
      r != CUDA_SUCCESS)
    return r;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
    capture->streams[stream] = std::move(edges);
  else
    merge(capture->streams[stream], edges);
  return CUDA_SUCCESS;
}
CUresult sluice_capture_dependencies_v1(CUstream stream, CUgraphNode* dependencies, size_t count,
                                        unsigned flags) {
  return cuStreamUpdateCaptureDependencies_v2(stream, dependencies, nullptr, count, flags);
}
