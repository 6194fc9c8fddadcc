// SPDX-License-Identifier: Apache-2.0
// Managed variables are read and written by both sides.
#include "check.h"

__managed__ int counter = 5;
__managed__ float table[64];

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
  return result();
}
