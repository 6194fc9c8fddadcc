// SPDX-License-Identifier: Apache-2.0
// NVRTC: what it compiles for a GPU is machine code, and it keeps the PTX of it. Nvrtc gives a
// program both as one: nvrtcGetCUBIN's answer carries the PTX.
//
//   nvrtcCompileProgram    forgets what is known of the program
//   nvrtcGetCUBINSize      asks NVRTC for both, attaches, answers the size of that
//   nvrtcGetCUBIN          gives that, if the program asked for its size; else NVRTC's own
//
// One for each NVRTC that is loaded. Any thread; never throws. Results are NVRTC's.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>

#include "guest-agent/jit/compiler_library.h"

namespace sluice::jit {

class Nvrtc {
 public:
  static constexpr int kInternalError = 11;
  explicit Nvrtc(const CompilerLibrary& library);

  int compile(void* program, int count, const char* const* options);
  int cubin_size(void* program, size_t* bytes);
  int cubin(void* program, char* to);
  int destroy(void** program);

 private:
  std::string attach(void* program, size_t bytes) const;
  void forget(void* program);

  int (*compile_)(void*, int, const char* const*) = nullptr;
  int (*cubin_size_)(void*, size_t*) = nullptr;
  int (*cubin_)(void*, char*) = nullptr;
  int (*ptx_size_)(void*, size_t*) = nullptr;
  int (*ptx_)(void*, char*) = nullptr;
  int (*destroy_)(void**) = nullptr;

  std::mutex mutex_;
  std::unordered_map<void*, std::string> carried_;
};

}  // namespace sluice::jit
