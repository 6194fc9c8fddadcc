// SPDX-License-Identifier: Apache-2.0
// Errors: what wrong calls answer, what the thread remembers of it, and that all goes on
// afterwards.
#include <cstring>
#include <thread>

#include "../check.h"

__global__ void one(int* p) { *p = 1; }

int main() {
  OK(cudaGetLastError());
  int* p = nullptr;
  ANSWERS(cudaErrorInvalidValue, cudaMalloc(static_cast<void**>(nullptr), 16));
  ANSWERS(cudaErrorInvalidValue, cudaPeekAtLastError());
  ANSWERS(cudaErrorInvalidValue, cudaGetLastError());
  OK(cudaGetLastError());
  ANSWERS(cudaErrorMemoryAllocation, cudaMalloc(&p, size_t{1} << 60));
  std::thread([] { OK(cudaGetLastError()); }).join();
  ANSWERS(cudaErrorMemoryAllocation, cudaGetLastError());
  OK(cudaMalloc(&p, 0));
  CHECK(p == nullptr);
  OK(cudaMalloc(&p, 256));

  one<<<0, 1>>>(p);
  ANSWERS(cudaErrorInvalidValue, cudaGetLastError());
  one<<<1, 2000>>>(p);
  ANSWERS(cudaErrorInvalidValue, cudaGetLastError());
  one<<<1, dim3(1, 1, 65)>>>(p);
  ANSWERS(cudaErrorInvalidValue, cudaGetLastError());
  one<<<1, 1, 1 << 20>>>(p);
  ANSWERS(cudaErrorInvalidValue, cudaGetLastError());
  void* args[] = {&p};
  int here = 0;
  ANSWERS(cudaErrorInvalidResourceHandle,
          cudaLaunchKernel(&here, dim3(1), dim3(1), args, 0, nullptr));
  ANSWERS(cudaErrorInvalidDeviceFunction,
          cudaLaunchKernel(nullptr, dim3(1), dim3(1), args, 0, nullptr));

  ANSWERS(cudaErrorInvalidMemcpyDirection, cudaMemcpy(p, &here, 4, static_cast<cudaMemcpyKind>(9)));
  ANSWERS(cudaErrorInvalidValue, cudaMemcpy(nullptr, &here, 4, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice));
  ANSWERS(cudaErrorInvalidValue, cudaFree(&here));
  ANSWERS(cudaErrorInvalidDevice, cudaSetDevice(99));
  ANSWERS(cudaErrorInvalidDevice, cudaSetDevice(-1));
  int value = 0;
  ANSWERS(cudaErrorInvalidDevice, cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 99));
  ANSWERS(cudaErrorInvalidValue, cudaGetDeviceCount(nullptr));
  ANSWERS(cudaErrorInvalidValue, cudaEventCreate(nullptr));
  ANSWERS(cudaErrorInvalidResourceHandle, cudaEventRecord(nullptr, 0));
  ANSWERS(cudaErrorInvalidResourceHandle, cudaEventRecord(nullptr, 0));
  ANSWERS(cudaErrorInvalidResourceHandle, cudaGetLastError());

  CHECK(std::strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue") == 0);
  CHECK(std::strcmp(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady") == 0);
  CHECK(std::strlen(cudaGetErrorString(cudaErrorMemoryAllocation)) > 0);
  CHECK(cudaGetErrorString(static_cast<cudaError_t>(12345)) != nullptr);

  one<<<1, 1>>>(p);
  OK(cudaGetLastError());
  OK(cudaMemcpy(&here, p, 4, cudaMemcpyDeviceToHost));
  CHECK(here == 1);
  OK(cudaFree(p));
  ANSWERS(cudaErrorInvalidValue, cudaFree(p));
  (void)cudaGetLastError();
  return result();
}
