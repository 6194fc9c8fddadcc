// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/sync/barrier_numbers.h"

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/ptx/registers.h"

namespace sluice::passes {

namespace {

using ptx::Effect;
using ptx::RegisterTable;
using ptx::Statement;
using ptx::StatementKind;

bool is_barrier(const Statement& s) {
  const std::string_view base = ptx::base_opcode(s.opcode);
  return s.kind == StatementKind::kInstruction && (base == "bar" || base == "barrier") &&
         !ptx::has_modifier(s.opcode, "warp") && !ptx::has_modifier(s.opcode, "cluster");
}

class Constants {
 public:
  explicit Constants(const ptx::Function& f) : table_(f) {
    for (const Statement& s : f.statements) {
      if (s.kind != StatementKind::kInstruction) continue;
      const Effect effect = ptx::effect_of(s);
      if (effect == Effect::kNone || s.operands.empty()) continue;
      // What is not known may write any register that it names.
      const std::size_t written = effect == Effect::kUnknown ? s.operands.size() : 1;
      for (std::size_t k = 0; k < written; ++k) write(s, s.operands[k]);
    }
  }

  // The number that the operand is, as text; empty: not known.
  std::string value(std::string_view operand, const Statement& in) {
    constexpr int kMostMoves = 16;
    std::string_view text = operand;
    const Statement* at = &in;
    for (int moves = 0; moves < kMostMoves; ++moves) {
      std::uint64_t number = 0;
      if (ptx::parse_integer(text, number)) return std::to_string(number);
      const auto it = writes_.find(table_.number(text, *at));
      if (it == writes_.end() || it->second.times != 1 || !is_move(*it->second.by)) return {};
      at = it->second.by;
      text = at->operands[1];
    }
    return {};
  }

 private:
  struct Writes {
    int times = 0;
    const Statement* by = nullptr;
  };
  static bool is_move(const Statement& s) {
    return (s.opcode == "mov.u32" || s.opcode == "mov.s32" || s.opcode == "mov.b32") &&
           s.guard.empty() && s.operands.size() == 2;
  }
  void write(const Statement& s, std::string_view operand) {
    std::size_t at = 0;
    for (std::string_view name = ptx::next_identifier(operand, at); !name.empty();
         name = ptx::next_identifier(operand, at)) {
      const std::uint32_t number = table_.number(name, s);
      if (number == RegisterTable::kNone) continue;
      Writes& w = writes_[number];
      ++w.times;
      w.by = &s;
    }
  }

  RegisterTable table_;
  std::unordered_map<std::uint32_t, Writes> writes_;
};

}  // namespace

void write_barrier_numbers(const ptx::Module& module, const ptx::Function& f, ptx::Edits& edits) {
  std::optional<Constants> constants;
  for (const Statement& s : f.statements) {
    if (!is_barrier(s)) continue;
    const std::size_t k = ptx::has_modifier(s.opcode, "red") ? 1 : 0;
    if (k >= s.operands.size() || !s.operands[k].starts_with('%')) continue;
    if (!constants) constants.emplace(f);
    std::string number = constants->value(s.operands[k], s);
    if (number.empty()) continue;
    const auto begin = static_cast<std::uint32_t>(s.operands[k].data() - module.text().data());
    edits.replace({begin, begin + static_cast<std::uint32_t>(s.operands[k].size())},
                  std::move(number));
  }
}

}  // namespace sluice::passes
