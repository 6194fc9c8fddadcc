// SPDX-License-Identifier: Apache-2.0
// Kernels that launch kernels: a quicksort that splits itself, curves in memory that a kernel
// allocates, a tree of grids, streams and events in kernels, errors, one in a captured graph;
// kernels that ask what the host asks.
// nvcc: -rdc=true
#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "../check.h"

__device__ void sort_here(unsigned* d, int left, int right) {
  for (int i = left; i < right; ++i)
    for (int j = i + 1; j <= right; ++j)
      if (d[j] < d[i]) {
        const unsigned t = d[i];
        d[i] = d[j], d[j] = t;
      }
}
__global__ void quicksort(unsigned* d, int left, int right, int depth) {
  if (depth == 16 || right - left <= 24) return sort_here(d, left, right);
  const unsigned pivot = d[(left + right) / 2];
  int i = left, j = right;
  while (i <= j) {
    while (d[i] < pivot) ++i;
    while (d[j] > pivot) --j;
    if (i > j) break;
    const unsigned t = d[i];
    d[i++] = d[j], d[j--] = t;
  }
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (left < j) quicksort<<<1, 1, 0, stream>>>(d, left, j, depth + 1);
  if (i < right) quicksort<<<1, 1>>>(d, i, right, depth + 1);
  cudaStreamDestroy(stream);
}
void sorts() {
  std::vector<unsigned> v(1500);
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<unsigned>(i) * 2654435761u % 10007;
  unsigned* d = nullptr;
  const size_t bytes = v.size() * sizeof v[0];
  OK(cudaMalloc(&d, bytes));
  OK(cudaMemcpy(d, v.data(), bytes, cudaMemcpyHostToDevice));
  quicksort<<<1, 1>>>(d, 0, static_cast<int>(v.size()) - 1, 0);
  std::sort(v.begin(), v.end());
  std::vector<unsigned> got(v.size());
  OK(cudaMemcpy(got.data(), d, bytes, cudaMemcpyDeviceToHost));
  CHECK(got == v);
  OK(cudaFree(d));
}

struct Curve {
  float* points;
  int n;
};
__global__ void points(Curve* curves, int at) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < curves[at].n) curves[at].points[i] = static_cast<float>(at * 100 + i);
}
__global__ void curves_of(Curve* curves) {
  const int at = static_cast<int>(threadIdx.x);
  Curve& c = curves[at];
  c.n = 4 + at;
  if (cudaMalloc(reinterpret_cast<void**>(&c.points), c.n * sizeof(float)) == cudaSuccess)
    points<<<1, 32>>>(curves, at);
}
__global__ void sum_up(Curve* curves, float* sums) {
  Curve& c = curves[threadIdx.x];
  float sum = 0;
  for (int i = 0; i < c.n; ++i) sum += c.points[i];
  sums[threadIdx.x] = sum;
  cudaFree(c.points);
}
void curves() {
  Curve* c = nullptr;
  float *sums = nullptr, got[20];
  OK(cudaMalloc(&c, 20 * sizeof(Curve)));
  OK(cudaMalloc(&sums, sizeof got));
  curves_of<<<1, 20>>>(c);
  sum_up<<<1, 20>>>(c, sums);
  OK(cudaMemcpy(got, sums, sizeof got, cudaMemcpyDeviceToHost));
  for (int at = 0; at < 20; ++at)
    CHECK(got[at] == static_cast<float>((4 + at) * at * 100 + (4 + at) * (3 + at) / 2));
  OK(cudaFree(c));
  OK(cudaFree(sums));
}

__global__ void tree(int* counts, int depth, int most) {
  if (threadIdx.x == 0) atomicAdd(&counts[depth], 1);
  if (threadIdx.x == 0 && depth + 1 < most) tree<<<2, 2>>>(counts, depth + 1, most);
}
__global__ void append(int* log, int value) { log[atomicAdd(log, 1) + 1] = value; }
__global__ void in_order(int* log) {
  cudaStream_t stream;
  cudaEvent_t event;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  append<<<1, 1, 0, cudaStreamTailLaunch>>>(log, 3);
  append<<<1, 1, 0, stream>>>(log, 1);
  cudaEventRecord(event, stream);
  append<<<1, 1, 0, stream>>>(log, 2);
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
}
__global__ void moves(int* words) {
  cudaMemsetAsync(words, 0, 2 * sizeof(int), 0);
  append<<<1, 1>>>(words, 5);
  cudaMemcpyAsync(words + 2, words, 2 * sizeof(int), cudaMemcpyDeviceToDevice, 0);
}
__global__ void too_large(int* errors) {
  append<<<1, 2000>>>(errors, 1);
  errors[0] = cudaPeekAtLastError();
  errors[1] = cudaGetLastError();
  errors[2] = cudaGetLastError();
}
void orders() {
  int *words = nullptr, got[6];
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  OK(cudaMalloc(&words, sizeof got));
  OK(cudaMemset(words, 0, sizeof got));
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  tree<<<1, 1, 0, stream>>>(words, 0, 5);
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 2; ++i) OK(cudaGraphLaunch(exec, stream));
  OK(cudaStreamSynchronize(stream));
  // For NVIDIA's driver a graph's end is not the end of what its kernels launched.
  for (int tries = 0; tries < 10000; ++tries) {
    OK(cudaMemcpy(got, words, sizeof got, cudaMemcpyDeviceToHost));
    if (got[4] == 2 << 4) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int depth = 0; depth < 5; ++depth) CHECK(got[depth] == 2 << depth);
  OK(cudaMemset(words, 0, sizeof got));
  in_order<<<1, 1>>>(words);
  OK(cudaMemcpy(got, words, sizeof got, cudaMemcpyDeviceToHost));
  CHECK(got[0] == 3 && got[1] == 1 && got[2] == 2 && got[3] == 3);
  moves<<<1, 1>>>(words);
  OK(cudaMemcpy(got, words, sizeof got, cudaMemcpyDeviceToHost));
  CHECK(got[0] == 1 && got[1] == 5 && got[2] == 1 && got[3] == 5);
  too_large<<<1, 1>>>(words);
  OK(cudaMemcpy(got, words, sizeof got, cudaMemcpyDeviceToHost));
  CHECK(got[0] != cudaSuccess && got[1] == got[0] && got[2] == cudaSuccess);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaStreamDestroy(stream));
  OK(cudaFree(words));
}

struct Told {
  cudaError_t error;
  int device, devices, sms, blocks, threads, registers;
  size_t heap;
  char name[32], words[96];
};
__device__ void copy_text(char* to, const char* from, int most) {
  int i = 0;
  for (; from[i] != 0 && i + 1 < most; ++i) to[i] = from[i];
  to[i] = 0;
}
__global__ void asks(Told* told) {
  cudaFuncAttributes attributes;
  const cudaError_t errors[] = {
      cudaGetDevice(&told->device),
      cudaGetDeviceCount(&told->devices),
      cudaDeviceGetAttribute(&told->sms, cudaDevAttrMultiProcessorCount, told->device),
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&told->blocks, append, 64, 0),
      cudaFuncGetAttributes(&attributes, append),
      cudaDeviceGetLimit(&told->heap, cudaLimitMallocHeapSize)};
  told->error = cudaSuccess;
  for (const cudaError_t error : errors)
    if (error != cudaSuccess) told->error = error;
  told->threads = attributes.maxThreadsPerBlock;
  told->registers = attributes.numRegs;
  copy_text(told->name, cudaGetErrorName(cudaErrorInvalidConfiguration), sizeof told->name);
  copy_text(told->words, cudaGetErrorString(cudaErrorInvalidConfiguration), sizeof told->words);
}
void questions() {
  Told* told = nullptr;
  OK(cudaMallocManaged(&told, sizeof *told));
  asks<<<1, 1>>>(told);
  OK(cudaDeviceSynchronize());
  int devices = 0, sms = 0, blocks = 0;
  cudaFuncAttributes attributes;
  OK(cudaGetDeviceCount(&devices));
  OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, append, 64, 0));
  OK(cudaFuncGetAttributes(&attributes, append));
  CHECK(told->error == cudaSuccess && told->device == 0 && told->devices == devices);
  CHECK(told->sms == sms && told->blocks == blocks);
  CHECK(told->threads == attributes.maxThreadsPerBlock && told->registers == attributes.numRegs);
  size_t heap = 0;
  OK(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
  CHECK(told->heap == heap);
  CHECK(std::string(told->name) == "cudaErrorInvalidConfiguration");
  CHECK(told->words[0] != 0);
  OK(cudaFree(told));
}

int main() {
  sorts();
  curves();
  orders();
  questions();
  return result();
}
