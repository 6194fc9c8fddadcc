// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs, kind by kind: added, run, read, changed in the graph and in what was
// instantiated of it.
#include <atomic>

#include "tests/cudart/gate/cases/graph_cases.h"

using namespace sluice::cudart;

namespace {

class GraphNodes : public GraphCases {};

TEST_F(GraphNodes, Kernels) {
  Memory<float> a(4), b(4), c(4);
  a.fill(1.5f);
  b.fill(2);
  AddArguments arguments{a.at(), b.at(), c.at(), 4};
  cudaKernelNodeParams kernel = {};
  kernel.func = &host_add;
  kernel.gridDim = {1, 1, 1};
  kernel.blockDim = {4, 1, 1};
  kernel.kernelParams = arguments.list;
  cudaGraphNode_t node = nullptr, other = nullptr;
  OK(cudaGraphAddKernelNode(&node, graph_, nullptr, 0, &kernel));
  run();
  EXPECT_EQ(c[3], 3.5f);
  arguments.n = 1;
  b.fill(5);
  OK(cudaGraphKernelNodeSetParams(node, &kernel));
  run();
  EXPECT_EQ(c[0], 6.5f);
  EXPECT_EQ(c[3], 3.5f);
  cudaKernelNodeParams back = {};
  OK(cudaGraphKernelNodeGetParams(node, &back));
  EXPECT_EQ(back.func, &host_add);
  EXPECT_EQ(back.blockDim.x, 4u);
  OK(cudaGraphAddKernelNode(&other, graph_, &node, 1, &kernel));
  constexpr int kPriority = 8;
  cudaLaunchAttributeValue value = {};
  value.cooperative = -1;
  OK(cudaGraphKernelNodeSetAttribute(node, kPriority, &value));
  OK(cudaGraphKernelNodeCopyAttributes(other, node));
  value = {};
  OK(cudaGraphKernelNodeGetAttribute(other, kPriority, &value));
  EXPECT_EQ(value.cooperative, -1);
  cudaGraphExec_t exec = instantiate();
  arguments.n = 4;
  OK(cudaGraphExecKernelNodeSetParams(exec, other, &kernel));
  launch(exec);
  EXPECT_EQ(c[3], 6.5f);
  kernel.func = this;
  REFUSED(cudaGraphAddKernelNode(&other, graph_, nullptr, 0, &kernel));
  REFUSED(cudaGraphKernelNodeSetParams(nullptr, &back));
  REFUSED(cudaGraphKernelNodeGetParams(nullptr, &back));
  REFUSED(cudaGraphExecKernelNodeSetParams(exec, nullptr, &back));
  REFUSED(cudaGraphKernelNodeSetAttribute(nullptr, kPriority, &value));
  REFUSED(cudaGraphKernelNodeGetAttribute(node, 99, &value));
  REFUSED(cudaGraphKernelNodeSetAttribute(node, 99, &value));
  REFUSED(cudaGraphKernelNodeCopyAttributes(node, nullptr));
  OK(cudaGraphExecDestroy(exec));
}

TEST_F(GraphNodes, Copies) {
  int from[2] = {31, 32}, to[2] = {};
  cudaGraphNode_t in = nullptr, out = nullptr, box = nullptr;
  OK(cudaGraphAddMemcpyNode1D(&in, graph_, nullptr, 0, memory_.at(), from, 8,
                              cudaMemcpyHostToDevice));
  OK(cudaGraphAddMemcpyNode1D(&out, graph_, &in, 1, to, memory_.at(), 4, cudaMemcpyDeviceToHost));
  run();
  EXPECT_EQ(to[0], 31);
  EXPECT_EQ(to[1], 0);
  OK(cudaGraphMemcpyNodeSetParams1D(out, to, memory_.at(), 8, cudaMemcpyDeviceToHost));
  cudaGraphExec_t exec = instantiate();
  launch(exec);
  EXPECT_EQ(to[1], 32);
  OK(cudaGraphExecMemcpyNodeSetParams1D(exec, out, to, memory_.at() + 1, 4,
                                        cudaMemcpyDeviceToHost));
  launch(exec);
  EXPECT_EQ(to[0], 32);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = {memory_.at(), 8, 8, 1};
  copy.dstPtr = {memory_.at() + 4, 8, 8, 1};
  copy.extent = {8, 1, 1};
  copy.kind = cudaMemcpyDeviceToDevice;
  OK(cudaGraphAddMemcpyNode(&box, graph_, &in, 1, &copy));
  run();
  EXPECT_EQ(memory_[5], 32);
  cudaMemcpy3DParms back = {};
  OK(cudaGraphMemcpyNodeGetParams(box, &back));
  EXPECT_EQ(back.extent.width, 8u);
  EXPECT_EQ(back.dstPtr.ptr, memory_.at() + 4);
  copy.dstPtr.ptr = memory_.at() + 6;
  OK(cudaGraphMemcpyNodeSetParams(box, &copy));
  OK(cudaGraphExecDestroy(exec));
  exec = instantiate();
  launch(exec);
  EXPECT_EQ(memory_[7], 32);
  copy.dstPtr.ptr = memory_.at() + 2;
  OK(cudaGraphExecMemcpyNodeSetParams(exec, box, &copy));
  launch(exec);
  EXPECT_EQ(memory_[3], 32);

  constexpr int kBadKind = 9;
  REFUSED(cudaGraphAddMemcpyNode1D(&in, graph_, nullptr, 0, memory_.at(), from, 8, kBadKind));
  REFUSED(cudaGraphAddMemcpyNode(&in, graph_, nullptr, 0, nullptr));
  REFUSED(cudaGraphMemcpyNodeSetParams1D(out, to, memory_.at(), 8, kBadKind));
  REFUSED(cudaGraphExecMemcpyNodeSetParams1D(exec, out, to, memory_.at(), 8, kBadKind));
  REFUSED(cudaGraphMemcpyNodeGetParams(nullptr, &back));
  REFUSED(cudaGraphMemcpyNodeSetParams(box, nullptr));
  REFUSED(cudaGraphExecMemcpyNodeSetParams(exec, box, nullptr));
  OK(cudaGraphExecDestroy(exec));
}

TEST_F(GraphNodes, CopiesOfSymbols) {
  int values[2] = {51, 52}, to[2] = {}, before[4] = {};
  OK(cudaMemcpyFromSymbol(before, host_weights, 16, 0, cudaMemcpyDeviceToHost));
  cudaGraphNode_t in = nullptr, out = nullptr;
  OK(cudaGraphAddMemcpyNodeToSymbol(&in, graph_, nullptr, 0, host_weights, values, 8, 0,
                                    cudaMemcpyHostToDevice));
  OK(cudaGraphAddMemcpyNodeFromSymbol(&out, graph_, &in, 1, to, host_weights, 4, 4,
                                      cudaMemcpyDeviceToHost));
  run();
  EXPECT_EQ(to[0], 52);
  OK(cudaGraphMemcpyNodeSetParamsToSymbol(in, host_weights, values + 1, 4, 0,
                                          cudaMemcpyHostToDevice));
  OK(cudaGraphMemcpyNodeSetParamsFromSymbol(out, to, host_weights, 8, 0, cudaMemcpyDeviceToHost));
  cudaGraphExec_t exec = instantiate();
  launch(exec);
  EXPECT_EQ(to[0], 52);
  EXPECT_EQ(to[1], 52);
  OK(cudaGraphExecMemcpyNodeSetParamsToSymbol(exec, in, host_weights, values, 4, 4,
                                              cudaMemcpyHostToDevice));
  OK(cudaGraphExecMemcpyNodeSetParamsFromSymbol(exec, out, to, host_weights, 4, 4,
                                                cudaMemcpyDeviceToHost));
  launch(exec);
  EXPECT_EQ(to[0], 51);
  OK(cudaMemcpyToSymbol(host_weights, before, 16, 0, cudaMemcpyHostToDevice));

  REFUSED(cudaGraphAddMemcpyNodeToSymbol(&in, graph_, nullptr, 0, host_weights, values, 8, 12,
                                         cudaMemcpyHostToDevice));
  REFUSED(cudaGraphAddMemcpyNodeFromSymbol(&out, graph_, nullptr, 0, to, host_weights, 8, 12,
                                           cudaMemcpyDeviceToHost));
  REFUSED(cudaGraphMemcpyNodeSetParamsToSymbol(in, host_weights, values, 8, 12,
                                               cudaMemcpyHostToDevice));
  REFUSED(
      cudaGraphMemcpyNodeSetParamsFromSymbol(out, to, host_weights, 8, 12, cudaMemcpyDeviceToHost));
  REFUSED(cudaGraphExecMemcpyNodeSetParamsToSymbol(exec, in, host_weights, values, 8, 12,
                                                   cudaMemcpyHostToDevice));
  REFUSED(cudaGraphExecMemcpyNodeSetParamsFromSymbol(exec, out, to, host_weights, 8, 12,
                                                     cudaMemcpyDeviceToHost));
  OK(cudaGraphExecDestroy(exec));
}

TEST_F(GraphNodes, Fills) {
  cudaGraphNode_t node = add_fill(1), wrong = nullptr;
  cudaMemsetParams fill = fill_of(2, 8), back = {};
  OK(cudaGraphMemsetNodeSetParams(node, &fill));
  OK(cudaGraphMemsetNodeGetParams(node, &back));
  EXPECT_EQ(back.value, 2u);
  EXPECT_EQ(back.width, 8u);
  cudaGraphExec_t exec = instantiate();
  launch(exec);
  EXPECT_EQ(memory_[1], 0x02020202);
  EXPECT_EQ(memory_[2], 0);
  fill.value = 3;
  OK(cudaGraphExecMemsetNodeSetParams(exec, node, &fill));
  launch(exec);
  EXPECT_EQ(memory_[1], 0x03030303);
  fill.elementSize = 3;
  REFUSED(cudaGraphAddMemsetNode(&wrong, graph_, nullptr, 0, &fill));
  REFUSED(cudaGraphAddMemsetNode(&wrong, graph_, nullptr, 0, nullptr));
  REFUSED(cudaGraphMemsetNodeSetParams(node, &fill));
  REFUSED(cudaGraphMemsetNodeGetParams(nullptr, &back));
  REFUSED(cudaGraphExecMemsetNodeSetParams(exec, node, &fill));
  EXPECT_EQ(wrong, nullptr);
  launch(exec);
  EXPECT_EQ(memory_[1], 0x03030303);
  OK(cudaGraphExecDestroy(exec));
}

std::atomic<int> graph_calls;
void count_call(void* user) { graph_calls += user != nullptr ? *static_cast<int*>(user) : 1; }

TEST_F(GraphNodes, HostFunctions) {
  int by = 10;
  graph_calls = 0;
  cudaHostNodeParams host = {count_call, nullptr}, back = {};
  cudaGraphNode_t node = nullptr;
  OK(cudaGraphAddHostNode(&node, graph_, nullptr, 0, &host));
  run();
  EXPECT_EQ(graph_calls, 1);
  host.userData = &by;
  OK(cudaGraphHostNodeSetParams(node, &host));
  OK(cudaGraphHostNodeGetParams(node, &back));
  EXPECT_EQ(back.userData, &by);
  cudaGraphExec_t exec = instantiate();
  launch(exec);
  EXPECT_EQ(graph_calls, 11);
  host.userData = nullptr;
  OK(cudaGraphExecHostNodeSetParams(exec, node, &host));
  launch(exec);
  EXPECT_EQ(graph_calls, 12);
  REFUSED(cudaGraphAddHostNode(&node, graph_, nullptr, 0, nullptr));
  REFUSED(cudaGraphHostNodeSetParams(nullptr, &host));
  REFUSED(cudaGraphHostNodeGetParams(nullptr, &back));
  REFUSED(cudaGraphExecHostNodeSetParams(exec, nullptr, &host));
  OK(cudaGraphExecDestroy(exec));
}

TEST_F(GraphNodes, Events) {
  cudaEvent_t one = nullptr, other = nullptr, got = nullptr;
  OK(cudaEventCreate(&one));
  OK(cudaEventCreate(&other));
  cudaGraphNode_t fill = add_fill(6), record = nullptr, wait = nullptr;
  OK(cudaGraphAddEventRecordNode(&record, graph_, &fill, 1, one));
  OK(cudaGraphAddEventWaitNode(&wait, graph_, &record, 1, one));
  OK(cudaGraphEventRecordNodeGetEvent(record, &got));
  EXPECT_EQ(got, one);
  OK(cudaGraphEventWaitNodeGetEvent(wait, &got));
  EXPECT_EQ(got, one);
  OK(cudaGraphEventRecordNodeSetEvent(record, other));
  OK(cudaGraphEventWaitNodeSetEvent(wait, other));
  OK(cudaGraphEventRecordNodeGetEvent(record, &got));
  EXPECT_EQ(got, other);
  cudaGraphExec_t exec = instantiate();
  OK(cudaGraphExecEventRecordNodeSetEvent(exec, record, one));
  OK(cudaGraphExecEventWaitNodeSetEvent(exec, wait, one));
  OK(cudaGraphLaunch(exec, stream_));
  OK(cudaEventSynchronize(one));
  OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(memory_[0], 0x06060606);
  float ms = 0;
  ANSWERS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, other, other));
  REFUSED(cudaGraphAddEventRecordNode(&record, graph_, nullptr, 0, nullptr));
  REFUSED(cudaGraphAddEventWaitNode(&wait, graph_, nullptr, 0, nullptr));
  REFUSED(cudaGraphEventRecordNodeGetEvent(nullptr, &got));
  REFUSED(cudaGraphEventWaitNodeGetEvent(nullptr, &got));
  REFUSED(cudaGraphEventRecordNodeSetEvent(record, nullptr));
  REFUSED(cudaGraphEventWaitNodeSetEvent(wait, nullptr));
  REFUSED(cudaGraphExecEventRecordNodeSetEvent(exec, record, nullptr));
  REFUSED(cudaGraphExecEventWaitNodeSetEvent(exec, wait, nullptr));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaEventDestroy(one));
  OK(cudaEventDestroy(other));
}

TEST_F(GraphNodes, OfAnyKind) {
  cudaGraphNode_t node = nullptr;
  cudaGraphNodeParams any = {};
  any.type = kFillNode;
  any.memset = fill_of(7);
  OK(cudaGraphAddNode(&node, graph_, nullptr, nullptr, 0, &any));
  run();
  EXPECT_EQ(memory_[0], 0x07070707);
  any.memset.value = 8;
  OK(cudaGraphNodeSetParams(node, &any));
  cudaGraphExec_t exec = instantiate();
  launch(exec);
  EXPECT_EQ(memory_[0], 0x08080808);
  any.memset.value = 9;
  OK(cudaGraphExecNodeSetParams(exec, node, &any));
  launch(exec);
  EXPECT_EQ(memory_[0], 0x09090909);
  REFUSED(cudaGraphNodeSetParams(nullptr, &any));
  REFUSED(cudaGraphExecNodeSetParams(exec, nullptr, &any));
  any.type = 99;
  node = nullptr;
  REFUSED(cudaGraphAddNode(&node, graph_, nullptr, nullptr, 0, &any));
  EXPECT_EQ(node, nullptr);
  OK(cudaGraphExecDestroy(exec));
}

TEST_F(GraphNodes, Conditions) {
  constexpr unsigned kAssignDefault = 1;
  constexpr int kIf = 0;
  for (const unsigned value : {0u, 1u}) {
    cudaGraph_t graph = nullptr;
    OK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle = 0;
    OK(cudaGraphConditionalHandleCreate(&handle, graph, value, kAssignDefault));
    cudaGraphNodeParams condition = {};
    condition.type = kConditionalNode;
    condition.conditional = {handle, kIf, 1, nullptr};
    cudaGraphNode_t node = nullptr, inner = nullptr;
    OK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &condition));
    ASSERT_NE(condition.conditional.phGraph_out, nullptr);
    const cudaMemsetParams fill = fill_of(11);
    OK(cudaGraphAddMemsetNode(&inner, condition.conditional.phGraph_out[0], nullptr, 0, &fill));
    cudaGraphExec_t exec = nullptr;
    OK(cudaGraphInstantiate(&exec, graph, 0));
    launch(exec);
    EXPECT_EQ(memory_[0], value != 0 ? 0x0B0B0B0B : 0);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
  }
  cudaGraphConditionalHandle handle = 0;
  REFUSED(cudaGraphConditionalHandleCreate(nullptr, graph_, 0, kAssignDefault));
  REFUSED(cudaGraphConditionalHandleCreate(&handle, nullptr, 0, kAssignDefault));
}

// No vGPU has external semaphores; what describes none is refused everywhere.
TEST_F(GraphNodes, ExternalSemaphores) {
  cudaGraphNode_t node = nullptr, empty = nullptr;
  OK(cudaGraphAddEmptyNode(&empty, graph_, nullptr, 0));
  cudaGraphExec_t exec = instantiate();
  REFUSED(cudaGraphAddExternalSemaphoresSignalNode(&node, graph_, nullptr, 0, nullptr));
  REFUSED(cudaGraphAddExternalSemaphoresWaitNode(&node, graph_, nullptr, 0, nullptr));
  REFUSED(cudaGraphExternalSemaphoresSignalNodeGetParams(empty, nullptr));
  REFUSED(cudaGraphExternalSemaphoresWaitNodeGetParams(empty, nullptr));
  REFUSED(cudaGraphExternalSemaphoresSignalNodeSetParams(empty, nullptr));
  REFUSED(cudaGraphExternalSemaphoresWaitNodeSetParams(empty, nullptr));
  REFUSED(cudaGraphExecExternalSemaphoresSignalNodeSetParams(exec, empty, nullptr));
  REFUSED(cudaGraphExecExternalSemaphoresWaitNodeSetParams(exec, empty, nullptr));
  EXPECT_EQ(node, nullptr);
  OK(cudaGraphExecDestroy(exec));
}

}  // namespace
