// SPDX-License-Identifier: Apache-2.0
// Each of these can wait for a block that does not run: none may be evictable. For make_clang.py.
#include "corpus.h"

__device__ int flag, arrived, cell;
__global__ void host_flag(volatile int* go, int* out) {
  while (*go == 0) {
  }
  out[block().x] = 1;
}
__global__ void grid_barrier(int* out) {
  if (thread().x == 0) {
    fence_device();
    add_to(&arrived, 1);
    while (now(&arrived) < (int)blocks().x) {
    }
  }
  sync_block();
  out[global_thread()] = arrived;
}
__global__ void next_block(int* ready, int* out) {
  if (thread().x != 0) return;
  if (block().x + 1 < blocks().x)
    while (now(&ready[block().x + 1]) == 0) {
    }
  out[block().x] = 1;
  fence_device();
  *(volatile int*)&ready[block().x] = 1;
}
__global__ void consumer(int* full, int* out) {
  if (thread().x != 0) return;
  if (block().x % 2 == 0)
    while (swap(full, 1, 0) != 1) {
    }
  else
    while (swap(full, 0, 1) != 0) {
    }
  out[block().x] = 1;
}
// Reads, swaps to a mark, and never stores back.
__global__ void value_taken(int* cells, int* out) {
  if (thread().x != 0) return;
  for (;;) {
    int v = now(&cell);
    if (v == -1) continue;
    if (swap(&cell, v, -1) == v) break;
  }
  out[block().x] = 1;
}
// The mark is one block's to set and another one's to take away.
__global__ void value_filled(int* out) {
  if (thread().x != 0) return;
  if (block().x == 7) {
    *(volatile int*)&cell = 3;
    return;
  }
  for (;;) {
    int v = now(&cell);
    if (v == 0) continue;
    if (swap(&cell, v, v - 1) == v) break;
  }
  out[block().x] = 1;
}
