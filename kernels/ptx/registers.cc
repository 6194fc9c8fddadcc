// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/registers.h"

#include <algorithm>
#include <unordered_set>

#include "kernels/ptx/parse/cursor.h"

namespace sluice::ptx {

namespace {
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return (lexical::kClass[static_cast<unsigned char>(c)] & lexical::kWord) != 0;
}
}  // namespace

std::string_view next_identifier(std::string_view text, std::size_t& at) {
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      ++at;
      while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      ++at;
    } else if (c == '/' && at + 1 < text.size() && text[at + 1] == '/') {
      while (at < text.size() && text[at] != '\n') ++at;
    } else if (c == '/' && at + 1 < text.size() && text[at + 1] == '*') {
      const std::size_t close = text.find("*/", at + 2);
      at = close == text.npos ? text.size() : close + 2;
    } else if (is_digit(c)) {
      while (at < text.size() && (is_word(text[at]) || text[at] == '.')) ++at;
    } else if (is_word(c)) {
      const std::size_t begin = at;
      while (at < text.size() && is_word(text[at])) ++at;
      while (at + 1 < text.size() && text[at] == '.' && is_word(text[at + 1])) {
        ++at;
        while (at < text.size() && is_word(text[at])) ++at;
      }
      return text.substr(begin, at - begin);
    } else {
      ++at;
    }
  }
  at = text.size();
  return {};
}

Effect effect_of(const Statement& s) {
  static const std::unordered_set<std::string_view> kPureNames = {
      "add",    "addc",  "sub",       "subc",      "mul",      "mul24",  "mad",      "madc",
      "mad24",  "div",   "rem",       "sad",       "abs",      "neg",    "min",      "max",
      "fma",    "rcp",   "sqrt",      "rsqrt",     "sin",      "cos",    "lg2",      "ex2",
      "tanh",   "testp", "set",       "setp",      "copysign", "selp",   "slct",     "and",
      "or",     "xor",   "not",       "cnot",      "lop3",     "shl",    "shr",      "shf",
      "bfe",    "bfi",   "bfind",     "bmsk",      "brev",     "clz",    "popc",     "fns",
      "szext",  "dp2a",  "dp4a",      "prmt",      "mov",      "cvt",    "cvta",     "vadd",
      "vsub",   "vmin",  "vmax",      "vabsdiff",  "vset",     "vshl",   "vshr",     "vmad",
      "vadd2",  "vadd4", "vsub2",     "vsub4",     "vavrg2",   "vavrg4", "vmin2",    "vmin4",
      "vmax2",  "vmax4", "vabsdiff2", "vabsdiff4", "vset2",    "vset4",  "isspacep", "createpolicy",
      "istypep"};
  static const std::unordered_set<std::string_view> kOpaqueNames = {
      "atom", "shfl", "vote", "match",      "redux",  "activemask", "elect",
      "tex",  "tld4", "txq",  "suld",       "suq",    "ldu",        "ldmatrix",
      "mma",  "wmma", "mapa", "getctarank", "alloca", "stacksave",  "movmatrix"};
  static const std::unordered_set<std::string_view> kNoneNames = {
      "st",       "red",           "bra",          "brx",      "ret",
      "exit",     "trap",          "brkpt",        "membar",   "fence",
      "prefetch", "prefetchu",     "nanosleep",    "stmatrix", "pmevent",
      "discard",  "applypriority", "sust",         "sured",    "griddepcontrol",
      "cp",       "setmaxnreg",    "stackrestore", "bar",      "barrier",
      "tensormap"};
  const std::string_view base = base_opcode(s.opcode);
  if (base == "ld") return Effect::kLoad;
  if (base == "mbarrier") {
    const bool writes = has_modifier(s.opcode, "arrive") || has_modifier(s.opcode, "arrive_drop") ||
                        has_modifier(s.opcode, "test_wait") || has_modifier(s.opcode, "try_wait") ||
                        has_modifier(s.opcode, "pending_count");
    return writes ? Effect::kOpaque : Effect::kNone;
  }
  if ((base == "bar" || base == "barrier") && has_modifier(s.opcode, "red"))
    return Effect::kUniform;
  if (kPureNames.count(base) != 0) return Effect::kPure;
  if (kNoneNames.count(base) != 0) return Effect::kNone;
  if (kOpaqueNames.count(base) != 0) return Effect::kOpaque;
  return Effect::kUnknown;
}

std::uint32_t register_bits(const Function& f, std::string_view name, const Statement& in) {
  std::uint32_t bits = 0, depth = 0;
  const auto encloses = [&](std::uint32_t scope) {
    for (std::uint32_t at = in.scope;; at = f.scopes[at].parent) {
      if (at == scope) return true;
      if (at == 0) return false;
    }
  };
  for (const Variable& v : f.variables) {
    if (v.space != Space::kReg || !name.starts_with(v.name)) continue;
    bool is = v.register_count == 0 && v.name == name;
    const std::string_view digits = name.substr(v.name.size());
    std::uint64_t number = 0;
    if (v.register_count != 0 &&
        (digits == "0" || (!digits.starts_with('0') && parse_integer(digits, number))))
      is = number < v.register_count;
    if (!is || !encloses(v.scope) || f.scopes[v.scope].depth < depth) continue;
    depth = f.scopes[v.scope].depth;
    bits = v.vector_width == 1 ? v.element_bytes * 8 : 0;
  }
  return bits;
}

RegisterTable::RegisterTable(const Function& function) : function_(function) {
  const auto add = [&](const Variable& v, std::uint32_t scope) {
    if (v.space != Space::kReg) return;
    Names& names = scopes_[scope];
    if (v.register_count == 0) {
      names.singles.try_emplace(v.name, v.range.begin);
    } else {
      Names::Set& set = names.sets.try_emplace(v.name, Names::Set{0, v.range.begin}).first->second;
      set.count = std::max(set.count, v.register_count);
    }
  };
  for (const Variable& v : function.variables) add(v, v.scope);
  for (const Variable& v : function.params) add(v, 0);
  for (const Variable& v : function.returns) add(v, 0);
}

bool RegisterTable::declared(const Names& names, std::string_view name, std::uint32_t before) {
  if (const auto it = names.singles.find(name); it != names.singles.end() && it->second < before)
    return true;
  if (names.sets.empty()) return false;
  std::size_t digits = name.size();
  while (digits > 0 && is_digit(name[digits - 1])) --digits;
  // `%r1<5>` declares %r10 .. %r14, so every split into prefix and number counts.
  for (; digits < name.size(); ++digits) {
    std::uint64_t value = 0;
    const auto it = names.sets.find(name.substr(0, digits));
    if (it == names.sets.end() || it->second.begin >= before) continue;
    const std::string_view number = name.substr(digits);
    if (number.size() > 1 && number[0] == '0') continue;
    if (number.size() <= 10 && (number == "0" || parse_integer(number, value)) &&
        value < it->second.count)
      return true;
  }
  return false;
}

std::uint32_t RegisterTable::number_in(std::uint32_t scope, std::string_view name,
                                       std::uint32_t before) {
  const auto names = scopes_.find(scope);
  if (names == scopes_.end()) return kNone;
  const auto it = names->second.numbers.find(name);
  if (it != names->second.numbers.end() && scope == 0) return it->second;
  if (!declared(names->second, name, before)) {
    // `v.x` of a vector register is part of `v`.
    const std::string_view base = name.substr(0, name.find('.'));
    return base.size() == name.size() || !declared(names->second, base, before)
               ? kNone
               : number_in(scope, base, before);
  }
  if (it != names->second.numbers.end()) return it->second;
  names->second.numbers.emplace(name, size_);
  return size_++;
}

std::uint32_t RegisterTable::number(std::string_view name, const Statement& in) {
  for (std::uint32_t scope = in.scope; scope != 0; scope = function_.scopes[scope].parent)
    if (const std::uint32_t n = number_in(scope, name, in.range.begin); n != kNone) return n;
  return number(name);
}

}  // namespace sluice::ptx
