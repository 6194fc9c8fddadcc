// SPDX-License-Identifier: Apache-2.0
// Variables and constants: copies to and from them in all forms, their addresses and sizes.
#include <cstring>

#include "../check.h"

__constant__ int weights[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__device__ int total = 100;
__device__ float grid_values[4][16];
static __device__ double hidden = 2.5;

__global__ void sum(int* out) {
  int s = total;
  for (int i = 0; i < 8; ++i) s += weights[i];
  *out = s;
  hidden *= 2;
  grid_values[3][15] = 9;
}

int run() {
  int *out, value = 0;
  OK(cudaMalloc(&out, sizeof(int)));
  sum<<<1, 1>>>(out);
  OK(cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost));
  OK(cudaFree(out));
  return value;
}

int main() {
  CHECK(run() == 136);
  const int other[3] = {10, 20, 30};
  OK(cudaMemcpyToSymbol(weights, other, sizeof other, 2 * sizeof(int)));
  const int base = 1000;
  OK(cudaMemcpyToSymbolAsync(total, &base, sizeof base, 0, cudaMemcpyHostToDevice, 0));
  CHECK(run() == 1000 + 1 + 2 + 10 + 20 + 30 + 6 + 7 + 8);
  int back[8] = {};
  OK(cudaMemcpyFromSymbol(back, weights, sizeof back));
  CHECK(back[0] == 1 && back[2] == 10 && back[4] == 30 && back[7] == 8);
  double h = 0;
  OK(cudaMemcpyFromSymbol(&h, hidden, sizeof h));
  CHECK(h == 10.0);

  size_t size = 0;
  void* address = nullptr;
  OK(cudaGetSymbolSize(&size, grid_values));
  CHECK(size == sizeof(float) * 64);
  OK(cudaGetSymbolAddress(&address, grid_values));
  float all[64];
  OK(cudaMemcpy(all, address, sizeof all, cudaMemcpyDeviceToHost));
  CHECK(all[63] == 9 && all[62] == 0);

  ANSWERS(cudaErrorInvalidValue, cudaMemcpyToSymbol(weights, other, sizeof other, 6 * sizeof(int)));
  ANSWERS(cudaErrorInvalidMemcpyDirection,
          cudaMemcpyToSymbol(weights, other, sizeof other, 0, cudaMemcpyDeviceToHost));
  int not_a_symbol = 0;
  ANSWERS(cudaErrorInvalidSymbol, cudaGetSymbolAddress(&address, &not_a_symbol));
  ANSWERS(cudaErrorInvalidSymbol, cudaGetLastError());
  OK(cudaGetLastError());
  return result();
}
