// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/address_uses.h"

#include <set>

namespace sluice::ptx {
namespace {

class FunctionUses {
 public:
  FunctionUses(const Module& module, const Function& function, const AddressUses& uses,
               Edits* edits)
      : module_(module), function_(function), uses_(uses), edits_(edits) {}

  bool replace() {
    if (!function_.not_understood.empty()) return !mentioned_in(module_.text_of(function_.range));
    for (const auto* names : {&function_.variables, &function_.params, &function_.returns})
      for (const Variable& v : *names)
        if (uses_.contains(v.name)) return false;
    for (const Statement& s : function_.statements) {
      if (s.kind == StatementKind::kInstruction) {
        if (!replace_in(s)) return false;
      } else if (s.kind != StatementKind::kLabel && mentioned_in(module_.text_of(s.range))) {
        return false;  // an initial value, a table of targets
      }
    }
    for (const std::string_view name : used_)
      edits_->insert(function_.body_range.begin + 1,
                     "\n.reg .b64 " + uses_.at(name).address_register + ";\n");
    return true;
  }

 private:
  uint32_t offset_of(const char* at) const {
    return static_cast<uint32_t>(at - module_.text().data());
  }
  bool mentioned_in(std::string_view text) const {
    bool any = false;
    for_each_word(text, [&](std::string_view word, size_t) { any |= uses_.contains(word); });
    return any;
  }

  bool replace_in(const Statement& s) {
    bool every = true, summed = false;
    std::set<std::string_view> here;
    for (const std::string_view operand : s.operands) {
      for_each_word(operand, [&](std::string_view word, size_t at) {
        const auto use = uses_.find(word);
        if (use == uses_.end()) return;
        every = every && has_form(s, operand, at + word.size(), &summed);
        const uint32_t begin = offset_of(word.data());
        if (every)
          edits_->replace({begin, begin + static_cast<uint32_t>(word.size())},
                          use->second.address_register);
        here.insert(use->first);
      });
    }
    for (const std::string_view name : here) {
      if (every) edits_->insert(s.range.begin, uses_.at(name).load + "\n");
      used_.insert(name);
    }
    return every;
  }

  // A register takes no offset but in an address; `mov` of one becomes a sum, once.
  bool has_form(const Statement& s, std::string_view operand, size_t end, bool* summed) {
    if (operand.starts_with('[') || end == operand.size()) return !*summed;
    const size_t sign = operand.find_first_not_of(" \t\n", end);
    if (*summed || (s.opcode != "mov.u64" && s.opcode != "mov.b64")) return false;
    if (sign == std::string_view::npos || operand[sign] != '+') return false;
    *summed = true;
    const uint32_t opcode = offset_of(s.opcode.data()), plus = offset_of(operand.data() + sign);
    edits_->replace({opcode, opcode + static_cast<uint32_t>(s.opcode.size())}, "add.s64");
    edits_->replace({plus, plus + 1}, ",");
    return true;
  }

  const Module& module_;
  const Function& function_;
  const AddressUses& uses_;
  Edits* edits_;
  std::set<std::string_view> used_;
};

}  // namespace

bool replace_addresses(const Module& module, const Function& function, const AddressUses& uses,
                       Edits* edits) {
  return FunctionUses(module, function, uses, edits).replace();
}

}  // namespace sluice::ptx
