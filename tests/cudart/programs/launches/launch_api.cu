// SPDX-License-Identifier: Apache-2.0
// Launches without <<<>>>: cudaLaunchKernel, cudaLaunchKernelExC, kernels by handle, entry points
// of the driver.
#include <cuda_runtime.h>

#include "../check.h"

struct Pair {
  char tag;
  double value;
};
__global__ void store(double* p, Pair pair, short factor, int at) {
  p[at] = pair.value * factor + pair.tag;
}

int main() {
  double *p, host[3];
  OK(cudaMalloc(&p, sizeof host));
  Pair pair = {2, 1.5};
  short factor = 4;
  int at = 0;
  void* args[] = {&p, &pair, &factor, &at};
  OK(cudaLaunchKernel(reinterpret_cast<void*>(store), dim3(1), dim3(1), args, 0, nullptr));
  at = 1;
  factor = 6;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  OK(cudaLaunchKernelExC(&config, reinterpret_cast<void*>(store), args));
  OK(cudaLaunchKernelEx(&config, store, p, pair, static_cast<short>(8), 2));
  OK(cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host[0] == 8.0 && host[1] == 11.0 && host[2] == 14.0);

  cudaFunction_t function = nullptr;
  OK(cudaGetFuncBySymbol(&function, reinterpret_cast<void*>(store)));
  CHECK(function != nullptr);
  cudaKernel_t kernel = nullptr;
  OK(cudaGetKernel(&kernel, reinterpret_cast<void*>(store)));
  at = 0;
  factor = 1;
  OK(cudaLaunchKernel(reinterpret_cast<void*>(kernel), dim3(1), dim3(1), args, 0, nullptr));
  OK(cudaMemcpy(host, p, sizeof(double), cudaMemcpyDeviceToHost));
  CHECK(host[0] == 3.5);

  void* address = nullptr;
  cudaDriverEntryPointQueryResult status;
  OK(cudaGetDriverEntryPointByVersion("cuDriverGetVersion", &address, 12000, cudaEnableDefault,
                                      &status));
  CHECK(status == cudaDriverEntryPointSuccess && address != nullptr);
  int version = 0;
  CHECK(address != nullptr && reinterpret_cast<int (*)(int*)>(address)(&version) == 0 &&
        version >= 12000);
  OK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &address, 12000, cudaEnableDefault,
                                      &status));
  CHECK(status == cudaDriverEntryPointSymbolNotFound && address == nullptr);
  return result();
}
