// SPDX-License-Identifier: Apache-2.0
// Modules and the functions in them. PTX text is rewritten here, in the guest, before it goes to
// the worker; what the rewriter said about each kernel goes along when the kernel is asked for.
#include "guest-agent/shim/modules/modules.h"

#include <climits>
#include <cstring>

#include "guest-agent/shim/memory/pinned.h"
#include "guest-agent/shim/memory/staging.h"
#include "guest-agent/shim/modules/module_registry.h"
#include "guest-agent/shim/state/api.h"
#include "kernels/cubin/cubin.h"

namespace sluice::guest {
namespace {

// Room for the worker's words about a module that does not load; the wire's most.
constexpr uint32_t kLogBytes = 4096;

}  // namespace

CUresult send_text(WorkerLink& link, uint64_t context, const std::string& text, uint64_t* handle,
                   std::string* log) {
  sluice_module_load body{};
  body.log_bytes = kLogBytes;
  Pending pending;
  CUresult r;
  if (text.size() <= SLUICE_RECORD_MAX_BYTES / 2) {
    body.inline_bytes = static_cast<uint32_t>(text.size());
    r = link.call(
        SLUICE_CALL_MODULE_LOAD, context, sizeof body + text.size(),
        [&](std::byte* to) {
          std::memcpy(to, &body, sizeof body);
          std::memcpy(to + sizeof body, text.data(), text.size());
        },
        pending);
  } else if (text.size() <= staging(link).total_bytes() / 2) {
    std::byte* piece = staging(link).acquire(text.size());
    if (piece == nullptr) return link.dead();
    std::memcpy(piece, text.data(), text.size());
    body.bulk = {link.offset_of(piece), text.size()};
    r = link.call(SLUICE_CALL_MODULE_LOAD, context, body, pending);
    staging(link).release(piece, text.size());
  } else {
    sluice_bulk extents{};
    r = PinnedMemory::take_extents(link, context, text.size(), &extents);
    if (r != CUDA_SUCCESS) return r;
    std::memcpy(link.channel().region() + extents.offset, text.data(), text.size());
    body.bulk = {extents.offset, text.size()};
    r = link.call(SLUICE_CALL_MODULE_LOAD, context, body, pending);
    PinnedMemory::give_extents_later(link, context, extents);
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

Modules& all_modules() {
  static auto* modules = new Modules;
  return *modules;
}

CUresult find_code(const Entered& e, const void* image, size_t bytes, const JitLogs& logs,
                   ModuleCode* code) {
  int major = 0, minor = 0;
  const CUdevice device = current_device();
  CUresult r =
      device_attribute(*e.link, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major);
  if (r == CUDA_SUCCESS)
    r = device_attribute(*e.link, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor);
  if (r != CUDA_SUCCESS) return r;
  std::string log;
  std::string_view found;
  const auto newest = static_cast<uint32_t>(major * 10 + minor);
  code->lazy = e.link->channel().lazy_clones();
  code->originals_at_once = e.link->channel().originals_at_once();
  code->originals = e.link->channel().originals();
  if (code->originals && machine_code_will_do(image, bytes, newest, code)) return CUDA_SUCCESS;
  r = code_of_image(image, bytes, newest, &code->text, &found, &log);
  if (r != CUDA_SUCCESS) {
    logs.fail(log);
    if (!log.empty() && !logs.has_room()) complain_once(("module image: " + log).c_str());
    return r;
  }
  if (found.data() != code->text.data()) code->text.assign(found);
  if (cubin::is_cubin(std::string_view(code->text))) {
    if (std::string ptx = ptx_in_machine_code(code->text); !ptx.empty()) {
      code->machine = read_machine_code(std::move(code->text));
      code->text = std::move(ptx);
    }
  } else if (code->lazy || code->originals) {
    code->machine = machine_code_in(image, bytes, newest);
  }
  return CUDA_SUCCESS;
}

CUresult load_module(const Entered& e, const Text& text, uint64_t library,
                     std::shared_ptr<ManagedVariables> managed, const JitLogs* logs,
                     uint64_t* handle) {
  std::string log;
  Module module;
  module.context = e.context;
  module.library = library;
  module.entries = text.entries;
  module.required_blocks = text.required_blocks;
  module.separable = text.separable;
  module.at_once = text.at_once;
  module.references = text.references;
  CUresult r = CUDA_ERROR_INVALID_PTX;
  if (!text.machine.empty()) {
    r = send_text(*e.link, e.context, text.machine, handle, &log);
    if (r != CUDA_SUCCESS && e.link->dead() == CUDA_SUCCESS)
      log_line("machine code does not load (%d: %s): loading the PTX", r, log.c_str());
  }
  if (!text.rewritten.empty()) {
    r = send_text(*e.link, e.context, text.rewritten, handle, &log);
    if (r == CUDA_SUCCESS)
      module.kernels = text.kernels;
    else if (e.link->dead() == CUDA_SUCCESS)
      log_line("rewritten module does not load (%d: %s): loading the original", r, log.c_str());
  }
  if (r != CUDA_SUCCESS && !text.packed.empty()) {
    const auto ptx = text.packed.unpack();
    r = ptx ? send_text(*e.link, e.context, *ptx, handle, &log)
            : static_cast<CUresult>(ptx.error().code);
  } else if (r != CUDA_SUCCESS) {
    r = send_text(*e.link, e.context, text.original, handle, &log);
  }
  if (r != CUDA_SUCCESS && !text.spare.empty() && e.link->dead() == CUDA_SUCCESS) {
    log_line("the PTX does not load (%d: %s): loading the machine code", r, log.c_str());
    r = send_text(*e.link, e.context, text.spare, handle, &log);
  }
  if (r != CUDA_SUCCESS) {
    if (logs != nullptr) logs->fail(log);
    log_line("module does not load (%d): %s", r, log.c_str());
    return r;
  }
  if (!text.managed.empty()) {
    module.managed = managed != nullptr ? std::move(managed) : std::make_shared<ManagedVariables>();
    r = module.managed->bind(e, *handle, text.managed);
    if (r != CUDA_SUCCESS) {
      SLUICE_CALL(cuModuleUnload, *e.link, e.context, reinterpret_cast<CUmodule>(*handle));
      return r;
    }
  }
  all_modules().modules[*handle] = std::move(module);
  if (!text.references.empty()) read_zeros(e, *handle, text.references);
  return CUDA_SUCCESS;
}

void forget_module(uint64_t handle) {
  const auto found = all_modules().modules.find(handle);
  if (found == all_modules().modules.end()) return;
  for (const auto& [name, function] : found->second.functions) state().functions.remove(function);
  for (const auto& [name, global] : found->second.globals) state().pointers.remove(global.base);
  if (!found->second.references.empty()) forget_references(handle);
  all_modules().modules.erase(found);
}

CUresult find_function(const Entered& e, uint64_t module_handle, const std::string& name,
                       uint64_t* handle) {
  const auto found = all_modules().modules.find(module_handle);
  if (found == all_modules().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
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
    body.state_bytes = flags->second.state_bytes;
  }
  Pending pending;
  const CUresult r = e.link->call(
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
    info.clones = module.separable != nullptr ? ClonesState::kAbsent : ClonesState::kSettled;
    info.at_once = module.at_once;
    if (const auto block = module.required_blocks.find(name); block != module.required_blocks.end())
      info.required_block = block->second;
    info.param_bytes = reply.param_bytes;
    info.params = std::move(params);
    for (size_t i = 0; i < info.attributes.size(); ++i) info.attributes[i] = reply.attributes[i];
  });
  if (!kept) return CUDA_ERROR_OUT_OF_MEMORY;
  module.functions[name] = reply.handle;
  *handle = reply.handle;
  return CUDA_SUCCESS;
}

namespace {
void add_range(const Module::Global& global, uint64_t context) {
  if (state().pointers.find(global.base)) return;
  Range range;
  range.base = global.base;
  range.bytes = global.bytes;
  range.context = context;
  range.static_global = true;
  state().pointers.add(range);
}
}  // namespace

CUresult find_global(const Entered& e, uint64_t module_handle, const char* name, CUdeviceptr* dptr,
                     size_t* bytes) {
  const auto found = all_modules().modules.find(module_handle);
  if (found == all_modules().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  for (const ReferenceName& reference : found->second.references)
    if (reference.name == name) return CUDA_ERROR_INVALID_VALUE;
  if (const auto* managed = found->second.managed.get()) {
    if (const auto* place = managed->find(name)) {
      if (dptr != nullptr) *dptr = place->address;
      if (bytes != nullptr) *bytes = place->bytes;
      return CUDA_SUCCESS;
    }
  }
  auto& globals = found->second.globals;
  auto place = globals.find(name);
  if (place == globals.end()) {
    Module::Global global;
    const CUresult r =
        SLUICE_CALL(cuModuleGetGlobal_v2, *e.link, found->second.context, &global.base,
                    &global.bytes, reinterpret_cast<CUmodule>(module_handle), name);
    if (r != CUDA_SUCCESS) return r;
    add_range(global, found->second.context);
    place = globals.emplace(name, global).first;
  }
  if (dptr != nullptr) *dptr = place->second.base;
  if (bytes != nullptr) *bytes = place->second.bytes;
  return CUDA_SUCCESS;
}

void forget_modules_of(uint64_t context) {
  std::lock_guard lock(all_modules().mutex);
  std::vector<uint64_t> gone;
  for (const auto& [handle, module] : all_modules().modules)
    if (module.context == context) gone.push_back(handle);
  for (const uint64_t handle : gone) forget_module(handle);
  for (auto& [handle, library] : all_modules().libraries) library.modules.erase(context);
  forget_references_of_context(context);
}

FunctionInfo* resolve_function(const Entered& e, CUfunction function, CUresult* why) {
  uint64_t handle = wire(function);
  if (SLUICE_HANDLE_KIND(handle) == SLUICE_HANDLE_KERNEL) {
    std::lock_guard lock(all_modules().mutex);
    *why = function_of_kernel(e, wire(function), &handle);
    if (*why != CUDA_SUCCESS) return nullptr;
  }
  FunctionInfo* info = state().functions.find(handle);
  *why = info != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  return info;
}

}  // namespace sluice::guest

using namespace sluice::guest;

namespace {

CUresult load_image(CUmodule* to, const void* image, size_t bytes, unsigned count,
                    CUjit_option* options, void** values) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitLogs logs(count, options, values);
  ModuleCode code;
  if (const CUresult r = find_code(e, image, bytes, logs, &code); r != CUDA_SUCCESS) return r;
  const auto text = make_text(std::move(code));
  std::lock_guard lock(all_modules().mutex);
  uint64_t handle = 0;
  const CUresult r = load_module(e, *text, 0, nullptr, &logs, &handle);
  if (r == CUDA_SUCCESS) *to = reinterpret_cast<CUmodule>(handle);
  return r;
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return load_image(module, image, 0, 0, nullptr, nullptr);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int num_options,
                            CUjit_option* options, void** option_values) {
  return load_image(module, image, 0, num_options, options, option_values);
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  if (fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const Entered e = enter_context(); !e) return e.status;
  std::string image;
  if (const CUresult r = read_image_file(fname, &image); r != CUDA_SUCCESS) return r;
  return load_image(module, image.c_str(), image.size(), 0, nullptr, nullptr);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fat_cubin) {
  return load_image(module, fat_cubin, 0, 0, nullptr, nullptr);
}

CUresult cuModuleUnload(CUmodule hmod) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(all_modules().mutex);
  const auto found = all_modules().modules.find(wire(hmod));
  if (found == all_modules().modules.end() || found->second.library != 0)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!found->second.references.empty()) end_references(e, wire(hmod));
  const CUresult r = SLUICE_CALL(cuModuleUnload, *e.link, found->second.context, hmod);
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
  std::lock_guard lock(all_modules().mutex);
  uint64_t handle = 0;
  const CUresult r = find_function(e, wire(hmod), name, &handle);
  if (r == CUDA_SUCCESS) *hfunc = reinterpret_cast<CUfunction>(handle);
  return r;
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all_modules().mutex);
  const auto found = all_modules().modules.find(wire(mod));
  if (found == all_modules().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(found->second.entries.size());
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int num_functions,
                                    CUmodule mod) {
  const Entered e = enter_context();
  if (!e) return e.status;
  std::lock_guard lock(all_modules().mutex);
  const auto found = all_modules().modules.find(wire(mod));
  if (found == all_modules().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  return enumerate(found->second.entries, functions, num_functions,
                   [&](const std::string& name, CUfunction* to) {
                     uint64_t handle = 0;
                     const CUresult r = find_function(e, wire(mod), name, &handle);
                     if (r == CUDA_SUCCESS) *to = reinterpret_cast<CUfunction>(handle);
                     return r;
                   });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all_modules().mutex);
  return find_global(e, wire(hmod), name, dptr, bytes);
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
