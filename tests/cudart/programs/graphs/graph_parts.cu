// SPDX-License-Identifier: Apache-2.0
// Graphs as programs build them: captured over two streams, a child graph, nodes of copies, fills,
// host functions and memory, parameters set in the executable, an update from another capture, a
// conditional node, a clone, node queries, a launch from another thread.
#include <thread>
#include <vector>

#include "../check.h"
__global__ void scale(float* p, float by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] *= by;
}
__global__ void add(float* p, const float* q, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] += q[i];
}
__global__ void count_down(int* left, cudaGraphConditionalHandle again) {
  if (threadIdx.x == 0) cudaGraphSetConditional(again, --*left > 0);
}
__global__ void bump(int* p) { atomicAdd(p, 1); }
static void CUDART_CB note(void* at) { ++*static_cast<int*>(at); }
static bool all(const float* device, float expected, int n) {
  std::vector<float> got(n);
  OK(cudaMemcpy(got.data(), device, n * 4, cudaMemcpyDeviceToHost));
  for (float v : got)
    if (v != expected) return false;
  return true;
}
int main() {
  constexpr int n = 1000;
  float *a, *b;
  OK(cudaMalloc(&a, n * 4));
  OK(cudaMalloc(&b, n * 4));
  std::vector<float> ones(n, 1.0f);
  cudaStream_t s[2];
  for (auto& t : s) OK(cudaStreamCreate(&t));
  cudaEvent_t fork, join;
  OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  int noted = 0;
  const auto capture = [&](float by, cudaGraph_t* graph) {
    OK(cudaStreamBeginCapture(s[0], cudaStreamCaptureModeThreadLocal));
    OK(cudaMemcpyAsync(a, ones.data(), n * 4, cudaMemcpyHostToDevice, s[0]));
    OK(cudaEventRecord(fork, s[0]));
    OK(cudaStreamWaitEvent(s[1], fork, 0));
    OK(cudaMemsetAsync(b, 0, n * 4, s[1]));
    scale<<<4, 256, 0, s[0]>>>(a, by, n);
    OK(cudaEventRecord(join, s[1]));
    OK(cudaStreamWaitEvent(s[0], join, 0));
    add<<<4, 256, 0, s[0]>>>(b, a, n);
    OK(cudaLaunchHostFunc(s[0], note, &noted));
    OK(cudaStreamEndCapture(s[0], graph));
  };
  cudaGraph_t first, second, whole, copy;
  capture(3, &first);
  capture(5, &second);
  size_t nodes = 0, edges = 0;
  OK(cudaGraphGetNodes(first, nullptr, &nodes));
  CHECK(nodes == 5);
  cudaGraphExec_t exec, exec_whole;
  OK(cudaGraphInstantiate(&exec, first, 0));
  OK(cudaGraphUpload(exec, s[0]));
  OK(cudaGraphLaunch(exec, s[0]));
  OK(cudaStreamSynchronize(s[0]));
  CHECK(noted == 1 && all(b, 3, n));
  cudaGraphExecUpdateResultInfo info;
  OK(cudaGraphExecUpdate(exec, second, &info));
  CHECK(info.result == cudaGraphExecUpdateSuccess);
  OK(cudaGraphLaunch(exec, s[0]));
  OK(cudaStreamSynchronize(s[0]));
  CHECK(noted == 2 && all(b, 5, n));

  OK(cudaGraphCreate(&whole, 0));
  cudaGraphNode_t child, kernel, fill, down, empty;
  OK(cudaGraphAddChildGraphNode(&child, whole, nullptr, 0, first));
  float by = 7;
  int count = n;
  void* arguments[] = {&b, &by, &count};
  cudaKernelNodeParams of_kernel = {};
  of_kernel.func = reinterpret_cast<void*>(scale);
  of_kernel.gridDim = dim3(4);
  of_kernel.blockDim = dim3(256);
  of_kernel.kernelParams = arguments;
  OK(cudaGraphAddKernelNode(&kernel, whole, &child, 1, &of_kernel));
  cudaMemsetParams of_fill = {};
  of_fill.dst = a, of_fill.value = 0x3f800000, of_fill.elementSize = 4, of_fill.width = n;
  of_fill.height = 1;
  OK(cudaGraphAddMemsetNode(&fill, whole, &child, 1, &of_fill));
  OK(cudaGraphAddEmptyNode(&empty, whole, &fill, 1));
  OK(cudaGraphAddDependencies(whole, &kernel, &empty, nullptr, 1));
  std::vector<float> back(n);
  OK(cudaGraphAddMemcpyNode1D(&down, whole, &empty, 1, back.data(), b, n * 4,
                              cudaMemcpyDeviceToHost));
  cudaGraphNodeType type;
  OK(cudaGraphNodeGetType(child, &type));
  CHECK(type == cudaGraphNodeTypeGraph);
  OK(cudaGraphGetEdges(whole, nullptr, nullptr, nullptr, &edges));
  CHECK(edges == 5);
  OK(cudaGraphClone(&copy, whole));
  OK(cudaGraphInstantiate(&exec_whole, copy, 0));
  std::thread([&] {
    OK(cudaGraphLaunch(exec_whole, s[1]));
    OK(cudaStreamSynchronize(s[1]));
  }).join();
  CHECK(noted == 3 && back[n - 1] == 21 && all(a, 1, n));
  by = 2;
  cudaGraphNode_t in_copy;
  OK(cudaGraphNodeFindInClone(&in_copy, kernel, copy));
  OK(cudaGraphExecKernelNodeSetParams(exec_whole, in_copy, &of_kernel));
  OK(cudaGraphNodeSetEnabled(exec_whole, fill == nullptr ? fill : in_copy, 1));
  OK(cudaGraphLaunch(exec_whole, s[0]));
  OK(cudaStreamSynchronize(s[0]));
  CHECK(back[0] == 6);

  // A loop of five rounds in the graph; memory that only lives in it.
  cudaGraph_t loop;
  OK(cudaGraphCreate(&loop, 0));
  cudaGraphConditionalHandle again;
  OK(cudaGraphConditionalHandleCreate(&again, loop, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams of_loop = {cudaGraphNodeTypeConditional};
  of_loop.conditional.handle = again;
  of_loop.conditional.type = cudaGraphCondTypeWhile;
  of_loop.conditional.size = 1;
  cudaGraphNode_t node;
  OK(cudaGraphAddNode(&node, loop, nullptr, nullptr, 0, &of_loop));
  int* left;
  OK(cudaMalloc(&left, 8));
  const int five[2] = {5, 0};
  OK(cudaMemcpy(left, five, 8, cudaMemcpyHostToDevice));
  OK(cudaStreamBeginCaptureToGraph(s[0], of_loop.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                   cudaStreamCaptureModeGlobal));
  bump<<<1, 32, 0, s[0]>>>(left + 1);
  count_down<<<1, 1, 0, s[0]>>>(left, again);
  OK(cudaStreamEndCapture(s[0], nullptr));
  cudaGraphExec_t exec_loop;
  OK(cudaGraphInstantiate(&exec_loop, loop, 0));
  OK(cudaGraphLaunch(exec_loop, s[0]));
  int counted[2];
  OK(cudaMemcpyAsync(counted, left, 8, cudaMemcpyDeviceToHost, s[0]));
  OK(cudaStreamSynchronize(s[0]));
  CHECK(counted[0] == 0 && counted[1] == 160);

  OK(cudaStreamBeginCapture(s[0], cudaStreamCaptureModeRelaxed));
  float* own;
  OK(cudaMallocAsync(&own, n * 4, s[0]));
  OK(cudaMemcpyAsync(own, a, n * 4, cudaMemcpyDeviceToDevice, s[0]));
  add<<<4, 256, 0, s[0]>>>(a, own, n);
  OK(cudaFreeAsync(own, s[0]));
  cudaGraph_t with_memory;
  OK(cudaStreamEndCapture(s[0], &with_memory));
  cudaGraphExec_t exec_memory;
  OK(cudaGraphInstantiate(&exec_memory, with_memory, 0));
  for (int k = 0; k < 3; ++k) OK(cudaGraphLaunch(exec_memory, s[0]));
  OK(cudaStreamSynchronize(s[0]));
  CHECK(all(a, 8, n));
  // A capture that is spoiled.
  OK(cudaStreamBeginCapture(s[0], cudaStreamCaptureModeGlobal));
  ANSWERS(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(s[0]));
  cudaGraph_t none;
  ANSWERS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s[0], &none));
  cudaGetLastError();
  for (cudaGraphExec_t e : {exec, exec_whole, exec_loop, exec_memory}) OK(cudaGraphExecDestroy(e));
  for (cudaGraph_t g : {first, second, whole, copy, loop, with_memory}) OK(cudaGraphDestroy(g));
  return result();
}
