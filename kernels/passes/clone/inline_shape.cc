// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/clone/inline_shape.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "kernels/passes/clone/inline.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes::inlining {

using ptx::Function;
using ptx::Space;
using ptx::Statement;
using ptx::StatementKind;
using ptx::Variable;

namespace {

// "(a, b)" -> {"a", "b"}.
std::vector<std::string_view> names_of(std::string_view list) {
  std::vector<std::string_view> names;
  std::size_t at = 0;
  for (std::string_view n = ptx::next_identifier(list, at); !n.empty();
       n = ptx::next_identifier(list, at))
    names.push_back(n);
  return names;
}

bool is_zero(std::string_view offset) { return offset.find_first_not_of("+ 0") == offset.npos; }

// A load of the low bytes of an integer: compilers pass those of 8 and 16 bits in 32. Its
// register's bits, or 0: it is none.
std::uint32_t low_bits(const Function& f, const Statement& s, const Access& a, const Variable& v) {
  const std::uint32_t bytes = ptx::type_bytes(a.type);
  const bool low = a.load && !a.vector && v.bytes == 4 && bytes < 4 && is_zero(a.offset) &&
                   !a.type.starts_with('f') && s.operands[a.value].starts_with('%');
  const std::uint32_t bits = low ? ptx::register_bits(f, s.operands[a.value], s) : 0;
  return bits == 16 || bits == 32 ? bits : 0;
}

bool moves_whole(const Function& f, const Statement& s, const Access& a, const Variable& v) {
  if (low_bits(f, s, a, v) != 0) return true;
  const std::uint32_t bytes = ptx::type_bytes(a.type);
  if (a.vector || bytes != v.bytes || !is_zero(a.offset)) return false;
  const std::string_view value = s.operands[a.value];
  if (value.starts_with('%')) return ptx::register_bits(f, value, s) == bytes * 8;
  if (a.load || value.empty()) return false;
  const bool real = value.starts_with("0f") || value.starts_with("0F") || value.starts_with("0d") ||
                    value.starts_with("0D");
  if (real) return a.type.starts_with('f');
  return !a.type.starts_with('f') &&
         value.find_first_not_of("-0123456789xXabcdefABCDEFU") == value.npos &&
         (value.front() == '-' || (value.front() >= '0' && value.front() <= '9'));
}

// Nothing is known of its accesses yet, and there may be none.
Passed passed(const Variable& v) {
  Passed p;
  p.variable = &v;
  p.whole = !v.is_array && v.vector_width == 1 && (v.bytes == 4 || v.bytes == 8);
  return p;
}

void look_at_accesses(const Function& f, const Statement& s, const Access& access, Shape& shape) {
  for (std::size_t k = 0; k < s.operands.size(); ++k) {
    if (s.operands[k].empty()) continue;
    std::size_t at = 0;
    for (std::string_view name = ptx::next_identifier(s.operands[k], at); !name.empty();
         name = ptx::next_identifier(s.operands[k], at)) {
      const Variable* v = Shapes::find(shape, f, name, s.scope);
      const auto it = v ? shape.passed.find(v) : shape.passed.end();
      if (it == shape.passed.end()) continue;
      Passed& passed = it->second;
      if (!access.is || k != access.address) {
        passed.strange = true;
        continue;
      }
      (access.load ? passed.loaded : passed.stored) = true;
      passed.whole = passed.whole && moves_whole(f, s, access, *v);
    }
  }
}

// Whether arguments and result of the call are the function's.
bool fits(const Function& f, const Site& site) {
  if (f.params.size() != site.arguments.size()) return false;
  for (std::size_t k = 0; k < f.params.size(); ++k)
    if (f.params[k].bytes != site.arguments[k]->variable->bytes) return false;
  const bool result = site.result || site.throws_away;
  if (f.returns.size() != (result ? 1u : 0u)) return false;
  return !site.result || f.returns[0].bytes == site.result->variable->bytes;
}

}  // namespace

std::string move_of(const Function& f, const Statement& s, const Access& a, const Variable& v,
                    const std::string& name) {
  const std::string value(s.operands[a.value]);
  if (!a.load) return "mov." + std::string(a.type) + " \t%" + name + ", " + value + ";";
  const std::uint32_t bits = low_bits(f, s, a, v);
  if (bits == 0) return "mov." + std::string(a.type) + " \t" + value + ", %" + name + ";";
  const std::string sign = a.type.starts_with('s') ? "s" : "u";
  const std::uint32_t of_type = ptx::type_bytes(a.type) * 8, from = of_type == bits ? 32 : of_type;
  return "cvt." + sign + std::to_string(bits) + "." + sign + std::to_string(from) + " \t" + value +
         ", %" + name + ";";
}

bool is_call(const Statement& s) {
  return s.kind == StatementKind::kInstruction && ptx::base_opcode(s.opcode) == "call";
}

Access access_of(const Statement& s) {
  Access a;
  const std::string_view base = ptx::base_opcode(s.opcode);
  if ((base != "ld" && base != "st") || s.operands.size() != 2) return a;
  std::string_view rest = s.opcode.substr(base.size());
  if (rest.starts_with(".param::func")) {
    rest.remove_prefix(12);
  } else if (rest.starts_with(".param") && !rest.starts_with(".param:")) {
    rest.remove_prefix(6);
  } else {
    return a;
  }
  for (std::string_view width : {".v2", ".v4"})
    if (rest.starts_with(width)) {
      a.vector = true;
      rest.remove_prefix(width.size());
    }
  if (rest.size() < 2 || rest.rfind('.') != 0 || ptx::type_bytes(rest.substr(1)) == 0) return a;
  a.type = rest.substr(1);
  a.load = base == "ld";
  a.address = a.load ? 1 : 0;
  a.value = 1 - a.address;
  std::string_view text = s.operands[a.address];
  if (text.size() < 3 || text.front() != '[' || text.back() != ']') return a;
  text = text.substr(1, text.size() - 2);
  std::size_t at = 0;
  a.name = ptx::next_identifier(text, at);
  if (a.name.empty() || !text.starts_with(a.name)) return a;
  a.offset = text.substr(a.name.size());
  if (a.offset.find_first_not_of("+ 0123456789xXabcdefABCDEF") != a.offset.npos) return a;
  a.is = true;
  return a;
}

const Variable* Shapes::find(const Shape& shape, const Function& f, std::string_view name,
                             std::uint32_t scope) {
  const auto it = shape.names.find(name);
  if (it == shape.names.end()) return nullptr;
  for (;; scope = f.scopes[scope].parent) {
    if (const auto v = it->second.find(scope); v != it->second.end()) return v->second;
    if (scope != 0) continue;
    const auto outside = it->second.find(Shape::kSignature);
    return outside == it->second.end() ? nullptr : outside->second;
  }
}

bool Shapes::possible(const Function& f) {
  const auto known = shapes_.find(&f);
  if (known != shapes_.end()) return known->second.possible;
  // Calls nest as deep as functions do, and each is visited once.
  if (std::find(on_the_way_.begin(), on_the_way_.end(), &f) != on_the_way_.end()) return false;
  if (on_the_way_.size() > kMaxDepth) return false;
  on_the_way_.push_back(&f);
  Shape shape;
  shape.possible = look(f, shape);
  on_the_way_.pop_back();
  return shapes_.emplace(&f, std::move(shape)).first->second.possible;
}

bool Shapes::look(const Function& f, Shape& shape) {
  const bool called = &f != &entry_;
  if ((called && f.is_entry) || !f.not_understood.empty()) return false;
  looked_ += f.range.size();
  // What is written into its body must still mean the module's by such a name.
  for (const auto* list : {&f.variables, &f.params})
    for (const Variable& v : *list)
      if ((!called || list == &f.variables) && facts_.at_module_scope(v.name)) return false;
  for (const Variable& v : f.variables) {
    shape.names[v.name].try_emplace(v.scope, &v);
    if (v.space == Space::kParam) shape.passed.emplace(&v, passed(v));
    if (!called || v.space == Space::kReg || v.space == Space::kLocal || v.space == Space::kParam)
      continue;
    if (v.space != Space::kShared || v.bytes == 0 || !v.linkage.empty()) return false;
    shape.shared.push_back(&v);
  }
  if (called) {
    for (const auto* list : {&f.params, &f.returns})
      for (const Variable& v : *list) {
        if (v.space != Space::kParam || v.bytes == 0) return false;
        shape.names[v.name][Shape::kSignature] = &v;
        shape.passed.emplace(&v, passed(v));
      }
    if (f.returns.size() > 1) return false;
  }
  for (std::uint32_t i = 0; i < f.statements.size(); ++i) {
    const Statement& s = f.statements[i];
    if (s.kind == StatementKind::kLabel && facts_.at_module_scope(s.opcode)) return false;
    if (s.kind != StatementKind::kInstruction) continue;
    if (is_call(s)) {
      if (!call(f, i, shape)) return false;
      continue;
    }
    const Access access = access_of(s);
    if (access.is) looked_ += f.variables.size();  // for the register's width
    if (looked_ > kMostInliningWork) return false;
    look_at_accesses(f, s, access, shape);
  }
  for (auto& [variable, passed] : shape.passed) {
    const bool of_signature =
        !(variable >= f.variables.data() && variable < f.variables.data() + f.variables.size());
    if ((of_signature || passed.lowered) && passed.strange) return false;
    if (!of_signature) continue;
    // What is passed by value is not written to, and a result is not read.
    const bool result = !f.returns.empty() && variable == &f.returns[0];
    if (result ? passed.loaded : passed.stored) return false;
  }
  return true;
}

bool Shapes::call(const Function& f, std::uint32_t index, Shape& shape) {
  const Statement& s = f.statements[index];
  const std::size_t k = !s.operands.empty() && s.operands[0].starts_with('(') ? 1 : 0;
  if (k >= s.operands.size()) return false;
  const std::string_view callee = s.operands[k];
  const bool pointer = callee.starts_with('%');
  if (pointer && facts_.links()) return false;  // may lead to functions that are not here
  if (!pointer) {
    const Function* target = facts_.definition(callee);
    if (!target) return false;
    if (!target->has_body) {
      leave_call(f, s, shape);
      return true;
    }
  }
  Site site;
  if (pointer) site.pointer = callee;
  if (!find_passed(f, s, k, shape, site) || !find_callees(f, s, callee, site)) return false;
  // Each of them is written at least once.
  calls_ += site.callees.size();
  if (calls_ >= kMostInlinedCalls) return false;
  for (const Function* target : site.callees)
    if (!possible(*target)) return false;
  shape.sites.emplace(index, std::move(site));
  return true;
}

void Shapes::leave_call(const Function& f, const Statement& s, Shape& shape) {
  for (std::string_view operand : s.operands)
    for (std::string_view name : names_of(operand)) {
      const Variable* v = find(shape, f, name, s.scope);
      const auto it = v ? shape.passed.find(v) : shape.passed.end();
      if (it != shape.passed.end()) it->second.strange = true;
    }
}

bool Shapes::find_passed(const Function& f, const Statement& s, std::size_t callee, Shape& shape,
                         Site& site) {
  std::unordered_set<const Variable*> seen;
  const auto pass = [&](std::string_view name) -> Passed* {
    const Variable* v = find(shape, f, name, s.scope);
    const auto it = v ? shape.passed.find(v) : shape.passed.end();
    const bool of_body =
        v && v >= f.variables.data() && v < f.variables.data() + f.variables.size();
    if (it == shape.passed.end() || !of_body || !seen.insert(v).second) return nullptr;
    it->second.lowered = true;
    return &it->second;
  };
  if (callee == 1) {
    const auto names = names_of(s.operands[0]);
    if (names.size() != 1) return false;
    site.throws_away = names[0] == "_";
    if (!site.throws_away && !(site.result = pass(names[0]))) return false;
  }
  if (callee + 1 >= s.operands.size() || !s.operands[callee + 1].starts_with('(')) return true;
  const std::string_view list = s.operands[callee + 1];
  for (std::string_view name : names_of(list)) {
    Passed* p = pass(name);
    if (!p) return false;
    site.arguments.push_back(p);
  }
  // Numbers in the list are no names.
  const auto commas = static_cast<std::size_t>(std::count(list.begin(), list.end(), ','));
  return site.arguments.empty() ? list.find_first_not_of("( \t\r\n)") == list.npos
                                : commas + 1 == site.arguments.size();
}

bool Shapes::find_callees(const Function& f, const Statement& s, std::string_view callee,
                          Site& site) {
  if (site.pointer.empty()) {
    const Function* target = facts_.definition(callee);
    if (!fits(*target, site)) return false;
    site.callees.push_back(target);
    return true;
  }
  if (ptx::register_bits(f, callee, s) != 64) return false;
  looked_ += facts_.address_taken().size();
  for (const Function* target : facts_.address_taken()) {
    if (!fits(*target, site)) continue;
    if (!facts_.declared_before(*target, entry_)) return false;
    site.callees.push_back(target);
  }
  return !site.callees.empty();
}

// A variable is a register only where whoever gets it takes it whole as well, and whoever else
// calls the same function passes it so.
void Shapes::settle() {
  for (bool changed = true; changed;) {
    changed = false;
    const auto join = [&](Passed& a, Passed& b) {
      if (a.whole == b.whole) return;
      a.whole = b.whole = false;
      changed = true;
    };
    for (auto& [f, shape] : shapes_)
      for (auto& [index, site] : shape.sites)
        for (const Function* callee : site.callees) {
          auto& passed = shapes_.at(callee).passed;
          for (std::size_t k = 0; k < site.arguments.size(); ++k)
            join(*site.arguments[k], passed.at(&callee->params[k]));
          if (site.result) join(*site.result, passed.at(&callee->returns[0]));
        }
  }
}

}  // namespace sluice::passes::inlining
