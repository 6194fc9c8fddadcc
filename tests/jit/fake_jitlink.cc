// SPDX-License-Identifier: Apache-2.0
// A libnvJitLink that links nothing: its machine code is that of fakes.h. With -ptx it gives PTX,
// as NVIDIA's does of intermediate code. An input "bad" does not link.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/jit/fakes.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
struct Link {
  bool as_ptx = false, bad = false;
  std::vector<std::string> inputs;
};
Link& of(void* handle) { return *static_cast<Link*>(handle); }
const std::string& linked() {
  static const std::string code = sluice::test::scale_machine_code();
  return code;
}
std::string linked_ptx(void* handle) {
  return "// linked of " + std::to_string(of(handle).inputs.size()) + sluice::test::scale_ptx();
}
}  // namespace

#define FUNCTIONS(before, after)                                                                \
  EXPORT int before##nvJitLinkCreate##after(void** handle, uint32_t n, const char** options) {  \
    auto* link = new Link;                                                                      \
    for (uint32_t i = 0; i < n; ++i) link->as_ptx |= std::strcmp(options[i], "-ptx") == 0;      \
    *handle = link;                                                                             \
    return 0;                                                                                   \
  }                                                                                             \
  EXPORT int before##nvJitLinkAddData##after(void* handle, int, const void* data, size_t bytes, \
                                             const char*) {                                     \
    of(handle).inputs.emplace_back(static_cast<const char*>(data), bytes);                      \
    of(handle).bad |= of(handle).inputs.back() == "bad";                                        \
    return 0;                                                                                   \
  }                                                                                             \
  EXPORT int before##nvJitLinkAddFile##after(void* handle, int, const char* path) {             \
    of(handle).inputs.emplace_back(path);                                                       \
    return 0;                                                                                   \
  }                                                                                             \
  EXPORT int before##nvJitLinkComplete##after(void* handle) { return of(handle).bad ? 4 : 0; }  \
  EXPORT int before##nvJitLinkGetLinkedCubinSize##after(void* handle, size_t* bytes) {          \
    *bytes = linked().size();                                                                   \
    return of(handle).as_ptx ? 3 : 0;                                                           \
  }                                                                                             \
  EXPORT int before##nvJitLinkGetLinkedCubin##after(void*, void* to) {                          \
    std::memcpy(to, linked().data(), linked().size());                                          \
    return 0;                                                                                   \
  }                                                                                             \
  EXPORT int before##nvJitLinkGetLinkedPtxSize##after(void* handle, size_t* bytes) {            \
    *bytes = linked_ptx(handle).size() + 1;                                                     \
    return of(handle).as_ptx ? 0 : 3;                                                           \
  }                                                                                             \
  EXPORT int before##nvJitLinkGetLinkedPtx##after(void* handle, char* to) {                     \
    std::memcpy(to, linked_ptx(handle).c_str(), linked_ptx(handle).size() + 1);                 \
    return of(handle).as_ptx ? 0 : 3;                                                           \
  }                                                                                             \
  EXPORT int before##nvJitLinkDestroy##after(void** handle) {                                   \
    delete static_cast<Link*>(*handle);                                                         \
    *handle = nullptr;                                                                          \
    return 0;                                                                                   \
  }
FUNCTIONS(, )
FUNCTIONS(__, _13_0)
