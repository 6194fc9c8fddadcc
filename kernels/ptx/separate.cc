// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/separate.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "abi/cuda_driver.h"
#include "kernels/ptx/address_uses.h"
#include "kernels/ptx/constant_uses.h"
#include "kernels/ptx/edit.h"
#include "mediator/base/find_text.h"

namespace sluice::ptx {
namespace {

Error no(std::string why) { return Error{CUDA_ERROR_INVALID_PTX, std::move(why)}; }

// Directives of a module that its kernels keep, or can do without.
bool is_kept(const ModuleDirective& d) { return d.name == ".file" || d.name == ".pragma"; }
bool is_header(const ModuleDirective& d) {
  return d.name == ".version" || d.name == ".target" || d.name == ".address_size";
}

// What a function may do for which it is cut into statements: calls, constants, variables of its
// own in the module's spaces.
constexpr std::string_view kCall = "call", kConst = "const", kGlobal = "global", kTex = "tex";
constexpr std::string_view kCutFor[] = {kCall, kConst, kGlobal, kTex};

// A call of no function by name: `call (r), %rd1, (p), prototype;`.
bool calls_by_address(const Statement& s) {
  if (base_opcode(s.opcode) != "call") return false;
  for (const std::string_view operand : s.operands)
    if (!operand.empty() && operand.front() == '%') return true;
  return false;
}

// A string literal or a function's name, as nvcc and clang call them.
bool is_text(const Variable& v) {
  if (v.space != Space::kGlobal || !v.linkage.empty() || !v.is_array || v.element_bytes != 1 ||
      v.initializer.empty())
    return false;
  for (const char* const begin : {"$str", "_$_str", "__unnamed_"})
    if (v.name.starts_with(begin)) return true;
  for (const char* const part : {"__func__", "__FUNCTION__", "__PRETTY_FUNCTION__"})
    if (v.name.find(part) != v.name.npos) return true;
  return false;
}

// In the module as it is loaded, for all that know it.
bool has_address(const Variable& v) {
  return v.space == Space::kGlobal || v.space == Space::kConst;
}

// Stands for the address of the variable of this number: no program's, which are below 2^47 or in
// the upper half.
constexpr std::string_view kNumber = "0x7e534c5500";
std::string number_of(size_t variable) {
  char digits[6 + 1];
  std::snprintf(digits, sizeof digits, "%06zx", variable);
  return std::string(kNumber) + digits;
}
constexpr std::string_view kLoads = "mov.b64 ";

AddressUses uses_of(const std::vector<std::pair<std::string_view, size_t>>& numbers) {
  AddressUses uses;
  for (const auto& [name, number] : numbers) {
    const std::string place = "%sluice_variable_" + std::to_string(uses.size());
    uses[name] = {place, std::string(kLoads) + place + ", " + number_of(number) + ";"};
  }
  return uses;
}

}  // namespace

Result<SeparableModule> SeparableModule::parse(std::string text) {
  auto parsed = Module::parse_declarations(std::move(text));
  if (!parsed) return std::move(parsed).error();
  SeparableModule m(*std::move(parsed));
  uint32_t address_size = m.module_.address_size();
  if (address_size == 0) {
    const auto whole = Module::parse(m.module_.text());
    if (!whole) return no("it is not understood");
    address_size = whole->address_size();
  }
  if (address_size != 64) return no("addresses of 32 bits");
  if (find_text(m.module_.text(), kNumber) != std::string_view::npos ||
      find_text(m.module_.text(), kAddressArray) != std::string_view::npos)
    return no("what stands for addresses");
  if (auto done = m.check_items(); !done) return std::move(done).error();
  if (auto done = m.check_functions(); !done) return std::move(done).error();
  return m;
}

Result<void> SeparableModule::check_items() {
  for (const ModuleDirective& d : module_.directives())
    if (!is_header(d) && !is_kept(d)) return no("directive " + std::string(d.name));
  for (size_t i = 0; i < module_.variables().size(); ++i) {
    const Variable& v = module_.variables()[i];
    const std::string name(v.name);
    if (has_address(v) && (v.linkage == ".extern" || v.linkage == ".common"))
      return no("variable " + name + " is " + std::string(v.linkage));
    if (!has_address(v) && v.space != Space::kShared)
      return no("variable " + name + " belongs to its module");
    if (v.space == Space::kConst) constants_.insert(v.name);
    if (v.type.ends_with("ref")) return no("reference " + name);
    if (!variables_.emplace(v.name, i).second) return no("variable " + name + " is there twice");
  }
  constexpr std::uint32_t kHasReadOnlyLoads = 32;
  if (!constants_.empty() && module_.sm() < kHasReadOnlyLoads)
    return no("constants of an architecture before sm_32");
  for (size_t i = 0; i < module_.functions().size(); ++i)
    functions_[module_.functions()[i].name].push_back(i);
  const auto begins = [&](std::string_view name) {
    if (!name.empty()) begins_[static_cast<unsigned char>(name[0])] = true;
  };
  for (const std::string_view word : kCutFor) begins(word);
  for (const Function& f : module_.functions()) begins(f.name);
  for (const Variable& v : module_.variables()) begins(v.name);
  return {};
}

SeparableModule::Mentions SeparableModule::mentions_of(const Function& f) const {
  std::set<size_t> functions, variables;
  bool cut = !f.is_entry || !f.not_understood.empty();
  const std::string_view text = module_.text_of({f.name_range.end, f.range.end});
  for_each_word(text, [&](std::string_view word, size_t at) {
    if (!begins_[static_cast<unsigned char>(word[0])]) return;
    if (const auto found = functions_.find(word); found != functions_.end()) {
      functions.insert(found->second.begin(), found->second.end());
      cut = true;
    }
    if (const auto v = variables_.find(word); v != variables_.end()) {
      variables.insert(v->second);
      cut |= has_address(module_.variables()[v->second]);
    }
    // Behind a dot that ends no other word, a space begins a declaration.
    const bool declares = at > 0 && text[at - 1] == '.' && (at == 1 || !in_word(text[at - 2]));
    cut |= word == kCall || word == kConst || (declares && (word == kGlobal || word == kTex));
  });
  return {{functions.begin(), functions.end()}, {variables.begin(), variables.end()}, cut};
}

// That every use of a variable has a form with an address, so that no kernel is found later to
// have none.
Result<void> SeparableModule::check_functions() {
  std::vector<std::pair<std::string_view, size_t>> all;
  for (const Variable& v : module_.variables())
    if (has_address(v)) all.emplace_back(v.name, 0);
  const AddressUses uses = uses_of(all);
  std::string header;
  for (const ModuleDirective& d : module_.directives())
    if (is_header(d)) header.append(module_.text_of(d.range)).append("\n");
  Edits unused;
  for (size_t i = 0; i < module_.functions().size(); ++i) {
    const Function& declared = module_.functions()[i];
    mentions_.push_back(mentions_of(declared));
    if (!declared.has_body || !mentions_.back().cut) continue;
    const std::string name(declared.name);
    auto alone = Module::parse(std::string(header).append(module_.text_of(declared.range)));
    if (!alone || alone->functions().size() != 1) return no("function " + name);
    const Function& f = alone->functions()[0];
    if (!f.not_understood.empty() && !f.is_entry) return no("function " + name);
    if (!replace_addresses(*alone, f, uses, &unused))
      return no("function " + name + " uses a variable in a way that has no other form");
    if (!constants_.empty() && !reads_constants_by_name(f, constants_))
      return no("function " + name + " uses a constant in a way that has no other form");
    for (const Variable& v : f.variables)
      if (v.space == Space::kGlobal || v.space == Space::kConst || v.space == Space::kTex)
        return no("function " + name + " has a variable of its module's");
    for (const Statement& s : f.statements) {
      if (calls_by_address(s)) return no("function " + name + " calls by address");
      // A function's name anywhere but in its call: its address.
      if (s.kind != StatementKind::kInstruction || base_opcode(s.opcode) == "call") continue;
      bool address = false;
      for (const std::string_view operand : s.operands)
        for_each_word(operand, [&](std::string_view word, size_t) {
          address |= begins_[static_cast<unsigned char>(word[0])] && functions_.contains(word);
        });
      if (address) return no("function " + name + " takes a function's address");
    }
    for (const size_t v : mentions_.back().variables)
      if (has_address(module_.variables()[v])) {
        with_names_.emplace(i, *std::move(alone));
        break;
      }
  }
  return {};
}

std::vector<std::string> SeparableModule::entries() const {
  std::vector<std::string> names;
  for (const Function& f : module_.functions())
    if (f.is_entry && f.has_body) names.emplace_back(f.name);
  return names;
}

SeparableModule::Reached SeparableModule::reached_from(std::string_view entry) const {
  std::set<size_t> functions, variables;
  std::vector<size_t> todo;
  const auto add = [&](const std::vector<size_t>& named) {
    for (const size_t i : named)
      if (functions.insert(i).second) todo.push_back(i);
  };
  if (const auto f = functions_.find(entry); f != functions_.end()) add(f->second);
  while (!todo.empty()) {
    const Mentions& m = mentions_[todo.back()];
    todo.pop_back();
    add(m.functions);
    variables.insert(m.variables.begin(), m.variables.end());
  }
  return {{functions.begin(), functions.end()}, {variables.begin(), variables.end()}};
}

std::vector<std::string> SeparableModule::variables_of(const Reached& reached) const {
  std::vector<std::string> names;
  for (const size_t i : reached.variables)
    if (has_address(module_.variables()[i])) names.emplace_back(module_.variables()[i].name);
  return names;
}

Result<std::string> SeparableModule::kernel_text(const Reached& reached,
                                                 const std::vector<std::string>& elsewhere) const {
  if (elsewhere.size() > kMaxAddresses) return no("it reaches too many variables");
  std::unordered_map<std::string_view, size_t> numbers;
  for (const std::string& name : elsewhere) numbers.emplace(name, numbers.size());
  std::vector<std::pair<std::string_view, size_t>> wanted;
  std::string text;
  for (const ModuleDirective& d : module_.directives()) {
    text += module_.text_of(d.range);
    text += '\n';
  }
  std::set<uint32_t> seen;
  for (const size_t i : reached.variables) {
    const Variable& v = module_.variables()[i];
    const auto found = numbers.find(v.name);
    if (v.space == Space::kShared || (found == numbers.end() && is_text(v))) {
      if (!seen.insert(v.range.begin).second) continue;
      text += module_.text_of(v.range);
      text += '\n';
      continue;
    }
    if (found == numbers.end()) return no("no address of " + std::string(v.name));
    wanted.emplace_back(v.name, found->second);
  }
  const AddressUses uses = uses_of(wanted);
  for (const size_t i : reached.functions) {
    const auto found = with_names_.find(i);
    if (found == with_names_.end()) {
      text.append(module_.text_of(module_.functions()[i].range)).append("\n");
      continue;
    }
    const Module& alone = found->second;
    const Function& f = alone.functions()[0];
    Edits edits;
    if (!replace_addresses(alone, f, uses, &edits))
      return no("function " + std::string(f.name) + " uses a variable in a way without a form");
    text += edits.apply(alone.text(), f.range);
    text += '\n';
  }
  return text;
}

Result<std::string> SeparableModule::loadable(const std::string& kernel_text,
                                              size_t addresses) const {
  if (constants_.empty()) return addresses_from_array(kernel_text, addresses);
  return addresses_from_array(constants_from_global(kernel_text), addresses);
}

Result<std::string> addresses_from_array(const std::string& text, size_t count) {
  if (count == 0) return text;
  const std::string declared = std::string("\n.visible .const .align 8 .b64 ") + kAddressArray +
                               "[" + std::to_string(count) + "];\n";
  const size_t header = text.find(".address_size");
  size_t at = header == text.npos ? text.npos : text.find('\n', header);
  if (at == text.npos) return no("no header");
  std::string out = text.substr(0, at) + declared;
  // Each is in a statement of its own: `mov.b64 REGISTER, NUMBER;`.
  for (size_t number; (number = find_text(text, kNumber, at)) != text.npos;) {
    const size_t begin = text.rfind(kLoads, number), end = number + number_of(0).size();
    const size_t comma = text.find(',', begin);
    if (begin == text.npos || begin < at || end >= text.size() || text[end] != ';' ||
        comma >= number || text.find_first_not_of(" \t", comma + 1) != number)
      return no("an address where none was put");
    const size_t variable =
        std::strtoull(text.substr(number + kNumber.size(), end - number).c_str(), nullptr, 16);
    if (variable >= count) return no("an address that is not known");
    out.append(text, at, begin - at).append("ld.const.b64 ");
    out.append(text, begin + kLoads.size(), comma - begin - kLoads.size());
    out.append(", [").append(kAddressArray).append("+");
    out.append(std::to_string(8 * variable)).append("]");
    at = end;
  }
  return out.append(text, at);
}

}  // namespace sluice::ptx
