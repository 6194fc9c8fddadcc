// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/shared_addresses.h"

#include <optional>
#include <unordered_set>
#include <vector>

#include "kernels/ptx/registers.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::Effect;
using ptx::RegisterTable;
using ptx::Statement;
using ptx::StatementKind;

namespace {

// Registers with an address that is counted from a shared variable.
class Counted {
 public:
  Counted(const ptx::Function& function, const std::function<bool(std::string_view)>& shared)
      : function_(function), shared_(shared), table_(function) {
    for (const ptx::Variable& v : function.variables)
      (v.space == ptx::Space::kShared ? own_ : hidden_).insert(v.name);
    for (const Statement& s : function.statements)
      if (passes_on(s)) add(s);
    while (!work_.empty()) {
      const std::uint32_t from = work_.back();
      work_.pop_back();
      for (const std::uint32_t to : flows_[from]) mark(to);
    }
  }

  // Whether the operand of the statement names such a register, or a variable.
  bool operator()(std::string_view operand, const Statement& in) {
    bool counted = false;
    for_each_name(
        operand, in, [&](std::uint32_t r) { counted |= r < marked_.size() && marked_[r]; },
        [&] { counted = true; });
    return counted;
  }

 private:
  // Its result is an address if one of its operands is.
  static bool passes_on(const Statement& s) {
    if (s.kind != StatementKind::kInstruction || s.operands.size() < 2) return false;
    const std::string_view base = base_opcode(s.opcode);
    return (ptx::effect_of(s) == Effect::kPure && base != "setp") || base == "shfl";
  }

  void add(const Statement& s) {
    for_each_name(
        s.operands[0], s,
        [&](std::uint32_t to) {
          for (std::size_t k = 1; k < s.operands.size(); ++k)
            for_each_name(
                s.operands[k], s,
                [&](std::uint32_t from) {
                  if (flows_.size() <= from) flows_.resize(from + 1);
                  flows_[from].push_back(to);
                  if (from < marked_.size() && marked_[from]) mark(to);
                },
                [&] { mark(to); });
        },
        [] {});
  }

  void mark(std::uint32_t r) {
    if (marked_.size() <= r) marked_.resize(r + 1);
    if (flows_.size() <= r) flows_.resize(r + 1);
    if (marked_[r]) return;
    marked_[r] = true;
    work_.push_back(r);
  }

  template <typename Register, typename Shared>
  void for_each_name(std::string_view operand, const Statement& in, const Register& of_register,
                     const Shared& of_shared) {
    std::size_t at = 0;
    for (std::string_view name = ptx::next_identifier(operand, at); !name.empty();
         name = ptx::next_identifier(operand, at)) {
      const std::uint32_t r = table_.number(name, in);
      if (r != RegisterTable::kNone)
        of_register(r);
      else if (own_.count(name) != 0 || (hidden_.count(name) == 0 && shared_(name)))
        of_shared();
    }
  }

  const ptx::Function& function_;
  const std::function<bool(std::string_view)>& shared_;
  RegisterTable table_;
  std::unordered_set<std::string_view> own_, hidden_;  // variables of the body, by their space
  std::vector<std::vector<std::uint32_t>> flows_;      // by register: whose value is made from it
  std::vector<bool> marked_;
  std::vector<std::uint32_t> work_;
};

bool names_shared(const Statement& s) {
  return s.kind == StatementKind::kInstruction && s.opcode.find(".shared") != s.opcode.npos;
}

// Copies between the spaces name both, first that which is written: the address in global memory.
std::size_t global_address(const Statement& s) {
  const std::size_t global = s.opcode.find(".global");
  if (base_opcode(s.opcode) != "cp" || global == s.opcode.npos) return s.operands.size();
  return global < s.opcode.find(".shared") ? 0 : 1;
}

}  // namespace

bool uses_given_shared_addresses(const ptx::Function& function,
                                 const std::function<bool(std::string_view)>& shared) {
  std::optional<Counted> counted;
  for (const Statement& s : function.statements) {
    if (!names_shared(s)) continue;
    if (!counted) counted.emplace(function, shared);
    const bool cvta = base_opcode(s.opcode) == "cvta";  // the only one without brackets
    for (std::size_t k = cvta ? 1 : 0; k < s.operands.size(); ++k)
      if ((cvta || s.operands[k].starts_with('[')) && k != global_address(s) &&
          !(*counted)(s.operands[k], s))
        return true;
  }
  return false;
}

}  // namespace sluice::passes
