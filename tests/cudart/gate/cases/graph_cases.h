// SPDX-License-Identifier: Apache-2.0
// A graph that ends with the case, memory for its nodes, and running it once.
#pragma once

#include "tests/cudart/gate/cases/cases.h"

namespace sluice::cudart {

// By cudaGraphNodeType.
enum NodeType : int {
  kKernelNode = 0,
  kCopyNode = 1,
  kFillNode = 2,
  kHostNode = 3,
  kChildNode = 4,
  kEmptyNode = 5,
  kConditionalNode = 13
};

class GraphCases : public Cases {
 protected:
  void SetUp() override {
    Cases::SetUp();
    OK(cudaGraphCreate(&graph_, 0));
  }
  void TearDown() override {
    OK(cudaGraphDestroy(graph_));
    Cases::TearDown();
  }
  cudaMemsetParams fill_of(int byte, size_t count = 4) const {
    return {memory_.at(), 0, static_cast<unsigned>(byte), 1, count, 1};
  }
  cudaGraphNode_t add_fill(int byte, const cudaGraphNode_t* after = nullptr) {
    const cudaMemsetParams fill = fill_of(byte);
    cudaGraphNode_t node = nullptr;
    OK(cudaGraphAddMemsetNode(&node, graph_, after, after != nullptr ? 1 : 0, &fill));
    return node;
  }
  cudaGraphExec_t instantiate() {
    cudaGraphExec_t exec = nullptr;
    OK(cudaGraphInstantiate(&exec, graph_, 0));
    return exec;
  }
  void launch(cudaGraphExec_t exec) {
    OK(cudaGraphLaunch(exec, stream_));
    OK(cudaStreamSynchronize(stream_));
  }
  void run() {
    cudaGraphExec_t exec = instantiate();
    launch(exec);
    OK(cudaGraphExecDestroy(exec));
  }

  cudaGraph_t graph_ = nullptr;
  Memory<int> memory_{8};
  Stream stream_;
};

}  // namespace sluice::cudart
