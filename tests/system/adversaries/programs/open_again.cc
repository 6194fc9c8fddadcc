// SPDX-License-Identifier: Apache-2.0
// Opens and ends contexts, or loads and unloads modules, without end and as fast as it may.
//
//   open-again contexts|modules
// Prints "ready" at first, then "more" for each. Ends when it is killed; else exit 1: refused.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/support/driver_program.h"

namespace {
constexpr const char* kPtx = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
)";
}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const bool contexts = !std::strcmp(argv[1], "contexts");
  CUcontext first, context;
  CUmodule module;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&first, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(first) != CUDA_SUCCESS)
    return 1;
  std::puts("ready");
  for (;;) {
    std::fflush(stdout);
    CUresult r = contexts ? cuCtxCreate_v2(&context, 0, 0) : cuModuleLoadData(&module, kPtx);
    if (r == CUDA_SUCCESS) r = contexts ? cuCtxDestroy_v2(context) : cuModuleUnload(module);
    if (r != CUDA_SUCCESS) {
      std::printf("refused %d\n", static_cast<int>(r));
      return 1;
    }
    std::puts("more");
  }
}
