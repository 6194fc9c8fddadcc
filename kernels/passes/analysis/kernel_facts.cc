// SPDX-License-Identifier: Apache-2.0
// What the functions of a module have to do with one another. See facts.h; entry_facts.cc puts the
// facts of a kernel together.
#include <algorithm>
#include <unordered_set>

#include "kernels/passes/analysis/facts.h"
#include "kernels/passes/analysis/waits/spin.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

using ptx::Function;
using ptx::StatementKind;
using ptx::Variable;

namespace {}  // namespace

const Function* ModuleFacts::definition(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

bool ModuleFacts::declared_before(const Function& function, const Function& user) const {
  return named_from_.at(function.name) < user.range.begin;
}

void ModuleFacts::find_address_taken() {
  std::unordered_set<std::string_view> functions;
  for (const Function& f : module_.functions()) {
    if (f.is_entry) continue;
    functions.insert(f.name);
  }
  if (functions.empty()) return;
  std::unordered_set<const Function*> seen;
  const auto look = [&](std::string_view text) {
    std::size_t at = 0;
    for (std::string_view name = ptx::next_identifier(text, at); !name.empty();
         name = ptx::next_identifier(text, at)) {
      if (functions.count(name) == 0) continue;
      const Function* f = by_name_.at(name);
      if (!f->has_body) {
        links_ = true;
      } else if (seen.insert(f).second) {
        address_taken_.push_back(f);
      }
    }
  };
  for (const Variable& v : module_.variables()) {
    if (v.linkage == ".extern" && v.space != ptx::Space::kShared) links_ = true;
    if (!v.initializer.empty()) look(v.initializer);
  }
  for (const Function& f : module_.functions()) {
    if (!f.not_understood.empty()) look(module_.text_of(f.range));
    for (const ptx::Statement& s : f.statements) {
      if (s.kind != StatementKind::kInstruction) continue;
      const bool call = ptx::base_opcode(s.opcode) == "call";
      const std::size_t callee = call && !s.operands.empty() && s.operands[0].starts_with('(');
      for (std::size_t k = 0; k < s.operands.size(); ++k) {
        if (call && k == callee) continue;
        if (s.operands[k].find_first_not_of("%0123456789") == std::string_view::npos) continue;
        if (s.operands[k].front() == '%') continue;  // registers: most operands
        look(s.operands[k]);
      }
    }
  }
}

// What other modules cannot name, or have the same of (statics of inline functions), and this one
// never writes nor takes the address of.
void ModuleFacts::find_constants() {
  for (const Variable& v : module_.variables())
    if (v.space == ptx::Space::kGlobal &&
        (v.linkage.empty() || (v.linkage == ".weak" && !v.initializer.empty())))
      constants_.insert(v.name);
  if (constants_.empty()) return;
  const auto drop = [&](std::string_view text) {
    std::size_t at = 0;
    for (std::string_view name = ptx::next_identifier(text, at); !name.empty();
         name = ptx::next_identifier(text, at))
      if (name[0] != '%') constants_.erase(name);
  };
  for (const Variable& v : module_.variables()) drop(v.initializer);
  for (const ptx::ModuleDirective& d : module_.directives())
    if (d.name != ".section") drop(module_.text_of(d.range));
  for (const Function& f : module_.functions()) {
    if (!f.not_understood.empty()) drop(module_.text_of(f.range));
    for (const ptx::Statement& s : f.statements) {
      if (s.kind != StatementKind::kInstruction) continue;
      const bool load = ptx::base_opcode(s.opcode) == "ld" && s.operands.size() == 2;
      for (std::size_t k = 0; k < s.operands.size(); ++k)
        if (!(load && k == 1) && !s.operands[k].starts_with('%')) drop(s.operands[k]);
    }
  }
}

// Text only, before any function is analysed: loops of the callers ask for it.
ModuleFacts::Reach ModuleFacts::functions_that(
    const std::function<bool(const Function&)>& does) const {
  Reach out;
  out.module = this;
  std::unordered_map<std::string_view, std::vector<std::string_view>> callers;
  std::vector<std::string_view> work;
  for (const Function& f : module_.functions()) {
    if (f.is_entry) continue;
    const bool found = !f.not_understood.empty() || does(f);
    for (const ptx::Statement& s : f.statements) {
      if (s.kind != StatementKind::kInstruction) continue;
      if (ptx::base_opcode(s.opcode) != "call" || s.operands.empty()) continue;
      const std::size_t callee = s.operands[0].starts_with('(');
      if (callee < s.operands.size()) callers[s.operands[callee]].push_back(f.name);
    }
    if (found && out.functions.insert(f.name).second) work.push_back(f.name);
  }
  // A call through a register passes on what any function may do whose address is taken.
  const auto reach = [&] {
    while (!work.empty()) {
      const std::string_view name = work.back();
      work.pop_back();
      for (std::string_view caller : callers[name])
        if (out.functions.insert(caller).second) work.push_back(caller);
    }
  };
  reach();
  for (const auto& [name, means] : module_.aliases())
    if (out.functions.count(means) != 0 && out.functions.insert(name).second) work.push_back(name);
  reach();
  out.by_pointer =
      std::any_of(address_taken_.begin(), address_taken_.end(),
                  [&](const Function* f) { return out.functions.count(f->name) != 0; });
  if (!out.by_pointer) return out;
  for (const auto& [callee, by] : callers)
    if (by_name_.count(callee) == 0)
      for (std::string_view caller : by)
        if (out.functions.insert(caller).second) work.push_back(caller);
  reach();
  return out;
}

// Rule index-in-calls: the transitive callers, within reach of the entry, of what reads the index.
void ModuleFacts::add_index_functions(const Function& entry, KernelFacts& out) {
  std::vector<const Function*> reached{&entry};
  std::unordered_set<const Function*> seen{&entry};
  for (std::size_t k = 0; k < reached.size(); ++k) {
    for (const FunctionFacts::Call& call : of(*reached[k]).calls) {
      if (call.callee.empty()) continue;
      const Function* callee = by_name_.at(call.callee);
      if (callee->has_body && seen.insert(callee).second) reached.push_back(callee);
    }
  }
  std::unordered_map<const Function*, std::vector<const Function*>> callers;
  std::unordered_set<const Function*> need;
  std::vector<const Function*> work;
  for (const Function* f : reached) {
    if (f == &entry) continue;
    const FunctionFacts& facts = of(*f);
    for (const FunctionFacts::Call& call : facts.calls)
      if (!call.callee.empty()) callers[by_name_.at(call.callee)].push_back(f);
    if (facts.grid.any()) work.push_back(f);
  }
  if (!work.empty()) out.grid.ctaid = {true, true, true};
  while (!work.empty()) {
    const Function* f = work.back();
    work.pop_back();
    if (!need.insert(f).second) continue;
    for (const Function* caller : callers[f]) work.push_back(caller);
  }
  if (need.empty()) return;
  for (const Function& f : module_.functions())
    if (need.count(&f) != 0) out.index_functions.push_back(&f);
}

}  // namespace sluice::passes
