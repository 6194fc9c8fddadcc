// SPDX-License-Identifier: Apache-2.0
// What C++ needs of a GPU beyond arithmetic: calls, stacks, function pointers, the heap. Compiled
// to language_*.ptx; tests/unit/exec/language_test.cc computes the same on the CPU. How:
//   nvcc -ptx -O3 -arch=sm_90 language.cu -o language_O3.ptx
//   nvcc -ptx -O0 -Xcicc -O0 -arch=sm_75 language.cu -o language_O0.ptx
//   nvcc -ptx -G -arch=sm_80 language.cu -o language_G.ptx
#include <assert.h>
#include <stdio.h>

struct Shape {
  __device__ explicit Shape(float x) : side(x) {}
  __device__ virtual float area() const = 0;
  __device__ virtual ~Shape() {}
  float side;
};
struct Square : Shape {
  __device__ explicit Square(float x) : Shape(x) {}
  __device__ float area() const override { return side * side; }
};
struct Tripled : Shape {
  __device__ explicit Tripled(float x) : Shape(x) {}
  __device__ float area() const override { return 3.0f * side * side; }
};

__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ __noinline__ bool odd(int n);
__device__ __noinline__ bool even(int n) { return n == 0 ? true : odd(n - 1); }
__device__ __noinline__ bool odd(int n) { return n == 0 ? false : even(n - 1); }

extern "C" __global__ void recurse(int* out) {
  const int i = threadIdx.x;
  out[i] = fib(i % 12) + 1000 * even(i);
}

extern "C" __global__ void virtual_calls(float* out) {
  const int i = threadIdx.x;
  Shape* shape = i % 3 != 0 ? static_cast<Shape*>(new Square(i)) : new Tripled(i);
  out[i] = shape->area();
  delete shape;
}

typedef int (*Operation)(int, int);
__device__ int add(int a, int b) { return a + b; }
__device__ int multiply(int a, int b) { return a * b; }
__device__ int subtract(int a, int b) { return a - b; }
__device__ Operation table[3] = {add, multiply, subtract};
__constant__ Operation constant_table[3] = {subtract, add, multiply};
__device__ int target = 7;
struct Mixed {
  char c;
  Operation f;
  short s;
  const int* p;
};
__device__ Mixed mixed = {1, multiply, 5, &target};

extern "C" __global__ void pointers(int* out, int k) {
  const int i = threadIdx.x;
  out[i] = table[i % 3](i, k) + constant_table[(i + k) % 3](i, i) + mixed.f(i, *mixed.p);
}

struct Big {
  int v[20];
};
__device__ __noinline__ Big change(Big a, int x) {
  for (int i = 0; i < 20; i++) a.v[i] += x * i;
  return a;
}
extern "C" __global__ void structures(int* out) {
  Big b;
  for (int i = 0; i < 20; i++) b.v[i] = i * threadIdx.x;
  b = change(b, 3);
  int sum = 0;
  for (int i = 0; i < 20; i++) sum += b.v[i] * (i + 1);
  out[threadIdx.x] = sum;
}

__device__ __noinline__ void quicksort(int* a, int l, int r) {
  if (l >= r) return;
  int p = a[(l + r) / 2], i = l, j = r;
  while (i <= j) {
    while (a[i] < p) i++;
    while (a[j] > p) j--;
    if (i <= j) {
      int t = a[i];
      a[i] = a[j];
      a[j] = t;
      i++;
      j--;
    }
  }
  quicksort(a, l, j);
  quicksort(a, i, r);
}
extern "C" __global__ void sorts(int* data, int n) { quicksort(data + threadIdx.x * n, 0, n - 1); }

extern "C" __global__ void dynamic_stack(int* out) {
  const int n = threadIdx.x % 7 + 1;
  int* p = static_cast<int*>(alloca(n * 4));
  for (int i = 0; i < n; i++) p[i] = i * i;
  int sum = 0;
  for (int i = n - 1; i >= 0; i--) sum += p[i];
  out[threadIdx.x] = sum;
}

extern __shared__ int dynamic[];
__device__ __noinline__ int from_shared(int i) { return dynamic[i] * 2; }
extern "C" __global__ void shared_in_function(int* out) {
  __shared__ int fixed[33];
  fixed[threadIdx.x % 33] = 1;
  dynamic[threadIdx.x] = threadIdx.x + 5;
  __syncthreads();
  out[threadIdx.x] = from_shared(blockDim.x - 1 - threadIdx.x) + fixed[0];
}

// Linked lists on the heap; what is asked for and not given is a null pointer.
struct Node {
  Node* next;
  int value;
};
extern "C" __global__ void lists(int* out, int n) {
  Node* head = nullptr;
  for (int i = 0; i < n; i++) {
    Node* node = static_cast<Node*>(malloc(sizeof(Node)));
    if (node == nullptr) break;
    node->next = head;
    node->value = i * threadIdx.x;
    head = node;
  }
  int sum = 0;
  while (head != nullptr) {
    Node* next = head->next;
    sum += head->value;
    free(head);
    head = next;
  }
  out[threadIdx.x] = sum;
}

// Calls of different functions from different lanes in a loop, with everybody meeting after each.
extern "C" __global__ void diverge(int* out, int rounds) {
  const int i = threadIdx.x;
  int value = i;
  for (int r = 0; r < rounds; r++) {
    if ((i ^ r) & 1)
      value = table[(i + r) % 3](value, 3);
    else
      value += fib((i + r) % 7);
    value += __shfl_xor_sync(0xffffffffu, value, 1);
  }
  out[i] = value;
}

extern "C" __global__ void prints(int n) {
  if (threadIdx.x < n)
    printf("%d %5.2f %s %c %llu %p|%x|%hhd|%%\n", threadIdx.x, 1.5 * threadIdx.x, "text", 'c',
           123456789012345ull, (void*)0x1234, 255u, (int)(signed char)-3);
}
extern "C" __global__ void asserts(int limit) { assert(threadIdx.x < limit); }
