// SPDX-License-Identifier: Apache-2.0
// Libraries and kernels: modules that belong to no context. They are the guest's own objects; the
// worker sees a module for each context in which a library's kernels are used.
#include <memory>

#include "abi/cuda_graph.h"
#include "guest-agent/shim/modules/module_registry.h"
#include "guest-agent/shim/modules/modules.h"
#include "guest-agent/shim/state/api.h"

namespace sluice::guest {

CUresult module_of_library(const Entered& e, uint64_t library_handle, uint64_t* module) {
  const auto found = all_modules().libraries.find(library_handle);
  if (found == all_modules().libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (e.context == 0) return CUDA_ERROR_INVALID_CONTEXT;
  const auto known = found->second.modules.find(e.context);
  if (known != found->second.modules.end()) {
    *module = known->second;
    return CUDA_SUCCESS;
  }
  const CUresult r =
      load_module(e, *found->second.text, library_handle, found->second.managed, nullptr, module);
  if (r == CUDA_SUCCESS) found->second.modules[e.context] = *module;
  return r;
}

CUresult function_of_kernel(const Entered& e, uint64_t kernel_handle, uint64_t* function) {
  const auto found = all_modules().kernels.find(kernel_handle);
  if (found == all_modules().kernels.end()) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t module = 0;
  const CUresult r = module_of_library(e, found->second.library, &module);
  return r != CUDA_SUCCESS ? r : find_function(e, module, found->second.name, function);
}

}  // namespace sluice::guest

using namespace sluice::guest;

namespace {

uint64_t own_handle(sluice_handle_kind kind) {
  return SLUICE_HANDLE(kind, 1, all_modules().next_own++);
}

CUresult load_library(CUlibrary* library, const void* image, size_t bytes, unsigned count,
                      CUjit_option* options, void** values) {
  const Entered e = enter();
  if (!e) return e.status;
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitLogs logs(count, options, values);
  ModuleCode code;
  if (const CUresult r = find_code(e, image, bytes, logs, &code); r != CUDA_SUCCESS) return r;
  auto text = make_text(std::move(code));
  std::lock_guard lock(all_modules().mutex);
  const uint64_t handle = own_handle(SLUICE_HANDLE_LIBRARY);
  Library made;
  made.text = text;
  made.managed = std::make_shared<ManagedVariables>();
  if (e.context != 0) {  // otherwise errors show when a kernel is first used in a context
    uint64_t module = 0;
    const CUresult r = load_module(e, *text, handle, made.managed, &logs, &module);
    if (r != CUDA_SUCCESS) return r;
    made.modules[e.context] = module;
  }
  all_modules().libraries[handle] = std::move(made);
  *library = reinterpret_cast<CUlibrary>(handle);
  return CUDA_SUCCESS;
}

// Wants the mutex.
CUresult find_kernel(const Entered& e, uint64_t library, const std::string& name,
                     CUkernel* kernel) {
  const auto found = all_modules().libraries.find(library);
  if (found == all_modules().libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  auto known = found->second.kernels.find(name);
  if (known == found->second.kernels.end()) {
    if (e.context != 0) {  // then it can be said at once whether there is such a kernel
      uint64_t module = 0, function = 0;
      CUresult r = module_of_library(e, library, &module);
      if (r == CUDA_SUCCESS) r = find_function(e, module, name, &function);
      if (r != CUDA_SUCCESS) return r;
    }
    const uint64_t handle = own_handle(SLUICE_HANDLE_KERNEL);
    all_modules().kernels[handle] = {library, name};
    known = found->second.kernels.emplace(name, handle).first;
  }
  *kernel = reinterpret_cast<CUkernel>(known->second);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jit_options,
                           void** jit_options_values, unsigned int num_jit_options,
                           CUlibraryOption*, void**, unsigned int) {
  return load_library(library, code, 0, num_jit_options, jit_options, jit_options_values);
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* file_name, CUjit_option* jit_options,
                               void** jit_options_values, unsigned int num_jit_options,
                               CUlibraryOption*, void**, unsigned int) {
  if (file_name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const Entered e = enter(); !e) return e.status;
  std::string image;
  if (const CUresult r = read_image_file(file_name, &image); r != CUDA_SUCCESS) return r;
  return load_library(library, image.c_str(), image.size(), num_jit_options, jit_options,
                      jit_options_values);
}

CUresult cuLibraryUnload(CUlibrary library) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(all_modules().mutex);
  const auto found = all_modules().libraries.find(wire(library));
  if (found == all_modules().libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  CUresult status = CUDA_SUCCESS;
  for (const auto& [context, module] : found->second.modules) {
    const CUresult r =
        SLUICE_CALL(cuModuleUnload, *e.link, context, reinterpret_cast<CUmodule>(module));
    forget_module(module);
    // A context that was destroyed took its modules along.
    if (r != CUDA_SUCCESS && state().context(context)) status = r;
  }
  for (const auto& [name, kernel] : found->second.kernels) all_modules().kernels.erase(kernel);
  all_modules().libraries.erase(found);
  return status;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  const Entered e = enter();
  if (!e) return e.status;
  if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all_modules().mutex);
  return find_kernel(e, wire(library), name, kernel);
}

// Functions for CPU and GPU at one address need coherent hardware: no library has one.
CUresult cuLibraryGetUnifiedFunction(void**, CUlibrary, const char*) {
  const Entered e = enter();
  if (!e) return e.status;
  return CUDA_ERROR_INVALID_VALUE;  // as an H100's driver, whatever it is asked for
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  const Entered e = enter();
  if (!e) return e.status;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all_modules().mutex);
  const auto found = all_modules().libraries.find(wire(lib));
  if (found == all_modules().libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(found->second.text->entries.size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int num_kernels, CUlibrary lib) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(all_modules().mutex);
  const auto found = all_modules().libraries.find(wire(lib));
  if (found == all_modules().libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  return enumerate(
      found->second.text->entries, kernels, num_kernels,
      [&](const std::string& name, CUkernel* to) { return find_kernel(e, wire(lib), name, to); });
}

CUresult cuLibraryGetModule(CUmodule* mod, CUlibrary library) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (mod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all_modules().mutex);
  uint64_t module = 0;
  const CUresult r = module_of_library(e, wire(library), &module);
  if (r == CUDA_SUCCESS) *mod = reinterpret_cast<CUmodule>(module);
  return r;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all_modules().mutex);
  uint64_t module = 0;
  const CUresult r = module_of_library(e, wire(library), &module);
  return r != CUDA_SUCCESS ? r : find_global(e, module, name, dptr, bytes);
}

// One address in every context, from the first context in which it is asked for.
CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                             const char* name) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all_modules().mutex);
  uint64_t module = 0;
  const CUresult r = module_of_library(e, wire(library), &module);
  if (r != CUDA_SUCCESS) return r;
  const auto* place = all_modules().libraries[wire(library)].managed->find(name);
  if (place == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (dptr != nullptr) *dptr = place->address;
  if (bytes != nullptr) *bytes = place->bytes;
  return CUDA_SUCCESS;
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
  std::lock_guard lock(all_modules().mutex);
  const auto found = all_modules().kernels.find(wire(kernel));
  if (found == all_modules().kernels.end()) return CUDA_ERROR_INVALID_HANDLE;
  *lib = reinterpret_cast<CUlibrary>(found->second.library);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  const Entered e = enter();
  if (!e) return e.status;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(all_modules().mutex);
  const auto found = all_modules().kernels.find(wire(kernel));
  if (found == all_modules().kernels.end()) return CUDA_ERROR_INVALID_HANDLE;
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
