// SPDX-License-Identifier: Apache-2.0
// A libnvrtc that compiles nothing: its machine code and PTX are always those of fakes.h. A source
// that says "#error" does not compile; one that says "no ptx" has machine code alone. As NVIDIA's,
// it asks the driver for a private table and goes on without.
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "tests/jit/fakes.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
struct Program {
  std::string source, code, ptx;
};
const std::string& of(void* program, std::string Program::*what) {
  return static_cast<Program*>(program)->*what;
}
void ask_the_driver() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return;
  const char nobodys[16] = {};
  const void* table = nullptr;
  if (void* ask = ::dlsym(driver, "cuGetExportTable"); ask != nullptr)
    (void)reinterpret_cast<int (*)(const void**, const void*)>(ask)(&table, nobodys);
}
}  // namespace

EXPORT int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char**,
                              const char**) {
  ask_the_driver();
  *program = new Program{source, "", ""};
  return 0;
}
EXPORT int nvrtcCompileProgram(void* program, int, const char* const*) {
  auto& p = *static_cast<Program*>(program);
  p.code = p.ptx = "";
  if (p.source.find("#error") != std::string::npos) return 6;
  p.code = sluice::test::scale_machine_code();
  if (p.source.find("no ptx") == std::string::npos)
    p.ptx = "// " FAKE_NAME + sluice::test::scale_ptx() + '\0';
  return 0;
}
EXPORT int nvrtcGetCUBINSize(void* program, size_t* bytes) {
  *bytes = of(program, &Program::code).size();
  return 0;
}
EXPORT int nvrtcGetCUBIN(void* program, char* to) {
  std::memcpy(to, of(program, &Program::code).data(), of(program, &Program::code).size());
  return 0;
}
EXPORT int nvrtcGetPTXSize(void* program, size_t* bytes) {
  *bytes = of(program, &Program::ptx).size();
  return 0;
}
EXPORT int nvrtcGetPTX(void* program, char* to) {
  std::memcpy(to, of(program, &Program::ptx).data(), of(program, &Program::ptx).size());
  return 0;
}
EXPORT int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}
