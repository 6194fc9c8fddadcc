// SPDX-License-Identifier: Apache-2.0
// Device code in two files that call each other and share variables: linked by nvcc -rdc=true.
// nvcc: -rdc=true rdc.part.cu
#include "../check.h"

extern __device__ int shared_total;
__device__ int twice_plus(int x);
void launch_part(int* p, int n);

__global__ void use(int* p, int n) {
  const int i = threadIdx.x;
  if (i < n) p[i] = twice_plus(i);
  if (i == 0) shared_total += n;
}

int main() {
  int *p, host[64];
  OK(cudaMalloc(&p, sizeof host));
  use<<<1, 64>>>(p, 64);
  OK(cudaGetLastError());
  launch_part(p, 64);
  OK(cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) CHECK(host[i] == 2 * i + 3 + 100 + 64);
  int total = 0;
  OK(cudaMemcpyFromSymbol(&total, shared_total, sizeof total));
  CHECK(total == 164);
  return result();
}
