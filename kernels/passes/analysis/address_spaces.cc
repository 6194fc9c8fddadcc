// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/address_spaces.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/passes/analysis/places.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::Statement;
using ptx::StatementKind;

namespace {

bool is_generic(const Statement& s) {
  for (const std::string_view space : {"global", "shared", "const", "param", "local"})
    if (s.opcode.find("." + std::string(space)) != s.opcode.npos) return false;
  return true;
}

// The operand that is the address; 0 for those whose first one it is.
std::size_t address_of(std::string_view base) { return base == "ld" || base == "atom" ? 1 : 0; }

}  // namespace

AddressSpaces::AddressSpaces(const ptx::Function& function,
                             const std::function<bool(std::string_view)>& shared) {
  std::vector<const Statement*> generic;
  for (const Statement& s : function.statements) {
    if (s.kind != StatementKind::kInstruction) continue;
    const std::string_view base = base_opcode(s.opcode);
    if ((base == "ld" || base == "st" || base == "atom" || base == "red") &&
        s.operands.size() > address_of(base) && is_generic(s))
      generic.push_back(&s);
  }
  if (generic.empty()) return;
  ptx::RegisterTable registers(function);
  Sums sums(function, registers);
  const auto in_shared = [&](std::string_view name) {
    const auto own = std::find_if(function.variables.begin(), function.variables.end(),
                                  [&](const ptx::Variable& v) { return v.name == name; });
    return own != function.variables.end() ? own->space == ptx::Space::kShared : shared(name);
  };
  std::vector<std::pair<std::size_t, std::string_view>> found;
  for (const Statement* s : generic) {
    const std::string_view base = base_opcode(s->opcode);
    const auto root = Sums::root(sums.of(s->operands[address_of(base)], *s));
    if (!root) continue;
    const bool of_parameter = root->starts_with(kParameter);
    if (of_parameter ? function.is_entry : in_shared(*root))
      found.emplace_back(s - function.statements.data(), of_parameter ? ".global" : ".shared");
  }
  if (found.empty()) return;
  copy_ = function;
  for (const auto& [statement, space] : found) {
    Statement& s = copy_.statements[statement];
    // Behind what says how: ld.volatile.u32, atom.relaxed.gpu.add.u32.
    names_.push_back(std::string(base_opcode(s.opcode)) + std::string(space) +
                     std::string(s.opcode.substr(base_opcode(s.opcode).size())));
    s.opcode = names_.back();
  }
}

}  // namespace sluice::passes
