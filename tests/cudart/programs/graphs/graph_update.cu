// SPDX-License-Identifier: Apache-2.0
// A graph is captured again with other parameters and updates what was instantiated.
#include "../check.h"

__global__ void add(int* p, int by) { atomicAdd(p, by); }

cudaGraph_t capture(cudaStream_t stream, int* p, int by) {
  cudaGraph_t graph = nullptr;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  add<<<1, 32, 0, stream>>>(p, by);
  OK(cudaMemcpyAsync(p + 1, p, sizeof(int), cudaMemcpyDeviceToDevice, stream));
  OK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

int main() {
  int *p, host[2];
  OK(cudaMalloc(&p, 2 * sizeof(int)));
  OK(cudaMemset(p, 0, 2 * sizeof(int)));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  cudaGraph_t first = capture(stream, p, 1), second = capture(stream, p, 10), clone;
  cudaGraphExec_t exec;
  OK(cudaGraphInstantiate(&exec, first, 0));
  OK(cudaGraphLaunch(exec, stream));
  cudaGraphExecUpdateResultInfo info;
  OK(cudaGraphExecUpdate(exec, second, &info));
  CHECK(info.result == cudaGraphExecUpdateSuccess);
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaMemcpyAsync(host, p, sizeof host, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(host[0] == 32 * 21 && host[1] == 32 * 21);
  OK(cudaGraphClone(&clone, first));
  size_t nodes = 0, edges = 0;
  OK(cudaGraphGetNodes(clone, nullptr, &nodes));
  OK(cudaGraphGetEdges(clone, nullptr, nullptr, nullptr, &edges));
  CHECK(nodes == 2 && edges == 1);
  OK(cudaGraphExecDestroy(exec));
  for (cudaGraph_t g : {first, second, clone}) OK(cudaGraphDestroy(g));
  OK(cudaStreamDestroy(stream));
  return result();
}
