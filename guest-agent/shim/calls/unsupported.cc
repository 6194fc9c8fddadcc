// SPDX-License-Identifier: Apache-2.0
// An honest answer for every function of the API that nobody here implements, and the symbols of
// older versions: from the tables of abi/cuda_driver_functions.h, cuda_graph_functions.h and
// cuda_other_functions.h.
#include "abi/cuda_graph.h"
#include "guest-agent/shim/state/api.h"

// Functions without an implementation. Weak: a definition in any other file of this library wins.
#define SLUICE_UNSUPPORTED(symbol, name, since, parameters)                \
  __attribute__((weak)) CUresult symbol parameters {                       \
    return static_cast<CUresult>(::sluice::guest::not_supported(#symbol)); \
  }
SLUICE_CUDA_DRIVER_FUNCTIONS(SLUICE_UNSUPPORTED)
SLUICE_CUDA_GRAPH_FUNCTIONS(SLUICE_UNSUPPORTED)
#undef SLUICE_UNSUPPORTED

// Without parameters: nothing of what the caller passes is read.
#define SLUICE_ABSENT(symbol)                                              \
  extern "C" __attribute__((visibility("default"))) CUresult symbol() {    \
    return static_cast<CUresult>(::sluice::guest::not_supported(#symbol)); \
  }
SLUICE_CUDA_ABSENT_FUNCTIONS(SLUICE_ABSENT)
SLUICE_CUDA_ABSENT_OLD_FUNCTIONS(SLUICE_ABSENT)
SLUICE_CUDA_ABSENT_GRAPHICS_FUNCTIONS(SLUICE_ABSENT)
#undef SLUICE_ABSENT

// Older symbols with the signature of a newer one are jumps to it. A jump, because an alias has to
// stand in the file of its target, and because it must not touch any argument register.
#if defined(__x86_64__)
#define SLUICE_JUMP "jmp "
#define SLUICE_JUMP_END "@PLT"
#elif defined(__aarch64__)
#define SLUICE_JUMP "b "
#define SLUICE_JUMP_END ""
#else
#error "older symbols: tell how this machine jumps"
#endif
#define SLUICE_SAME_SYMBOL(old, symbol)                                  \
  asm(".text\n.p2align 4\n.globl " old "\n.type " old ",%function\n" old \
      ":\n\t" SLUICE_JUMP #symbol SLUICE_JUMP_END "\n.size " old ", .-" old "\n");
#define SLUICE_OLD_SYMBOL(old, symbol, name, since) SLUICE_SAME_SYMBOL(old, symbol)
SLUICE_CUDA_DRIVER_ALIASES(SLUICE_OLD_SYMBOL)
#undef SLUICE_OLD_SYMBOL
SLUICE_SAME_SYMBOL("cuStreamWaitValue32_ptsz", cuStreamWaitValue32_v2_ptsz)
SLUICE_SAME_SYMBOL("cuStreamWaitValue64_ptsz", cuStreamWaitValue64_v2_ptsz)
SLUICE_SAME_SYMBOL("cuStreamWriteValue32_ptsz", cuStreamWriteValue32_v2_ptsz)
SLUICE_SAME_SYMBOL("cuStreamWriteValue64_ptsz", cuStreamWriteValue64_v2_ptsz)

extern "C" __attribute__((used, visibility("hidden"))) CUresult sluice_of_32_bits() {
  return static_cast<CUresult>(::sluice::guest::not_supported("a call of before CUDA 3.2"));
}
#define SLUICE_32_BITS(symbol) SLUICE_SAME_SYMBOL(symbol, sluice_of_32_bits)
SLUICE_CUDA_32_BIT_FUNCTIONS(SLUICE_32_BITS)
#undef SLUICE_32_BITS
