// SPDX-License-Identifier: Apache-2.0
// Managed variables are read and written by both sides.
#include "../check.h"

__managed__ int counter = 5;
__managed__ float table[64];

__device__ int* where;

__global__ void by_address() {
  where = &counter;
  *where += 100;
}
__global__ void work() {
  counter *= 2;
  for (int i = 0; i < 64; ++i) table[i] = 0.25f * i + counter;
}

int main() {
  CHECK(counter == 5);
  counter = 8;
  work<<<1, 1>>>();
  OK(cudaDeviceSynchronize());
  CHECK(counter == 16);
  for (int i = 0; i < 64; ++i) CHECK(table[i] == 0.25f * i + 16);
  cudaPointerAttributes a;
  OK(cudaPointerGetAttributes(&a, table));
  CHECK(a.devicePointer == table);
  // As a symbol, and by its address.
  int* p = nullptr;
  size_t bytes = 0;
  OK(cudaGetSymbolAddress(reinterpret_cast<void**>(&p), counter));
  CHECK(p == &counter);
  OK(cudaGetSymbolSize(&bytes, table));
  CHECK(bytes == sizeof table);
  const int value = 77;
  int back = 0;
  OK(cudaMemcpyToSymbol(counter, &value, sizeof value));
  CHECK(counter == 77);
  by_address<<<1, 1>>>();
  OK(cudaMemcpyFromSymbol(&back, counter, sizeof back));
  CHECK(back == 177);
  OK(cudaMemcpyFromSymbol(&p, where, sizeof p));
  CHECK(p == &counter);
  return result();
}
