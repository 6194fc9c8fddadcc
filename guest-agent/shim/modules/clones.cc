// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/modules/clones.h"

#include <string>
#include <unordered_map>

#include "abi/wire.h"
#include "guest-agent/shim/modules/module_registry.h"
#include "guest-agent/shim/session/log.h"
#include "guest-agent/shim/state/api.h"
#include "kernels/passes/rewrite.h"

namespace sluice::guest {
namespace {

// The kernel's own text, with the addresses of its module's variables.
Result<std::string> text_of(const Entered& e, const FunctionInfo& function,
                            const ptx::SeparableModule& module) {
  std::unordered_map<std::string, uint64_t> addresses;
  for (const std::string& name : module.variables_of(function.name)) {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    const CUresult r = SLUICE_CALL(cuModuleGetGlobal_v2, *e.link, e.context, &address, &bytes,
                                   reinterpret_cast<CUmodule>(function.module), name.c_str());
    if (r == CUDA_SUCCESS) addresses[name] = address;
  }
  return module.kernel_text(function.name, addresses);
}

// Empty: it has clones. Else why not.
std::string try_to_make(const Entered& e, const FunctionInfo& function,
                        const ptx::SeparableModule& module) {
  auto text = text_of(e, function, module);
  if (!text) return text.error().message;
  auto rewritten = passes::rewrite_module(*std::move(text));
  if (!rewritten) return rewritten.error().message;
  for (const passes::KernelReport& kernel : rewritten->kernels) {
    if (kernel.name != function.name) continue;
    log_line("kernel %s: %s%s%s", kernel.name.c_str(), passes::tier_name(kernel.tier),
             kernel.reason.empty() ? "" : ": ", kernel.reason.c_str());
    if (!kernel.evictable) return "";
    uint64_t handle = 0;
    std::string log;
    CUresult r = send_text(*e.link, e.context, rewritten->text, &handle, &log);
    if (r != CUDA_SUCCESS) return "they do not load (" + std::to_string(r) + "): " + log;
    const KernelFlags flags = flags_of(kernel);
    sluice_function_clones body{};
    body.function = function.handle;
    body.module = handle;
    body.flags = flags.flags;
    body.state_bytes = flags.state_bytes;
    r = e.link->call(SLUICE_CALL_FUNCTION_CLONES, e.context, body);
    if (r == CUDA_SUCCESS) return "";
    SLUICE_CALL(cuModuleUnload, *e.link, e.context, reinterpret_cast<CUmodule>(handle));
    return "the worker refuses them: " + std::to_string(r);
  }
  return "it is not in its module";
}

}  // namespace

void make_clones(const Entered& e, FunctionInfo& function) {
  std::lock_guard lock(all_modules().mutex);
  if (function.clones.load(std::memory_order_relaxed) != ClonesState::kAbsent) return;
  const auto module = all_modules().modules.find(function.module);
  if (module != all_modules().modules.end() && module->second.separable != nullptr) {
    const std::string why = try_to_make(e, function, *module->second.separable);
    if (!why.empty()) log_line("kernel %s: no clones: %s", function.name.c_str(), why.c_str());
  }
  function.clones.store(ClonesState::kSettled, std::memory_order_release);
}

}  // namespace sluice::guest
