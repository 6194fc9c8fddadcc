// An honest answer for every function of the API that nobody here implements, and the symbols of
// older versions: both from the tables of abi/cuda_driver_functions.h
// and cuda_graph_functions.h.
#include "abi/cuda_graph.h"
#include "guest-agent/shim/api.h"

// Functions without an implementation. Weak: a definition in any other file of this library wins.
#define SLUICE_UNSUPPORTED(symbol, name, since, parameters)                \
  __attribute__((weak)) CUresult symbol parameters {                       \
    return static_cast<CUresult>(::sluice::guest::not_supported(#symbol)); \
  }
SLUICE_CUDA_DRIVER_FUNCTIONS(SLUICE_UNSUPPORTED)
SLUICE_CUDA_GRAPH_FUNCTIONS(SLUICE_UNSUPPORTED)
#undef SLUICE_UNSUPPORTED

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
#define SLUICE_OLD_SYMBOL(old, symbol, name, since)                      \
  asm(".text\n.p2align 4\n.globl " old "\n.type " old ",%function\n" old \
      ":\n\t" SLUICE_JUMP #symbol SLUICE_JUMP_END "\n.size " old ", .-" old "\n");
SLUICE_CUDA_DRIVER_ALIASES(SLUICE_OLD_SYMBOL)
#undef SLUICE_OLD_SYMBOL
