// SPDX-License-Identifier: Apache-2.0
// A driver library for forwarder_test.cc: the software GPU, but the second cuStreamCreate fails, as
// where memory has run out, and whoever makes a context current that has been destroyed is ended.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "abi/cuda_driver.h"

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
std::atomic<int> created{0};
std::atomic<CUcontext> failed{nullptr}, destroyed{nullptr};

}  // namespace

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  static auto* const real = next<decltype(cuStreamCreate)>("cuStreamCreate");
  if (++created != 2) return real(stream, flags);
  CUcontext current = nullptr;
  (void)cuCtxGetCurrent(&current);
  failed = current;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  static auto* const real = next<decltype(cuCtxDestroy_v2)>("cuCtxDestroy_v2");
  if (context == failed) destroyed = context;
  return real(context);
}

CUresult cuCtxSetCurrent(CUcontext context) {
  static auto* const real = next<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent");
  if (context != nullptr && context == destroyed) {
    std::fprintf(stderr, "a context that has been destroyed is made current\n");
    std::abort();
  }
  return real(context);
}
