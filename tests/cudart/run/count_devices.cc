// SPDX-License-Identifier: Apache-2.0
// Prints what cudaGetDeviceCount() answers, and the count. Its library's path is its own (RPATH).
#include <cstdio>

extern "C" int cudaGetDeviceCount(int* count);

int main(int argc, char**) {
  int count = -1;
  const int r = cudaGetDeviceCount(&count);
  std::printf("%d %d %d\n", r, count, argc - 1);
  return r == 0 ? 0 : 3;
}
