// SPDX-License-Identifier: Apache-2.0
// What the programs of calls (graphs/, virtual_memory/) say: a line a call, the same in every run,
// so that what a real driver answered can stand in a file. One thread; to standard output.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "abi/cuda_driver.h"

namespace sluice::conformance {

// "what = ERROR_NAME"; gives the result back.
inline CUresult say(const char* what, CUresult result) {
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "?";
  std::printf("%s = %s\n", what, name);
  return result;
}
inline void say(const char* what, long long value) { std::printf("%s = %lld\n", what, value); }

// For what has to work before there is anything to say; ends the process, without destructors,
// because it may be a forked one.
inline void need(const char* what, CUresult result) {
  if (result == CUDA_SUCCESS) return;
  say(what, result);
  std::printf("cannot go on\n");
  std::fflush(stdout);
  std::_Exit(1);
}

}  // namespace sluice::conformance

#define CALL(call) ::sluice::conformance::say(#call, call)
#define VALUE(expression) \
  ::sluice::conformance::say(#expression, static_cast<long long>(expression))
#define NEED(call) ::sluice::conformance::need(#call, call)
