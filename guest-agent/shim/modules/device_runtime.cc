// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/modules/device_runtime.h"

#include <string_view>

#include "guest-agent/shim/session/log.h"
#include "kernels/ptx/edit.h"
#include "kernels/ptx/module.h"
#include "mediator/base/find_text.h"

namespace sluice::guest {

namespace {

constexpr std::string_view kSetConditional = "cudaGraphSetConditional";
// Without one of these a kernel launches no graph, whatever else it calls.
constexpr std::string_view kLaunches[] = {"cudaGraphLaunch", "__cudaCDP2GraphLaunch"};

constexpr const char* kBody =
    R"(.func cudaGraphSetConditional(.param .b64 sluice_handle, .param .b32 sluice_value)
{
.reg .b64 %sluice_at; .reg .b32 %sluice_to;
ld.param.u64 %sluice_at, [sluice_handle];
ld.param.u32 %sluice_to, [sluice_value];
st.global.u32 [%sluice_at], %sluice_to;
ret;
})";

bool launches(std::string_view name) {
  for (const std::string_view one : kLaunches)
    if (name.starts_with(one)) return true;
  return false;
}

}  // namespace

bool is_of_device_runtime(std::string_view function) {
  return function == kSetConditional || launches(function);
}

bool add_device_runtime(std::string* ptx) {
  // Most modules have none of it, and are not cut for this.
  bool any = find_text(*ptx, kSetConditional) != std::string::npos;
  for (const std::string_view one : kLaunches) any |= find_text(*ptx, one) != std::string::npos;
  if (!any) return false;
  const auto module = ptx::Module::parse(*ptx);
  if (!module) return false;
  ptx::Edits edits;
  bool defined = false;
  for (const ptx::Function& f : module->functions()) {
    if (f.is_entry || f.has_body || f.linkage != ".extern") continue;
    if (launches(f.name))
      (void)not_supported("cuModuleLoadData",
                          ("launches from the GPU: " + std::string(f.name)).c_str());
    if (f.name != kSetConditional || f.params.size() != 2 || !f.returns.empty()) continue;
    edits.replace(f.range, defined ? "" : kBody);
    defined = true;
  }
  if (defined) *ptx = edits.apply(*ptx, {0, static_cast<std::uint32_t>(ptx->size())});
  return defined;
}

}  // namespace sluice::guest
