// SPDX-License-Identifier: Apache-2.0
// What libcudart.so.12 has beside what is the same in 13: older and newer forms of graph, capture
// and managed-memory calls, and the functions of threads that devices replaced.
#include <sys/wait.h>
#include <unistd.h>

#include "guest-agent/cudart/properties.h"
#include "tests/cudart/gate/cases/graph_cases.h"

using namespace sluice::cudart;

namespace {

class TwelveCases : public GraphCases {};

TEST_F(TwelveCases, EdgesInBothForms) {
  cudaGraphNode_t first = nullptr, second = nullptr, third = nullptr;
  cudaGraphNode_t from[4] = {}, to[4] = {};
  cudaGraphEdgeData edges[4] = {};
  size_t count = 4;
  OK(cudaGraphAddEmptyNode(&first, graph_, nullptr, 0));
  OK(cudaGraphAddEmptyNode(&second, graph_, nullptr, 0));
  OK(cudaGraphAddEmptyNode(&third, graph_, nullptr, 0));
  OK(cudaGraphAddDependencies(graph_, &first, &second, 1));
  OK(cudaGraphAddDependencies_v2(graph_, &second, &third, edges, 1));
  OK(cudaGraphGetEdges(graph_, from, to, &count));
  EXPECT_EQ(count, 2u);
  count = 4;
  OK(cudaGraphGetEdges_v2(graph_, from, to, edges, &count));
  EXPECT_EQ(count, 2u);
  count = 4;
  OK(cudaGraphNodeGetDependencies(third, from, &count));
  EXPECT_EQ(count, 1u);
  count = 4;
  OK(cudaGraphNodeGetDependencies_v2(third, from, edges, &count));
  EXPECT_EQ(from[0], second);
  count = 4;
  OK(cudaGraphNodeGetDependentNodes(first, to, &count));
  EXPECT_EQ(count, 1u);
  count = 4;
  OK(cudaGraphNodeGetDependentNodes_v2(first, to, edges, &count));
  EXPECT_EQ(to[0], second);
  OK(cudaGraphRemoveDependencies(graph_, &first, &second, 1));
  OK(cudaGraphRemoveDependencies_v2(graph_, &second, &third, edges, 1));
  OK(cudaGraphGetEdges(graph_, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0u);
  REFUSED(cudaGraphAddDependencies(graph_, &first, &first, 1));
  REFUSED(cudaGraphAddDependencies_v2(graph_, &first, &first, nullptr, 1));
  REFUSED(cudaGraphRemoveDependencies(graph_, &first, &second, 1));
  REFUSED(cudaGraphRemoveDependencies_v2(graph_, &first, &second, nullptr, 1));
  REFUSED(cudaGraphGetEdges_v2(nullptr, nullptr, nullptr, nullptr, &count));
  REFUSED(cudaGraphNodeGetDependencies_v2(nullptr, nullptr, nullptr, &count));
  REFUSED(cudaGraphNodeGetDependentNodes_v2(nullptr, nullptr, nullptr, &count));
}

TEST_F(TwelveCases, NodesInBothForms) {
  cudaGraphNode_t first = nullptr, second = nullptr;
  cudaGraphNodeParams any = {};
  any.type = kFillNode;
  any.memset = fill_of(1);
  OK(cudaGraphAddNode(&first, graph_, nullptr, 0, &any));
  any.memset = fill_of(2);
  OK(cudaGraphAddNode_v2(&second, graph_, &first, nullptr, 1, &any));
  run();
  EXPECT_EQ(memory_[0], 0x02020202);
  REFUSED(cudaGraphAddNode(nullptr, graph_, nullptr, 0, &any));
  REFUSED(cudaGraphAddNode_v2(nullptr, graph_, nullptr, nullptr, 0, &any));
  any.type = 99;
  REFUSED(cudaGraphAddNode_v2(&second, graph_, nullptr, nullptr, 0, &any));
}

TEST_F(TwelveCases, CapturesInAllForms) {
  constexpr int kThreadLocal = 1, kCapturing = 1;
  constexpr unsigned kSetDependencies = 1;
  int status = -1;
  unsigned long long id = 0, same = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  OK(cudaStreamBeginCapture(stream_, kThreadLocal));
  OK(cudaMemsetAsync(memory_.at(), 1, 4, stream_));
  OK(cudaStreamGetCaptureInfo(stream_, &status, &id));
  EXPECT_EQ(status, kCapturing);
  OK(cudaStreamGetCaptureInfo_v2(stream_, &status, &same, &graph, &nodes, &count));
  EXPECT_EQ(id, same);
  EXPECT_EQ(count, 1u);
  OK(cudaStreamGetCaptureInfo_v3(stream_, &status, &same, &graph, &nodes, &edges, &count));
  EXPECT_EQ(count, 1u);
  OK(cudaStreamUpdateCaptureDependencies(stream_, nullptr, 0, kSetDependencies));
  OK(cudaStreamUpdateCaptureDependencies_v2(stream_, nullptr, nullptr, 0, kSetDependencies));
  OK(cudaStreamEndCapture(stream_, &graph));
  OK(cudaGraphDestroy(graph));
  REFUSED(cudaStreamGetCaptureInfo(stream_, nullptr, &id));
  REFUSED(cudaStreamGetCaptureInfo_v2(stream_, nullptr, &id, &graph, &nodes, &count));
  REFUSED(cudaStreamGetCaptureInfo_v3(stream_, nullptr, &id, &graph, &nodes, &edges, &count));
  REFUSED(cudaStreamUpdateCaptureDependencies(stream_, nullptr, 0, kSetDependencies));
  REFUSED(cudaStreamUpdateCaptureDependencies_v2(stream_, nullptr, nullptr, 0, kSetDependencies));
}

TEST_F(TwelveCases, ManagedMemoryInBothForms) {
  constexpr size_t kBytes = 1 << 16;
  constexpr int kSetReadMostly = 1, kUnsetReadMostly = 2, kReadMostly = 1;
  const cudaMemLocation device{1, 0};
  void* p = nullptr;
  int value = -1;
  OK(cudaMallocManaged(&p, kBytes, 1));
  OK(cudaMemAdvise(p, kBytes, kSetReadMostly, 0));
  OK(cudaMemRangeGetAttribute(&value, sizeof value, kReadMostly, p, kBytes));
  EXPECT_EQ(value, 1);
  OK(cudaMemAdvise_v2(p, kBytes, kUnsetReadMostly, device));
  OK(cudaMemRangeGetAttribute(&value, sizeof value, kReadMostly, p, kBytes));
  EXPECT_EQ(value, 0);
  OK(cudaMemPrefetchAsync(p, kBytes, 0, stream_));
  OK(cudaMemPrefetchAsync_v2(p, kBytes, device, 0, stream_));
  OK(cudaStreamSynchronize(stream_));
  REFUSED(cudaMemAdvise(p, kBytes, 99, 0));
  REFUSED(cudaMemAdvise_v2(p, kBytes, 99, device));
  REFUSED(cudaMemPrefetchAsync(p, 0, 0, stream_));
  REFUSED(cudaMemPrefetchAsync_v2(p, 0, device, 0, stream_));
  OK(cudaFree(p));
}

TEST_F(TwelveCases, EventsAndPropertiesInBothForms) {
  cudaEvent_t event = nullptr;
  float ms = -1;
  OK(cudaEventCreate(&event));
  ANSWERS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime_v2(&ms, event, event));
  OK(cudaEventRecord(event, stream_));
  OK(cudaEventSynchronize(event));
  OK(cudaEventElapsedTime_v2(&ms, event, event));
  EXPECT_EQ(ms, 0);
  OK(cudaEventDestroy(event));
  DeviceProperties12 properties;
  ANSWERS(cudaErrorInvalidDevice, cudaGetDeviceProperties_v2(&properties, -1));
  ANSWERS(cudaErrorInvalidDevice, cudaGetDeviceProperties(&properties, -1));
}

TEST_F(TwelveCases, WhatThreadsWere) {
  constexpr int kStackSize = 0, kPreferShared = 1;
  size_t before = 0, value = 0;
  int config = -1;
  OK(cudaThreadGetLimit(&before, kStackSize));
  OK(cudaThreadSetLimit(kStackSize, 4096));
  OK(cudaThreadGetLimit(&value, kStackSize));
  EXPECT_GE(value, 4096u);
  OK(cudaThreadSetLimit(kStackSize, before));
  OK(cudaThreadSetCacheConfig(kPreferShared));
  OK(cudaThreadGetCacheConfig(&config));
  EXPECT_TRUE(config >= 0 && config <= 3) << config;
  OK(cudaThreadSetCacheConfig(0));
  OK(cudaThreadSynchronize());
  REFUSED(cudaThreadGetLimit(&value, 99));
  REFUSED(cudaThreadSetLimit(99, 1));
  ANSWERS(cudaErrorInvalidValue, cudaThreadGetCacheConfig(nullptr));
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = cudaThreadSynchronize() == cudaErrorInitializationError &&
                         cudaThreadSetCacheConfig(0) == cudaErrorInitializationError &&
                         cudaThreadExit() == cudaErrorInitializationError;
    _exit(refused ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  OK(cudaThreadSynchronize());
}

}  // namespace
