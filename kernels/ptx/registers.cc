// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/registers.h"

#include <algorithm>

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
  static constexpr std::string_view kPureNames[] = {
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
  static constexpr std::string_view kOpaqueNames[] = {
      "atom", "shfl", "vote", "match",      "redux",  "activemask", "elect",
      "tex",  "tld4", "txq",  "suld",       "suq",    "ldu",        "ldmatrix",
      "mma",  "wmma", "mapa", "getctarank", "alloca", "stacksave",  "movmatrix"};
  static constexpr std::string_view kNoneNames[] = {
      "st",       "red",           "bra",          "brx",      "ret",
      "exit",     "trap",          "brkpt",        "membar",   "fence",
      "prefetch", "prefetchu",     "nanosleep",    "stmatrix", "pmevent",
      "discard",  "applypriority", "sust",         "sured",    "griddepcontrol",
      "cp",       "setmaxnreg",    "stackrestore", "bar",      "barrier",
      "tensormap"};
  static const auto kEffects = [] {
    std::unordered_map<std::string_view, Effect> all;
    for (const std::string_view name : kPureNames) all.emplace(name, Effect::kPure);
    for (const std::string_view name : kNoneNames) all.emplace(name, Effect::kNone);
    for (const std::string_view name : kOpaqueNames) all.emplace(name, Effect::kOpaque);
    return all;
  }();
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
  const auto found = kEffects.find(base);
  return found == kEffects.end() ? Effect::kUnknown : found->second;
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
      return;
    }
    for (Set& set : names.sets)
      if (set.prefix == v.name) {
        set.count = std::max(set.count, v.register_count);
        return;
      }
    names.sets.push_back({v.name, v.register_count, v.range.begin, 0, {}});
    names.ambiguous |= is_digit(v.name.back());
  };
  for (const Variable& v : function.variables) add(v, v.scope);
  for (const Variable& v : function.params) add(v, 0);
  for (const Variable& v : function.returns) add(v, 0);
  names_.resize(std::max<std::size_t>(function.scopes.size(), 1));
  // As many as a function of this length may name; a text that declares many does not cost memory.
  std::uint64_t left = 64 + 4 * std::uint64_t{function.statements.size()};
  for (auto& [scope, names] : scopes_) {
    names_[scope] = &names;
    for (Set& set : names.sets) {
      set.most = static_cast<std::uint32_t>(
          names.ambiguous ? 0 : std::min<std::uint64_t>(set.count, left));
      left -= set.most;
    }
  }
}

namespace {

// The number behind a set's prefix, as a register has it: without leading zeros.
bool number_of(std::string_view digits, std::uint64_t& value) {
  if (digits.empty() || digits.size() > 10 || (digits.size() > 1 && digits[0] == '0')) return false;
  value = 0;
  for (const char c : digits) {
    if (!is_digit(c)) return false;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return true;
}

}  // namespace

bool RegisterTable::declared(const Names& names, std::string_view name, std::uint32_t before) {
  if (!names.singles.empty())
    if (const auto it = names.singles.find(name); it != names.singles.end() && it->second < before)
      return true;
  std::uint64_t value = 0;
  for (const Set& set : names.sets)
    if (set.begin < before && name.starts_with(set.prefix) &&
        number_of(name.substr(set.prefix.size()), value) && value < set.count)
      return true;
  return false;
}

std::uint32_t* RegisterTable::place_of(Names& names, std::string_view name) {
  std::uint64_t value = 0;
  for (Set& set : names.sets)
    if (set.most != 0 && name.starts_with(set.prefix) &&
        number_of(name.substr(set.prefix.size()), value) && value < set.most) {
      if (value >= set.numbers.size()) set.numbers.resize(value + 1, kNone);
      return &set.numbers[value];
    }
  return &names.numbers.try_emplace(name, kNone).first->second;
}

std::uint32_t RegisterTable::number_in(Names& names, bool outermost, std::string_view name,
                                       std::uint32_t before) {
  std::uint32_t* const place = place_of(names, name);
  if (*place != kNone && outermost) return *place;
  if (!declared(names, name, before)) {
    // `v.x` of a vector register is part of `v`.
    const std::string_view base = name.substr(0, name.find('.'));
    return base.size() == name.size() || !declared(names, base, before)
               ? kNone
               : number_in(names, outermost, base, before);
  }
  if (*place == kNone) *place = size_++;
  return *place;
}

std::uint32_t RegisterTable::number(std::string_view name, const Statement& in) {
  for (std::uint32_t scope = in.scope; scope != 0; scope = function_.scopes[scope].parent)
    if (const std::uint32_t n = number_in(scope, name, in.range.begin); n != kNone) return n;
  return number(name);
}

}  // namespace sluice::ptx
