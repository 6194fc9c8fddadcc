// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/places.h"

#include <algorithm>
#include <utility>

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;
using ptx::StatementKind;

namespace {

constexpr int kDeepestPlace = 64;
constexpr std::size_t kMaxParts = 8;
constexpr std::size_t kLongestPart = 160;
constexpr std::size_t kMostRegisters = 20'000;  // that are followed, in one function
// In front of a part whose register is written in several places.
constexpr char kVaries = '~';
// The largest step that is_positive() takes: times the largest block it stays below 2^31.
constexpr std::int64_t kLargestFactor = 1 << 16;

void add(Sum& to, const Sum& more, std::int64_t factor) {
  const auto wrapped = [](std::int64_t a, std::int64_t b, std::int64_t f) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) +
                                     static_cast<std::uint64_t>(b) * static_cast<std::uint64_t>(f));
  };
  to.constant = wrapped(to.constant, more.constant, factor);
  for (const auto& [text, times] : more.parts) {
    std::int64_t& now = to.parts[text];
    now = wrapped(now, times, factor);
    if (now == 0) to.parts.erase(text);
  }
}

Sum part(std::string text) {
  Sum s;
  s.parts.emplace(std::move(text), 1);
  return s;
}

std::string text_of(const Sum& s) {
  std::string out;
  for (const auto& [text, times] : s.parts) {
    if (out.size() > kLongestPart) break;  // too long anyway
    out += std::to_string(times) + '*' + text + '+';
  }
  return out + std::to_string(s.constant);
}

bool signed_integer(std::string_view text, std::int64_t& value) {
  const bool negative = text.starts_with('-');
  std::uint64_t magnitude = 0;
  if (!ptx::parse_integer(ptx::trimmed(text.substr(negative ? 1 : 0)), magnitude)) return false;
  value = static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude);
  return true;
}

bool is_floating(const Statement& s) {
  return s.opcode.find(".f16") != s.opcode.npos || s.opcode.find(".bf16") != s.opcode.npos ||
         has_modifier(s.opcode, "f32") || has_modifier(s.opcode, "f64");
}

}  // namespace

bool Sum::is_positive() const {
  if (constant < 0 || constant > INT32_MAX) return false;
  for (const auto& [text, times] : parts) {
    const bool size = text == "%ntid.x" || text == "%ntid.y" || text == "%ntid.z";
    if (!size || times < 0 || times > kLargestFactor) return false;
  }
  return constant > 0 || !parts.empty();
}

Sums::Sums(const ptx::Function& function, ptx::RegisterTable& registers)
    : function_(function), registers_(registers) {
  for (const ptx::Variable& v : function.variables)
    if (v.space == ptx::Space::kLocal) {
      if (v.scope != 0) locals_[v.name].push_back(v.scope);
      alignment_[local_part(v.name, v.scope)] = v.align & -v.align;
    }
}

void Sums::find_definitions() {
  if (std::exchange(knows_definitions_, true)) return;
  for (const Statement& s : function_.statements) {
    if (s.kind != StatementKind::kInstruction || s.operands.empty()) continue;
    const ptx::Effect effect = ptx::effect_of(s);
    if (effect == ptx::Effect::kNone) continue;
    // What is not known may write any register that it names.
    const std::size_t end = effect == ptx::Effect::kUnknown ? s.operands.size() : 1;
    for (std::size_t k = 0; k < end; ++k)
      ptx::for_each_register(registers_, s.operands[k], s,
                             [&](std::uint32_t r) { known_definitions_[r].push_back(&s); });
  }
}

std::string Sums::local_part(std::string_view name, std::uint32_t scope) {
  return std::string(name) + (scope == 0 ? "" : '#' + std::to_string(scope));
}

std::string Sums::symbol_part(std::string_view name, const Statement& in) const {
  const auto found = locals_.find(name);
  if (found == locals_.end()) return std::string(name);
  std::uint32_t scope = in.scope;
  while (scope != 0 &&
         std::find(found->second.begin(), found->second.end(), scope) == found->second.end())
    scope = function_.scopes[scope].parent;
  return local_part(name, scope);
}

Sum Sums::difference(const Sum& a, const Sum& b) {
  Sum out = a;
  add(out, b, -1);
  return out;
}

std::string Sums::text(const Sum& s) { return text_of(s); }

std::optional<std::string> Sums::root(const Sum& address) {
  std::optional<std::string> root;
  for (const auto& [text, times] : address.parts) {
    if (times != 1 && times != -1) continue;
    const bool named = text.find('(') == text.npos && text[0] != '%' && text[0] != kVaries;
    if (root || times != 1 || (!named && !text.starts_with(kParameter))) return std::nullopt;
    root = text;
  }
  return root;
}

Places Sums::compare(const Sum& a, const Sum& b) {
  const Sum rest = difference(a, b);
  if (rest.is_constant()) return rest.constant == 0 ? Places::kSame : Places::kOther;
  const bool unknown = std::all_of(rest.parts.begin(), rest.parts.end(),
                                   [](const auto& p) { return p.first[0] == kVaries; });
  return unknown ? Places::kUnknown : Places::kOther;
}

std::int64_t Sums::lowest_bit(const std::pair<const std::string, std::int64_t>& part) const {
  const auto aligned = alignment_.find(part.first);
  const std::int64_t bit = part.second & -part.second;
  return aligned == alignment_.end() || bit > kLargestFactor ? bit : bit * aligned->second;
}

Sum Sums::of_text(std::string_view operand, const Statement& in, int depth) {
  std::string_view rest = ptx::trimmed(operand);
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  Sum out;
  bool minus = false;
  // term {("+" | "-") term}; a term may have a sign of its own: "%rd1+-4".
  while (!(rest = ptx::trimmed(rest)).empty()) {
    if (rest[0] == '-') {
      minus = !minus;
      rest.remove_prefix(1);
      continue;
    }
    if (rest[0] == '+') {
      rest.remove_prefix(1);
      continue;
    }
    const std::size_t end = std::min(rest.find_first_of("+- \t\r\n", 1), rest.size());
    const std::string_view term = rest.substr(0, end);
    rest.remove_prefix(end);
    std::int64_t value = 0;
    std::size_t at = 0;
    if (signed_integer(term, value)) {
      Sum one;
      one.constant = value;
      add(out, one, minus ? -1 : 1);
    } else if (ptx::next_identifier(term, at) == term) {
      const std::uint32_t r = registers_.number(term, in);
      add(out, r == ptx::RegisterTable::kNone ? part(symbol_part(term, in)) : of_register(r, depth),
          minus ? -1 : 1);
    } else {  // a vector, or an expression
      return part(std::string(1, kVaries) + std::string(operand.substr(0, kLongestPart)));
    }
    minus = false;
  }
  return out;
}

Sum Sums::of_register(std::uint32_t number, int depth) {
  const auto known = known_.find(number);
  if (known != known_.end()) return known->second;
  const auto found = definitions().find(number);
  const bool once = found != definitions().end() && found->second.size() == 1;
  const Sum itself = part((once ? "%" : std::string(1, kVaries)) + std::to_string(number));
  if (!once || depth > kDeepestPlace || known_.size() > kMostRegisters) return itself;
  known_.emplace(number, itself);  // a loop that comes back here
  Sum out = of_definition(number, *found->second[0], depth + 1);
  if (out.parts.size() > kMaxParts ||
      std::any_of(out.parts.begin(), out.parts.end(),
                  [](const auto& p) { return p.first.size() > kLongestPart; }))
    out = itself;
  return known_[number] = std::move(out);
}

Sum Sums::of_definition(std::uint32_t number, const Statement& s, int depth) {
  const std::string_view base = base_opcode(s.opcode);
  const ptx::Effect effect = ptx::effect_of(s);
  const bool one_result = s.operands[0].find_first_of("{|") == std::string_view::npos;
  if (effect == ptx::Effect::kPure && one_result && !is_floating(s) &&
      !has_modifier(s.opcode, "hi") && !has_modifier(s.opcode, "sat"))
    if (auto sum = linear(s, depth)) return std::move(*sum);
  if ((effect == ptx::Effect::kPure || effect == ptx::Effect::kLoad) && one_result) {
    std::string text(s.opcode);
    if (effect == ptx::Effect::kLoad)
      text = has_modifier(s.opcode, "shared")  ? kSharedLoad
             : has_modifier(s.opcode, "param") ? std::string_view("param")
                                               : kLoad.substr(0, 2);
    for (std::size_t k = 1; k < s.operands.size() && text.size() <= kLongestPart; ++k)
      text += (k == 1 ? '(' : ',') + text_of(of_text(s.operands[k], s, depth));
    return part(text + ')');
  }
  return part((base == "atom" ? std::string(kAtomic) : "%") + std::to_string(number));
}

std::optional<Sum> Sums::linear(const Statement& s, int depth) {
  const std::string_view base = base_opcode(s.opcode);
  const std::size_t count = s.operands.size();
  const auto operand = [&](std::size_t k) { return of_text(s.operands[k], s, depth); };
  const auto product = [&](const Sum& a, const Sum& b, Sum& out) {
    if (!a.is_constant() && !b.is_constant()) return false;
    add(out, a.is_constant() ? b : a, a.is_constant() ? a.constant : b.constant);
    return true;
  };
  Sum out;
  if ((base == "mov" || base == "cvta" || base == "cvt") && count == 2) return operand(1);
  const bool inverts =
      (base == "not" && count == 2) || (base == "xor" && count == 3 && operand(2) == Sum{{}, -1});
  if ((base == "neg" && count == 2) || inverts) {
    add(out, operand(1), -1);
    out.constant -= inverts;
    return out;
  }
  if ((base == "add" || base == "sub") && count == 3) {
    out = operand(1);
    add(out, operand(2), base == "add" ? 1 : -1);
    return out;
  }
  // A bit that is free: compilers add 1 so to what they have shifted, and a member's offset to
  // the address of a structure in the stack frame.
  if (base == "or" && count == 3 && operand(2).is_constant()) {
    out = operand(1);
    const std::int64_t bits = operand(2).constant;
    const bool free = bits >= 0 &&
                      std::all_of(out.parts.begin(), out.parts.end(),
                                  [&](const auto& p) { return lowest_bit(p) > bits; }) &&
                      (out.constant == 0 || (out.constant & -out.constant) > bits);
    if (!free) return std::nullopt;
    out.constant += bits;
    return out;
  }
  if (base == "mul" && count == 3 && product(operand(1), operand(2), out)) return out;
  if (base == "mad" && count == 4 && product(operand(1), operand(2), out)) {
    add(out, operand(3), 1);
    return out;
  }
  if (base != "shl" || count != 3) return std::nullopt;
  const Sum by = operand(2);
  if (!by.is_constant() || by.constant < 0 || by.constant >= 48) return std::nullopt;
  add(out, operand(1), std::int64_t{1} << by.constant);
  return out;
}

}  // namespace sluice::passes
