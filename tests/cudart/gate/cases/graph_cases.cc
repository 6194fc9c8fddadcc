// SPDX-License-Identifier: Apache-2.0
// Graphs: edges, clones, children; instantiation, enabled nodes and updates; user objects; memory
// that graphs allocate. Nodes of each kind are in graph_node_cases.cc.
#include "tests/cudart/gate/cases/graph_cases.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

using namespace sluice::cudart;

namespace {

class GraphShapes : public GraphCases {};
class GraphExecs : public GraphCases {};
class GraphObjects : public GraphCases {};

TEST_F(GraphShapes, NodesAndEdges) {
  cudaGraphNode_t first = nullptr, second = nullptr, third = nullptr;
  OK(cudaGraphAddEmptyNode(&first, graph_, nullptr, 0));
  OK(cudaGraphAddEmptyNode(&second, graph_, &first, 1));
  OK(cudaGraphAddEmptyNode(&third, graph_, nullptr, 0));
  OK(cudaGraphAddDependencies(graph_, &second, &third, nullptr, 1));
  cudaGraphNode_t from[4] = {}, to[4] = {};
  size_t count = 4;
  OK(cudaGraphGetNodes(graph_, nullptr, &count));
  EXPECT_EQ(count, 3u);
  count = 4;
  OK(cudaGraphGetRootNodes(graph_, from, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(from[0], first);
  count = 4;
  OK(cudaGraphGetEdges(graph_, from, to, nullptr, &count));
  EXPECT_EQ(count, 2u);
  count = 4;
  OK(cudaGraphNodeGetDependencies(third, from, nullptr, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(from[0], second);
  count = 4;
  OK(cudaGraphNodeGetDependentNodes(first, to, nullptr, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(to[0], second);
  OK(cudaGraphRemoveDependencies(graph_, &second, &third, nullptr, 1));
  count = 4;
  OK(cudaGraphNodeGetDependencies(third, from, nullptr, &count));
  EXPECT_EQ(count, 0u);
  int type = -1;
  OK(cudaGraphNodeGetType(first, &type));
  EXPECT_EQ(type, kEmptyNode);
  OK(cudaGraphDestroyNode(second));
  count = 4;
  OK(cudaGraphGetNodes(graph_, from, &count));
  EXPECT_EQ(count, 2u);
}

TEST_F(GraphShapes, WrongNodesAndEdges) {
  cudaGraphNode_t node = nullptr, other = nullptr;
  cudaGraph_t graph = nullptr;
  size_t count = 1;
  int type = 0;
  OK(cudaGraphAddEmptyNode(&node, graph_, nullptr, 0));
  OK(cudaGraphAddEmptyNode(&other, graph_, nullptr, 0));
  REFUSED(cudaGraphCreate(nullptr, 0));
  REFUSED(cudaGraphCreate(&graph, 5));
  REFUSED(cudaGraphClone(&graph, nullptr));
  EXPECT_EQ(graph, nullptr);
  REFUSED(cudaGraphDestroy(nullptr));
  REFUSED(cudaGraphAddEmptyNode(nullptr, graph_, nullptr, 0));
  REFUSED(cudaGraphAddEmptyNode(&other, nullptr, nullptr, 0));
  REFUSED(cudaGraphAddDependencies(graph_, &node, &node, nullptr, 1));  // to itself
  REFUSED(cudaGraphRemoveDependencies(graph_, &node, &other, nullptr, 1));
  REFUSED(cudaGraphGetNodes(nullptr, nullptr, &count));
  REFUSED(cudaGraphGetRootNodes(nullptr, nullptr, &count));
  REFUSED(cudaGraphGetEdges(nullptr, nullptr, nullptr, nullptr, &count));
  REFUSED(cudaGraphNodeGetDependencies(nullptr, nullptr, nullptr, &count));
  REFUSED(cudaGraphNodeGetDependentNodes(nullptr, nullptr, nullptr, &count));
  REFUSED(cudaGraphNodeGetType(nullptr, &type));
  REFUSED(cudaGraphDestroyNode(nullptr));
  REFUSED(cudaGraphDebugDotPrint(nullptr, nullptr, 0));
  count = 9;
  OK(cudaGraphGetEdges(graph_, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0u);
}

TEST_F(GraphShapes, ClonesFindTheirNodes) {
  cudaGraphNode_t node = add_fill(1), found = nullptr;
  cudaGraph_t clone = nullptr;
  OK(cudaGraphClone(&clone, graph_));
  OK(cudaGraphNodeFindInClone(&found, node, clone));
  EXPECT_NE(found, node);
  cudaMemsetParams fill = {};
  OK(cudaGraphMemsetNodeGetParams(found, &fill));
  EXPECT_EQ(fill.value, 1u);
  found = nullptr;
  REFUSED(cudaGraphNodeFindInClone(&found, node, graph_));
  REFUSED(cudaGraphNodeFindInClone(nullptr, node, clone));
  EXPECT_EQ(found, nullptr);
  OK(cudaGraphDestroy(clone));
}

TEST_F(GraphShapes, PrintedAsDot) {
  add_fill(1);
  const std::string path = testing::TempDir() + "sluice_graph_" + std::to_string(getpid());
  OK(cudaGraphDebugDotPrint(graph_, path.c_str(), 0));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_NE(text.str().find("digraph"), std::string::npos);
  std::remove(path.c_str());
}

TEST_F(GraphShapes, ChildGraphs) {
  cudaGraph_t child = nullptr, inner = nullptr;
  OK(cudaGraphCreate(&child, 0));
  cudaGraphNode_t node = nullptr, fill_node = nullptr;
  const cudaMemsetParams fill = fill_of(3);
  OK(cudaGraphAddMemsetNode(&fill_node, child, nullptr, 0, &fill));
  OK(cudaGraphAddChildGraphNode(&node, graph_, nullptr, 0, child));
  OK(cudaGraphChildGraphNodeGetGraph(node, &inner));
  EXPECT_NE(inner, child);
  cudaGraphExec_t exec = instantiate();
  launch(exec);
  EXPECT_EQ(memory_[0], 0x03030303);
  const cudaMemsetParams other = fill_of(4);
  OK(cudaGraphMemsetNodeSetParams(fill_node, &other));
  OK(cudaGraphExecChildGraphNodeSetParams(exec, node, child));
  launch(exec);
  EXPECT_EQ(memory_[0], 0x04040404);
  REFUSED(cudaGraphAddChildGraphNode(&node, graph_, nullptr, 0, nullptr));
  REFUSED(cudaGraphChildGraphNodeGetGraph(nullptr, &inner));
  REFUSED(cudaGraphExecChildGraphNodeSetParams(exec, nullptr, child));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(child));
}

TEST_F(GraphExecs, Instantiation) {
  constexpr unsigned long long kAutoFree = 1;
  add_fill(1);
  cudaGraphExec_t exec = nullptr;
  unsigned long long flags = 0;
  OK(cudaGraphInstantiateWithFlags(&exec, graph_, kAutoFree));
  OK(cudaGraphExecGetFlags(exec, &flags));
  EXPECT_EQ(flags, kAutoFree);
  OK(cudaGraphUpload(exec, stream_));
  launch(exec);
  OK(cudaGraphLaunch_ptsz(exec, nullptr));
  OK(cudaStreamSynchronize_ptsz(nullptr));
  REFUSED(cudaGraphExecGetFlags(exec, nullptr));
  OK(cudaGraphExecDestroy(exec));
  cudaGraphInstantiateParams params = {};
  OK(cudaGraphInstantiateWithParams(&exec, graph_, &params));
  EXPECT_EQ(params.result_out, 0);
  OK(cudaGraphExecDestroy(exec));
  exec = nullptr;
  REFUSED(cudaGraphInstantiate(nullptr, graph_, 0));
  REFUSED(cudaGraphInstantiate(&exec, nullptr, 0));
  REFUSED(cudaGraphInstantiateWithFlags(&exec, graph_, 1 << 20));
  REFUSED(cudaGraphInstantiateWithParams(&exec, graph_, nullptr));
  REFUSED(cudaGraphUpload(nullptr, stream_));
  REFUSED(cudaGraphLaunch(nullptr, stream_));
  REFUSED(cudaGraphExecDestroy(nullptr));
  EXPECT_EQ(exec, nullptr);
}

TEST_F(GraphExecs, NodesAreEnabledAndDisabled) {
  cudaGraphNode_t node = add_fill(1), empty = nullptr;
  OK(cudaGraphAddEmptyNode(&empty, graph_, nullptr, 0));
  cudaGraphExec_t exec = instantiate();
  unsigned enabled = 9;
  OK(cudaGraphNodeGetEnabled(exec, node, &enabled));
  EXPECT_EQ(enabled, 1u);
  OK(cudaGraphNodeSetEnabled(exec, node, 0));
  launch(exec);
  EXPECT_EQ(memory_[0], 0);
  OK(cudaGraphNodeGetEnabled(exec, node, &enabled));
  EXPECT_EQ(enabled, 0u);
  OK(cudaGraphNodeSetEnabled(exec, node, 1));
  launch(exec);
  EXPECT_EQ(memory_[0], 0x01010101);
  REFUSED(cudaGraphNodeSetEnabled(exec, empty, 0));  // of kernels, copies and fills only
  REFUSED(cudaGraphNodeGetEnabled(exec, nullptr, &enabled));
  OK(cudaGraphExecDestroy(exec));
}

TEST_F(GraphExecs, Updates) {
  constexpr int kSucceeded = 0;
  cudaGraphNode_t node = add_fill(1);
  cudaGraphExec_t exec = instantiate();
  const cudaMemsetParams fill = fill_of(2);
  OK(cudaGraphMemsetNodeSetParams(node, &fill));
  cudaGraphExecUpdateResultInfo info = {};
  info.result = 99;
  OK(cudaGraphExecUpdate(exec, graph_, &info));
  EXPECT_EQ(info.result, kSucceeded);
  launch(exec);
  EXPECT_EQ(memory_[0], 0x02020202);
  cudaGraphNode_t another = nullptr;
  OK(cudaGraphAddEmptyNode(&another, graph_, &node, 1));
  ANSWERS(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(exec, graph_, &info));
  EXPECT_NE(info.result, kSucceeded);
  launch(exec);
  EXPECT_EQ(memory_[0], 0x02020202);
  OK(cudaGraphExecDestroy(exec));
}

// An object lives as long as somebody refers to it; its end may come from another thread, later.
std::atomic<int> objects_ended;
void end_object(void*) { ++objects_ended; }
bool objects_end(int wanted) {
  for (int i = 0; i < 120'000 && objects_ended != wanted; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return objects_ended == wanted;
}

TEST_F(GraphObjects, UserObjects) {
  constexpr unsigned kNoDestructorSync = 1, kMove = 1;
  objects_ended = 0;
  cudaUserObject_t object = nullptr;
  OK(cudaUserObjectCreate(&object, this, end_object, 1, kNoDestructorSync));
  OK(cudaUserObjectRetain(object, 2));
  OK(cudaUserObjectRelease(object, 1));
  OK(cudaGraphRetainUserObject(graph_, object, 1, kMove));
  OK(cudaUserObjectRelease(object, 1));
  EXPECT_EQ(objects_ended, 0);
  OK(cudaGraphReleaseUserObject(graph_, object, 1));
  EXPECT_TRUE(objects_end(1));

  cudaGraph_t graph = nullptr;
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaUserObjectCreate(&object, this, end_object, 1, kNoDestructorSync));
  OK(cudaGraphRetainUserObject(graph, object, 1, kMove));
  OK(cudaGraphDestroy(graph));
  EXPECT_TRUE(objects_end(2));

  object = nullptr;
  REFUSED(cudaUserObjectCreate(nullptr, this, end_object, 1, kNoDestructorSync));
  REFUSED(cudaUserObjectCreate(&object, this, nullptr, 1, kNoDestructorSync));
  REFUSED(cudaUserObjectCreate(&object, this, end_object, 1, 0));
  EXPECT_EQ(object, nullptr);
  REFUSED(cudaUserObjectRetain(nullptr, 1));
  REFUSED(cudaUserObjectRelease(nullptr, 1));
  REFUSED(cudaGraphRetainUserObject(graph_, nullptr, 1, 0));
  REFUSED(cudaGraphReleaseUserObject(graph_, nullptr, 1));
}

TEST_F(GraphObjects, MemoryOfGraphs) {
  cudaMemAllocNodeParams params = {}, back = {};
  params.poolProps.allocType = 1;
  params.poolProps.location = {1, 0};
  params.bytesize = 4096;
  cudaGraphNode_t allocate = nullptr, fill_node = nullptr, copy = nullptr, release = nullptr;
  OK(cudaGraphAddMemAllocNode(&allocate, graph_, nullptr, 0, &params));
  ASSERT_NE(params.dptr, nullptr);
  cudaMemsetParams fill = fill_of(12);
  fill.dst = params.dptr;
  OK(cudaGraphAddMemsetNode(&fill_node, graph_, &allocate, 1, &fill));
  OK(cudaGraphAddMemcpyNode1D(&copy, graph_, &fill_node, 1, memory_.at(), params.dptr, 4,
                              cudaMemcpyDeviceToDevice));
  OK(cudaGraphAddMemFreeNode(&release, graph_, &copy, 1, params.dptr));
  OK(cudaGraphMemAllocNodeGetParams(allocate, &back));
  EXPECT_EQ(back.bytesize, 4096u);
  EXPECT_EQ(back.dptr, params.dptr);
  void* freed = nullptr;
  OK(cudaGraphMemFreeNodeGetParams(release, &freed));
  EXPECT_EQ(freed, params.dptr);
  run();
  EXPECT_EQ(memory_[0], 0x0C0C0C0C);

  constexpr int kUsedNow = 0, kUsedHigh = 1;
  unsigned long long value = 99, zero = 0;
  OK(cudaDeviceGetGraphMemAttribute(0, kUsedNow, &value));
  EXPECT_NE(value, 99u);  // how much stays with graphs is the driver's
  OK(cudaDeviceSetGraphMemAttribute(0, kUsedHigh, &zero));
  OK(cudaDeviceGraphMemTrim(0));
  REFUSED(cudaDeviceGetGraphMemAttribute(1000, kUsedNow, &value));
  REFUSED(cudaDeviceGetGraphMemAttribute(0, 99, &value));
  REFUSED(cudaDeviceSetGraphMemAttribute(0, 99, &zero));
  REFUSED(cudaDeviceGraphMemTrim(1000));
  REFUSED(cudaGraphAddMemAllocNode(&allocate, graph_, nullptr, 0, nullptr));
  REFUSED(cudaGraphAddMemFreeNode(&release, graph_, nullptr, 0, nullptr));
  REFUSED(cudaGraphMemAllocNodeGetParams(nullptr, &back));
  REFUSED(cudaGraphMemFreeNodeGetParams(nullptr, &freed));
}

}  // namespace
