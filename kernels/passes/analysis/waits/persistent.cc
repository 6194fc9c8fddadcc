// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/waits/persistent.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/ptx/registers.h"

namespace sluice::passes {

using ptx::Statement;
using ptx::StatementKind;

namespace {

constexpr int kMostSteps = 8;               // from a step back to %nctaid
constexpr std::size_t kMostOfCounter = 64;  // searched for a loop's counter

class Steps {
 public:
  explicit Steps(const ptx::Function& f) {
    for (const Statement& s : f.statements)
      if (s.kind == StatementKind::kInstruction && !s.operands.empty())
        definitions_[s.operands[0]].push_back(&s);
  }

  // The register is %nctaid, or a product of several of its dimensions and constants.
  bool is_grid(std::string_view name, int depth = 0) const {
    const auto found = definitions_.find(name);
    if (found == definitions_.end() || found->second.size() != 1 || depth == kMostSteps)
      return false;
    const Statement& s = *found->second[0];
    const std::string_view base = ptx::base_opcode(s.opcode);
    if (!s.guard.empty() || (base != "mov" && base != "cvt" && base != "mul" && base != "shl"))
      return false;
    bool grid = false;
    for (std::size_t k = 1; k < s.operands.size(); ++k) {
      const std::string_view operand = s.operands[k];
      std::uint64_t constant = 0;
      if (ptx::parse_integer(operand, constant)) continue;
      if (!operand.starts_with("%nctaid") && !is_grid(operand, depth + 1)) return false;
      grid = true;
    }
    return grid;
  }
  // The register counts elements, not tiles: it comes of the thread's number, as far as can be
  // seen.
  bool counts_threads(std::string_view name) const {
    std::vector<std::string_view> seen{name};
    for (std::size_t k = 0; k < seen.size(); ++k) {
      const auto found = definitions_.find(seen[k]);
      if (found == definitions_.end()) continue;
      for (const Statement* s : found->second) {
        if (ptx::base_opcode(s->opcode) == "ld") continue;
        for (std::string_view operand : std::span(s->operands).subspan(1)) {
          if (operand.starts_with("%tid") || operand.starts_with("%laneid")) return true;
          if (!operand.starts_with('%') ||
              std::find(seen.begin(), seen.end(), operand) != seen.end())
            continue;
          if (seen.size() == kMostOfCounter) return true;
          seen.push_back(operand);
        }
      }
    }
    return false;
  }
  // `to` is `from` or a copy of it.
  bool copies(std::string_view from, std::string_view to) const {
    if (from == to) return true;
    const auto found = definitions_.find(to);
    if (found == definitions_.end()) return false;
    for (const Statement* s : found->second)
      if (ptx::base_opcode(s->opcode) == "mov" && s->operands.size() == 2 && s->operands[1] == from)
        return true;
    return false;
  }

 private:
  std::unordered_map<std::string_view, std::vector<const Statement*>> definitions_;
};

}  // namespace

bool strides_by_grid(const ptx::Cfg& cfg) {
  const auto& statements = cfg.function().statements;
  const auto& blocks = cfg.blocks();
  std::vector<std::uint32_t> component, members;
  std::vector<const Statement*> additions;  // in loops
  for (std::uint32_t i = 0; i < statements.size(); ++i) {
    const Statement& s = statements[i];
    if (s.kind != StatementKind::kInstruction || ptx::base_opcode(s.opcode) != "add" ||
        s.operands.size() != 3)
      continue;
    if (component.empty()) {
      component = ptx::strong_components(cfg);
      members.assign(blocks.size(), 0);
      for (std::uint32_t c : component) ++members[c];
    }
    const std::uint32_t b = cfg.block_of(i);
    bool loop = members[component[b]] > 1;
    for (std::uint32_t next : blocks[b].successors) loop |= next == b;
    if (loop) additions.push_back(&s);
  }
  if (additions.empty()) return false;
  const Steps steps(cfg.function());
  for (const Statement* s : additions)
    for (std::size_t k : {1, 2})
      if (steps.is_grid(s->operands[k]) && steps.copies(s->operands[0], s->operands[3 - k]) &&
          !steps.counts_threads(s->operands[3 - k]))
        return true;
  return false;
}

}  // namespace sluice::passes
