#include "kernels/ptx/registers.h"

#include <algorithm>
#include <unordered_set>

#include "kernels/ptx/cursor.h"

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
      "cp",       "setmaxnreg",    "stackrestore", "bar",      "barrier"};
  const std::string_view base = base_opcode(s.opcode);
  if (base == "ld") return Effect::kLoad;
  if ((base == "bar" || base == "barrier") && has_modifier(s.opcode, "red"))
    return Effect::kUniform;
  if (kPureNames.count(base) != 0) return Effect::kPure;
  if (kNoneNames.count(base) != 0) return Effect::kNone;
  if (kOpaqueNames.count(base) != 0) return Effect::kOpaque;
  return Effect::kUnknown;
}

RegisterTable::RegisterTable(const Function& function) {
  const auto add = [&](const Variable& v) {
    if (v.space != Space::kReg) return;
    if (v.register_count == 0) {
      singles_[v.name] = true;
    } else {
      std::uint32_t& count = sets_[v.name];
      count = std::max(count, v.register_count);
    }
  };
  for (const Variable& v : function.variables) add(v);
  for (const Variable& v : function.params) add(v);
  for (const Variable& v : function.returns) add(v);
}

bool RegisterTable::declared(std::string_view name) const {
  if (singles_.count(name) != 0) return true;
  std::size_t digits = name.size();
  while (digits > 0 && is_digit(name[digits - 1])) --digits;
  // `%r1<5>` declares %r10 .. %r14, so every split into prefix and number counts.
  for (; digits < name.size(); ++digits) {
    std::uint64_t value = 0;
    const auto it = sets_.find(name.substr(0, digits));
    if (it == sets_.end()) continue;
    const std::string_view number = name.substr(digits);
    if (number.size() > 1 && number[0] == '0') continue;
    if (number.size() <= 10 && (number == "0" || parse_integer(number, value)) &&
        value < it->second)
      return true;
  }
  return false;
}

std::uint32_t RegisterTable::number(std::string_view name) {
  const auto it = numbers_.find(name);
  if (it != numbers_.end()) return it->second;
  if (!declared(name)) {
    // `v.x` of a vector register is part of `v`.
    const std::string_view base = name.substr(0, name.find('.'));
    return base.size() == name.size() || !declared(base) ? kNone : number(base);
  }
  const std::uint32_t n = size();
  numbers_.emplace(name, n);
  return n;
}

}  // namespace sluice::ptx
