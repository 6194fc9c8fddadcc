// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/module.h"

#include <limits>

#include "kernels/ptx/registers.h"

namespace sluice::ptx {

std::string_view Module::target() const {
  for (std::string_view word : targets_)
    if (word.starts_with("sm_")) return word;
  return targets_.empty() ? std::string_view() : targets_[0];
}

std::vector<std::pair<std::string_view, std::string_view>> Module::aliases() const {
  std::vector<std::pair<std::string_view, std::string_view>> out;
  for (const ModuleDirective& d : directives_) {
    if (d.name != ".alias") continue;
    const std::string_view text = text_of(d.range);
    std::size_t at = d.name.size();
    const std::string_view name = next_identifier(text, at);
    const std::string_view means = next_identifier(text, at);
    if (!means.empty()) out.emplace_back(name, means);
  }
  return out;
}

std::uint32_t Module::sm() const {
  std::string_view t = target();
  if (!t.starts_with("sm_")) return 0;
  t.remove_prefix(3);
  std::uint32_t value = 0;
  while (!t.empty() && t.front() >= '0' && t.front() <= '9' && value < 100000) {
    value = value * 10 + static_cast<std::uint32_t>(t.front() - '0');
    t.remove_prefix(1);
  }
  return value;
}

const Function* Module::find_function(std::string_view name) const {
  const Function* declared = nullptr;
  for (const Function& f : functions_) {
    if (f.name != name) continue;
    if (f.has_body) return &f;
    declared = &f;
  }
  return declared;
}

bool parse_integer(std::string_view text, std::uint64_t& value) {
  if (!text.empty() && (text.back() == 'U' || text.back() == 'u')) text.remove_suffix(1);
  if (text.empty()) return false;
  unsigned base = 10;
  if (text.size() > 1 && text[0] == '0') {
    if (text[1] == 'x' || text[1] == 'X') {
      base = 16;
      text.remove_prefix(2);
    } else if (text[1] == 'b' || text[1] == 'B') {
      base = 2;
      text.remove_prefix(2);
    } else {
      base = 8;
      text.remove_prefix(1);
    }
    if (text.empty()) return false;
  }
  std::uint64_t result = 0;
  for (char c : text) {
    unsigned digit = 99;
    if (c >= '0' && c <= '9') digit = static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') digit = static_cast<unsigned>(c - 'a' + 10);
    if (c >= 'A' && c <= 'F') digit = static_cast<unsigned>(c - 'A' + 10);
    if (digit >= base) return false;
    if (result > (std::numeric_limits<std::uint64_t>::max() - digit) / base) return false;
    result = result * base + digit;
  }
  value = result;
  return true;
}

std::uint32_t type_bytes(std::string_view type) {
  struct Row {
    std::string_view type;
    std::uint32_t bytes;
  };
  static constexpr Row kRows[] = {
      {"b32", 4},   {"u32", 4},  {"f32", 4},    {"s32", 4},        {"b64", 8},    {"u64", 8},
      {"s64", 8},   {"f64", 8},  {"b8", 1},     {"u8", 1},         {"s8", 1},     {"b16", 2},
      {"u16", 2},   {"s16", 2},  {"f16", 2},    {"bf16", 2},       {"f16x2", 4},  {"bf16x2", 4},
      {"b128", 16}, {"tf32", 4}, {"texref", 8}, {"samplerref", 8}, {"surfref", 8}};
  for (const Row& row : kRows)
    if (row.type == type) return row.bytes;
  return 0;
}

bool has_modifier(std::string_view opcode, std::string_view modifier) {
  if (modifier.empty()) return false;
  for (std::size_t at = base_opcode(opcode).size(); at < opcode.size();) {
    const std::size_t begin = ++at;
    while (at < opcode.size() && opcode[at] != '.') ++at;
    if (at - begin == modifier.size() && opcode[begin] == modifier[0] &&
        opcode.substr(begin, at - begin) == modifier)
      return true;
  }
  return false;
}

}  // namespace sluice::ptx
