// SPDX-License-Identifier: Apache-2.0
// C++ in kernels: virtual functions, trees by new and delete, lambdas, recursion, tables of
// functions, alloca, switch and goto.
// nvcc: --extended-lambda --expt-relaxed-constexpr -diag-suppress 20014
#include <cstring>
#include <initializer_list>
#include <new>
#include <vector>
#include "../check.h"
struct Shape {
  __device__ virtual float area() const = 0;
  __device__ virtual ~Shape() {}
  int kind;
};
struct Square : Shape {
  float s;
  __device__ Square(float s) : s(s) { kind = 1; }
  __device__ float area() const override { return s * s; }
};
struct Disk : Shape {
  float r;
  __device__ Disk(float r) : r(r) { kind = 2; }
  __device__ float area() const override { return 3 * r * r; }
};
struct Both : Square {
  Disk d;
  __device__ Both(float s) : Square(s), d(s) {}
  __device__ float area() const override { return Square::area() + d.area(); }
};
__global__ void make(Shape** s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    s[i] = i % 3 == 0 ? (Shape*)new Square(i) : i % 3 == 1 ? (Shape*)new Disk(i) : new Both(i);
}
__global__ void use(Shape** s, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    o[i] = s[i]->area();
    delete s[i];
  }
}
__device__ int ack(int m, int n) {
  return m == 0 ? n + 1 : n == 0 ? ack(m - 1, 1) : ack(m - 1, ack(m, n - 1));
}
__device__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n - 1); }
__device__ __noinline__ int odd(int n) { return n == 0 ? 0 : even(n - 1); }
typedef int (*Op)(int, int);
__device__ int plus(int a, int b) { return a + b; }
__device__ int times(int a, int b) { return a * b; }
__device__ int minus(int a, int b) { return a - b; }
__device__ Op table[3] = {plus, times, minus};
__constant__ Op ctable[2] = {minus, plus};
__global__ void calls(int* o) {
  int i = threadIdx.x;
  o[i] = ack(2, i % 4) + even(i) * 1000 + table[i % 3](i, 7) * 10000 + ctable[i & 1](i, 1) * 0;
}
template <class F>
__global__ void apply(int* o, F f) {
  o[threadIdx.x] = f(threadIdx.x);
}
__global__ void stack(int* o, int n) {
  int* a = (int*)alloca(n * 4);
  for (int i = 0; i < n; ++i) a[i] = i * threadIdx.x;
  int s = 0;
  for (int i = n - 1; i >= 0; i -= 2) s += a[i];
  int local[64];
  for (int i = 0; i < 64; ++i) local[(i * 7) % 64] = i;
  o[threadIdx.x] = s + local[threadIdx.x % 64];
}
struct Tree {
  Tree *l = nullptr, *r = nullptr;
  int v;
  __device__ Tree(int v) : v(v) {}
  __device__ void add(int x) {
    Tree** p = x < v ? &l : &r;
    if (*p)
      (*p)->add(x);
    else
      *p = new Tree(x);
  }
  __device__ int sum(int d) const {
    return v * d + (l ? l->sum(d + 1) : 0) + (r ? r->sum(d + 1) : 0);
  }
  __device__ ~Tree() {
    delete l;
    delete r;
  }
};
__global__ void trees(int* o) {
  Tree* t = new Tree(50);
  unsigned s = threadIdx.x + 1;
  for (int i = 0; i < 20; ++i) {
    s = s * 1103515245u + 12345u;
    t->add(s >> 16 & 127);
  }
  o[threadIdx.x] = t->sum(1);
  delete t;
}
__device__ int sw(int x) {
  switch (x) {
    case 0:
      return 5;
    case 1:
      return 9;
    case 2:
      x += 3;
    case 3:
      return x * 2;
    case 4:
      return -1;
    case 5:
      return 77;
    case 6:
      return x ^ 3;
    case 9:
      return 1;
    case 17:
      return 8;
    case 100:
      return 6;
    default:
      return 0;
  }
}
__global__ void switches(int* o) {
  int acc = 0;
  for (int k = 0; k < 20; ++k) {
    acc += sw((threadIdx.x + k) % 21);
    if (acc > 150) continue;
    for (int j = 0;; ++j) {
      if (j == (int)threadIdx.x % 5) break;
      if ((j + k) % 7 == 6) goto out;
      acc += j;
    }
  }
out:
  o[threadIdx.x] = acc;
}
static int sw_host(int x) {
  switch (x) {
    case 0:
      return 5;
    case 1:
      return 9;
    case 2:
      x += 3;
    case 3:
      return x * 2;
    case 4:
      return -1;
    case 5:
      return 77;
    case 6:
      return x ^ 3;
    case 9:
      return 1;
    case 17:
      return 8;
    case 100:
      return 6;
    default:
      return 0;
  }
}
template <int N>
struct Fib {
  static constexpr long v = Fib<N - 1>::v + Fib<N - 2>::v;
};
template <>
struct Fib<1> {
  static constexpr long v = 1;
};
template <>
struct Fib<0> {
  static constexpr long v = 0;
};
__global__ void misc(int* o, long* p) {
  static __device__ int counter;
  int t = atomicAdd(&counter, 1);
  o[threadIdx.x] = t;
  p[0] = Fib<60>::v;
  int s = 0;
  for (int v : {1, 2, 3}) s += v;
  p[1] = s;
  auto gen = [](auto x, auto y) { return x + y; };
  p[2] = gen(1, 2.5) * 2;
  union {
    float f;
    int i;
  } u;
  u.f = 1;
  p[3] = u.i;
  struct {
    int a : 3;
    unsigned b : 5;
    int c : 24;
  } bf;
  bf.a = -2;
  bf.b = 29;
  bf.c = -100000 + t * 0;
  p[4] = bf.a * 1000000 + bf.b * 100 + bf.c;
  char* c = new char[100];
  memset(c, 7, 100);
  char d[100];
  memcpy(d, c, 100);
  p[5] = d[threadIdx.x] + 3;
  delete[] c;
}
int main() {
  OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
  OK(cudaDeviceSetLimit(cudaLimitStackSize, 16384));
  Shape** s;
  float* o;
  int* oi;
  long* p;
  OK(cudaMalloc(&s, 8000));
  OK(cudaMalloc(&o, 4000));
  OK(cudaMalloc(&oi, 4000));
  OK(cudaMalloc(&p, 400));
  make<<<8, 128>>>(s, 1000);
  use<<<8, 128>>>(s, o, 1000);
  std::vector<float> f(1000);
  OK(cudaMemcpy(f.data(), o, 4000, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < 1000; ++i) {
    float x = i;
    wrong += f[i] != (i % 3 == 0 ? x * x : i % 3 == 1 ? 3 * x * x : x * x + 3 * x * x);
  }
  CHECK(wrong == 0);
  std::vector<int> g(1000);
  auto fetch = [&] { OK(cudaMemcpy(g.data(), oi, 512, cudaMemcpyDeviceToHost)); };
  calls<<<1, 64>>>(oi);
  fetch();
  for (int i = 0; i < 64; ++i) {
    int n = i % 4, a = 2 * n + 3, r = i % 3 == 0 ? i + 7 : i % 3 == 1 ? i * 7 : i - 7;
    CHECK(g[i] == a + (i % 2 == 0) * 1000 + r * 10000);
  }
  int k = 5;
  apply<<<1, 64>>>(oi, [=] __device__(int x) { return x * k + 1; });
  fetch();
  CHECK(g[63] == 316);
  apply<<<1, 64>>>(oi, [=] __host__ __device__(int x) { return x - k; });
  fetch();
  CHECK(g[63] == 58);
  stack<<<1, 64>>>(oi, 33);
  fetch();
  for (int i = 0; i < 64; ++i) {
    int loc[64];
    for (int j = 0; j < 64; ++j) loc[(j * 7) % 64] = j;
    int t = 0;
    for (int j = 32; j >= 0; j -= 2) t += j * i;
    CHECK(g[i] == t + loc[i]);
  }
  trees<<<1, 32>>>(oi);
  fetch();
  for (int i = 0; i < 32; ++i) {
    struct N {
      int v, l, r;
    };
    std::vector<N> t{{50, -1, -1}};
    unsigned q = i + 1;
    for (int j = 0; j < 20; ++j) {
      q = q * 1103515245u + 12345u;
      int x = q >> 16 & 127, at = 0;
      for (;;) {
        int& nx = x < t[at].v ? t[at].l : t[at].r;
        if (nx < 0) {
          nx = (int)t.size();
          t.push_back({x, -1, -1});
          break;
        }
        at = nx;
      }
    }
    struct R {
      static int sum(const std::vector<N>& t, int i, int d) {
        return i < 0 ? 0 : t[i].v * d + sum(t, t[i].l, d + 1) + sum(t, t[i].r, d + 1);
      }
    };
    CHECK(g[i] == R::sum(t, 0, 1));
  }
  switches<<<1, 64>>>(oi);
  fetch();
  for (int i = 0; i < 64; ++i) {
    int acc = 0;
    for (int k = 0; k < 20; ++k) {
      acc += sw_host((i + k) % 21);
      if (acc > 150) continue;
      bool end = false;
      for (int j = 0;; ++j) {
        if (j == i % 5) break;
        if ((j + k) % 7 == 6) {
          end = true;
          break;
        }
        acc += j;
      }
      if (end) break;
    }
    CHECK(g[i] == acc);
  }
  misc<<<1, 32>>>(oi, p);
  fetch();
  long lp[6];
  OK(cudaMemcpy(lp, p, 48, cudaMemcpyDeviceToHost));
  CHECK(lp[0] == 1548008755920l && lp[1] == 6 && lp[2] == 7 && lp[3] == 0x3f800000 &&
        lp[4] == -2000000 + 2900 - 100000 && lp[5] == 10);
  return result();
}
