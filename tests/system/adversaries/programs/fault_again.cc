// SPDX-License-Identifier: Apache-2.0
// Stops the GPU again and again, as fast as it is allowed: each child is a program of its own, with
// a session of its own, that does it once and ends.
//
//   fault-again HOW TIMES [ATONCE]   HOW: unmapped, misaligned, trap, spin, cover (spin, on all
//                                    SMs), brief (spin, and gone after 1.8 s), or hide (unmapped,
//                                    and gone before it is notified).
//                                    ATONCE children have their sessions first, and then do it
//                                    together.
// Prints a line "got RESULT" for each that got through, or "refused RESULT"; at the end "done".
// Exit: 0.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/support/driver_program.h"

namespace {

constexpr const char* kPtx = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 to)
{ .reg .b64 %a; ld.param.u64 %a, [to]; st.global.u32 [%a], 1; ret; }
.visible .entry stop() { trap; }
.visible .entry spin(.param .u64 word)
{ .reg .b64 %a; .reg .b32 %x; .reg .pred %p; ld.param.u64 %a, [word];
AGAIN: ld.volatile.global.u32 %x, [%a]; setp.eq.u32 %p, %x, 0; @%p bra AGAIN; ret; }
)";

void say(const char* what, CUresult r) {
  char line[64];
  const int n = std::snprintf(line, sizeof line, "%s %d\n", what, static_cast<int>(r));
  if (::write(STDOUT_FILENO, line, static_cast<size_t>(n)) != n) ::_exit(9);
}

// One that says so on `ready` once it has all it needs, and waits for the end of `go`.
int attack(const char* how, int ready, int go) {
  CUcontext context;
  CUmodule module;
  CUfunction kernel;
  CUdeviceptr memory = 0;
  const bool trap = !std::strcmp(how, "trap"), cover = !std::strcmp(how, "cover");
  const bool brief = !std::strcmp(how, "brief");
  const bool spin = cover || brief || !std::strcmp(how, "spin");
  CUresult r = cuInit(0);
  if (r == CUDA_SUCCESS) r = cuDevicePrimaryCtxRetain(&context, 0);
  if (r == CUDA_SUCCESS) r = cuCtxSetCurrent(context);
  if (r == CUDA_SUCCESS) r = cuModuleLoadData(&module, kPtx);
  if (r == CUDA_SUCCESS)
    r = cuModuleGetFunction(&kernel, module, trap ? "stop" : spin ? "spin" : "store");
  if (r == CUDA_SUCCESS) r = cuMemAlloc(&memory, 4096);
  if (r == CUDA_SUCCESS) r = cuMemsetD32(memory, 0, 1024);
  char byte = 0;
  if (::write(ready, &byte, 1) != 1) return 9;
  ::close(ready);
  if (r != CUDA_SUCCESS) {
    say("refused", r);
    return 0;
  }
  if (::read(go, &byte, 1) < 0) return 9;
  CUdeviceptr to = spin ? memory : !std::strcmp(how, "misaligned") ? memory + 1 : 64;
  void* arguments[] = {&to};
  r = cuLaunchKernel(kernel, cover ? 65536 : 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
  if (brief || !std::strcmp(how, "hide")) {
    ::usleep(brief ? 1'800'000 : 20'000);  // enough to be granted, mostly; not to be notified
    say("got", r);
    ::kill(::getpid(), SIGKILL);
  }
  if (r == CUDA_SUCCESS) r = cuCtxSynchronize();
  say("got", r);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int times = argc > 2 ? std::atoi(argv[2]) : 0, at_once = argc > 3 ? std::atoi(argv[3]) : 1;
  if (times < 1 || at_once < 1) return 2;
  for (int done = 0; done < times; done += at_once) {
    int ready[2], go[2];
    if (::pipe(ready) || ::pipe(go)) return 9;
    std::vector<pid_t> children;
    for (int i = 0; i < at_once; ++i) {
      const pid_t child = ::fork();
      if (child < 0) return 9;
      if (child == 0) {
        ::close(go[1]);
        ::close(ready[0]);
        ::_exit(attack(argv[1], ready[1], go[0]));
      }
      children.push_back(child);
    }
    ::close(ready[1]);
    char bytes[256];
    while (::read(ready[0], bytes, sizeof bytes) > 0) {
    }
    ::close(go[1]);
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(go[0]);
  }
  std::puts("done");
  return 0;
}
