// SPDX-License-Identifier: Apache-2.0
// Kernels as people write them that wait for nobody, or for lower blocks: for make_clang.py.
#include "corpus.h"

template <typename T>
struct Plus {
  __device__ T operator()(T a, T b) const { return a + b; }
};
template <typename T>
struct Largest {
  __device__ T operator()(T a, T b) const { return a > b ? a : b; }
};

template <typename T>
__global__ void saxpy(T a, const T* x, T* y, u32 n) {
  u32 i = global_thread();
  if (i < n) y[i] = a * x[i] + y[i];
}
template <typename T>
__global__ void stride_fill(T* y, T v, u32 n) {
  for (u32 i = global_thread(); i < n; i += all_threads()) y[i] = v + i;
}
template <typename T, typename Op>
__global__ void reduce_shared(const T* in, T* out, u32 n, Op op) {
  __shared__ T s[256];
  u32 t = thread().x, i = global_thread();
  s[t] = i < n ? in[i] : T(0);
  sync_block();
  for (u32 half = threads().x / 2; half > 0; half /= 2) {
    if (t < half) s[t] = op(s[t], s[t + half]);
    sync_block();
  }
  if (t == 0) out[block().x] = s[0];
}
template <typename T>
__global__ void reduce_early(const T* in, T* out, u32 n) {
  __shared__ T s[256];
  u32 t = thread().x, i = global_thread();
  if (i >= n) return;
  s[t] = in[i];
  sync_block();
  if (t == 0) {
    T sum = 0;
    for (u32 k = 0; k < threads().x && block().x * threads().x + k < n; ++k) sum += s[k];
    out[block().x] = sum;
  }
}
template <typename T>
__global__ void reduce_warp(const T* in, T* out, u32 n) {
  T sum = 0;
  for (u32 i = global_thread(); i < n; i += all_threads()) sum += in[i];
  for (int by = 16; by > 0; by /= 2) sum += down(sum, by);
  if (thread().x % 32 == 0) add_to(out, sum);
}
template <typename T>
__global__ void reduce_last_block(const T* in, T* parts, T* out, int* done, u32 n) {
  __shared__ T s[256];
  __shared__ int last;
  u32 t = thread().x;
  T sum = 0;
  for (u32 i = global_thread(); i < n; i += all_threads()) sum += in[i];
  s[t] = sum;
  sync_block();
  if (t == 0) {
    for (u32 k = 1; k < threads().x; ++k) sum += s[k];
    parts[block().x] = sum;
    fence_device();
    last = add_to(done, 1) == (int)blocks().x - 1;
  }
  sync_block();
  if (last && t == 0) {
    sum = 0;
    for (u32 k = 0; k < blocks().x; ++k) sum += now(&parts[k]);
    *out = sum;
    *done = 0;
  }
}
template <typename T>
__global__ void scan_block(const T* in, T* out, u32 n) {
  __shared__ T s[2][256];
  u32 t = thread().x, i = global_thread(), from = 0;
  s[0][t] = i < n ? in[i] : T(0);
  sync_block();
  for (u32 by = 1; by < threads().x; by *= 2) {
    s[1 - from][t] = s[from][t] + (t >= by ? s[from][t - by] : T(0));
    from = 1 - from;
    sync_block();
  }
  if (i < n) out[i] = s[from][t];
}
template <typename T>
__global__ void scan_warp(const T* in, T* out, u32 n) {
  u32 i = global_thread();
  T v = i < n ? in[i] : T(0);
  for (u32 by = 1; by < 32; by *= 2) {
    T other = up(v, by);
    if (thread().x % 32 >= by) v += other;
  }
  if (i < n) out[i] = v;
}
template <typename T>
__global__ void scan_chained(const T* in, T* out, T* before, int* ready, u32 n) {
  __shared__ T start;
  u32 t = thread().x, b = block().x, i = global_thread();
  if (t == 0) {
    T sum = 0;
    if (b > 0) {
      while (now(&ready[b - 1]) == 0) {
      }
      fence_device();
      sum = now(&before[b - 1]);
    }
    start = sum;
    for (u32 k = 0; k < threads().x && b * threads().x + k < n; ++k) sum += in[b * threads().x + k];
    before[b] = sum;
    fence_device();
    *(volatile int*)&ready[b] = 1;
  }
  sync_block();
  if (i < n) out[i] = start + in[i];
}
template <typename T>
__global__ void histogram_global(const T* in, u32* bins, u32 n) {
  u32 i = global_thread();
  if (i < n) add_to(&bins[(u32)in[i] & 63], 1u);
}
template <typename T>
__global__ void histogram_shared(const T* in, u32* bins, u32 n) {
  __shared__ u32 s[64];
  if (thread().x < 64) s[thread().x] = 0;
  sync_block();
  for (u32 i = global_thread(); i < n; i += all_threads()) add_to(&s[(u32)in[i] & 63], 1u);
  sync_block();
  if (thread().x < 64) add_to(&bins[thread().x], s[thread().x]);
}
template <typename T>
__global__ void stencil_1d(const T* in, T* out, u32 n) {
  __shared__ T s[258];
  u32 t = thread().x, i = global_thread();
  s[t + 1] = i < n ? in[i] : T(0);
  if (t == 0) s[0] = i > 0 ? in[i - 1] : T(0);
  if (t == threads().x - 1) s[t + 2] = i + 1 < n ? in[i + 1] : T(0);
  sync_block();
  if (i < n) out[i] = s[t] + s[t + 1] + s[t + 2];
}
template <typename T>
__global__ void stencil_2d(const T* in, T* out, u32 w, u32 h) {
  u32 x = global_thread(), y = block().y * threads().y + thread().y;
  if (x == 0 || y == 0 || x + 1 >= w || y + 1 >= h) return;
  out[y * w + x] =
      in[y * w + x - 1] + in[y * w + x + 1] + in[(y - 1) * w + x] + in[(y + 1) * w + x];
}
template <typename T>
__global__ void transpose(const T* in, T* out, u32 w, u32 h) {
  __shared__ T s[16][17];
  u32 x = block().x * 16 + thread().x, y = block().y * 16 + thread().y;
  if (x < w && y < h) s[thread().y & 15][thread().x & 15] = in[y * w + x];
  sync_block();
  x = block().y * 16 + thread().x, y = block().x * 16 + thread().y;
  if (x < h && y < w) out[y * h + x] = s[thread().x & 15][thread().y & 15];
}
template <typename T>
__global__ void multiply(const T* a, const T* b, T* c, u32 n) {
  __shared__ T as[16][16], bs[16][16];
  u32 tx = thread().x & 15, ty = thread().y & 15, x = block().x * 16 + tx, y = block().y * 16 + ty;
  T sum = 0;
  for (u32 k = 0; k < n; k += 16) {
    as[ty][tx] = y < n && k + tx < n ? a[y * n + k + tx] : T(0);
    bs[ty][tx] = x < n && k + ty < n ? b[(k + ty) * n + x] : T(0);
    sync_block();
    for (u32 j = 0; j < 16; ++j) sum += as[ty][j] * bs[j][tx];
    sync_block();
  }
  if (x < n && y < n) c[y * n + x] = sum;
}
template <typename T>
__global__ void bitonic(T* data, u32 n) {
  __shared__ T s[256];
  u32 t = thread().x;
  if (global_thread() >= n) return;
  s[t] = data[global_thread()];
  for (u32 k = 2; k <= threads().x; k *= 2)
    for (u32 j = k / 2; j > 0; j /= 2) {
      sync_block();
      u32 other = t ^ j;
      if (other > t && (s[t] > s[other]) == ((t & k) == 0)) {
        T v = s[t];
        s[t] = s[other], s[other] = v;
      }
    }
  sync_block();
  data[global_thread()] = s[t];
}
template <typename T>
__global__ void sparse(const u32* rows, const u32* columns, const T* values, const T* x, T* y,
                       u32 n) {
  u32 r = global_thread();
  if (r >= n) return;
  T sum = 0;
  for (u32 k = rows[r]; k < rows[r + 1]; ++k) sum += values[k] * x[columns[k]];
  y[r] = sum;
}
template <typename T>
__global__ void compact(const T* in, T* out, int* count, u32 n) {
  u32 i = global_thread();
  if (i < n && in[i] > T(5)) out[add_to(count, 1)] = in[i];
}
template <typename T>
__global__ void search(const T* sorted, const T* keys, u32* at, u32 n, u32 m) {
  u32 i = global_thread();
  if (i >= m) return;
  u32 low = 0, high = n;
  while (low < high) {
    u32 mid = (low + high) / 2;
    if (sorted[mid] < keys[i])
      low = mid + 1;
    else
      high = mid;
  }
  at[i] = low;
}
template <typename T>
__global__ void jump_list(const u32* next, const T* value, T* out, u32 n) {
  u32 i = global_thread();
  if (i >= n) return;
  T sum = 0;
  for (u32 at = i; at != n; at = next[at]) sum += value[at];
  out[i] = sum;
}
template <typename T>
__global__ void converge(T* v, u32 n) {
  u32 i = global_thread();
  if (i >= n) return;
  T x = v[i], old;
  int turns = 0;
  do {
    old = x;
    x = (x + v[i] / (x + T(1))) / T(2);
  } while (old != x && ++turns < 50);
  v[i] = x;
}
__device__ int fold(int n) { return n < 2 ? n : fold(n / 2) + n % 2; }
template <typename T>
__global__ void recursive(const T* in, int* out, u32 n) {
  u32 i = global_thread();
  if (i < n) out[i] = fold((int)in[i]);
}
template <typename T>
__global__ void choose(const T* in, T* out, u32 n, int what) {
  u32 i = global_thread();
  if (i >= n) return;
  T v = in[i];
  switch (what) {
    case 0:
      v += 1;
      break;
    case 1:
      v *= 2;
      break;
    case 2:
      v -= 3;
      break;
    case 3:
      v = v * v;
      break;
    case 4:
      v = v + v * v;
      break;
    case 7:
      v = 0;
      break;
    default:
      return;
  }
  out[i] = v;
}
template <typename T>
__global__ void relax(const u32* from, const u32* to, int* distance, const T* length, int* changed,
                      u32 n) {
  u32 i = global_thread();
  if (i >= n) return;
  int d = distance[from[i]] + (int)length[i];
  if (d < distance[to[i]]) {
    distance[to[i]] = d;
    *changed = 1;
  }
}
#define ALL(T)                                                                          \
  template __global__ void saxpy(T, const T*, T*, u32);                                 \
  template __global__ void stride_fill(T*, T, u32);                                     \
  template __global__ void reduce_shared(const T*, T*, u32, Plus<T>);                   \
  template __global__ void reduce_shared(const T*, T*, u32, Largest<T>);                \
  template __global__ void reduce_early(const T*, T*, u32);                             \
  template __global__ void reduce_warp(const T*, T*, u32);                              \
  template __global__ void reduce_last_block(const T*, T*, T*, int*, u32);              \
  template __global__ void scan_block(const T*, T*, u32);                               \
  template __global__ void scan_warp(const T*, T*, u32);                                \
  template __global__ void scan_chained(const T*, T*, T*, int*, u32);                   \
  template __global__ void histogram_global(const T*, u32*, u32);                       \
  template __global__ void histogram_shared(const T*, u32*, u32);                       \
  template __global__ void stencil_1d(const T*, T*, u32);                               \
  template __global__ void stencil_2d(const T*, T*, u32, u32);                          \
  template __global__ void transpose(const T*, T*, u32, u32);                           \
  template __global__ void multiply(const T*, const T*, T*, u32);                       \
  template __global__ void bitonic(T*, u32);                                            \
  template __global__ void sparse(const u32*, const u32*, const T*, const T*, T*, u32); \
  template __global__ void compact(const T*, T*, int*, u32);                            \
  template __global__ void search(const T*, const T*, u32*, u32, u32);                  \
  template __global__ void jump_list(const u32*, const T*, T*, u32);                    \
  template __global__ void converge(T*, u32);                                           \
  template __global__ void recursive(const T*, int*, u32);                              \
  template __global__ void choose(const T*, T*, u32, int);                              \
  template __global__ void relax(const u32*, const u32*, int*, const T*, int*, u32);
ALL(int)
ALL(float)
