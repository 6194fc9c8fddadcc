// SPDX-License-Identifier: Apache-2.0
// Graphs: captured, built by hand, changed, cloned, and launched several times.
#include <vector>

#include "../check.h"

__global__ void add(int* p, int n, int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] += by;
}

constexpr int kCount = 1000;

void captured(int* p) {
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  cudaStreamCaptureStatus status;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  OK(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  OK(cudaMemsetAsync(p, 0, kCount * sizeof(int), stream));
  add<<<8, 128, 0, stream>>>(p, kCount, 5);
  add<<<8, 128, 0, stream>>>(p, kCount, 6);
  cudaGraph_t graph;
  OK(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == 3);
  cudaGraphExec_t exec;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) OK(cudaGraphLaunch(exec, stream));
  std::vector<int> host(kCount);
  OK(cudaMemcpyAsync(host.data(), p, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  for (int v : host) CHECK(v == 11);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaStreamDestroy(stream));
}

void built(int* p) {
  cudaGraph_t graph;
  OK(cudaGraphCreate(&graph, 0));
  std::vector<int> from(kCount, 40), to(kCount);
  cudaGraphNode_t in, kernel, out, host_node;
  OK(cudaGraphAddMemcpyNode1D(&in, graph, nullptr, 0, p, from.data(), kCount * sizeof(int),
                              cudaMemcpyHostToDevice));
  int n = kCount, by = 2;
  void* args[] = {&p, &n, &by};
  cudaKernelNodeParams k = {};
  k.func = reinterpret_cast<void*>(add);
  k.gridDim = dim3(8);
  k.blockDim = dim3(128);
  k.kernelParams = args;
  OK(cudaGraphAddKernelNode(&kernel, graph, &in, 1, &k));
  OK(cudaGraphAddMemcpyNode1D(&out, graph, &kernel, 1, to.data(), p, kCount * sizeof(int),
                              cudaMemcpyDeviceToHost));
  int called = 0;
  cudaHostNodeParams h = {};
  h.fn = [](void* user) { ++*static_cast<int*>(user); };
  h.userData = &called;
  OK(cudaGraphAddHostNode(&host_node, graph, &out, 1, &h));
  cudaGraphExec_t exec;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphLaunch(exec, 0));
  OK(cudaDeviceSynchronize());
  CHECK(called == 1);
  for (int v : to) CHECK(v == 42);
  by = 60;
  OK(cudaGraphExecKernelNodeSetParams(exec, kernel, &k));
  OK(cudaGraphLaunch(exec, 0));
  OK(cudaDeviceSynchronize());
  CHECK(called == 2);
  for (int v : to) CHECK(v == 100);
  cudaKernelNodeParams back = {};
  OK(cudaGraphKernelNodeGetParams(kernel, &back));
  CHECK(back.func == k.func && back.gridDim.x == 8 && back.blockDim.x == 128);
  cudaGraphNodeType type;
  OK(cudaGraphNodeGetType(host_node, &type));
  CHECK(type == cudaGraphNodeTypeHost);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
}

int main() {
  int* p;
  OK(cudaMalloc(&p, kCount * sizeof(int)));
  captured(p);
  built(p);
  OK(cudaFree(p));
  return result();
}
