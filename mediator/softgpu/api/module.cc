// SPDX-License-Identifier: Apache-2.0
// The driver API's modules, libraries, kernels and functions.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "mediator/softgpu/api/jit_log.h"
#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

CUresult refuse(State& s, const Error& error, unsigned count, CUjit_option* options,
                void** values) {
  s.log("module refused: " + error.message);
  write_jit_log(count, options, values, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                error.message);
  return static_cast<CUresult>(error.code);
}

// The file's contents with a terminator; false: not readable.
bool read_file(const char* name, std::string& contents) {
  std::ifstream file(name, std::ios::binary);
  contents.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  return file.good() || file.eof();
}

template <class F>
CUresult with_module(CUmodule handle, F f) {
  return with_context([&](State& s, Context&) -> CUresult {
    const std::shared_ptr<Module> module = s.tables.modules.find(handle);
    return module ? f(s, module) : CUDA_ERROR_INVALID_HANDLE;
  });
}

template <class F>
CUresult with_function(CUfunction handle, F f) {
  return with_context([&](State& s, Context& context) -> CUresult {
    CUresult error;
    const std::shared_ptr<Function> function = find_function(s, context, handle, error);
    return function ? f(s, *function) : error;
  });
}

template <class F>
CUresult with_library(CUlibrary handle, F f) {
  return with_state([&](State& s) -> CUresult {
    const std::shared_ptr<Library> library = s.tables.libraries.find(handle);
    return library ? f(s, library) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult param_info(const exec::EntryInfo& entry, size_t index, size_t* offset, size_t* bytes) {
  if (offset == nullptr || index >= entry.params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = buffer_layout(entry)[index];
  if (bytes != nullptr) *bytes = entry.params[index].bytes;
  return CUDA_SUCCESS;
}

CUresult global_of(const std::shared_ptr<Module>& module, const char* name, CUdeviceptr* address,
                   size_t* bytes) {
  if (name == nullptr || (address == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const auto symbols = module->code.program->symbols();
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i].name != name) continue;
    if (address != nullptr) *address = module->image->symbol_address(i);
    if (bytes != nullptr) *bytes = symbols[i].bytes;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int count,
                            CUjit_option* options, void** values) {
  return with_context([&](State& s, Context& context) -> CUresult {
    if (out == nullptr || image == nullptr ||
        (count != 0 && (options == nullptr || values == nullptr))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    s.gpu->stand_still(uint64_t{s.config.module_stall_us} * 1000);
    const auto code = load_code(image);
    if (!code) return refuse(s, code.error(), count, options, values);
    auto module = load_module(s, context.legacy->context.lock(), *code);
    if (!module) return refuse(s, module.error(), count, options, values);
    write_jit_log(count, options, values, CU_JIT_ERROR_LOG_BUFFER,
                  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, "");
    write_jit_log(count, options, values, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                  "");
    *out = (*module)->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  return cuModuleLoadDataEx(out, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return cuModuleLoadData(out, image);
}

CUresult cuModuleLoad(CUmodule* out, const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string contents;
  if (!read_file(name, contents) || contents.empty()) return CUDA_ERROR_FILE_NOT_FOUND;
  return cuModuleLoadData(out, contents.c_str());
}

CUresult cuModuleUnload(CUmodule handle) {
  return with_module(handle, [&](State& s, const std::shared_ptr<Module>& module) {
    if (const auto context = module->context.lock()) s.scheduler.wait(*context);
    drop_module(s, module);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  return with_module(handle, [&](State& s, const std::shared_ptr<Module>& module) {
    if (out == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
    *out = function_of(s, module, name);
    return *out == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) {
  return with_module(handle, [&](State&, const std::shared_ptr<Module>& module) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<unsigned>(module->code.program->entries().size());
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count, CUmodule handle) {
  return with_module(handle, [&](State& s, const std::shared_ptr<Module>& module) {
    if (functions == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    const auto entries = module->code.program->entries();
    for (size_t i = 0; i < std::min<size_t>(count, entries.size()); ++i) {
      functions[i] = function_of(s, module, entries[i].name);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle,
                              const char* name) {
  return with_module(handle, [&](State&, const std::shared_ptr<Module>& module) {
    return global_of(module, name, address, bytes);
  });
}

CUresult cuLibraryLoadData(CUlibrary* out, const void* image, CUjit_option* options, void** values,
                           unsigned int count, CUlibraryOption*, void**, unsigned int) {
  return with_state([&](State& s) {
    if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto code = load_code(image);
    if (!code) return refuse(s, code.error(), count, options, values);
    auto library = std::make_shared<Library>();
    library->code = *std::move(code);
    *out = s.tables.libraries.add(std::move(library));
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryLoadFromFile(CUlibrary* out, const char* name, CUjit_option* options,
                               void** values, unsigned int count, CUlibraryOption* library_options,
                               void** library_values, unsigned int library_count) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string contents;
  if (!read_file(name, contents) || contents.empty()) return CUDA_ERROR_FILE_NOT_FOUND;
  return cuLibraryLoadData(out, contents.c_str(), options, values, count, library_options,
                           library_values, library_count);
}

CUresult cuLibraryUnload(CUlibrary handle) {
  return with_library(handle, [&](State& s, const std::shared_ptr<Library>& library) {
    s.tables.libraries.remove(handle);
    std::lock_guard lock(library->mutex);
    for (const auto& [name, kernel] : library->kernels) s.tables.kernels.remove(kernel);
    for (const auto& [id, module_handle] : library->modules) {
      const std::shared_ptr<Module> module = s.tables.modules.find(module_handle);
      if (!module) continue;
      if (const auto context = module->context.lock()) s.scheduler.wait(*context);
      drop_module(s, module);
    }
    return CUDA_SUCCESS;
  });
}

namespace {

CUkernel kernel_of(State& s, CUlibrary handle, const std::shared_ptr<Library>& library,
                   const std::string& name) {
  std::lock_guard lock(library->mutex);
  CUkernel& kernel = library->kernels[name];
  if (kernel == nullptr) {
    auto object = std::make_shared<Kernel>();
    object->library = library;
    object->library_handle = handle;
    object->name = name;
    kernel = s.tables.kernels.add(std::move(object));
  }
  return kernel;
}

template <class F>
CUresult with_kernel(CUkernel handle, F f) {
  return with_state([&](State& s) -> CUresult {
    const std::shared_ptr<Kernel> kernel = s.tables.kernels.find(handle);
    const std::shared_ptr<Library> library = kernel ? kernel->library.lock() : nullptr;
    return library ? f(s, *kernel, *library->code.program->find_entry(kernel->name))
                   : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // namespace

CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  return with_library(handle, [&](State& s, const std::shared_ptr<Library>& library) {
    if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (library->code.program->find_entry(name) == nullptr) return CUDA_ERROR_NOT_FOUND;
    *out = kernel_of(s, handle, library, name);
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) {
  return with_library(handle, [&](State&, const std::shared_ptr<Library>& library) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<unsigned>(library->code.program->entries().size());
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count, CUlibrary handle) {
  return with_library(handle, [&](State& s, const std::shared_ptr<Library>& library) {
    if (kernels == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    const auto entries = library->code.program->entries();
    for (size_t i = 0; i < std::min<size_t>(count, entries.size()); ++i) {
      kernels[i] = kernel_of(s, handle, library, entries[i].name);
    }
    return CUDA_SUCCESS;
  });
}

namespace {

// The library's module in the current context, loaded if need be.
CUresult module_of(CUlibrary handle, std::shared_ptr<Module>& module) {
  return with_context([&](State& s, Context& context) -> CUresult {
    const std::shared_ptr<Library> library = s.tables.libraries.find(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    std::lock_guard lock(library->mutex);
    CUmodule& loaded = library->modules[context.id];
    module = s.tables.modules.find(loaded);
    if (module) return CUDA_SUCCESS;
    auto fresh = load_module(s, context.legacy->context.lock(), library->code);
    if (!fresh) return refuse(s, fresh.error(), 0, nullptr, nullptr);
    module = *fresh;
    loaded = module->handle;
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module;
  const CUresult r = module_of(handle, module);
  if (r == CUDA_SUCCESS) *out = module->handle;
  return r;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                            const char* name) {
  std::shared_ptr<Module> module;
  const CUresult r = module_of(handle, module);
  return r == CUDA_SUCCESS ? global_of(module, name, address, bytes) : r;
}

CUresult cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  return with_context([&](State& s, Context& context) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult error;
    const auto function = find_function(s, context, reinterpret_cast<CUfunction>(handle), error);
    const std::shared_ptr<Module> module = function ? function->module.lock() : nullptr;
    if (!module) return error;
    *out = function_of(s, module, function->entry->name);
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  return with_kernel(handle, [&](State&, Kernel& kernel, const exec::EntryInfo&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = kernel.library_handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetName(const char** out, CUkernel handle) {
  return with_kernel(handle, [&](State&, Kernel&, const exec::EntryInfo& entry) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = entry.name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* bytes) {
  return with_kernel(handle, [&](State&, Kernel&, const exec::EntryInfo& entry) {
    return param_info(entry, index, offset, bytes);
  });
}

// Attributes of a kernel are those of its function in the current context: there is one device.
CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle,
                              CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  return cuFuncGetAttribute(value, attribute, reinterpret_cast<CUfunction>(handle));
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                              CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  return cuFuncSetAttribute(reinterpret_cast<CUfunction>(handle), attribute, value);
}
CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  return cuFuncSetCacheConfig(reinterpret_cast<CUfunction>(handle), config);
}

std::optional<int> sluice::softgpu::function_attribute(const State& s, const Function& function,
                                                       CUfunction_attribute which) {
  const exec::EntryInfo& entry = *function.entry;
  const SmLimits& limits = s.runner.limits();
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: {
      // The largest block that can be launched: its registers must fit, too.
      uint32_t most = entry.max_threads == 0 ? 1024 : std::min(entry.max_threads, 1024u);
      while (most > 32 &&
             block_needs(limits, most, function.registers, entry.static_shared_bytes).per_sm == 0)
        most = (most - 1) / 32 * 32;
      return static_cast<int>(most);
    }
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(entry.static_shared_bytes);
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      return static_cast<int>(function.constant_bytes);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return static_cast<int>(entry.local_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return static_cast<int>(function.registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      return static_cast<int>(function.ptx_version);
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return static_cast<int>(s.gpu->model().major * 10 + s.gpu->model().minor);
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return std::min(function.max_dynamic_shared.load(),
                      static_cast<int>(limits.shared_per_block_optin) -
                          static_cast<int>(entry.static_shared_bytes));
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return function.carveout;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      return 0;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      return entry.explicit_cluster ? 1 : 0;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return function.cluster[which - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return function.large_clusters ? 1 : 0;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return function.cluster_policy;
    default:
      return std::nullopt;
  }
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return with_function(handle, [&](State& s, Function& function) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::optional<int> known = function_attribute(s, function, attribute);
    if (!known) return CUDA_ERROR_INVALID_VALUE;
    *value = *known;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return with_function(handle, [&](State& s, Function& function) {
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || static_cast<uint32_t>(value) + function.entry->static_shared_bytes >
                             s.runner.limits().shared_per_block_optin) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        function.max_dynamic_shared = value;
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
        function.carveout = value;
        return CUDA_SUCCESS;
      // What the kernel itself says of its clusters cannot be changed (measured on an H100).
      case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: {
        const unsigned side = attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
        const uint32_t own = function.entry->required_cluster[side];
        if (value < 0 || (own != 0 && static_cast<uint32_t>(value) != own))
          return CUDA_ERROR_INVALID_VALUE;
        function.cluster[side] = value;
        return CUDA_SUCCESS;
      }
      case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        function.large_clusters = value != 0;
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        if (value < 0 || value > 2) return CUDA_ERROR_INVALID_VALUE;
        function.cluster_policy = value;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  return with_function(handle, [](State&, Function&) { return CUDA_SUCCESS; });
}
CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig) {
  return with_function(handle, [](State&, Function&) { return CUDA_SUCCESS; });
}

CUresult cuFuncGetModule(CUmodule* out, CUfunction handle) {
  return with_function(handle, [&](State&, Function& function) {
    const std::shared_ptr<Module> module = function.module.lock();
    if (out == nullptr || !module) return CUDA_ERROR_INVALID_VALUE;
    *out = module->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetName(const char** out, CUfunction handle) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_function(handle, [&](State&, Function& function) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = function.entry->name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
  return with_function(handle, [&](State&, Function& function) {
    return param_info(*function.entry, index, offset, bytes);
  });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* loading, CUfunction handle) {
  return with_function(handle, [&](State&, Function&) {
    if (loading == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *loading = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncLoad(CUfunction handle) {
  return with_function(handle, [](State&, Function&) { return CUDA_SUCCESS; });
}
