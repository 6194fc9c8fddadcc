// SPDX-License-Identifier: Apache-2.0
// Graphs captured, copied, changed as a whole, launched many times.
#include <cstring>

#include "tests/conformance/graphs/graph_calls.h"

namespace sluice::graph_calls {

void updates(const World& w) {
  // A clone, and finding one's way in it.
  CUgraph g = nullptr, clone = nullptr;
  NEED(cuGraphCreate(&g, 0));
  CUgraphNode first = kernel_node(w, g, {}, w.a, 2, 1),
              second = kernel_node(w, g, {first}, w.a, 3, 0);
  CALL(cuGraphClone(&clone, nullptr));
  CALL(cuGraphClone(&clone, g));
  CUgraphNode found = nullptr;
  CALL(cuGraphNodeFindInClone(&found, second, clone));
  VALUE(found != second);
  CALL(cuGraphNodeFindInClone(&found, second, g));
  Step five(w, w.a, 5, 0);
  NEED(cuGraphNodeFindInClone(&found, second, clone));
  NEED(cuGraphKernelNodeSetParams(found, &five.node));
  clear(w);
  run(w, g);
  VALUE(word(w.a));
  clear(w);
  run(w, clone);
  VALUE(word(w.a));
  CUgraphNode late = kernel_node(w, g, {second}, w.b, 2, 2);
  CALL(cuGraphNodeFindInClone(&found, late, clone));
  NEED(cuGraphDestroyNode(late));
  NEED(cuGraphDestroy(clone));
  // Updates: the same shape, made in another order; then other shapes.
  CUgraphExec exec = nullptr;
  CUgraphNode third = kernel_node(w, g, {first}, w.b, 7, 1);
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = w.c, fill.value = 9, fill.elementSize = 4, fill.width = 4, fill.height = 1;
  CUgraphNode last = nullptr;
  CUgraphNode behind[2] = {second, third};
  NEED(cuGraphAddMemsetNode(&last, g, behind, 2, &fill, w.context));
  NEED(cuGraphInstantiate(&exec, g, 0));
  const auto like = [&](uint32_t base, int kind) {
    CUgraph made = nullptr;
    NEED(cuGraphCreate(&made, 0));
    CUgraphNode x = kernel_node(w, made, {}, w.a, base, 1),
                y = kernel_node(w, made, {x}, w.a, base + 1, 0);
    CUgraphNode z = nullptr, end = nullptr;
    if (kind == 1) {  // a fill where there was a kernel
      fill.dst = w.b;
      NEED(cuGraphAddMemsetNode(&z, made, &x, 1, &fill, w.context));
      fill.dst = w.c;
    } else {
      std::vector<CUgraphNode> before = {x};
      if (kind == 2) before.push_back(y);
      z = kernel_node(w, made, before, w.b, base + 2, 1);
    }
    CUgraphNode ends[2] = {y, z};
    fill.value = base;
    NEED(cuGraphAddMemsetNode(&end, made, ends, kind == 3 ? 1 : 2, &fill, w.context));
    if (kind == 4) kernel_node(w, made, {end}, w.c, 2, 0);
    return made;
  };
  for (int kind = 0; kind < 5; ++kind) {
    CUgraph now = like(10 + static_cast<uint32_t>(kind), kind);
    CUgraphExecUpdateResultInfo info;
    std::memset(&info, 0, sizeof info);
    VALUE(kind);
    CALL(cuGraphExecUpdate(exec, now, &info));
    VALUE(info.result);
    NEED(cuGraphDestroy(now));
    clear(w);
    NEED(cuGraphLaunch(exec, w.s));
    NEED(cuStreamSynchronize(w.s));
    VALUE(word(w.a));
    VALUE(word(w.b));
    VALUE(word(w.c, 3));
  }
  // The nodes of the first graph still name its executable's.
  Step hundred(w, w.b, 100, 0);
  CALL(cuGraphExecKernelNodeSetParams(exec, third, &hundred.node));
  clear(w);
  NEED(cuGraphLaunch(exec, w.s));
  NEED(cuStreamSynchronize(w.s));
  VALUE(word(w.b));
  NEED(cuGraphExecDestroy(exec));
  // Any node's parameters in one form.
  CUgraphNodeParams any;
  std::memset(&any, 0, sizeof any);
  any.type = CU_GRAPH_NODE_TYPE_MEMSET;
  any.memset = {w.c, 0, 0x77, 1, 4, 1, nullptr};
  CUgraphNode by_any = nullptr;
  CALL(cuGraphAddNode(&by_any, g, &last, nullptr, 1, &any));
  any.memset.value = 0x66;
  CALL(cuGraphNodeSetParams(by_any, &any));
  any.type = CU_GRAPH_NODE_TYPE_EMPTY;
  CALL(cuGraphNodeSetParams(by_any, &any));
  run(w, g);
  VALUE(word(w.c));
  NEED(cuGraphDestroy(g));
}

void captures(const World& w) {
  CUgraph g = nullptr;
  Step one(w, w.a, 2, 1), two(w, w.b, 3, 1), three(w, w.a, 5, 1);
  size_t count = 0;
  // A diamond: fork, join, and what depends on what.
  NEED(cuStreamBeginCapture(w.s, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph under_way = nullptr;
  const CUgraphNode* behind = nullptr;
  CALL(cuStreamGetCaptureInfo(w.t, &status, &id, &under_way, &behind, nullptr, &count));
  VALUE(status);
  CALL(cuStreamGetCaptureInfo(w.s, &status, &id, &under_way, &behind, nullptr, &count));
  VALUE(status);
  VALUE(count);
  NEED(one.launch(w.s));
  NEED(cuEventRecord(w.e, w.s));
  NEED(cuStreamWaitEvent(w.t, w.e, 0));
  NEED(two.launch(w.t));
  NEED(three.launch(w.s));
  NEED(cuEventRecord(w.f, w.t));
  NEED(cuStreamWaitEvent(w.s, w.f, 0));
  CALL(cuStreamGetCaptureInfo(w.s, &status, &id, &under_way, &behind, nullptr, &count));
  VALUE(count);
  NEED(three.launch(w.s));
  // A node by hand in the middle.
  CALL(cuStreamGetCaptureInfo(w.s, &status, &id, &under_way, &behind, nullptr, &count));
  VALUE(count);
  CUgraphNode own = kernel_node(w, under_way, {behind[0]}, w.a, 1, 100);
  CALL(
      cuStreamUpdateCaptureDependencies(w.s, &own, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  NEED(one.launch(w.s));
  CALL(
      cuStreamUpdateCaptureDependencies(w.s, &own, nullptr, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  CALL(cuStreamGetCaptureInfo(w.s, &status, &id, &under_way, &behind, nullptr, &count));
  VALUE(count);
  CALL(cuStreamEndCapture(w.s, &g));
  VALUE(g == under_way);
  CALL(cuGraphGetNodes(g, nullptr, &count));
  VALUE(count);
  CALL(cuGraphGetEdges(g, nullptr, nullptr, nullptr, &count));
  VALUE(count);
  CALL(cuGraphGetRootNodes(g, nullptr, &count));
  VALUE(count);
  clear(w);
  run(w, g);
  VALUE(word(w.a));
  VALUE(word(w.b));
  CALL(
      cuStreamUpdateCaptureDependencies(w.s, &own, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  NEED(cuGraphDestroy(g));
  // What calls become.
  std::vector<uint32_t> words(8, 3);
  NEED(cuStreamBeginCapture(w.s, CU_STREAM_CAPTURE_MODE_RELAXED));
  NEED(cuMemcpyDtoDAsync(w.b, w.a, 32, w.s));
  NEED(cuMemsetD32Async(w.c, 6, 8, w.s));
  NEED(cuLaunchHostFunc(
      w.s, [](void*) {}, nullptr));
  CALL(cuEventRecordWithFlags(w.e, w.s, CU_EVENT_RECORD_EXTERNAL));
  CALL(cuStreamWriteValue32(w.s, w.a, 17, 0));
  CALL(cuStreamEndCapture(w.s, &g));
  CUgraphNode nodes[8] = {};
  count = 8;
  NEED(cuGraphGetNodes(g, nodes, &count));
  VALUE(count);
  for (size_t i = 0; i < count; ++i) {
    CUgraphNodeType type;
    NEED(cuGraphNodeGetType(nodes[i], &type));
    VALUE(type);
  }
  run(w, g);
  VALUE(word(w.a));
  NEED(cuGraphDestroy(g));
  // Waits for events of outside: not recorded at all, recorded, recorded in the same capture.
  for (int kind = 0; kind < 4; ++kind) {
    CUevent outside = nullptr;
    NEED(cuEventCreate(&outside, kind == 3 ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING));
    if (kind == 1) NEED(cuEventRecord(outside, w.t));
    NEED(cuStreamBeginCapture(w.s, CU_STREAM_CAPTURE_MODE_RELAXED));
    VALUE(kind);
    if (kind >= 2) CALL(cuEventRecordWithFlags(outside, w.s, CU_EVENT_RECORD_EXTERNAL));
    CALL(cuStreamWaitEvent(w.s, outside, CU_EVENT_WAIT_EXTERNAL));
    NEED(cuStreamIsCapturing(w.s, &status));
    VALUE(status);
    CALL(cuStreamEndCapture(w.s, &g));
    if (g != nullptr) {
      CALL(cuGraphGetNodes(g, nullptr, &count));
      VALUE(count);
      NEED(cuGraphDestroy(g));
    }
    NEED(cuEventDestroy(outside));
  }
  // To a graph that is there already, behind one of its nodes.
  NEED(cuGraphCreate(&g, 0));
  CUgraphNode root = kernel_node(w, g, {}, w.a, 1, 1);
  CALL(cuStreamBeginCaptureToGraph(w.s, g, &root, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
  NEED(one.launch(w.s));
  CUgraph ended = nullptr;
  CALL(cuStreamEndCapture(w.s, &ended));
  VALUE(ended == g);
  CALL(cuGraphGetEdges(g, nullptr, nullptr, nullptr, &count));
  VALUE(count);
  clear(w);
  run(w, g);
  VALUE(word(w.a));
  // A graph launched into a capture.
  CUgraphExec exec = nullptr;
  NEED(cuGraphInstantiate(&exec, g, 0));
  NEED(cuStreamBeginCapture(w.s, CU_STREAM_CAPTURE_MODE_RELAXED));
  NEED(three.launch(w.s));
  CALL(cuGraphLaunch(exec, w.s));
  CALL(cuStreamEndCapture(w.s, &ended));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(g));
}

// One executable in two streams by turns, and again while it may still run.
void launches(const World& w) {
  CUgraph g = nullptr;
  CUgraphExec exec = nullptr;
  NEED(cuGraphCreate(&g, 0));
  CUgraphNode n = nullptr;
  for (uint32_t i = 0; i < 8; ++i)
    n = kernel_node(w, g, n == nullptr ? std::vector<CUgraphNode>{} : std::vector{n}, w.a, 3 + i,
                    i);
  NEED(cuGraphInstantiate(&exec, g, 0));
  clear(w);
  for (int i = 0; i < 6; ++i) NEED(cuGraphLaunch(exec, i % 2 == 0 ? w.s : w.t));
  NEED(cuCtxSynchronize());
  VALUE(all_words(w.a));
  // A change between launches leaves those that are queued alone.
  clear(w);
  for (uint32_t i = 0; i < 4; ++i) {
    NEED(cuGraphLaunch(exec, w.s));
    Step next(w, w.a, 20 + i, 1);
    NEED(cuGraphExecKernelNodeSetParams(exec, n, &next.node));
  }
  NEED(cuGraphUpload(exec, w.t));
  NEED(cuGraphLaunch(exec, w.t));
  NEED(cuCtxSynchronize());
  VALUE(all_words(w.a));
  CALL(cuGraphLaunch(nullptr, w.s));
  CALL(cuGraphUpload(nullptr, w.s));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(g));
}

// Many nodes whose order shows, as work for evictions: three branches of kernels, copies and fills,
// joined again and again.
void chains(const World& w) {
  CUgraph g = nullptr;
  NEED(cuGraphCreate(&g, 0));
  std::vector<CUgraphNode> ends;
  for (uint32_t round = 0; round < 12; ++round) {
    CUgraphNode x = kernel_node(w, g, ends, w.a, 3 + round, 7);
    CUgraphNode y = kernel_node(w, g, ends, w.b, 5 + round, 11);
    x = kernel_node(w, g, {x}, w.a, 9, round);
    CUdeviceptr pointers[3] = {w.c, w.a, w.b};
    uint32_t words = kWords;
    void* params[] = {&pointers[0], &pointers[1], &pointers[2], &words};
    Step shape(w, w.c, 0, 0);
    shape.node.func = w.add;
    shape.node.kernelParams = params;
    CUgraphNode both[2] = {x, y}, sum = nullptr, part = nullptr, fill_node = nullptr;
    NEED(cuGraphAddKernelNode(&sum, g, both, 2, &shape.node));
    CUDA_MEMCPY3D copy =
        box(CU_MEMORYTYPE_DEVICE, w.a + 4 * 64, CU_MEMORYTYPE_DEVICE, w.c, 4 * 256);
    NEED(cuGraphAddMemcpyNode(&part, g, &sum, 1, &copy, w.context));
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = w.b + 4 * round, fill.value = round, fill.elementSize = 4, fill.width = 100,
    fill.height = 1;
    NEED(cuGraphAddMemsetNode(&fill_node, g, &sum, 1, &fill, w.context));
    ends = {part, fill_node};
  }
  CUgraphExec exec = nullptr;
  NEED(cuGraphInstantiate(&exec, g, 0));
  clear(w);
  for (int i = 0; i < 20; ++i) NEED(cuGraphLaunch(exec, i % 3 == 0 ? w.s : w.t));
  NEED(cuCtxSynchronize());
  VALUE(all_words(w.a));
  VALUE(all_words(w.b));
  VALUE(all_words(w.c));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(g));
}

}  // namespace sluice::graph_calls
