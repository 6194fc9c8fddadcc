// SPDX-License-Identifier: Apache-2.0
// A child of a process that uses CUDA cannot use it, also where other threads were in the middle of
// calls; the parent goes on. A child of a process that does not yet use it is like any other.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "../check.h"

__global__ void one(int* p) { *p = 1; }

// Runs `body` in a child, which must end by itself. Whether all in it was right.
template <class Body>
bool right_in_child(Body body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a hang is a failure
    body();
    std::fflush(stdout);
    _exit(failures == 0 ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

void use_it() {
  int devices = 0, *p, here = 0;
  OK(cudaGetDeviceCount(&devices));
  CHECK(devices > 0);
  OK(cudaMalloc(&p, sizeof(int)));
  one<<<1, 1>>>(p);
  OK(cudaMemcpy(&here, p, sizeof here, cudaMemcpyDeviceToHost));
  CHECK(here == 1);
  OK(cudaFree(p));
}

void cannot_use_it(int* p) {
  int devices = 0, *q = nullptr;
  size_t bytes = 0, all = 0;
  OK(cudaGetDeviceCount(&devices));  // what the parent knew
  CHECK(devices > 0);
  ANSWERS(cudaErrorInitializationError, cudaSetDevice(0));
  ANSWERS(cudaErrorInitializationError, cudaMalloc(&q, 16));
  ANSWERS(cudaErrorInitializationError, cudaFree(p));
  ANSWERS(cudaErrorInitializationError, cudaMemset(p, 0, sizeof(int)));
  ANSWERS(cudaErrorInitializationError, cudaMemcpy(&devices, p, 4, cudaMemcpyDeviceToHost));
  ANSWERS(cudaErrorInitializationError, cudaMemGetInfo(&bytes, &all));
  one<<<1, 1>>>(p);
  ANSWERS(cudaErrorInitializationError, cudaGetLastError());
  ANSWERS(cudaErrorInitializationError, cudaDeviceSynchronize());
}

int main() {
  CHECK(right_in_child(use_it));
  int* p;
  OK(cudaMalloc(&p, sizeof(int)));
  CHECK(right_in_child([p] { cannot_use_it(p); }));

  std::atomic<bool> stop{false};
  std::thread busy[3];
  for (std::thread& thread : busy) {
    thread = std::thread([&stop] {
      while (!stop) use_it();
    });
  }
  int wrong = 0;
  for (int i = 0; i < 20; ++i) wrong += !right_in_child([p] { cannot_use_it(p); });
  stop = true;
  for (std::thread& thread : busy) thread.join();
  CHECK(wrong == 0);
  use_it();
  OK(cudaFree(p));
  return result();
}
