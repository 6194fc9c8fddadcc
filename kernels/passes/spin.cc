#include "kernels/passes/spin.h"

#include <algorithm>

#include "kernels/ptx/divergence.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;
using ptx::StatementKind;

namespace {

// Memory that only the block itself sees: waiting on it is waiting for one's own threads.
bool block_internal(const Statement& s) {
  return has_modifier(s.opcode, "shared") || has_modifier(s.opcode, "cta") ||
         s.opcode.find("shared::cta") != s.opcode.npos || has_modifier(s.opcode, "local") ||
         has_modifier(s.opcode, "param") || has_modifier(s.opcode, "const");
}

bool reads_others(const Statement& s, bool ordered_loop) {
  const std::string_view base = base_opcode(s.opcode);
  if (base != "ld" && base != "atom") return false;
  if (block_internal(s)) return false;
  if (base == "ld") {
    // A plain load in a loop with a fence or a sleep is read anew as well.
    return ordered_loop || has_modifier(s.opcode, "volatile") ||
           has_modifier(s.opcode, "relaxed") || has_modifier(s.opcode, "acquire") ||
           has_modifier(s.opcode, "mmio");
  }
  if (has_modifier(s.opcode, "exch")) return false;
  if (!has_modifier(s.opcode, "cas")) return true;
  // Compare-and-swap of a value with itself is a load in disguise.
  return s.operands.size() < 4 || s.operands[2] == s.operands[3];
}

bool orders_memory(const Statement& s) {
  const std::string_view base = base_opcode(s.opcode);
  return base == "membar" || base == "fence" || base == "nanosleep";
}

}  // namespace

std::string find_spin_loop(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators) {
  const auto& blocks = cfg.blocks();
  const auto& statements = cfg.function().statements;
  const std::vector<std::uint32_t> component = ptx::strong_components(cfg);
  std::vector<std::uint32_t> members(blocks.size());
  for (std::uint32_t c : component) ++members[c];
  std::vector<bool> ordered(blocks.size());  // by component
  const auto in_loop = [&](std::uint32_t b) {
    if (members[component[b]] > 1) return true;
    const auto& next = blocks[b].successors;
    return std::find(next.begin(), next.end(), b) != next.end();
  };
  for (std::uint32_t b = 0; b < blocks.size(); ++b)
    for (std::uint32_t i = blocks[b].begin; i < blocks[b].end; ++i)
      if (statements[i].kind == StatementKind::kInstruction && orders_memory(statements[i]))
        ordered[component[b]] = true;

  std::vector<std::uint32_t> sources;
  std::vector<bool> waiting(blocks.size());  // components with a source
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    if (!cfg.reachable(b) || !in_loop(b)) continue;
    for (std::uint32_t i = blocks[b].begin; i < blocks[b].end; ++i) {
      if (statements[i].kind != StatementKind::kInstruction ||
          !reads_others(statements[i], ordered[component[b]]))
        continue;
      sources.push_back(i);
      waiting[component[b]] = true;
    }
  }
  if (sources.empty()) return {};
  const auto dependence = ptx::Divergence::depending_on(cfg, post_dominators, sources);
  if (!dependence) return dependence.error().message;
  for (const ptx::DivergentBranch& branch : dependence->branches()) {
    const std::uint32_t b = branch.block;
    if (!in_loop(b) || !waiting[component[b]]) continue;
    for (std::uint32_t next : blocks[b].successors) {
      if (component[next] == component[b]) continue;
      return "has a loop that waits for a value in global memory (line " +
             std::to_string(statements[blocks[b].terminator].line) + ")";
    }
  }
  return {};
}

}  // namespace sluice::passes
