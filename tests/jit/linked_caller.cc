// SPDX-License-Identifier: Apache-2.0
// A library that is linked with a compiler's, as PyTorch's are: names come from the loader.
#include <cstddef>
#include <cstdint>
#include <string>

extern "C" {
int nvrtcCreateProgram(void**, const char*, const char*, int, const char**, const char**);
int nvrtcCompileProgram(void*, int, const char* const*);
int nvrtcGetCUBINSize(void*, size_t*);
int nvrtcGetCUBIN(void*, char*);
int nvrtcDestroyProgram(void**);
int __nvJitLinkCreate_13_0(void**, uint32_t, const char**);
int __nvJitLinkAddData_13_0(void*, int, const void*, size_t, const char*);
int __nvJitLinkComplete_13_0(void*);
int __nvJitLinkGetLinkedCubinSize_13_0(void*, size_t*);
int __nvJitLinkGetLinkedCubin_13_0(void*, void*);
int __nvJitLinkDestroy_13_0(void**);
}

// The machine code of a source, in `to`: how many bytes.
extern "C" __attribute__((visibility("default"))) size_t linked_compile(char* to, size_t room) {
  void* program = nullptr;
  size_t bytes = 0;
  if (nvrtcCreateProgram(&program, "scale", "scale.cu", 0, nullptr, nullptr) != 0 ||
      nvrtcCompileProgram(program, 0, nullptr) != 0 || nvrtcGetCUBINSize(program, &bytes) != 0 ||
      bytes > room || nvrtcGetCUBIN(program, to) != 0 || nvrtcDestroyProgram(&program) != 0)
    return 0;
  return bytes;
}

extern "C" __attribute__((visibility("default"))) size_t linked_link(const char* ptx, size_t length,
                                                                     char* to, size_t room) {
  void* link = nullptr;
  size_t bytes = 0;
  if (__nvJitLinkCreate_13_0(&link, 0, nullptr) != 0 ||
      __nvJitLinkAddData_13_0(link, 2, ptx, length, "scale") != 0 ||
      __nvJitLinkComplete_13_0(link) != 0 ||
      __nvJitLinkGetLinkedCubinSize_13_0(link, &bytes) != 0 || bytes > room ||
      __nvJitLinkGetLinkedCubin_13_0(link, to) != 0 || __nvJitLinkDestroy_13_0(&link) != 0)
    return 0;
  return bytes;
}
