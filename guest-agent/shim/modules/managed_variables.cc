// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/modules/managed_variables.h"

#include <string_view>

#include "guest-agent/shim/memory/managed.h"
#include "guest-agent/shim/session/log.h"
#include "guest-agent/shim/state/api.h"
#include "kernels/ptx/address_uses.h"
#include "kernels/ptx/edit.h"
#include "kernels/ptx/module.h"
#include "mediator/base/find_text.h"

namespace sluice::guest {

namespace {

constexpr std::string_view kAttribute = ".attribute(.managed)";

struct ManagedName {
  std::string_view name;
  std::string cell;
};

bool mentions(std::string_view text, std::string_view name) {
  bool any = false;
  ptx::for_each_word(text, [&](std::string_view word, size_t) { any |= word == name; });
  return any;
}

std::vector<ManagedName> managed_of(const ptx::Module& module) {
  std::vector<ManagedName> names;
  for (const ptx::Variable& v : module.variables()) {
    if (v.space != ptx::Space::kGlobal || v.linkage == ".extern") continue;
    if (module.text_of(v.range).find(kAttribute) == std::string_view::npos) continue;
    names.push_back({v.name, managed_cell(names.size())});
  }
  return names;
}

// The declarations: without the attribute, each with a cell.
bool replace_declarations(const ptx::Module& module, const std::vector<ManagedName>& names,
                          ptx::Edits* edits) {
  size_t n = 0;
  for (const ptx::Variable& v : module.variables()) {
    for (const ManagedName& one : names)
      if (mentions(v.initializer, one.name)) return false;
    if (n == names.size() || v.name != names[n].name) continue;
    const size_t at = module.text_of(v.range).find(kAttribute);
    const auto begin = v.range.begin + static_cast<uint32_t>(at);
    edits->insert(v.range.begin, ".visible .const .align 8 .u64 " + names[n].cell + ";\n");
    edits->remove({begin, begin + static_cast<uint32_t>(kAttribute.size())});
    ++n;
  }
  return n == names.size();
}

// Whether each statement declares one variable: `.global .u32 a, b;` is one range for both.
bool one_each(const ptx::Module& module, const std::vector<ManagedName>& names) {
  uint32_t last = UINT32_MAX;
  for (const ptx::Variable& v : module.variables()) {
    const bool same = v.range.begin == last;
    last = v.range.begin;
    for (const ManagedName& one : names)
      if (same && v.name == one.name) return false;
  }
  return true;
}

// Between device memory and managed memory, apart from captures: loading is no work of a stream.
CUresult copy_at_load(const Entered& e, uint64_t dst, uint64_t src, size_t bytes, bool to_device) {
  sluice_copy body{};
  body.dst = to_device ? dst : e.link->offset_of(reinterpret_cast<void*>(dst));
  body.src = to_device ? e.link->offset_of(reinterpret_cast<void*>(src)) : src;
  body.dst_kind = to_device ? SLUICE_COPY_DEVICE : SLUICE_COPY_BULK;
  body.src_kind = to_device ? SLUICE_COPY_BULK : SLUICE_COPY_DEVICE;
  body.width = bytes;
  body.height = 1;
  body.wait = 1;
  return e.link->call(SLUICE_CALL_COPY, e.context, body);
}

}  // namespace

std::string managed_cell(size_t n) { return "sluice_managed_" + std::to_string(n); }

std::vector<std::string> lift_managed_variables(std::string* ptx) {
  // Most modules have none, and are not cut for this.
  if (find_text(*ptx, ".managed") == std::string::npos) return {};
  const auto module = ptx::Module::parse(*ptx);
  if (!module || module->address_size() != 64) return {};
  const std::vector<ManagedName> names = managed_of(*module);
  if (names.empty()) return {};
  ptx::Edits edits;
  bool done = one_each(*module, names) && replace_declarations(*module, names, &edits);
  ptx::AddressUses uses;
  for (const ManagedName& one : names)
    uses[one.name] = {"%" + one.cell, "ld.const.u64 %" + one.cell + ", [" + one.cell + "];"};
  for (const ptx::Function& f : module->functions())
    done = done && ptx::replace_addresses(*module, f, uses, &edits);
  if (!done) {
    complain_once("module image: a managed variable is used in a way that is not supported");
    return {};
  }
  std::vector<std::string> out;
  for (const ManagedName& one : names) out.emplace_back(one.name);
  *ptx = edits.apply(*ptx, {0, static_cast<uint32_t>(ptx->size())});
  return out;
}

ManagedVariables::~ManagedVariables() {
  if (places_.empty()) return;
  const Entered e = enter();
  for (const auto& [name, place] : places_) free_managed_variable(e, place.address);
}

CUresult ManagedVariables::bind(const Entered& e, uint64_t module,
                                const std::vector<std::string>& names) {
  const auto look_up = [&](const std::string& name, CUdeviceptr* address, size_t* bytes) {
    return SLUICE_CALL(cuModuleGetGlobal_v2, *e.link, e.context, address, bytes,
                       reinterpret_cast<CUmodule>(module), name.c_str());
  };
  for (size_t n = 0; n < names.size(); ++n) {
    CUdeviceptr cell = 0;
    size_t cell_bytes = 0;
    CUresult r = look_up(managed_cell(n), &cell, &cell_bytes);
    if (r != CUDA_SUCCESS) return r;
    if (cell_bytes != sizeof(uint64_t)) return CUDA_ERROR_UNKNOWN;
    auto known = places_.find(names[n]);
    if (known == places_.end()) {
      CUdeviceptr first = 0;
      Place made;
      r = look_up(names[n], &first, &made.bytes);
      if (r != CUDA_SUCCESS) return r;
      r = allocate_managed_variable(e, made.bytes, &made.address, &made.copy_of_address);
      if (r != CUDA_SUCCESS) return r;
      known = places_.emplace(names[n], made).first;
      r = copy_at_load(e, made.address, first, made.bytes, false);
      if (r != CUDA_SUCCESS) return r;
    }
    r = copy_at_load(e, cell, known->second.copy_of_address, sizeof(uint64_t), true);
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

const ManagedVariables::Place* ManagedVariables::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &found->second;
}

}  // namespace sluice::guest
