// SPDX-License-Identifier: Apache-2.0
// Queues, locks, turns and flags: loops over what other blocks write. For make_clang.py.
#include "corpus.h"

__device__ int drawn, lock_word, table_lock[64], turn_word;

template <int kStep>
__global__ void queue_static(const int* in, int* out, int* head, int n) {
  for (;;) {
    int i = add_to(head, kStep);
    if (i >= n) return;
    for (int k = 0; k < kStep && i + k < n; ++k) out[i + k] = in[i + k] * 3;
  }
}
__global__ void queue_by_block(const int* in, int* out, int* head, int n) {
  __shared__ int first;
  int size = threads().x;
  for (;;) {
    if (thread().x == 0) first = add_to(head, size);
    sync_block();
    int i = first + thread().x;
    sync_block();
    if (i - (int)thread().x >= n) break;
    if (i < n) out[i] = in[i] + 1;
  }
}
__global__ void queue_by_warp(const int* in, int* out, int* head, int n) {
  for (;;) {
    int i = 0;
    if (thread().x % 32 == 0) i = add_to(head, 32);
    i = __nvvm_shfl_sync_idx_i32(0xffffffff, i, 0, 31);
    if (i >= n) break;
    i += thread().x % 32;
    if (i < n) out[i] = in[i] + 1;
  }
}
__global__ void queue_global(const int* in, int* out, int n) {
  int i;
  while ((i = add_to(&drawn, 1)) < n) out[i] = in[i] ^ 5;
}
__global__ void cas_add(int* sum, const int* in, int n) {
  int i = global_thread();
  if (i >= n) return;
  int old = *sum, seen;
  do {
    seen = old;
    old = swap(sum, seen, seen + in[i]);
  } while (old != seen);
}
__global__ void cas_max(int* most, const int* in, int n) {
  int i = global_thread();
  if (i >= n) return;
  int old = now(most);
  while (old < in[i]) {
    int seen = swap(most, old, in[i]);
    if (seen == old) break;
    old = seen;
  }
}
__global__ void cas_float(float* sum, const float* in, int n) {
  int i = global_thread();
  if (i >= n) return;
  int* word = (int*)sum;
  int old = *word, seen;
  do {
    seen = old;
    float v = __builtin_bit_cast(float, seen) + in[i];
    old = swap(word, seen, __builtin_bit_cast(int, v));
  } while (old != seen);
}
__global__ void lock_leader(int* sum, const int* in) {
  if (thread().x != 0) return;
  while (swap(&lock_word, 0, 1) != 0) {
  }
  fence_device();
  *sum = now(sum) + in[block().x];
  fence_device();
  put(&lock_word, 0);
}
__global__ void lock_each(int* sum, const int* in, int n) {
  int i = global_thread();
  if (i >= n) return;
  bool done = false;
  while (!done) {
    if (swap(&lock_word, 0, 1) == 0) {
      *(volatile int*)sum = now(sum) + in[i];
      fence_device();
      put(&lock_word, 0);
      done = true;
    }
  }
}
__global__ void lock_test_first(int* sum, const int* in) {
  if (thread().x != 0) return;
  for (;;) {
    while (now(&lock_word) != 0) {
    }
    if (swap(&lock_word, 0, 1) == 0) break;
  }
  *(volatile int*)sum = now(sum) + in[block().x];
  fence_device();
  *(volatile int*)&lock_word = 0;
}
__global__ void lock_exchange(int* sum, const int* in) {
  if (thread().x != 0) return;
  while (put(&lock_word, 1) != 0) {
  }
  *(volatile int*)sum = now(sum) + in[block().x];
  fence_device();
  put(&lock_word, 0);
}
__global__ void lock_table(int* sums, const int* in, int n) {
  int i = global_thread();
  if (i >= n) return;
  int k = in[i] & 63;
  for (bool done = false; !done;) {
    if (put(&table_lock[k], 1) == 0) {
      *(volatile int*)&sums[k] = now(&sums[k]) + 1;
      fence_device();
      put(&table_lock[k], 0);
      done = true;
    }
  }
}
// The value is the lock: -1 while somebody changes it.
__global__ void value_lock(int* cells, const int* in, int n) {
  int i = global_thread();
  if (i >= n) return;
  int* cell = &cells[in[i] & 63];
  for (;;) {
    int v = now(cell);
    if (v == -1) continue;
    if (swap(cell, v, -1) != v) continue;
    fence_device();
    *(volatile int*)cell = v + in[i] % 7 + 1;
    break;
  }
}
__global__ void value_lock_done(int* cells, const int* in, int n) {
  int i = global_thread();
  if (i >= n) return;
  int* cell = &cells[in[i] & 63];
  bool done = false;
  do {
    int v = now(cell);
    if (v >= 0 && swap(cell, v, -1) == v) {
      put(cell, v + 1);
      done = true;
    }
  } while (!done);
}
__global__ void value_lock_tree(int* child, int* next, const int* in, int n) {
  int i = global_thread();
  if (i >= n) return;
  int at = 0, depth = 0;
  while (depth < 4) {
    int v = now(&child[at]);
    if (v == -2) continue;
    if (v >= 0) {
      at = v;
      ++depth;
      continue;
    }
    if (swap(&child[at], v, -2) == v) {
      int made = add_to(next, 1);
      child[made] = -1;
      fence_device();
      *(volatile int*)&child[at] = made;
    }
  }
}
__global__ void hash_insert(int* keys, const int* in, int n) {
  int i = global_thread();
  if (i >= n) return;
  int key = in[i] & 255;
  for (u32 at = key * 7u;; ++at) {
    int seen = swap(&keys[at & 1023], 0, key + 1);
    if (seen == 0 || seen == key + 1) return;
  }
}
__global__ void stack_push(int* head, int* next, int n) {
  int i = global_thread();
  if (i >= n) return;
  int old = now(head), seen;
  do {
    seen = old;
    next[i] = seen;
    fence_device();
    old = swap(head, seen, i);
  } while (old != seen);
}
__global__ void turn(int* sum, const int* in) {
  if (thread().x != 0) return;
  while (now(&turn_word) != (int)block().x) {
  }
  *(volatile int*)sum = now(sum) * 3 + in[block().x];
  fence_device();
  *(volatile int*)&turn_word = block().x + 1;
}
__global__ void team_reduce(const int* in, int* parts, int* arrived, int* out, int n) {
  __shared__ int s[32];
  int sum = 0;
  for (int i = global_thread(); i < n; i += all_threads()) sum += in[i];
  for (int by = 16; by > 0; by /= 2) sum += down(sum, by);
  if (thread().x % 32 == 0) s[thread().x / 32] = sum;
  sync_block();
  if (thread().x == 0) {
    for (u32 k = 1; k < threads().x / 32; ++k) sum += s[k];
    parts[block().x] = sum;
    fence_device();
    if (add_to(arrived, 1) == (int)blocks().x - 1) {
      int total = 0;
      for (u32 k = 0; k < blocks().x; ++k) total += now(&parts[k]);
      *out = total;
    }
  }
}
// As OpenMP's run time does: a buffer of fewer slots than teams; a team waits until the round of
// its slot has come.
__global__ void team_buffer(const int* in, int* slots, u32* round, u32* count, int* out, u32 size) {
  if (thread().x != 0) return;
  u32 b = block().x, slot = b % size, bound = b - slot;
  while (now(round) < bound) {
  }
  fence_device();
  if (b < size)
    slots[slot] = in[b];
  else
    slots[slot] += in[b];
  fence_device();
  u32 chunks = __nvvm_atom_inc_gen_ui(count, size - 1);
  if (chunks == size - 1) add_to(round, size);
  if (b == blocks().x - 1) *out = 1;
}
__global__ void dynamic_loop(const int* in, int* out, int* head, int n, int chunk) {
  for (;;) {
    int first = add_to(head, chunk);
    if (first >= n) break;
    int last = first + chunk < n ? first + chunk : n;
    for (int i = first; i < last; ++i) out[i] = in[i] * 2;
  }
}
__global__ void union_find(int* parent, const int* a, const int* b, int n) {
  int i = global_thread();
  if (i >= n) return;
  int x = a[i], y = b[i];
  for (;;) {
    while (now(&parent[x]) != x) x = now(&parent[x]);
    while (now(&parent[y]) != y) y = now(&parent[y]);
    if (x == y) return;
    if (x < y) {
      int v = x;
      x = y, y = v;
    }
    if (swap(&parent[x], x, y) == x) return;
  }
}
template __global__ void queue_static<1>(const int*, int*, int*, int);
template __global__ void queue_static<4>(const int*, int*, int*, int);
template __global__ void queue_static<32>(const int*, int*, int*, int);
