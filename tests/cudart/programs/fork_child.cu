// SPDX-License-Identifier: Apache-2.0
// A child of a process that uses CUDA cannot use it; the parent goes on.
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

__global__ void one(int* p) { *p = 1; }

int main() {
  int *p, here = 0;
  OK(cudaMalloc(&p, sizeof(int)));
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    int* q = nullptr;
    ANSWERS(cudaErrorInitializationError, cudaMalloc(&q, 16));
    ANSWERS(cudaErrorInitializationError, cudaDeviceSynchronize());
    std::fflush(stdout);
    _exit(failures == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  one<<<1, 1>>>(p);
  OK(cudaMemcpy(&here, p, sizeof here, cudaMemcpyDeviceToHost));
  CHECK(here == 1);
  return result();
}
