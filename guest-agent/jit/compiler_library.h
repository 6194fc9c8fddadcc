// SPDX-License-Identifier: Apache-2.0
// NVIDIA's compiler libraries, as this process has loaded them. Several versions may be there at
// once: a program's packages bring their own. Nothing is loaded here.
//
// Any thread; never throws.
#pragma once

#include <string_view>

namespace sluice::jit {

// The loader's own dlsym: ours (exports.cc) is in front of it.
void* loaders_dlsym();
void* real_dlsym(void* handle, const char* name);

// A library that stays loaded from here on.
struct CompilerLibrary {
  void* handle = nullptr;      // for real_dlsym
  const void* base = nullptr;  // where it lies: one library, one base
  explicit operator bool() const { return handle != nullptr; }
};

// The library that a function belongs to; none if it is ours.
CompilerLibrary library_of_function(const void* function);
// The library named `prefix`... ("libnvrtc.so.") that the object with this code address was linked
// with; else one that is loaded.
CompilerLibrary library_of_caller(const void* code, std::string_view prefix);

}  // namespace sluice::jit
