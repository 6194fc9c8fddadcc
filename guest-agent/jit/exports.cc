// SPDX-License-Identifier: Apache-2.0
// libsluice-jit.so, which sluice-run puts before a program (LD_PRELOAD): NVIDIA's compilers in the
// program's process answer with machine code that carries its PTX, so that the guest's libcuda can
// make clones of its kernels. The compilers are the program's own, whichever they are; only the
// functions that hand out machine code, and those that those need, pass through here:
//
//   a program that                         comes here by
//   is linked with a compiler's library    the functions' names, which are exported here
//   loads one (dlopen, dlsym)              dlsym, which is exported here
//   starts ptxas                           LD_PRELOAD, which the child inherits (assembler.h)
//
// All other names that dlsym is asked for go to the loader's dlsym with the caller's own return
// address, which RTLD_NEXT and RTLD_DEFAULT depend on. SLUICE_JIT=off leaves everything as it is.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "guest-agent/jit/assembler.h"
#include "guest-agent/jit/carried_ptx.h"
#include "guest-agent/jit/compiler_library.h"
#include "guest-agent/jit/jit_link.h"
#include "guest-agent/jit/nvrtc.h"

#define SLUICE_EXPORT extern "C" __attribute__((visibility("default")))

namespace sluice::jit {
namespace {

// The instances of a compiler: one for each library that is loaded, and each version of its names.
// Each has a slot, whose functions stand in the place of the library's. Never destroyed.
template <class Compiler>
class Instances {
 public:
  static constexpr size_t kMost = 16;

  // The slot of a library; kMost: all are taken.
  static size_t slot_of(const CompilerLibrary& library, std::string_view version) {
    static std::mutex* mutex = new std::mutex;
    std::lock_guard lock(*mutex);
    for (size_t i = 0; i < kMost; ++i) {
      Instance& at = all_[i];
      if (at.compiler == nullptr) {
        if constexpr (std::is_constructible_v<Compiler, CompilerLibrary, std::string_view>)
          at.compiler = new Compiler(library, version);
        else
          at.compiler = new Compiler(library);
        at.base = library.base;
        at.version = version;
        return i;
      }
      if (at.base == library.base && at.version == version) return i;
    }
    return kMost;
  }
  static Compiler& at(size_t slot) { return *all_[slot].compiler; }

 private:
  struct Instance {
    Compiler* compiler = nullptr;
    const void* base = nullptr;
    std::string version;
  };
  static inline std::array<Instance, kMost>& all_ = *new std::array<Instance, kMost>;
};

// Functions of each slot that call one method.
template <auto kMethod>
struct Thunks;
template <class Compiler, class... Args, int (Compiler::*kMethod)(Args...)>
struct Thunks<kMethod> {
  template <size_t kSlot>
  static int call(Args... args) {
    return (Instances<Compiler>::at(kSlot).*kMethod)(args...);
  }
  static void* of_slot(size_t slot) {
    static constexpr auto kAll = []<size_t... kSlot>(std::index_sequence<kSlot...>) {
      return std::array{&call<kSlot>...};
    }
    (std::make_index_sequence<Instances<Compiler>::kMost>());
    return reinterpret_cast<void*>(kAll[slot]);
  }
  // For a caller that is linked with the library.
  static int for_caller(const void* code, const char* prefix, std::string_view version,
                        Args... args) {
    const CompilerLibrary library = library_of_caller(code, prefix);
    const size_t slot =
        library ? Instances<Compiler>::slot_of(library, version) : Instances<Compiler>::kMost;
    if (slot == Instances<Compiler>::kMost) return Compiler::kInternalError;
    return (Instances<Compiler>::at(slot).*kMethod)(args...);
  }
};

struct Function {
  std::string_view name;
  void* (*of_slot)(size_t);
};
constexpr Function kNvrtc[] = {
    {"nvrtcCompileProgram", Thunks<&Nvrtc::compile>::of_slot},
    {"nvrtcGetCUBINSize", Thunks<&Nvrtc::cubin_size>::of_slot},
    {"nvrtcGetCUBIN", Thunks<&Nvrtc::cubin>::of_slot},
    {"nvrtcDestroyProgram", Thunks<&Nvrtc::destroy>::of_slot},
};
constexpr Function kJitLink[] = {
    {"nvJitLinkCreate", Thunks<&JitLink::create>::of_slot},
    {"nvJitLinkAddData", Thunks<&JitLink::add_data>::of_slot},
    {"nvJitLinkAddFile", Thunks<&JitLink::add_file>::of_slot},
    {"nvJitLinkComplete", Thunks<&JitLink::complete>::of_slot},
    {"nvJitLinkGetLinkedCubinSize", Thunks<&JitLink::cubin_size>::of_slot},
    {"nvJitLinkGetLinkedCubin", Thunks<&JitLink::cubin>::of_slot},
    {"nvJitLinkDestroy", Thunks<&JitLink::destroy>::of_slot},
};

template <class Compiler>
void* in_place_of(const Function& function, void* real, std::string_view version) {
  const CompilerLibrary library = library_of_function(real);
  if (!library) return nullptr;
  const size_t slot = Instances<Compiler>::slot_of(library, version);
  return slot == Instances<Compiler>::kMost ? nullptr : function.of_slot(slot);
}

// "__nvJitLinkCreate_13_0" is nvJitLinkCreate, version "_13_0".
void* replacement(void* handle, const char* asked) {
  std::string_view name(asked), version;
  if (name.starts_with("__nvJitLink")) {
    name.remove_prefix(2);
    version = name.substr(std::min(name.find('_'), name.size()));
    name.remove_suffix(version.size());
  }
  const auto find = [&]<class Compiler>(const auto& functions, Compiler*) -> void* {
    for (const Function& function : functions) {
      if (function.name != name) continue;
      void* real = real_dlsym(handle, asked);
      return real != nullptr ? in_place_of<Compiler>(function, real, version) : nullptr;
    }
    return nullptr;
  };
  if (name.starts_with("nvrtc")) return find(kNvrtc, static_cast<Nvrtc*>(nullptr));
  return find(kJitLink, static_cast<JitLink*>(nullptr));
}

[[gnu::constructor]] void begin() {
  const std::string path = [] {
    char to[4096];
    const ssize_t n = ::readlink("/proc/self/exe", to, sizeof to);
    return std::string(to, n > 0 ? static_cast<size_t>(n) : 0);
  }();
  if (is_assembler(path) && attaching()) supervise_assembler();
}

}  // namespace
}  // namespace sluice::jit

// ---- dlsym ----

extern "C" {
// Called from dlsym below only. The second is the loader's dlsym, which it goes on to.
__attribute__((visibility("hidden"))) void* sluice_jit_real_dlsym;
__attribute__((visibility("hidden"), used)) void* sluice_jit_replacement(void* handle,
                                                                         const char* name) {
  using namespace sluice::jit;
  if (sluice_jit_real_dlsym == nullptr) sluice_jit_real_dlsym = loaders_dlsym();
  constexpr std::string_view kPrefixes[] = {"nvrtc", "nvJitLink", "__nvJitLink"};
  if (name == nullptr || handle == RTLD_DEFAULT || handle == RTLD_NEXT) return nullptr;
  for (const std::string_view prefix : kPrefixes)
    if (std::string_view(name).starts_with(prefix) && attaching()) return replacement(handle, name);
  return nullptr;
}
}

// A jump, not a call: the loader's dlsym looks at who called it.
SLUICE_EXPORT __attribute__((naked)) void* dlsym(void*, const char*) noexcept {
  asm("endbr64\n\t"
      "push %rdi\n\t"
      "push %rsi\n\t"
      "sub $8, %rsp\n\t"
      "call sluice_jit_replacement\n\t"
      "add $8, %rsp\n\t"
      "pop %rsi\n\t"
      "pop %rdi\n\t"
      "test %rax, %rax\n\t"
      "jne 1f\n\t"
      "jmp *sluice_jit_real_dlsym(%rip)\n"
      "1:\n\t"
      "ret");
}

// ---- names for programs that are linked with a compiler's library ----

#define SLUICE_FOR_CALLER(method, prefix, version, ...)                                  \
  sluice::jit::Thunks<&method>::for_caller(__builtin_return_address(0), prefix, version, \
                                           __VA_ARGS__)

SLUICE_EXPORT int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  return SLUICE_FOR_CALLER(sluice::jit::Nvrtc::compile, "libnvrtc.so.", "", program, count,
                           options);
}
SLUICE_EXPORT int nvrtcGetCUBINSize(void* program, size_t* bytes) {
  return SLUICE_FOR_CALLER(sluice::jit::Nvrtc::cubin_size, "libnvrtc.so.", "", program, bytes);
}
SLUICE_EXPORT int nvrtcGetCUBIN(void* program, char* to) {
  return SLUICE_FOR_CALLER(sluice::jit::Nvrtc::cubin, "libnvrtc.so.", "", program, to);
}
SLUICE_EXPORT int nvrtcDestroyProgram(void** program) {
  return SLUICE_FOR_CALLER(sluice::jit::Nvrtc::destroy, "libnvrtc.so.", "", program);
}

// nvJitLink.h gives each function a name with the toolkit's version.
#define SLUICE_JIT_LINK(before, version)                                                           \
  SLUICE_EXPORT int before##nvJitLinkCreate##version(void** handle, uint32_t count,                \
                                                     const char** options) {                       \
    return SLUICE_FOR_CALLER(sluice::jit::JitLink::create, "libnvJitLink.so.", #version, handle,   \
                             count, options);                                                      \
  }                                                                                                \
  SLUICE_EXPORT int before##nvJitLinkAddData##version(void* handle, int type, const void* data,    \
                                                      size_t bytes, const char* name) {            \
    return SLUICE_FOR_CALLER(sluice::jit::JitLink::add_data, "libnvJitLink.so.", #version, handle, \
                             type, data, bytes, name);                                             \
  }                                                                                                \
  SLUICE_EXPORT int before##nvJitLinkAddFile##version(void* handle, int type, const char* path) {  \
    return SLUICE_FOR_CALLER(sluice::jit::JitLink::add_file, "libnvJitLink.so.", #version, handle, \
                             type, path);                                                          \
  }                                                                                                \
  SLUICE_EXPORT int before##nvJitLinkComplete##version(void* handle) {                             \
    return SLUICE_FOR_CALLER(sluice::jit::JitLink::complete, "libnvJitLink.so.", #version,         \
                             handle);                                                              \
  }                                                                                                \
  SLUICE_EXPORT int before##nvJitLinkGetLinkedCubinSize##version(void* handle, size_t* bytes) {    \
    return SLUICE_FOR_CALLER(sluice::jit::JitLink::cubin_size, "libnvJitLink.so.", #version,       \
                             handle, bytes);                                                       \
  }                                                                                                \
  SLUICE_EXPORT int before##nvJitLinkGetLinkedCubin##version(void* handle, void* to) {             \
    return SLUICE_FOR_CALLER(sluice::jit::JitLink::cubin, "libnvJitLink.so.", #version, handle,    \
                             to);                                                                  \
  }                                                                                                \
  SLUICE_EXPORT int before##nvJitLinkDestroy##version(void** handle) {                             \
    return SLUICE_FOR_CALLER(sluice::jit::JitLink::destroy, "libnvJitLink.so.", #version, handle); \
  }
SLUICE_JIT_LINK(, )
SLUICE_JIT_LINK(__, _12_0)
SLUICE_JIT_LINK(__, _12_1)
SLUICE_JIT_LINK(__, _12_2)
SLUICE_JIT_LINK(__, _12_3)
SLUICE_JIT_LINK(__, _12_4)
SLUICE_JIT_LINK(__, _12_5)
SLUICE_JIT_LINK(__, _12_6)
SLUICE_JIT_LINK(__, _12_7)
SLUICE_JIT_LINK(__, _12_8)
SLUICE_JIT_LINK(__, _12_9)
SLUICE_JIT_LINK(__, _13_0)
SLUICE_JIT_LINK(__, _13_1)
SLUICE_JIT_LINK(__, _13_2)
