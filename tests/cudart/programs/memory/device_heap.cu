// SPDX-License-Identifier: Apache-2.0
// C++ in kernels: new and delete on the device's heap, virtual functions, recursion, templates and
// lambdas, local arrays; limits of heap, stack and printf, and a flood of printf.
// nvcc: --extended-lambda
#include <vector>

#include "../check.h"

struct Shape {
  __device__ virtual ~Shape() {}
  __device__ virtual int area() const = 0;
};
struct Square : Shape {
  int side;
  __device__ explicit Square(int s) : side(s) {}
  __device__ int area() const override { return side * side; }
};
struct Box : Shape {
  int a, b;
  __device__ Box(int x, int y) : a(x), b(y) {}
  __device__ int area() const override { return a * b; }
};
__global__ void shapes(int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Shape* shape = i % 2 ? static_cast<Shape*>(new Square(i)) : new Box(i, 3);
  if (shape == nullptr) {
    out[i] = -1;
    return;
  }
  out[i] = shape->area();
  delete shape;
}

struct Node {
  int value;
  Node* next;
};
__global__ void list(int* out) {
  Node* head = nullptr;
  for (int k = 0; k < 20; ++k) {
    Node* node = static_cast<Node*>(malloc(sizeof(Node)));
    node->value = k + threadIdx.x;
    node->next = head;
    head = node;
  }
  int sum = 0;
  while (head) {
    sum += head->value;
    Node* next = head->next;
    free(head);
    head = next;
  }
  out[threadIdx.x] = sum;
}
__global__ void too_much(int* out) { out[0] = malloc(1ull << 40) == nullptr; }

__device__ int ackermann(int m, int n) {
  return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
__global__ void recursive(int* out) { out[threadIdx.x] = ackermann(2, threadIdx.x % 8); }

template <typename F>
__global__ void for_each(int n, F f) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) f(i);
}

__global__ void __launch_bounds__(128, 2) local_arrays(const int* in, int* out) {
  int sorted[32];
  for (int k = 0; k < 32; ++k) sorted[k] = in[(threadIdx.x * 5 + k) % 64];
  for (int a = 0; a < 32; ++a)
    for (int b = a + 1; b < 32; ++b)
      if (sorted[b] < sorted[a]) {
        const int t = sorted[a];
        sorted[a] = sorted[b], sorted[b] = t;
      }
  out[threadIdx.x] = sorted[in[threadIdx.x % 64] % 32];
}

__global__ void flood(int lines) {
  for (int k = 0; k < lines; ++k)
    printf("block %d thread %d line %d: %5.2f %s %c %llx\n", blockIdx.x, threadIdx.x, k, k * 0.5,
           "text", 'c', 1ull << 40);
}

int main() {
  size_t heap = 0, stack = 0, fifo = 0;
  OK(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
  CHECK(heap == 8 << 20);
  OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
  OK(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
  CHECK(heap >= 16 << 20);
  OK(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
  OK(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
  CHECK(stack >= 8192);
  OK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 20));
  OK(cudaDeviceGetLimit(&fifo, cudaLimitPrintfFifoSize));
  CHECK(fifo >= 1 << 20);

  constexpr int n = 1000;
  int* out;
  OK(cudaMalloc(&out, n * sizeof(int)));
  std::vector<int> got(n);
  shapes<<<8, 128>>>(out, n);
  OK(cudaMemcpy(got.data(), out, n * sizeof(int), cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < n; ++i) wrong += got[i] != (i % 2 ? i * i : i * 3);
  CHECK(wrong == 0);
  for (int k = 0; k < 4; ++k) list<<<1, 64>>>(out);
  OK(cudaMemcpy(got.data(), out, 256, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) wrong += got[i] != 190 + 20 * i;
  CHECK(wrong == 0);
  too_much<<<1, 1>>>(out);
  OK(cudaMemcpy(got.data(), out, 4, cudaMemcpyDeviceToHost));
  CHECK(got[0] == 1);
  recursive<<<1, 32>>>(out);
  OK(cudaMemcpy(got.data(), out, 128, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 32; ++i) wrong += got[i] != 2 * (i % 8) + 3;
  CHECK(wrong == 0);
  const int factor = 3;
  for_each<<<4, 64>>>(n, [=] __device__(int i) { out[i] = i * factor + 1; });
  OK(cudaMemcpy(got.data(), out, n * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) wrong += got[i] != i * 3 + 1;
  CHECK(wrong == 0);
  int* sorted = out + 512;
  local_arrays<<<1, 128>>>(out, sorted);
  OK(cudaMemcpy(got.data(), sorted, 128 * 4, cudaMemcpyDeviceToHost));
  for (int t = 0; t < 128; ++t) {
    std::vector<int> some;
    for (int k = 0; k < 32; ++k) some.push_back((t * 5 + k) % 64 * 3 + 1);
    for (int a = 0; a < 32; ++a)
      for (int b = a + 1; b < 32; ++b)
        if (some[b] < some[a]) std::swap(some[a], some[b]);
    wrong += got[t] != some[(t % 64 * 3 + 1) % 32];
  }
  CHECK(wrong == 0);
  flood<<<1, 32>>>(20);
  OK(cudaDeviceSynchronize());
  cudaFuncAttributes attributes;
  OK(cudaFuncGetAttributes(&attributes, local_arrays));
  CHECK(attributes.maxThreadsPerBlock == 128);
  CHECK(attributes.localSizeBytes >= 0 && attributes.numRegs > 0);
  return result();
}
