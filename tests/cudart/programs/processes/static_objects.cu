// SPDX-License-Identifier: Apache-2.0
// Objects with constructors and destructors that use CUDA, before main() and after it.
#include "../check.h"

__device__ int value = 3;
__global__ void read_value(int* p) { *p = value; }

struct Holder {
  int* p = nullptr;
  Holder() { OK(cudaMalloc(&p, sizeof(int))); }
  ~Holder() {
    const cudaError_t freed = cudaFree(p);
    if (freed != cudaSuccess && freed != cudaErrorCudartUnloading) std::_Exit(3);
  }
};
Holder holder;

int main() {
  static Holder local;
  int here = 0;
  read_value<<<1, 1>>>(holder.p);
  OK(cudaMemcpy(&here, holder.p, sizeof here, cudaMemcpyDeviceToHost));
  CHECK(here == 3);
  return result();  // with work and memory left
}
