// SPDX-License-Identifier: Apache-2.0
// Graphs built by hand: their shape, each kind of node, its parameters.
#include <atomic>
#include <cstring>

#include "tests/conformance/graphs/graph_calls.h"

namespace sluice::graph_calls {

void structure(const World& w) {
  CUgraph g = nullptr, other = nullptr;
  CALL(cuGraphCreate(nullptr, 0));
  CALL(cuGraphCreate(&g, 1));
  CALL(cuGraphCreate(&g, 0));
  NEED(cuGraphCreate(&other, 0));
  CUgraphNode n[6] = {}, foreign = nullptr, none = nullptr;
  size_t count = 77;
  CALL(cuGraphGetNodes(g, nullptr, &count));
  VALUE(count);
  CALL(cuGraphGetNodes(g, nullptr, nullptr));
  CALL(cuGraphAddEmptyNode(nullptr, g, nullptr, 0));
  CALL(cuGraphAddEmptyNode(&n[0], g, nullptr, 1));
  CALL(cuGraphAddEmptyNode(&n[0], g, nullptr, 0));
  NEED(cuGraphAddEmptyNode(&foreign, other, nullptr, 0));
  CALL(cuGraphAddEmptyNode(&n[1], g, &foreign, 1));
  CALL(cuGraphAddEmptyNode(&n[1], g, &none, 1));
  for (int i = 1; i < 5; ++i) NEED(cuGraphAddEmptyNode(&n[i], g, &n[0], 1));
  CUgraphNode twice[2] = {n[1], n[1]};
  CALL(cuGraphAddEmptyNode(&n[5], g, twice, 2));
  CALL(cuGraphAddEmptyNode(&n[5], g, n + 1, 2));
  count = 3;
  CUgraphNode some[9] = {};
  CALL(cuGraphGetNodes(g, some, &count));
  VALUE(count);
  VALUE(some[2] == n[2]);
  count = 9;
  CALL(cuGraphGetNodes(g, some, &count));
  VALUE(count);
  VALUE(some[8] == nullptr);
  count = 9;
  CALL(cuGraphGetRootNodes(g, some, &count));
  VALUE(count);
  VALUE(some[0] == n[0]);
  count = 0;
  CALL(cuGraphGetEdges(g, nullptr, nullptr, nullptr, &count));
  VALUE(count);
  CUgraphNode from[9] = {}, to[9] = {};
  count = 9;
  CALL(cuGraphGetEdges(g, from, nullptr, nullptr, &count));
  count = 9;
  CALL(cuGraphGetEdges(g, from, to, nullptr, &count));
  VALUE(count);
  // In whatever order, these are the edges.
  int right = 0;
  for (size_t i = 0; i < count; ++i)
    right += (from[i] == n[0] && to[i] != n[5]) ||
             ((from[i] == n[1] || from[i] == n[2]) && to[i] == n[5]);
  VALUE(right);
  count = 9;
  CALL(cuGraphNodeGetDependencies(n[5], some, nullptr, &count));
  VALUE(count);
  VALUE(some[0] == n[1] && some[1] == n[2]);
  count = 9;
  CALL(cuGraphNodeGetDependentNodes(n[0], some, nullptr, &count));
  VALUE(count);
  CALL(cuGraphAddDependencies(g, &n[5], &n[5], nullptr, 1));
  CALL(cuGraphAddDependencies(g, &n[1], &n[5], nullptr, 1));
  CALL(cuGraphAddDependencies(g, &n[3], &foreign, nullptr, 1));
  CALL(cuGraphAddDependencies(g, nullptr, nullptr, nullptr, 0));
  CALL(cuGraphAddDependencies(g, n + 3, n + 4, nullptr, 1));
  CALL(cuGraphRemoveDependencies(g, n + 4, n + 3, nullptr, 1));
  CALL(cuGraphRemoveDependencies(g, n + 3, n + 4, nullptr, 1));
  CUgraphEdgeData programmatic{};
  programmatic.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  programmatic.from_port = 1;
  CALL(cuGraphAddDependencies(g, n + 3, n + 4, &programmatic, 1));
  // A cycle.
  CUgraphExec exec = nullptr;
  CALL(cuGraphAddDependencies(g, &n[5], &n[0], nullptr, 1));
  CALL(cuGraphInstantiate(&exec, g, 0));
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  CALL(cuGraphInstantiateWithParams(&exec, g, &params));
  VALUE(params.result_out);
  CALL(cuGraphRemoveDependencies(g, &n[5], &n[0], nullptr, 1));
  run(w, g);
  CALL(cuGraphInstantiate(&exec, g, 1u << 10));
  CALL(cuGraphInstantiate(nullptr, g, 0));
  CALL(cuGraphInstantiateWithParams(&exec, g, &params));
  VALUE(params.result_out);
  cuuint64_t flags = 77;
  CALL(cuGraphExecGetFlags(exec, &flags));
  VALUE(flags);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphInstantiate(&exec, g, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
  CALL(cuGraphExecGetFlags(exec, &flags));
  VALUE(flags);
  NEED(cuGraphExecDestroy(exec));
  CALL(cuGraphDestroyNode(n[1]));
  count = 9;
  CALL(cuGraphNodeGetDependencies(n[5], some, nullptr, &count));
  VALUE(count);
  CUgraphNodeType type;
  CALL(cuGraphNodeGetType(n[5], &type));
  VALUE(type);
  NEED(cuGraphDestroy(other));
  CALL(cuGraphDestroy(g));
  CALL(cuGraphCreate(&g, 0));
  run(w, g);  // nothing in it
  NEED(cuGraphDestroy(g));
}

void kernels(const World& w) {
  CUgraph g = nullptr;
  NEED(cuGraphCreate(&g, 0));
  CUgraphNode n = nullptr;
  Step s(w, w.a, 3, 1);
  CALL(cuGraphAddKernelNode(&n, g, nullptr, 0, nullptr));
  s.node.func = nullptr;
  CALL(cuGraphAddKernelNode(&n, g, nullptr, 0, &s.node));
  s.node.func = w.step;
  s.node.kernelParams = nullptr;
  CALL(cuGraphAddKernelNode(&n, g, nullptr, 0, &s.node));
  s.node.kernelParams = s.array;
  s.node.gridDimY = 0;
  CALL(cuGraphAddKernelNode(&n, g, nullptr, 0, &s.node));
  s.node.gridDimY = 1;
  s.node.blockDimX = 2048;
  CALL(cuGraphAddKernelNode(&n, g, nullptr, 0, &s.node));
  s.node.blockDimX = 64;
  s.node.sharedMemBytes = 1u << 20;
  CALL(cuGraphAddKernelNode(&n, g, nullptr, 0, &s.node));
  s.node.sharedMemBytes = 0;
  CALL(cuGraphAddKernelNode(&n, g, nullptr, 0, &s.node));
  s.p = 0, s.n = 0, s.times = 7;  // the node has its own
  CUDA_KERNEL_NODE_PARAMS has{};
  CALL(cuGraphKernelNodeGetParams(n, &has));
  VALUE(has.gridDimX);
  VALUE(has.func == w.step);
  VALUE(has.kern == nullptr);
  VALUE(has.extra == nullptr);
  VALUE(*static_cast<uint32_t*>(has.kernelParams[2]));
  VALUE(*static_cast<CUdeviceptr*>(has.kernelParams[0]) == w.a);
  clear(w);
  run(w, g);
  VALUE(word(w.a, kWords - 1));
  // Changed in the graph.
  Step after(w, w.a, 5, 2);
  CALL(cuGraphKernelNodeSetParams(n, &after.node));
  clear(w);
  run(w, g);
  VALUE(word(w.a));
  // Changed in an executable: later changes of the graph do not reach it.
  CUgraphExec exec = nullptr;
  NEED(cuGraphInstantiate(&exec, g, 0));
  Step third(w, w.a, 7, 3), fourth(w, w.a, 9, 4);
  NEED(cuGraphKernelNodeSetParams(n, &fourth.node));
  clear(w);
  NEED(cuGraphLaunch(exec, w.s));
  NEED(cuStreamSynchronize(w.s));
  VALUE(word(w.a));
  CALL(cuGraphExecKernelNodeSetParams(exec, n, &third.node));
  third.node.blockDimX = 2048;
  CALL(cuGraphExecKernelNodeSetParams(exec, n, &third.node));
  clear(w);
  NEED(cuGraphLaunch(exec, w.s));
  NEED(cuStreamSynchronize(w.s));
  VALUE(word(w.a));
  // Switched off and on.
  unsigned enabled = 77;
  CALL(cuGraphNodeGetEnabled(exec, n, &enabled));
  VALUE(enabled);
  CALL(cuGraphNodeSetEnabled(exec, n, 0));
  clear(w);
  NEED(cuGraphLaunch(exec, w.s));
  NEED(cuStreamSynchronize(w.s));
  VALUE(word(w.a));
  CALL(cuGraphNodeGetEnabled(exec, n, &enabled));
  VALUE(enabled);
  CALL(cuGraphNodeSetEnabled(exec, n, 1));
  NEED(cuGraphLaunch(exec, w.s));
  NEED(cuStreamSynchronize(w.s));
  VALUE(word(w.a));
  // Another kernel in its place, with other parameters.
  CUdeviceptr pointers[3] = {w.c, w.a, w.b};
  uint32_t words = kWords;
  void* params[] = {&pointers[0], &pointers[1], &pointers[2], &words};
  CUDA_KERNEL_NODE_PARAMS add = after.node;
  add.func = w.add;
  add.kernelParams = params;
  CALL(cuGraphExecKernelNodeSetParams(exec, n, &add));
  clear(w, 20);
  NEED(cuGraphLaunch(exec, w.s));
  NEED(cuStreamSynchronize(w.s));
  VALUE(word(w.c));
  // A packed block in place of the pointers.
  struct {
    CUdeviceptr p;
    uint32_t n, times, plus;
  } packed = {w.b, kWords, 2, 1};
  size_t bytes = 20;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  CUDA_KERNEL_NODE_PARAMS block = after.node;
  block.kernelParams = nullptr;
  block.extra = extra;
  for (const size_t size : {24, 20}) {
    bytes = size;
    VALUE(size);
    CALL(cuGraphKernelNodeSetParams(n, &block));
  }
  clear(w);
  run(w, g);
  VALUE(word(w.b));
  // Attributes.
  CUgraph g2 = nullptr;
  NEED(cuGraphCreate(&g2, 0));
  Step small(w, w.b, 3, 0);
  small.node.gridDimX = 2;  // all of a cooperative launch's blocks are on the GPU at once
  CUgraphNode k = nullptr, m = nullptr;
  NEED(cuGraphAddKernelNode(&k, g2, nullptr, 0, &small.node));
  NEED(cuGraphAddKernelNode(&m, g2, &k, 1, &small.node));
  CUkernelNodeAttrValue value;
  std::memset(&value, 0, sizeof value);
  value.cooperative = 1;
  CALL(cuGraphKernelNodeSetAttribute(k, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  std::memset(&value, 0, sizeof value);
  CALL(cuGraphKernelNodeGetAttribute(k, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  VALUE(value.cooperative);
  CALL(cuGraphKernelNodeCopyAttributes(m, k));
  CALL(cuGraphKernelNodeGetAttribute(m, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  VALUE(value.cooperative);
  clear(w);
  run(w, g2);
  VALUE(word(w.b));
  // Wrong kinds.
  CUgraphNode empty = nullptr;
  NEED(cuGraphAddEmptyNode(&empty, g, nullptr, 0));
  CALL(cuGraphKernelNodeGetParams(empty, &has));
  CALL(cuGraphExecKernelNodeSetParams(exec, m, &after.node));
  CALL(cuGraphNodeSetEnabled(exec, m, 0));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(g2));
  NEED(cuGraphDestroy(g));
}

void copies(const World& w) {
  CUgraph g = nullptr;
  NEED(cuGraphCreate(&g, 0));
  std::vector<uint32_t> in(kWords), out(kWords, 7);
  for (uint32_t i = 0; i < kWords; ++i) in[i] = i * i + 1;
  const auto at = [](std::vector<uint32_t>& v) { return reinterpret_cast<CUdeviceptr>(v.data()); };
  CUgraphNode up = nullptr, over = nullptr, down = nullptr, bad = nullptr;
  CUDA_MEMCPY3D copy = box(CU_MEMORYTYPE_DEVICE, w.a, CU_MEMORYTYPE_HOST, at(in), 4 * kWords);
  CALL(cuGraphAddMemcpyNode(&up, g, nullptr, 0, nullptr, w.context));
  copy.srcHost = nullptr;
  CALL(cuGraphAddMemcpyNode(&bad, g, nullptr, 0, &copy, w.context));
  copy.srcHost = in.data();
  copy.WidthInBytes = 0;
  if (CALL(cuGraphAddMemcpyNode(&bad, g, nullptr, 0, &copy, w.context)) == CUDA_SUCCESS)
    NEED(cuGraphDestroyNode(bad));
  copy.WidthInBytes = 4 * kWords;
  copy.srcMemoryType = static_cast<CUmemorytype>(9);
  CALL(cuGraphAddMemcpyNode(&bad, g, nullptr, 0, &copy, w.context));
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstPitch = 16;
  if (CALL(cuGraphAddMemcpyNode(&bad, g, nullptr, 0, &copy, w.context)) == CUDA_SUCCESS)
    NEED(cuGraphDestroyNode(bad));
  copy.dstPitch = 4 * kWords;
  CALL(cuGraphAddMemcpyNode(&up, g, nullptr, 0, &copy, w.context));
  CUgraphNode step = kernel_node(w, g, {up}, w.a, 2, 1);
  copy = box(CU_MEMORYTYPE_DEVICE, w.b, CU_MEMORYTYPE_DEVICE, w.a, 4 * kWords);
  CALL(cuGraphAddMemcpyNode(&over, g, &step, 1, &copy, w.context));
  copy = box(CU_MEMORYTYPE_HOST, at(out), CU_MEMORYTYPE_DEVICE, w.b, 4 * kWords);
  CALL(cuGraphAddMemcpyNode(&down, g, &over, 1, &copy, w.context));
  clear(w);
  run(w, g);
  VALUE(out[0]);
  VALUE(out[kWords - 1]);
  // Memory as it is when the node runs.
  in[0] = 1000;
  run(w, g);
  VALUE(out[0]);
  CUDA_MEMCPY3D has;
  CALL(cuGraphMemcpyNodeGetParams(down, &has));
  VALUE(has.WidthInBytes);
  VALUE(has.dstMemoryType);
  VALUE(has.dstHost == out.data());
  // A box: 3 slices of 4 rows of 8 words out of rows of 16 words, 6 rows a slice.
  CUgraph g3 = nullptr;
  NEED(cuGraphCreate(&g3, 0));
  copy = box(CU_MEMORYTYPE_DEVICE, w.c, CU_MEMORYTYPE_DEVICE, w.b, 32);
  copy.srcXInBytes = 8, copy.srcY = 1, copy.srcZ = 1, copy.srcPitch = 64, copy.srcHeight = 6;
  copy.dstXInBytes = 4, copy.dstY = 2, copy.dstZ = 0, copy.dstPitch = 128, copy.dstHeight = 9;
  copy.Height = 4, copy.Depth = 3;
  CUgraphNode box_node = nullptr;
  CALL(cuGraphAddMemcpyNode(&box_node, g3, nullptr, 0, &copy, w.context));
  run(w, g3);
  VALUE(all_words(w.c));
  // Fills.
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = w.a, fill.value = 0xab, fill.elementSize = 1, fill.width = 10, fill.height = 1;
  CUgraphNode fill_node = nullptr;
  CALL(cuGraphAddMemsetNode(&fill_node, g3, &box_node, 1, &fill, w.context));
  fill.elementSize = 3;
  CALL(cuGraphAddMemsetNode(&bad, g3, nullptr, 0, &fill, w.context));
  fill.elementSize = 1, fill.width = 0;
  if (CALL(cuGraphAddMemsetNode(&bad, g3, nullptr, 0, &fill, w.context)) == CUDA_SUCCESS)
    NEED(cuGraphDestroyNode(bad));
  fill.width = 10, fill.value = 0x1ab;
  if (CALL(cuGraphAddMemsetNode(&bad, g3, nullptr, 0, &fill, w.context)) == CUDA_SUCCESS)
    NEED(cuGraphDestroyNode(bad));
  fill.dst = w.a + 64, fill.value = 0x12345678, fill.elementSize = 4, fill.width = 5,
  fill.height = 3, fill.pitch = 64;
  CALL(cuGraphAddMemsetNode(&bad, g3, &fill_node, 1, &fill, w.context));
  run(w, g3);
  VALUE(word(w.a));
  VALUE(word(w.a, 2));
  VALUE(word(w.a, 16 + 16 * 2 + 4));
  VALUE(all_words(w.a));
  CUDA_MEMSET_NODE_PARAMS fill_has{};
  CALL(cuGraphMemsetNodeGetParams(fill_node, &fill_has));
  VALUE(fill_has.value);
  fill_has.value = 0xcd;
  CALL(cuGraphMemsetNodeSetParams(fill_node, &fill_has));
  CUgraphExec exec = nullptr;
  NEED(cuGraphInstantiate(&exec, g3, 0));
  fill_has.value = 0xef;
  CALL(cuGraphExecMemsetNodeSetParams(exec, fill_node, &fill_has, w.context));
  CALL(cuGraphNodeSetEnabled(exec, box_node, 0));
  NEED(cuMemsetD32(w.c, 5, kWords));
  NEED(cuCtxSynchronize());
  NEED(cuGraphLaunch(exec, w.s));
  NEED(cuStreamSynchronize(w.s));
  VALUE(word(w.a));
  VALUE(all_words(w.c));
  NEED(cuGraphExecDestroy(exec));
  // Changes of copies.
  NEED(cuGraphInstantiate(&exec, g, 0));
  copy = box(CU_MEMORYTYPE_DEVICE, w.c, CU_MEMORYTYPE_DEVICE, w.a, 4 * kWords);
  CALL(cuGraphExecMemcpyNodeSetParams(exec, over, &copy, w.context));
  copy = box(CU_MEMORYTYPE_HOST, at(out), CU_MEMORYTYPE_DEVICE, w.a, 4 * kWords);
  CALL(cuGraphExecMemcpyNodeSetParams(exec, over, &copy, w.context));
  CALL(cuGraphMemcpyNodeSetParams(over, &copy));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(g3));
  NEED(cuGraphDestroy(g));
}

namespace {
struct Notice {
  std::atomic<int> calls{0};
  uint32_t* from = nullptr;
  uint32_t seen = 0, write = 0;
};
void notify(void* data) {
  auto* notice = static_cast<Notice*>(data);
  ++notice->calls;
  notice->seen = *notice->from;
  *notice->from = notice->write;
}
}  // namespace

void hosts_and_events(const World& w) {
  CUgraph g = nullptr;
  NEED(cuGraphCreate(&g, 0));
  // Pinned: NVIDIA's driver 580 reads pageable memory before the function has written it.
  uint32_t* cell = nullptr;
  NEED(cuMemAllocHost(reinterpret_cast<void**>(&cell), 4));
  *cell = 0;
  Notice notice;
  notice.from = cell, notice.write = 50;
  CUDA_HOST_NODE_PARAMS host{nullptr, &notice};
  CUgraphNode fill = nullptr, down = nullptr, call = nullptr, up = nullptr, record = nullptr,
              wait = nullptr;
  CALL(cuGraphAddHostNode(&call, g, nullptr, 0, &host));
  host.fn = notify;
  CUDA_MEMSET_NODE_PARAMS four{};
  four.dst = w.a, four.value = 44, four.elementSize = 4, four.width = 1, four.height = 1;
  NEED(cuGraphAddMemsetNode(&fill, g, nullptr, 0, &four, w.context));
  CUDA_MEMCPY3D copy =
      box(CU_MEMORYTYPE_HOST, reinterpret_cast<CUdeviceptr>(cell), CU_MEMORYTYPE_DEVICE, w.a, 4);
  NEED(cuGraphAddMemcpyNode(&down, g, &fill, 1, &copy, w.context));
  CALL(cuGraphAddHostNode(&call, g, &down, 1, &host));
  copy = box(CU_MEMORYTYPE_DEVICE, w.b, CU_MEMORYTYPE_HOST, reinterpret_cast<CUdeviceptr>(cell), 4);
  NEED(cuGraphAddMemcpyNode(&up, g, &call, 1, &copy, w.context));
  CALL(cuGraphAddEventRecordNode(&record, g, &up, 1, nullptr));
  CALL(cuGraphAddEventRecordNode(&record, g, &up, 1, w.e));
  CALL(cuGraphAddEventWaitNode(&wait, g, &record, 1, w.f));
  CUevent has = nullptr;
  CALL(cuGraphEventRecordNodeGetEvent(record, &has));
  VALUE(has == w.e);
  CALL(cuGraphEventWaitNodeGetEvent(wait, &has));
  VALUE(has == w.f);
  CALL(cuGraphEventWaitNodeGetEvent(record, &has));
  CUDA_HOST_NODE_PARAMS host_has{};
  CALL(cuGraphHostNodeGetParams(call, &host_has));
  VALUE(host_has.fn == notify && host_has.userData == &notice);
  clear(w);
  run(w, g);
  CALL(cuEventSynchronize(w.e));
  VALUE(notice.calls);
  VALUE(notice.seen);
  VALUE(word(w.b));  // what the function wrote
  Notice second;
  second.from = cell, second.write = 60;
  CUgraphExec exec = nullptr;
  NEED(cuGraphInstantiate(&exec, g, 0));
  host.userData = &second;
  CALL(cuGraphExecHostNodeSetParams(exec, call, &host));
  CALL(cuGraphExecEventRecordNodeSetEvent(exec, record, w.f));
  CALL(cuGraphExecEventWaitNodeSetEvent(exec, wait, w.e));
  CALL(cuGraphNodeSetEnabled(exec, call, 0));
  NEED(cuGraphLaunch(exec, w.s));
  NEED(cuStreamSynchronize(w.s));
  VALUE(notice.calls);
  VALUE(second.calls);
  VALUE(word(w.b));
  // Values, as nodes.
  CUstreamBatchMemOpParams ops[2];
  std::memset(ops, 0, sizeof ops);
  ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  ops[0].writeValue.address = w.a, ops[0].writeValue.value = 321;
  ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  ops[1].waitValue.address = w.a, ops[1].waitValue.value = 321,
  ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{w.context, 0, ops, 0};
  CUgraph values = nullptr;
  NEED(cuGraphCreate(&values, 0));
  CUgraphNode op = nullptr;
  CALL(cuGraphAddBatchMemOpNode(&op, values, nullptr, 0, &batch));
  batch.count = 2;
  CALL(cuGraphAddBatchMemOpNode(&op, values, nullptr, 0, &batch));
  run(w, values);
  VALUE(word(w.a));
  NEED(cuGraphDestroy(values));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(g));
  NEED(cuMemFreeHost(cell));
}

}  // namespace sluice::graph_calls
