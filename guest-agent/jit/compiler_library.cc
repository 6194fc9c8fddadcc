// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/jit/compiler_library.h"

#include <dlfcn.h>
#include <link.h>

#include <string>
#include <vector>

namespace sluice::jit {
namespace {

CompilerLibrary loaded(const char* name) {
  void* handle = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return {};
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return {};
  return {handle, reinterpret_cast<const void*>(map->l_addr)};
}

// The names of the libraries that an object asks for.
std::vector<const char*> needed_by(const link_map& object) {
  const char* strings = nullptr;
  for (const ElfW(Dyn)* d = object.l_ld; d->d_tag != DT_NULL; ++d)
    if (d->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(d->d_un.d_ptr);
  std::vector<const char*> names;
  for (const ElfW(Dyn)* d = object.l_ld; strings != nullptr && d->d_tag != DT_NULL; ++d)
    if (d->d_tag == DT_NEEDED) names.push_back(strings + d->d_un.d_val);
  return names;
}

}  // namespace

// The version is the one that glibc for x86-64 has had from the beginning.
void* loaders_dlsym() {
  static void* const its = ::dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  return its;
}

void* real_dlsym(void* handle, const char* name) {
  return reinterpret_cast<void* (*)(void*, const char*)>(loaders_dlsym())(handle, name);
}

CompilerLibrary library_of_function(const void* function) {
  Dl_info its, ours;
  if (::dladdr(function, &its) == 0 || its.dli_fname == nullptr ||
      ::dladdr(reinterpret_cast<const void*>(&real_dlsym), &ours) == 0 ||
      its.dli_fbase == ours.dli_fbase)
    return {};
  return loaded(its.dli_fname);
}

CompilerLibrary library_of_caller(const void* code, std::string_view prefix) {
  Dl_info info;
  link_map* map = nullptr;
  if (::dladdr1(code, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 &&
      map != nullptr)
    for (const char* name : needed_by(*map))
      if (std::string_view(name).starts_with(prefix))
        if (const CompilerLibrary found = loaded(name)) return found;
  for (const char* version : {"13", "12", "11.2"})
    if (const CompilerLibrary found = loaded((std::string(prefix) + version).c_str())) return found;
  return {};
}

}  // namespace sluice::jit
