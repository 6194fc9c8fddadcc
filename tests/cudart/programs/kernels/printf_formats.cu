// SPDX-License-Identifier: Apache-2.0
// Formats of printf in kernels against the host's.
#include <unistd.h>
#include <cstdio>
#include <cstring>
#include <string>
#include "../check.h"
#define LINES(P)                                                                                   \
  P("%d|%5d|%-5d|%05d|%+d|% d\n", 42, 42, 42, 42, 42, 42);                                         \
  P("%u %x %X %#x %o %#o\n", 4000000000u, 255, 255, 255, 8, 8);                                    \
  P("%c%c%c %%\n", 'a', 66, 'z');                                                                  \
  P("%f %.3f %10.2f %-10.1f| %e %.2E %g %G\n", 3.14159, 2.5, 1.005, 9.99, 12345.678, 0.00012,      \
    1e-5, 1e20);                                                                                   \
  P("%a %.0f %#.0f\n", 1.5, 2.5, 3.0);                                                             \
  P("%s|%10s|%-10s|%.2s\n", "text", "right", "left", "cut");                                       \
  P("%ld %lld %lu %llx %hd\n", -5l, -6000000000ll, 7ul, 0xdeadbeefcafeull, (short)-3);             \
  P("%p\n", (void*)0x1234);                                                                        \
  P("inf %f %f nan %f\n", 1.0 / zero, -1.0 / zero, 0.0);                                           \
  P("no arguments\n");                                                                             \
  P("%5.1f%%\n", 99.5);                                                                            \
  P("%i %+.3e %lf\n", -7, 1.5, 2.5);                                                               \
  P("%s\n",                                                                                        \
    "a long string that goes on and on and on, longer than a word or a line of the buffer of the " \
    "device would be");
__global__ void k(double zero) {
#define P(...) printf(__VA_ARGS__)
#undef LF
  LINES(P)
  int r = printf("%d %d\n", 1, 2);
  printf("returned %d\n", r);
  r = printf("none\n");
  printf("returned %d\n", r);
}
__global__ void many() {
  if (threadIdx.x % 8 == 0) printf("b%d t%d\n", blockIdx.x, threadIdx.x);
}
int main() {
  fflush(stdout);
  int saved = dup(1);
  char name[] = "/tmp/printfXXXXXX";
  int fd = mkstemp(name);
  dup2(fd, 1);
  k<<<1, 1>>>(0.0);
  OK(cudaDeviceSynchronize());
  many<<<4, 32>>>();
  OK(cudaDeviceSynchronize());
  fflush(stdout);
  dup2(saved, 1);
  char got[8192] = "";
  lseek(fd, 0, SEEK_SET);
  long n = read(fd, got, 8191);
  got[n < 0 ? 0 : n] = 0;
  unlink(name);
  std::string want;
  char b[512];
  double zero = 0;
#undef P
#define P(...) snprintf(b, sizeof b, __VA_ARGS__), want += b
  LINES(P) want += "1 2\nreturned 2\nnone\nreturned 0\n";
  std::string g = got;
  std::string head = g.substr(0, want.size());
  if (head != want) {
    size_t i = 0;
    while (i < want.size() && i < head.size() && want[i] == head[i]) ++i;
    size_t l = want.rfind('\n', i);
    printf("differs: got\n%.100s\nwanted\n%.100s\n",
           head.c_str() + (l == std::string::npos ? 0 : l + 1),
           want.c_str() + (l == std::string::npos ? 0 : l + 1));
    ++failures;
  }
  std::string rest = g.substr(std::min(g.size(), want.size()));
  int lines = 0;
  for (char c : rest) lines += c == '\n';
  CHECK(lines == 16);
  return result();
}
