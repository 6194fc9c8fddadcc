// SPDX-License-Identifier: Apache-2.0
// Capture: what a stream records, what may not be done while it does, and what is reported of it.
#include "tests/cudart/gate/cases/graph_cases.h"

using namespace sluice::cudart;

namespace {

constexpr int kGlobal = 0, kThreadLocal = 1, kRelaxed = 2;
constexpr int kNotCapturing = 0, kCapturing = 1, kInvalidated = 2;
class CaptureCases : public GraphCases {};

TEST_F(CaptureCases, RecordsWhatTheStreamIsGiven) {
  int status = -1;
  OK(cudaStreamIsCapturing(stream_, &status));
  EXPECT_EQ(status, kNotCapturing);
  OK(cudaStreamBeginCapture(stream_, kGlobal));
  OK(cudaMemsetAsync(memory_.at(), 1, 4, stream_));
  OK(cudaMemsetAsync(memory_.at() + 1, 2, 4, stream_));
  OK(cudaStreamIsCapturing(stream_, &status));
  EXPECT_EQ(status, kCapturing);
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(stream_, &graph));
  EXPECT_EQ(memory_[0], 0);
  size_t count = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 2u);
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  launch(exec);
  EXPECT_EQ(memory_[0], 0x01010101);
  EXPECT_EQ(memory_[1], 0x02020202);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
}

TEST_F(CaptureCases, TheLegacyStreamMeanwhile) {
  int status = -1;
  cudaGraph_t graph = nullptr;
  const auto legacy = reinterpret_cast<cudaStream_t>(1);
  OK(cudaStreamIsCapturing(legacy, &status));
  EXPECT_EQ(status, kNotCapturing);
  OK(cudaStreamBeginCapture(stream_, kGlobal));
  ANSWERS(cudaErrorStreamCaptureImplicit, cudaStreamIsCapturing(legacy, &status));
  OK(cudaStreamEndCapture(stream_, &graph));  // which the question leaves alone
  OK(cudaGraphDestroy(graph));
}

TEST_F(CaptureCases, IntoAGraphThatIsThere) {
  cudaGraphNode_t first = add_fill(1);
  OK(cudaStreamBeginCaptureToGraph(stream_, graph_, &first, nullptr, 1, kThreadLocal));
  OK(cudaMemsetAsync(memory_.at(), 2, 4, stream_));
  cudaGraph_t same = nullptr;
  OK(cudaStreamEndCapture(stream_, &same));
  EXPECT_EQ(same, graph_);
  run();
  EXPECT_EQ(memory_[0], 0x02020202);
  REFUSED(cudaStreamBeginCaptureToGraph(stream_, nullptr, nullptr, nullptr, 0, kThreadLocal));
}

TEST_F(CaptureCases, WhatIsReported) {
  int status = -1;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr, ended = nullptr;
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;
  OK(cudaStreamGetCaptureInfo(stream_, &status, &id, &graph, &nodes, nullptr, &count));
  EXPECT_EQ(status, kNotCapturing);
  OK(cudaStreamBeginCapture(stream_, kRelaxed));
  OK(cudaMemsetAsync(memory_.at(), 1, 4, stream_));
  OK(cudaStreamGetCaptureInfo(stream_, &status, &id, &graph, &nodes, nullptr, &count));
  EXPECT_EQ(status, kCapturing);
  EXPECT_NE(graph, nullptr);
  ASSERT_EQ(count, 1u);
  // What comes next depends on nothing any more.
  constexpr unsigned kSetDependencies = 1;
  OK(cudaStreamUpdateCaptureDependencies(stream_, nullptr, nullptr, 0, kSetDependencies));
  OK(cudaStreamGetCaptureInfo(stream_, &status, &id, &graph, &nodes, nullptr, &count));
  EXPECT_EQ(count, 0u);
  REFUSED(cudaStreamUpdateCaptureDependencies(stream_, nullptr, nullptr, 0, 77));
  OK(cudaStreamEndCapture(stream_, &ended));
  EXPECT_EQ(ended, graph);
  OK(cudaGraphDestroy(ended));
  REFUSED(cudaStreamUpdateCaptureDependencies(stream_, nullptr, nullptr, 0, kSetDependencies));
  REFUSED(cudaStreamGetCaptureInfo(stream_, nullptr, &id, &graph, &nodes, nullptr, &count));
  REFUSED(cudaStreamIsCapturing(stream_, nullptr));
}

TEST_F(CaptureCases, OtherStreamsJoinByEvents) {
  Stream other;
  cudaEvent_t fork = nullptr, join = nullptr;
  OK(cudaEventCreate(&fork));
  OK(cudaEventCreate(&join));
  OK(cudaStreamBeginCapture(stream_, kGlobal));
  OK(cudaEventRecord(fork, stream_));
  OK(cudaStreamWaitEvent(other, fork, 0));
  OK(cudaMemsetAsync(memory_.at(), 5, 4, other));
  OK(cudaEventRecord(join, other));
  cudaGraph_t graph = nullptr;
  REFUSED(cudaEventQuery(join));  // of a capture; which it invalidates
  ANSWERS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream_, &graph));
  EXPECT_EQ(graph, nullptr);

  OK(cudaStreamBeginCapture(stream_, kGlobal));
  OK(cudaEventRecord(fork, stream_));
  OK(cudaStreamWaitEvent(other, fork, 0));
  OK(cudaMemsetAsync(memory_.at(), 5, 4, other));
  ANSWERS(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(stream_, &graph));
  EXPECT_EQ(graph, nullptr);

  OK(cudaStreamBeginCapture(stream_, kGlobal));
  OK(cudaEventRecord(fork, stream_));
  OK(cudaStreamWaitEvent(other, fork, 0));
  OK(cudaMemsetAsync(memory_.at(), 5, 4, other));
  OK(cudaEventRecord(join, other));
  OK(cudaStreamWaitEvent(stream_, join, 0));
  OK(cudaStreamEndCapture(stream_, &graph));
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  launch(exec);
  EXPECT_EQ(memory_[0], 0x05050505);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaEventDestroy(fork));
  OK(cudaEventDestroy(join));
}

TEST_F(CaptureCases, WaitsInvalidateIt) {
  int status = -1;
  cudaGraph_t graph = nullptr;
  OK(cudaStreamBeginCapture(stream_, kThreadLocal));
  ANSWERS(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream_));
  OK(cudaStreamIsCapturing(stream_, &status));
  EXPECT_EQ(status, kInvalidated);
  ANSWERS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream_, &graph));
  OK(cudaStreamIsCapturing(stream_, &status));
  EXPECT_EQ(status, kNotCapturing);
  OK(cudaStreamBeginCapture(stream_, kThreadLocal));
  ANSWERS(cudaErrorStreamCaptureUnsupported, cudaStreamQuery(stream_));
  ANSWERS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream_, &graph));
  EXPECT_EQ(graph, nullptr);
}

TEST_F(CaptureCases, WrongCaptures) {
  cudaGraph_t graph = nullptr;
  ANSWERS(cudaErrorStreamCaptureUnsupported, cudaStreamBeginCapture(nullptr, kGlobal));
  REFUSED(cudaStreamBeginCapture(stream_, 77));
  REFUSED(cudaStreamEndCapture(stream_, &graph));
  OK(cudaStreamBeginCapture(stream_, kThreadLocal));
  REFUSED(cudaStreamBeginCapture(stream_, kThreadLocal));
  cudaStreamEndCapture(stream_, &graph);
  cudaGetLastError();
  if (graph != nullptr) OK(cudaGraphDestroy(graph));
}

// Modes are the thread's, and come back with each exchange.
TEST_F(CaptureCases, ModesOfThreads) {
  int mode = kRelaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, kGlobal);
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, kRelaxed);
  // NVIDIA's library takes modes that there are not, and ends with a null pointer.
}

}  // namespace
