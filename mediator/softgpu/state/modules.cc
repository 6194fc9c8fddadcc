// SPDX-License-Identifier: Apache-2.0
// Loading of code into contexts, behind api/module.cc.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "kernels/cubin/cubin.h"
#include "kernels/ptx/images/fat_binary.h"
#include "kernels/ptx/module.h"
#include "mediator/softgpu/state/state.h"

namespace sluice::softgpu {

std::vector<uint32_t> buffer_layout(const exec::EntryInfo& entry) {
  constexpr uint64_t kBegin = 0x210;
  std::vector<uint32_t> layout;
  uint64_t at = kBegin;
  for (const exec::ParamInfo& param : entry.params) {
    const uint64_t align = std::max(param.align, 1u);
    at = (at + align - 1) / align * align;
    layout.push_back(static_cast<uint32_t>(at - kBegin));
    at += param.bytes;
  }
  layout.push_back(static_cast<uint32_t>(at - kBegin));
  return layout;
}

namespace {

constexpr uint32_t kComputeCapability = 90;
constexpr ptx::Module::Version kNewestPtx{9, 0};

// The most registers per thread that a compiler for the GPU may use: .minnctapersm blocks (or one)
// of the kernel's size have to fit on an SM, whose 65536 registers are given to warps in units of 8
// per thread.
std::map<std::string, uint32_t, std::less<>> register_limits(const ptx::Module& module) {
  std::map<std::string, uint32_t, std::less<>> limits;
  for (const ptx::Function& f : module.functions()) {
    const auto& shape = f.reqntid[0] != 0 ? f.reqntid : f.maxntid;
    if (!f.is_entry || shape[0] == 0) continue;
    const uint64_t threads = uint64_t{shape[0]} * std::max(shape[1], 1u) * std::max(shape[2], 1u);
    const uint64_t warps = (std::min<uint64_t>(threads, 1024) + 31) / 32;
    const uint64_t share = 65536 / (warps * 32) / std::max(f.minnctapersm, 1u) / 8 * 8;
    limits.emplace(f.name, static_cast<uint32_t>(std::clamp<uint64_t>(share, 16, 255)));
  }
  return limits;
}

// The PTX that a cubin carries: those that sluice-run's compilers give a program do.
Result<std::string> text_of_cubin(const void* image) {
  const auto bytes = cubin::bytes_of(image);
  if (!bytes) return bytes.error();
  const auto read = cubin::read({static_cast<const char*>(image), *bytes});
  if (!read) return read.error();
  if (read->ptx.empty())
    return Error{CUDA_ERROR_NO_BINARY_FOR_GPU,
                 "the software GPU runs PTX, and this is machine code for sm_" +
                     std::to_string(read->sm) + "; " + std::string(cubin::kBuildWithPtx)};
  return std::string(read->ptx);
}

}  // namespace

Result<Code> load_code(const void* image) {
  if (image == nullptr) return Error{CUDA_ERROR_INVALID_VALUE, "no image"};
  // The shortest text that is not empty has its terminator within four bytes; look byte by byte.
  const auto* bytes = static_cast<const char*>(image);
  uint32_t magic = 0;
  const size_t length = ::strnlen(bytes, sizeof magic);
  std::memcpy(&magic, bytes, length);
  std::string chosen;
  const bool machine = cubin::is_cubin(magic);
  if (machine || ptx::is_fat_binary(magic)) {
    auto text = machine ? text_of_cubin(image) : ptx::ptx_of_fat_binary(image, kComputeCapability);
    if (!text) {
      Error why = std::move(text).error();
      if (!machine && why.code == CUDA_ERROR_NO_BINARY_FOR_GPU)
        why.message += "; " + std::string(cubin::kBuildWithPtx);
      return why;
    }
    chosen = *std::move(text);
    bytes = chosen.c_str();
  }
  auto module = ptx::Module::parse(bytes);
  if (!module) {
    const bool is_ptx = !chosen.empty() || std::strstr(bytes, ".version") != nullptr;
    return Error{is_ptx ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE,
                 module.error().message};
  }
  if (module->version() == ptx::Module::Version{}) {
    return Error{chosen.empty() ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_INVALID_PTX,
                 "neither PTX (no .version directive) nor a known binary"};
  }
  if (module->version() > kNewestPtx) {
    return Error{CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                 "PTX version " + std::to_string(module->version().major) + "." +
                     std::to_string(module->version().minor) + " is newer than 9.0"};
  }
  if (module->sm() > kComputeCapability) {
    return Error{CUDA_ERROR_INVALID_PTX, "the code is for sm_" + std::to_string(module->sm()) +
                                             ", the software GPU is sm_90"};
  }
  exec::DecodeOptions options;
  options.refuse_kernels_alone = true;
  auto program = exec::decode(*module, options);
  if (!program) return Error{CUDA_ERROR_INVALID_PTX, program.error().message};
  return Code{*std::move(program), module->sm(), register_limits(*module)};
}

Result<std::shared_ptr<Module>> load_module(State& s, const std::shared_ptr<Context>& context,
                                            const Code& code) {
  auto module = std::make_shared<Module>();
  module->context = context;
  module->code = code;
  const auto undo = [&](CUresult code_, std::string why) {
    for (uint64_t address : module->owned) free_device(s, *context, address);
    return Error{code_, std::move(why)};
  };
  std::vector<uint64_t> addresses;
  for (const exec::SymbolInfo& symbol : code.program->symbols()) {
    if (symbol.external)
      return undo(CUDA_ERROR_INVALID_PTX, "unresolved external variable " + symbol.name);
    // A variable of no size still needs an address of its own.
    const uint64_t address = allocate_device(s, *context, std::max<uint64_t>(symbol.bytes, 1));
    if (address == 0)
      return undo(CUDA_ERROR_OUT_OF_MEMORY, "no device memory for variable " + symbol.name);
    module->owned.push_back(address);
    {
      std::lock_guard lock(context->mutex);
      context->variables.insert(address);
      if (symbol.managed) context->managed.insert(address);
    }
    if (symbol.align > Arena::kGranule)
      return undo(CUDA_ERROR_INVALID_PTX, "alignment of " + symbol.name);
    addresses.push_back(address);
  }
  auto image = exec::Image::make(code.program, addresses);
  if (!image) return undo(CUDA_ERROR_INVALID_PTX, image.error().message);
  module->image = *std::move(image);
  for (size_t i = 0; i < addresses.size(); ++i) {
    const std::vector<uint8_t> values = module->image->initial_values(i);
    std::memcpy(reinterpret_cast<void*>(addresses[i]), values.data(), values.size());
    if (s.checker != nullptr) s.checker->on_variable(addresses[i]);
  }
  module->handle = s.tables.modules.add(module);
  std::lock_guard lock(context->mutex);
  context->modules.emplace(module->handle, module);
  return module;
}

void drop_module(State& s, const std::shared_ptr<Module>& module) {
  if (s.tables.modules.remove(module->handle) == nullptr) return;
  const std::shared_ptr<Context> context = module->context.lock();
  std::map<std::string, CUfunction, std::less<>> functions;
  {
    std::lock_guard lock(module->mutex);
    functions.swap(module->functions);
  }
  for (const auto& [name, handle] : functions) s.tables.functions.remove(handle);
  if (!context) return;
  {
    std::lock_guard lock(context->mutex);
    context->modules.erase(module->handle);
  }
  for (uint64_t address : module->owned) free_device(s, *context, address);
}

CUfunction function_of(State& s, const std::shared_ptr<Module>& module, std::string_view name) {
  std::lock_guard lock(module->mutex);
  if (const auto it = module->functions.find(name); it != module->functions.end())
    return it->second;
  const exec::EntryInfo* entry = module->code.program->find_entry(name);
  if (entry == nullptr) return nullptr;
  auto function = std::make_shared<Function>();
  function->module = module;
  function->context = module->context;
  function->image = module->image;
  function->entry = entry;
  function->ptx_version = module->code.ptx_version;
  function->registers = entry->registers;
  for (size_t k = 0; k < 3; ++k)
    function->cluster[k] = static_cast<int>(entry->required_cluster[k]);
  if (const auto limit = module->code.register_limits.find(name);
      limit != module->code.register_limits.end())
    function->registers = std::min(function->registers, limit->second);
  for (const exec::SymbolInfo& symbol : module->code.program->symbols()) {
    if (symbol.space == exec::SymbolSpace::kConst)
      function->constant_bytes += static_cast<uint32_t>(symbol.bytes);
  }
  const CUfunction handle = s.tables.functions.add(function);
  module->functions.emplace(entry->name, handle);
  return handle;
}

std::shared_ptr<Function> find_function(State& s, Context& context, CUfunction handle,
                                        CUresult& error) {
  error = CUDA_ERROR_INVALID_HANDLE;
  const auto as_kernel = reinterpret_cast<CUkernel>(handle);
  if (!decltype(s.tables.kernels)::is_of_type(as_kernel)) return s.tables.functions.find(handle);
  const std::shared_ptr<Kernel> kernel = s.tables.kernels.find(as_kernel);
  const std::shared_ptr<Library> library = kernel ? kernel->library.lock() : nullptr;
  if (!library) return nullptr;
  std::lock_guard lock(library->mutex);
  CUmodule& module = library->modules[context.id];
  std::shared_ptr<Module> loaded = s.tables.modules.find(module);
  if (!loaded) {
    auto fresh = load_module(s, context.legacy->context.lock(), library->code);
    if (!fresh) {
      error = static_cast<CUresult>(fresh.error().code);
      return nullptr;
    }
    loaded = *fresh;
    module = loaded->handle;
  }
  return s.tables.functions.find(function_of(s, loaded, kernel->name));
}

}  // namespace sluice::softgpu
