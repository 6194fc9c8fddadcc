// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/decode/declarations.h"

#include <algorithm>
#include <string>
#include <unordered_set>

namespace sluice::exec::detail {

Error at_line(uint32_t line, const std::string& what) {
  return {0, "line " + std::to_string(line) + ": " + what};
}

namespace {

// Directives outside bodies: what is not known here could change what the code means.
Result<void> module_directives(const ptx::Module& module) {
  static const std::unordered_set<std::string_view> known = {
      ".version", ".target", ".address_size", ".file", ".section", ".pragma", ".loc", ".language"};
  for (const ptx::ModuleDirective& d : module.directives())
    if (known.count(d.name) == 0)
      return at_line(d.line, std::string(d.name) + " at module scope is not supported");
  for (const std::string_view target : module.targets())
    if (target.substr(0, 3) != "sm_" && target != "debug" && target != "texmode_independent" &&
        target != "texmode_unified")
      return Error{0, "line 1: .target " + std::string(target) + " is not supported"};
  return {};
}

Result<void> header_directive(const ptx::Function& f, const ptx::HeaderDirective& d) {
  // Limits of a launch, or advice to a compiler of machine code.
  static const std::unordered_set<std::string_view> known = {
      ".maxntid",  ".reqntid", ".minnctapersm", ".maxnctapersm",         ".maxnreg",
      ".noreturn", ".pragma",  ".abi_preserve", ".abi_preserve_control", ".maxclusterrank"};
  if (known.count(d.name) != 0) return {};
  const bool of_clusters = d.name == ".reqnctapercluster" || d.name == ".explicitcluster" ||
                           d.name == ".blocksareclusters";
  if (f.is_entry && of_clusters) return {};
  return at_line(f.line, std::string(d.name) + " of " + std::string(f.name) + " is not supported");
}

// A variable whose type is not known has no size.
Result<void> types(const std::vector<ptx::Variable>& variables) {
  for (const ptx::Variable& v : variables) {
    const bool opaque = v.type == "texref" || v.type == "samplerref";
    if (v.space == ptx::Space::kReg || opaque || (v.element_bytes != 0 && v.type != "surfref"))
      continue;
    return at_line(v.line, "variable " + std::string(v.name) + " of type " + std::string(v.type) +
                               " is not supported");
  }
  return {};
}

}  // namespace

Result<void> check_declarations(const ptx::Module& module) {
  if (auto done = module_directives(module); !done) return done;
  return types(module.variables());
}

Result<void> check_declarations(const ptx::Function& f) {
  if (!f.not_understood.empty()) return Error{0, f.not_understood};
  for (const ptx::HeaderDirective& d : f.directives)
    if (auto done = header_directive(f, d); !done) return done;
  for (const auto* list : {&f.params, &f.returns, &f.variables})
    if (auto done = types(*list); !done) return done;
  return {};
}

}  // namespace sluice::exec::detail
