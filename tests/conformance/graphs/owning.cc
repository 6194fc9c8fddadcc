// SPDX-License-Identifier: Apache-2.0
// What graphs have of their own: child graphs, memory, objects of the program.
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "tests/conformance/graphs/graph_calls.h"

namespace sluice::graph_calls {

void children(const World& w) {
  CUgraph inner = nullptr, middle = nullptr, outer = nullptr;
  for (CUgraph* g : {&inner, &middle, &outer}) NEED(cuGraphCreate(g, 0));
  kernel_node(w, inner, {}, w.a, 2, 1);
  CUgraphNode child = nullptr, grandchild = nullptr;
  CUgraphNode first = kernel_node(w, middle, {}, w.a, 3, 0);
  CALL(cuGraphAddChildGraphNode(&grandchild, middle, &first, 1, inner));
  kernel_node(w, inner, {}, w.b, 5, 5);  // too late: the child is a copy
  CUgraphNode start = kernel_node(w, outer, {}, w.a, 1, 10);
  CALL(cuGraphAddChildGraphNode(&child, outer, &start, 1, nullptr));
  CALL(cuGraphAddChildGraphNode(&child, outer, &start, 1, middle));
  kernel_node(w, outer, {child}, w.a, 7, 0);
  NEED(cuGraphDestroy(inner));
  clear(w);
  run(w, outer);
  VALUE(word(w.a));  // ((1 + 10) * 3 * 2 + 1) * 7
  VALUE(word(w.b));
  CUgraph within = nullptr;
  CALL(cuGraphChildGraphNodeGetGraph(start, &within));
  CALL(cuGraphChildGraphNodeGetGraph(child, &within));
  VALUE(within != middle);
  size_t count = 0;
  CALL(cuGraphGetNodes(within, nullptr, &count));
  VALUE(count);
  // A change in the child's graph counts for what is instantiated of it later.
  CUgraphNode nodes[2] = {};
  count = 2;
  NEED(cuGraphGetNodes(within, nodes, &count));
  CUgraphNodeType type;
  NEED(cuGraphNodeGetType(nodes[0], &type));
  CUgraphNode inside = type == CU_GRAPH_NODE_TYPE_KERNEL ? nodes[0] : nodes[1];
  Step other(w, w.a, 4, 0);
  CALL(cuGraphKernelNodeSetParams(inside, &other.node));
  clear(w);
  run(w, outer);
  VALUE(word(w.a));
  // In an executable: the node within, and the whole child.
  CUgraphExec exec = nullptr;
  NEED(cuGraphInstantiate(&exec, outer, 0));
  Step again(w, w.a, 6, 0);
  CALL(cuGraphExecKernelNodeSetParams(exec, inside, &again.node));
  clear(w);
  NEED(cuGraphLaunch(exec, w.s));
  NEED(cuStreamSynchronize(w.s));
  VALUE(word(w.a));
  CALL(cuGraphExecChildGraphNodeSetParams(exec, child, middle));
  clear(w);
  NEED(cuGraphLaunch(exec, w.s));
  NEED(cuStreamSynchronize(w.s));
  VALUE(word(w.a));
  kernel_node(w, middle, {}, w.b, 1, 1);
  CALL(cuGraphExecChildGraphNodeSetParams(exec, child, middle));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(middle));
  NEED(cuGraphDestroy(outer));
}

void memory(const World& w) {
  CUgraph g = nullptr, clone = nullptr;
  NEED(cuGraphCreate(&g, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS alloc;
  std::memset(&alloc, 0, sizeof alloc);
  CUgraphNode made = nullptr, freed = nullptr, again = nullptr;
  CALL(cuGraphAddMemAllocNode(&made, g, nullptr, 0, &alloc));
  alloc.poolProps.allocType = 1;
  alloc.poolProps.location.type = 1;
  CALL(cuGraphAddMemAllocNode(&made, g, nullptr, 0, &alloc));
  alloc.bytesize = 4 * kWords;
  CALL(cuGraphAddMemAllocNode(&made, g, nullptr, 0, &alloc));
  VALUE(alloc.dptr != 0);
  CUDA_MEM_ALLOC_NODE_PARAMS has;
  CALL(cuGraphMemAllocNodeGetParams(made, &has));
  VALUE(has.dptr == alloc.dptr);
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = alloc.dptr, fill.value = 3, fill.elementSize = 4, fill.width = kWords, fill.height = 1;
  CUgraphNode filled = nullptr, copied = nullptr;
  CALL(cuGraphAddMemsetNode(&filled, g, &made, 1, &fill, w.context));
  CUgraphNode stepped = kernel_node(w, g, {filled}, alloc.dptr, 4, 1);
  CUDA_MEMCPY3D copy = box(CU_MEMORYTYPE_DEVICE, w.a, CU_MEMORYTYPE_DEVICE, alloc.dptr, 4 * kWords);
  CALL(cuGraphAddMemcpyNode(&copied, g, &stepped, 1, &copy, w.context));
  CALL(cuGraphAddMemFreeNode(&freed, g, &copied, 1, w.a));
  CALL(cuGraphAddMemFreeNode(&freed, g, &copied, 1, alloc.dptr));
  CALL(cuGraphAddMemFreeNode(&again, g, &copied, 1, alloc.dptr));
  CUdeviceptr dptr = 0;
  CALL(cuGraphMemFreeNodeGetParams(freed, &dptr));
  VALUE(dptr == alloc.dptr);
  CALL(cuGraphClone(&clone, g));
  CALL(cuGraphDestroyNode(freed));
  CALL(cuGraphDestroyNode(filled));
  CUgraph outer = nullptr;
  NEED(cuGraphCreate(&outer, 0));
  CUgraphNode child = nullptr;
  CALL(cuGraphAddChildGraphNode(&child, outer, nullptr, 0, g));
  NEED(cuGraphDestroy(outer));
  clear(w);
  CUgraphExec exec = nullptr, second = nullptr;
  CALL(cuGraphInstantiate(&exec, g, 0));
  CALL(cuGraphInstantiate(&second, g, 0));
  CALL(cuGraphLaunch(exec, w.s));
  CALL(cuGraphLaunch(exec, w.s));
  CALL(cuStreamSynchronize(w.s));
  VALUE(word(w.a));
  NEED(cuGraphExecDestroy(exec));
  CALL(cuGraphInstantiate(&second, g, 0));
  NEED(cuGraphExecDestroy(second));
  NEED(cuGraphDestroy(g));
  // Memory that outlives the launch: freed by the program, or by the next launch.
  for (const unsigned long long flags : {0ull, 1ull}) {
    NEED(cuGraphCreate(&g, 0));
    alloc.dptr = 0;
    NEED(cuGraphAddMemAllocNode(&made, g, nullptr, 0, &alloc));
    fill.dst = alloc.dptr;
    NEED(cuGraphAddMemsetNode(&filled, g, &made, 1, &fill, w.context));
    CALL(cuGraphInstantiate(&exec, g, flags));
    CALL(cuGraphLaunch(exec, w.s));
    CALL(cuStreamSynchronize(w.s));
    VALUE(word(alloc.dptr));
    CALL(cuGraphLaunch(exec, w.s));
    CALL(cuStreamSynchronize(w.s));
    CALL(cuMemFreeAsync(alloc.dptr, w.s));
    if (flags == 0) {
      CALL(cuGraphLaunch(exec, w.s));
      CALL(cuStreamSynchronize(w.s));
      CALL(cuMemFree(alloc.dptr));
    }
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(g));
  }
  // In a capture.
  NEED(cuStreamBeginCapture(w.s, CU_STREAM_CAPTURE_MODE_RELAXED));
  CALL(cuMemAllocAsync(&dptr, 4 * kWords, w.s));
  NEED(cuMemsetD32Async(dptr, 8, kWords, w.s));
  NEED(cuMemcpyDtoDAsync(w.b, dptr, 4 * kWords, w.s));
  CALL(cuMemFreeAsync(dptr, w.s));
  CALL(cuStreamEndCapture(w.s, &g));
  CUgraphNode nodes[8] = {};
  size_t count = 8;
  NEED(cuGraphGetNodes(g, nodes, &count));
  VALUE(count);
  clear(w);
  run(w, g);
  VALUE(word(w.b));
  NEED(cuGraphDestroy(g));
  NEED(cuStreamBeginCapture(w.s, CU_STREAM_CAPTURE_MODE_RELAXED));
  CALL(cuMemFreeAsync(w.c, w.s));
  CALL(cuStreamEndCapture(w.s, &g));
  if (g != nullptr) NEED(cuGraphDestroy(g));
  cuuint64_t used = 77;
  CALL(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  CALL(cuDeviceGraphMemTrim(0));
  used = 0;
  CALL(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used));
  CALL(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
}

namespace {
std::atomic<int> destroyed{0};
void destroy(void*) { ++destroyed; }
}  // namespace

void user_objects(const World& w) {
  CUuserObject object = nullptr;
  CUgraph g = nullptr, clone = nullptr;
  NEED(cuGraphCreate(&g, 0));
  CALL(cuUserObjectCreate(&object, nullptr, destroy, 1, 0));
  CALL(cuUserObjectCreate(&object, nullptr, nullptr, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CALL(cuUserObjectCreate(&object, nullptr, destroy, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CALL(cuUserObjectCreate(&object, nullptr, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CALL(cuUserObjectRetain(object, 2));
  CALL(cuUserObjectRelease(object, 2));
  VALUE(destroyed);
  CALL(cuGraphRetainUserObject(g, object, 1, 2));
  CALL(cuGraphRetainUserObject(g, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CALL(cuGraphReleaseUserObject(g, nullptr, 1));
  CALL(cuGraphClone(&clone, g));
  NEED(cuGraphDestroy(g));
  VALUE(destroyed);
  CUgraphExec exec = nullptr;
  kernel_node(w, clone, {}, w.a, 2, 1);
  NEED(cuGraphInstantiate(&exec, clone, 0));
  CALL(cuGraphReleaseUserObject(clone, object, 1));
  NEED(cuGraphDestroy(clone));
  VALUE(destroyed);
  NEED(cuGraphLaunch(exec, w.s));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuStreamSynchronize(w.s));
  // It comes from another thread.
  for (int i = 0; i < 200000 && destroyed == 0; ++i) ::usleep(100);
  VALUE(destroyed);
}

}  // namespace sluice::graph_calls
