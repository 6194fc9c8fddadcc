// Modules, libraries, functions. PTX text is rewritten here, in the guest (DESIGN section 4), before
// it goes to the worker; what the rewriter said about each kernel goes along when the kernel is asked
// for. Fat binaries and cubins are refused until they are offered.
#include "guest-agent/shim/modules.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "guest-agent/shim/api.h"
#include "guest-agent/shim/pinned.h"
#include "guest-agent/shim/staging.h"
#include "kernels/passes/rewrite.h"
#include "mediator/base/fd.h"

namespace sluice::guest {
namespace {

// Module texts beyond this are refused rather than mapped: a file of a gigabyte is no PTX.
constexpr size_t kMostTextBytes = 256 << 20;
constexpr uint32_t kLogBytes = 4096;

struct KernelFlags {
  uint32_t flags = 0;
  uint32_t params_offset = 0;
};

// PTX after rewriting, with what is known of its kernels.
struct Text {
  std::string original;
  std::string rewritten;  // empty: send the original
  std::unordered_map<std::string, KernelFlags> kernels;
};

struct Module {
  uint64_t context = 0;
  std::unordered_map<std::string, KernelFlags> kernels;  // empty if the original was loaded
  std::unordered_map<std::string, uint64_t> functions;
  uint64_t library = 0;  // handle of the library it belongs to, 0: none
  std::vector<uint64_t> globals;  // base addresses in the pointer map
};

struct Library {
  std::shared_ptr<const Text> text;
  std::unordered_map<uint64_t, uint64_t> modules;  // context -> module
  std::unordered_map<std::string, uint64_t> kernels;
};

struct Kernel {
  uint64_t library = 0;
  std::string name;
};

struct Modules {
  std::mutex mutex;  // held over calls to the worker: loading and looking up are rare
  std::unordered_map<uint64_t, Module> modules;
  std::unordered_map<uint64_t, Library> libraries;
  std::unordered_map<uint64_t, Kernel> kernels;
  uint32_t next_own = 1;  // indices of our own handles (libraries and kernels)
};
Modules& all() {
  static auto* modules = new Modules;
  return *modules;
}

// ---- JIT options ----

struct JitLogs {
  char* error = nullptr;
  size_t error_bytes = 0;
  void** error_size_slot = nullptr;
  char* info = nullptr;
  size_t info_bytes = 0;
  void** info_size_slot = nullptr;

  JitLogs(unsigned count, CUjit_option* options, void** values) {
    for (unsigned i = 0; options != nullptr && values != nullptr && i < count; ++i) {
      switch (options[i]) {
        case CU_JIT_ERROR_LOG_BUFFER:
          error = static_cast<char*>(values[i]);
          break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
          error_bytes = static_cast<unsigned>(reinterpret_cast<uintptr_t>(values[i]));
          error_size_slot = &values[i];
          break;
        case CU_JIT_INFO_LOG_BUFFER:
          info = static_cast<char*>(values[i]);
          break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
          info_bytes = static_cast<unsigned>(reinterpret_cast<uintptr_t>(values[i]));
          info_size_slot = &values[i];
          break;
        default:
          break;  // hints for a compiler whose output is the same without them
      }
    }
    write(info, info_bytes, info_size_slot, "");
    write(error, error_bytes, error_size_slot, "");
  }
  void fail(std::string_view text) { write(error, error_bytes, error_size_slot, text); }

 private:
  // CUDA returns the number of bytes written in the size's own slot.
  static void write(char* to, size_t room, void** slot, std::string_view text) {
    size_t n = 0;
    if (to != nullptr && room > 0) {
      n = std::min(text.size(), room - 1);
      std::memcpy(to, text.data(), n);
      to[n] = '\0';
    }
    if (slot != nullptr) *slot = reinterpret_cast<void*>(static_cast<uintptr_t>(n));
  }
};

// ---- from an image to PTX ----

// The image of a cuModuleLoadData: PTX is text that ends with NUL.
CUresult text_of_image(const void* image, std::string_view* text) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint32_t magic;
  const auto* bytes = static_cast<const unsigned char*>(image);
  // Byte by byte up to a NUL: a text may be shorter than four bytes.
  size_t n = 0;
  while (n < sizeof magic && bytes[n] != 0) ++n;
  if (n == sizeof magic) {
    std::memcpy(&magic, image, sizeof magic);
    constexpr uint32_t kElf = 0x464c457f, kFatbin = 0xba55ed50, kFatbinWrapper = 0x466243b1;
    if (magic == kElf || magic == kFatbin || magic == kFatbinWrapper) {
      complain_once("module image is a cubin or a fat binary: only PTX text can be loaded yet");
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
  }
  const size_t length = strnlen(static_cast<const char*>(image), kMostTextBytes);
  if (length == 0 || length == kMostTextBytes) return CUDA_ERROR_INVALID_IMAGE;
  *text = {static_cast<const char*>(image), length};
  return CUDA_SUCCESS;
}

CUresult read_file(const char* path, std::string* image) {
  Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
  struct stat st;
  if (!fd || ::fstat(fd.get(), &st) != 0) return CUDA_ERROR_FILE_NOT_FOUND;
  if (!S_ISREG(st.st_mode) || st.st_size <= 0 || static_cast<size_t>(st.st_size) >= kMostTextBytes)
    return CUDA_ERROR_INVALID_IMAGE;
  image->resize(static_cast<size_t>(st.st_size));
  size_t at = 0;
  while (at < image->size()) {
    const ssize_t n = ::read(fd.get(), image->data() + at, image->size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return CUDA_ERROR_FILE_NOT_FOUND;
    at += static_cast<size_t>(n);
  }
  return CUDA_SUCCESS;
}

// SLUICE_REWRITE=off leaves modules as they are: their kernels can then not be evicted.
bool rewriting() {
  static const bool on = [] {
    const char* env = ::getenv("SLUICE_REWRITE");
    return env == nullptr || std::strcmp(env, "off") != 0;
  }();
  return on;
}

std::shared_ptr<const Text> make_text(std::string_view original) {
  auto text = std::make_shared<Text>();
  text->original = original;
  if (!rewriting()) return text;
  auto rewritten = passes::rewrite_module(text->original);
  if (!rewritten) {
    log_line("module not rewritten: %s", rewritten.error().message.c_str());
    return text;
  }
  bool any = false;
  for (const passes::KernelReport& kernel : rewritten->kernels) {
    log_line("kernel %s: %s%s%s", kernel.name.c_str(), passes::tier_name(kernel.tier),
             kernel.reason.empty() ? "" : ": ", kernel.reason.c_str());
    if (!kernel.evictable) continue;
    any = true;
    KernelFlags& flags = text->kernels[kernel.name];
    flags.flags = SLUICE_FUNCTION_EVICTABLE;
    if (kernel.slot == passes::SlotPlace::kDynamicEnd)
      flags.flags |= SLUICE_FUNCTION_SLOT_DYNAMIC;
    flags.params_offset = static_cast<uint32_t>(kernel.param_offset_of_block);
  }
  if (any) text->rewritten = std::move(rewritten->text);
  return text;
}

// ---- loading ----

// Sends `text`; `log` gets the worker's words on failure.
CUresult send_text(Session& session, uint64_t context, const std::string& text, uint64_t* handle,
                   std::string* log) {
  sluice_module_load body{};
  body.log_bytes = kLogBytes;
  Pending pending;
  CUresult r;
  if (text.size() <= SLUICE_RECORD_MAX_BYTES / 2) {
    body.inline_bytes = static_cast<uint32_t>(text.size());
    r = session.call(
        SLUICE_CALL_MODULE_LOAD, context, sizeof body + text.size(),
        [&](std::byte* to) {
          std::memcpy(to, &body, sizeof body);
          std::memcpy(to + sizeof body, text.data(), text.size());
        },
        pending);
  } else if (text.size() <= staging(session).total_bytes() / 2) {
    std::byte* piece = staging(session).acquire(text.size());
    if (piece == nullptr) return session.dead();
    std::memcpy(piece, text.data(), text.size());
    body.bulk = {session.offset_of(piece), text.size()};
    r = session.call(SLUICE_CALL_MODULE_LOAD, context, body, pending);
    staging(session).release(piece, text.size());
  } else {
    sluice_bulk extents{};
    r = PinnedMemory::take_extents(session, context, text.size(), &extents);
    if (r != CUDA_SUCCESS) return r;
    std::memcpy(session.channel().region() + extents.offset, text.data(), text.size());
    body.bulk = {extents.offset, text.size()};
    r = session.call(SLUICE_CALL_MODULE_LOAD, context, body, pending);
    PinnedMemory::give_extents(session, context, extents);
  }
  if (r != CUDA_SUCCESS) {
    const char* words = reinterpret_cast<const char*>(pending.body.data());
    log->assign(words, strnlen(words, pending.body.size()));
    return r;
  }
  sluice_handle_reply reply{};
  if (!pending.read(reply) || reply.handle == 0) return CUDA_ERROR_UNKNOWN;
  *handle = reply.handle;
  return CUDA_SUCCESS;
}

// Loads the rewritten text, or else the original. Under all().mutex.
CUresult load_module(const Entered& e, const Text& text, uint64_t library, JitLogs* logs,
                     uint64_t* handle) {
  std::string log;
  Module module;
  module.context = e.context;
  module.library = library;
  CUresult r = CUDA_ERROR_INVALID_PTX;
  if (!text.rewritten.empty()) {
    r = send_text(*e.session, e.context, text.rewritten, handle, &log);
    if (r == CUDA_SUCCESS)
      module.kernels = text.kernels;
    else if (e.session->dead() == CUDA_SUCCESS)
      log_line("rewritten module does not load (%d: %s): loading the original", r, log.c_str());
  }
  if (r != CUDA_SUCCESS) r = send_text(*e.session, e.context, text.original, handle, &log);
  if (r != CUDA_SUCCESS) {
    if (logs != nullptr) logs->fail(log);
    log_line("module does not load (%d): %s", r, log.c_str());
    return r;
  }
  all().modules[*handle] = std::move(module);
  return CUDA_SUCCESS;
}

CUresult load_image(CUmodule* to, const void* image, unsigned count, CUjit_option* options,
                    void** values) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitLogs logs(count, options, values);
  std::string_view view;
  if (const CUresult r = text_of_image(image, &view); r != CUDA_SUCCESS) return r;
  const auto text = make_text(view);
  std::lock_guard lock(all().mutex);
  uint64_t handle = 0;
  const CUresult r = load_module(e, *text, 0, &logs, &handle);
  if (r == CUDA_SUCCESS) *to = reinterpret_cast<CUmodule>(handle);
  return r;
}

// ---- functions ----

// Under all().mutex.
CUresult find_function(const Entered& e, uint64_t module_handle, const std::string& name,
                       uint64_t* handle) {
  const auto found = all().modules.find(module_handle);
  if (found == all().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  Module& module = found->second;
  if (const auto known = module.functions.find(name); known != module.functions.end()) {
    *handle = known->second;
    return CUDA_SUCCESS;
  }
  if (name.empty() || name.size() > SLUICE_RECORD_MAX_BYTES / 2) return CUDA_ERROR_NOT_FOUND;
  sluice_function_get body{};
  body.module = module_handle;
  body.name_bytes = static_cast<uint32_t>(name.size());
  if (const auto flags = module.kernels.find(name); flags != module.kernels.end()) {
    body.flags = flags->second.flags;
    body.params_offset = flags->second.params_offset;
  }
  Pending pending;
  const CUresult r = e.session->call(
      SLUICE_CALL_FUNCTION_GET, module.context, sizeof body + name.size(),
      [&](std::byte* to) {
        std::memcpy(to, &body, sizeof body);
        std::memcpy(to + sizeof body, name.data(), name.size());
      },
      pending);
  if (r != CUDA_SUCCESS) return r;
  sluice_function_reply reply{};
  if (!pending.read(reply) || reply.handle == 0 || reply.param_count > SLUICE_MAX_PARAMS)
    return CUDA_ERROR_UNKNOWN;
  std::vector<std::pair<uint32_t, uint32_t>> params(reply.param_count);
  for (uint32_t i = 0; i < reply.param_count; ++i) {
    uint32_t pair[2];
    if (!pending.read(pair, sizeof reply + i * sizeof pair) || pair[1] > reply.param_bytes ||
        pair[0] > reply.param_bytes - pair[1])
      return CUDA_ERROR_UNKNOWN;
    params[i] = {pair[0], pair[1]};
  }
  if (sizeof(sluice_launch) + reply.param_bytes > kMaxRecordBody) return CUDA_ERROR_UNKNOWN;
  const bool kept = state().functions.add(reply.handle, [&](FunctionInfo& info) {
    info.handle = reply.handle;
    info.module = module_handle;
    info.context = module.context;
    info.name = name;
    info.param_bytes = reply.param_bytes;
    info.params = std::move(params);
    for (size_t i = 0; i < info.attributes.size(); ++i) info.attributes[i] = reply.attributes[i];
  });
  if (!kept) return CUDA_ERROR_OUT_OF_MEMORY;
  module.functions[name] = reply.handle;
  *handle = reply.handle;
  return CUDA_SUCCESS;
}

// Under all().mutex. The library's module in the current context, loaded when first needed.
CUresult module_of_library(const Entered& e, uint64_t library_handle, uint64_t* module) {
  const auto found = all().libraries.find(library_handle);
  if (found == all().libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (e.context == 0) return CUDA_ERROR_INVALID_CONTEXT;
  const auto known = found->second.modules.find(e.context);
  if (known != found->second.modules.end()) {
    *module = known->second;
    return CUDA_SUCCESS;
  }
  const CUresult r = load_module(e, *found->second.text, library_handle, nullptr, module);
  if (r == CUDA_SUCCESS) found->second.modules[e.context] = *module;
  return r;
}

// Under all().mutex.
CUresult function_of_kernel(const Entered& e, uint64_t kernel_handle, uint64_t* function) {
  const auto found = all().kernels.find(kernel_handle);
  if (found == all().kernels.end()) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t module = 0;
  const CUresult r = module_of_library(e, found->second.library, &module);
  return r != CUDA_SUCCESS ? r : find_function(e, module, found->second.name, function);
}

// Under all().mutex. Forgets a module that the worker has unloaded.
void forget_module(uint64_t handle) {
  const auto found = all().modules.find(handle);
  if (found == all().modules.end()) return;
  for (const auto& [name, function] : found->second.functions) state().functions.remove(function);
  for (const uint64_t base : found->second.globals) state().pointers.remove(base);
  all().modules.erase(found);
}

uint64_t own_handle(sluice_handle_kind kind) {
  return SLUICE_HANDLE(kind, 1, all().next_own++);
}

}  // namespace

FunctionInfo* resolve_function(const Entered& e, CUfunction function, CUresult* why) {
  uint64_t handle = wire(function);
  if (SLUICE_HANDLE_KIND(handle) == SLUICE_HANDLE_KERNEL) {
    std::lock_guard lock(all().mutex);
    *why = function_of_kernel(e, wire(function), &handle);
    if (*why != CUDA_SUCCESS) return nullptr;
  }
  FunctionInfo* info = state().functions.find(handle);
  *why = info != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  return info;
}

}  // namespace sluice::guest

using namespace sluice::guest;

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return load_image(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int num_options,
                            CUjit_option* options, void** option_values) {
  return load_image(module, image, num_options, options, option_values);
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  if (fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const Entered e = enter_context(); !e) return e.status;
  std::string image;
  if (const CUresult r = read_file(fname, &image); r != CUDA_SUCCESS) return r;
  return load_image(module, image.c_str(), 0, nullptr, nullptr);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fat_cubin) {
  return load_image(module, fat_cubin, 0, nullptr, nullptr);
}

CUresult cuModuleUnload(CUmodule hmod) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(all().mutex);
  const auto found = all().modules.find(wire(hmod));
  if (found == all().modules.end() || found->second.library != 0) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult r = SLUICE_CALL(cuModuleUnload, *e.session, found->second.context, hmod);
  if (r == CUDA_SUCCESS) forget_module(wire(hmod));
  return r;
}

// Modules are loaded whole when the program loads them, whatever CUDA_MODULE_LOADING says.
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  const Entered e = enter();
  if (!e) return e.status;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (hfunc == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all().mutex);
  uint64_t handle = 0;
  const CUresult r = find_function(e, wire(hmod), name, &handle);
  if (r == CUDA_SUCCESS) *hfunc = reinterpret_cast<CUfunction>(handle);
  return r;
}

namespace {

// Under all().mutex.
CUresult find_global(const Entered& e, uint64_t module_handle, const char* name,
                     CUdeviceptr* dptr, size_t* bytes) {
  const auto found = all().modules.find(module_handle);
  if (found == all().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  CUdeviceptr base = 0;
  size_t size = 0;
  const CUresult r = SLUICE_CALL(cuModuleGetGlobal_v2, *e.session, found->second.context, &base,
                                 &size, reinterpret_cast<CUmodule>(module_handle), name);
  if (r != CUDA_SUCCESS) return r;
  if (!state().pointers.find(base)) {
    Range range;
    range.base = base;
    range.bytes = size;
    range.context = found->second.context;
    range.static_global = true;
    state().pointers.add(range);
    found->second.globals.push_back(base);
  }
  if (dptr != nullptr) *dptr = base;
  if (bytes != nullptr) *bytes = size;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all().mutex);
  return find_global(e, wire(hmod), name, dptr, bytes);
}

// ---- libraries ----

namespace {

CUresult load_library(CUlibrary* library, const void* image, unsigned count,
                      CUjit_option* options, void** values) {
  const Entered e = enter();
  if (!e) return e.status;
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitLogs logs(count, options, values);
  std::string_view view;
  if (const CUresult r = text_of_image(image, &view); r != CUDA_SUCCESS) return r;
  auto text = make_text(view);
  std::lock_guard lock(all().mutex);
  const uint64_t handle = own_handle(SLUICE_HANDLE_LIBRARY);
  Library made;
  made.text = text;
  if (e.context != 0) {  // otherwise errors show when a kernel is first used in a context
    uint64_t module = 0;
    const CUresult r = load_module(e, *text, handle, &logs, &module);
    if (r != CUDA_SUCCESS) return r;
    made.modules[e.context] = module;
  }
  all().libraries[handle] = std::move(made);
  *library = reinterpret_cast<CUlibrary>(handle);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jit_options,
                           void** jit_options_values, unsigned int num_jit_options,
                           CUlibraryOption*, void**, unsigned int) {
  return load_library(library, code, num_jit_options, jit_options, jit_options_values);
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* file_name,
                               CUjit_option* jit_options, void** jit_options_values,
                               unsigned int num_jit_options, CUlibraryOption*, void**,
                               unsigned int) {
  if (file_name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const Entered e = enter(); !e) return e.status;
  std::string image;
  if (const CUresult r = read_file(file_name, &image); r != CUDA_SUCCESS) return r;
  return load_library(library, image.c_str(), num_jit_options, jit_options, jit_options_values);
}

CUresult cuLibraryUnload(CUlibrary library) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(all().mutex);
  const auto found = all().libraries.find(wire(library));
  if (found == all().libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  CUresult status = CUDA_SUCCESS;
  for (const auto& [context, module] : found->second.modules) {
    const CUresult r = SLUICE_CALL(cuModuleUnload, *e.session, context,
                                   reinterpret_cast<CUmodule>(module));
    forget_module(module);
    // A context that was destroyed took its modules along.
    if (r != CUDA_SUCCESS && state().context(context)) status = r;
  }
  for (const auto& [name, kernel] : found->second.kernels) all().kernels.erase(kernel);
  all().libraries.erase(found);
  return status;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  const Entered e = enter();
  if (!e) return e.status;
  if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all().mutex);
  const auto found = all().libraries.find(wire(library));
  if (found == all().libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  auto known = found->second.kernels.find(name);
  if (known == found->second.kernels.end()) {
    if (e.context != 0) {  // then it can be said at once whether there is such a kernel
      uint64_t module = 0, function = 0;
      CUresult r = module_of_library(e, wire(library), &module);
      if (r == CUDA_SUCCESS) r = find_function(e, module, name, &function);
      if (r != CUDA_SUCCESS) return r;
    }
    const uint64_t handle = own_handle(SLUICE_HANDLE_KERNEL);
    all().kernels[handle] = {wire(library), name};
    known = found->second.kernels.emplace(name, handle).first;
  }
  *kernel = reinterpret_cast<CUkernel>(known->second);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* mod, CUlibrary library) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (mod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all().mutex);
  uint64_t module = 0;
  const CUresult r = module_of_library(e, wire(library), &module);
  if (r == CUDA_SUCCESS) *mod = reinterpret_cast<CUmodule>(module);
  return r;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                            const char* name) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all().mutex);
  uint64_t module = 0;
  const CUresult r = module_of_library(e, wire(library), &module);
  return r != CUDA_SUCCESS ? r : find_global(e, module, name, dptr, bytes);
}

CUresult cuKernelGetFunction(CUfunction* func, CUkernel kernel) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (func == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult why;
  const FunctionInfo* info = resolve_function(e, reinterpret_cast<CUfunction>(kernel), &why);
  if (info != nullptr) *func = reinterpret_cast<CUfunction>(info->handle);
  return why;
}

CUresult cuKernelGetLibrary(CUlibrary* lib, CUkernel kernel) {
  const Entered e = enter();
  if (!e) return e.status;
  if (lib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all().mutex);
  const auto found = all().kernels.find(wire(kernel));
  if (found == all().kernels.end()) return CUDA_ERROR_INVALID_HANDLE;
  *lib = reinterpret_cast<CUlibrary>(found->second.library);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  const Entered e = enter();
  if (!e) return e.status;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all().mutex);
  const auto found = all().kernels.find(wire(kernel));
  if (found == all().kernels.end()) return CUDA_ERROR_INVALID_HANDLE;
  *name = found->second.name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  return cuFuncGetParamInfo(reinterpret_cast<CUfunction>(kernel), index, offset, size);
}
CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice) {
  return cuFuncGetAttribute(pi, attrib, reinterpret_cast<CUfunction>(kernel));
}
CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice) {
  return cuFuncSetAttribute(reinterpret_cast<CUfunction>(kernel), attrib, val);
}
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice) {
  return cuFuncSetCacheConfig(reinterpret_cast<CUfunction>(kernel), config);
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult why;
  const FunctionInfo* info = resolve_function(e, hfunc, &why);
  if (info != nullptr) *hmod = reinterpret_cast<CUmodule>(info->module);
  return why;
}
