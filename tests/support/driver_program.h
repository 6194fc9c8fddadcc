// SPDX-License-Identifier: Apache-2.0
// What small programs for the driver API have in common: they end at the first call that fails, and
// run one kernel.
#pragma once

#include <errno.h>

#include <cstdio>
#include <cstdlib>

#include "abi/cuda_driver.h"

namespace sluice::test {

// "CUDA_ERROR_..", or "?".
inline const char* error_name(CUresult r) {
  const char* name = nullptr;
  cuGetErrorName(r, &name);
  return name ? name : "?";
}

// Ends the program with 1 and a text that names it, `what` and the error.
inline void check(CUresult r, const char* what) {
  if (r == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, error_name(r));
  std::exit(1);
}

// A kernel of a module of PTX, in device 0's primary context, which becomes the thread's. All live
// as long as the program.
inline CUfunction load_kernel(const char* ptx, const char* name) {
  CUcontext context;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "context");
  check(cuCtxSetCurrent(context), "context");
  CUmodule module;
  CUfunction kernel;
  check(cuModuleLoadData(&module, ptx), "module");
  check(cuModuleGetFunction(&kernel, module, name), "function");
  return kernel;
}

}  // namespace sluice::test
