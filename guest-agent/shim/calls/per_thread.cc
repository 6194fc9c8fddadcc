// SPDX-License-Identifier: Apache-2.0
// The symbols of the calls' forms for a default stream per thread (_ptsz, _ptds): each jumps to
// PerThread<call>. A jump through a pointer, because it must not touch any argument register.
#include "guest-agent/shim/calls/per_thread.h"

#include "abi/cuda_graph.h"

#define SLUICE_TARGET(symbol, function)                                      \
  extern "C" __attribute__((used, visibility("hidden"))) decltype(&function) \
      const sluice_per_thread_##function = &sluice::guest::PerThread<&function>::call;
SLUICE_CUDA_PER_THREAD_FUNCTIONS(SLUICE_TARGET)
#undef SLUICE_TARGET

#if defined(__x86_64__)
#define SLUICE_JUMP(target) "jmp *" target "(%rip)"
#elif defined(__aarch64__)
#define SLUICE_JUMP(target) "adrp x16, " target "\n\tldr x16, [x16, :lo12:" target "]\n\tbr x16"
#else
#error "forms for a default stream per thread: how does this machine jump?"
#endif
#define SLUICE_FORM(symbol, function)                                             \
  asm(".text\n.p2align 4\n.globl " symbol "\n.type " symbol ",%function\n" symbol \
      ":\n\t" SLUICE_JUMP("sluice_per_thread_" #function) "\n.size " symbol ", .-" symbol "\n");
SLUICE_CUDA_PER_THREAD_FUNCTIONS(SLUICE_FORM)
#undef SLUICE_FORM
#undef SLUICE_JUMP
