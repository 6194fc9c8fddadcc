// SPDX-License-Identifier: Apache-2.0
// Parameters of many kinds and sizes: structures, arrays, nothing at all, 4000 bytes.
#include "../check.h"

struct Big {
  int values[1000];
};
struct Mixed {
  char c;
  short s;
  double d;
  int3 v;
};
__global__ void take_big(const __grid_constant__ Big big, int* out) {
  int sum = 0;
  for (int i = 0; i < 1000; ++i) sum += big.values[i];
  *out = sum;
}
__global__ void take_mixed(char a, Mixed m, bool b, long long l, float f, int* out) {
  *out = a + m.c + m.s + static_cast<int>(m.d) + m.v.x + m.v.y + m.v.z + b + static_cast<int>(l) +
         static_cast<int>(f);
}
__device__ int touched;
__global__ void take_nothing() { touched = 77; }

int main() {
  int *out, value = 0;
  OK(cudaMalloc(&out, sizeof(int)));
  Big big;
  for (int i = 0; i < 1000; ++i) big.values[i] = i;
  take_big<<<1, 1>>>(big, out);
  OK(cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost));
  CHECK(value == 499500);
  take_mixed<<<1, 1>>>(1, Mixed{2, 3, 4.5, make_int3(5, 6, 7)}, true, 100, 1000.25f, out);
  OK(cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost));
  CHECK(value == 1 + 2 + 3 + 4 + 5 + 6 + 7 + 1 + 100 + 1000);
  take_nothing<<<1, 1>>>();
  OK(cudaMemcpyFromSymbol(&value, touched, sizeof value));
  CHECK(value == 77);
  return result();
}
