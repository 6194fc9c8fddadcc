// SPDX-License-Identifier: Apache-2.0
// Kernels print; the text is there when the host has waited.
#include <unistd.h>

#include <cstring>

#include "../check.h"

__global__ void say(int n, double d, const char* word) {
  if (threadIdx.x < n) printf("thread %d of %d: %.3f %s %c %%\n", threadIdx.x, n, d, word, 'z');
}
__global__ void say_literal() { printf("literal %s %lld\n", "text", 1234567890123ll); }

int main() {
  // Standard output goes to a file for a while.
  std::fflush(stdout);
  char name[] = "/tmp/cudart-printf-XXXXXX";
  const int file = mkstemp(name), before = dup(1);
  CHECK(file >= 0);
  dup2(file, 1);
  say_literal<<<1, 1>>>();
  OK(cudaDeviceSynchronize());
  std::fflush(stdout);
  dup2(before, 1);
  char text[256] = {};
  CHECK(pread(file, text, sizeof text - 1, 0) > 0);
  CHECK(std::strcmp(text, "literal text 1234567890123\n") == 0);
  unlink(name);
  return result();
}
