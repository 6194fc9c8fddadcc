#include "kernels/passes/spin.h"

#include <algorithm>

#include "kernels/passes/lower_index.h"
#include "kernels/ptx/divergence.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;
using ptx::StatementKind;

namespace {

// Reads in one loop that are looked at one by one; with more, each counts as deciding the loop's
// end.
constexpr std::size_t kMostPolls = 16;

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

// A step of a counter in global memory.
bool advances_counter(const Statement& s) {
  if (base_opcode(s.opcode) != "atom" || block_internal(s)) return false;
  return has_modifier(s.opcode, "inc") || has_modifier(s.opcode, "add");
}

// One that always finds a new value, so that a loop over its results comes to an end by itself.
// Adding 0 is a load in disguise, and inc wraps round.
bool surely_advances(const Statement& s) {
  std::uint64_t step = 0;
  return advances_counter(s) && has_modifier(s.opcode, "add") && s.operands.size() > 2 &&
         ptx::parse_integer(s.operands[2], step) && step != 0;
}

bool orders_memory(const Statement& s) {
  const std::string_view base = base_opcode(s.opcode);
  return base == "membar" || base == "fence" || base == "nanosleep";
}

}  // namespace

Waiting find_waiting(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators) {
  Waiting out;
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

  std::vector<std::uint32_t> sources, counters;
  std::vector<std::vector<std::uint32_t>> polls(blocks.size());  // by component
  std::vector<bool> counting(blocks.size());
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    if (!cfg.reachable(b) || !in_loop(b)) continue;
    for (std::uint32_t i = blocks[b].begin; i < blocks[b].end; ++i) {
      const Statement& s = statements[i];
      if (s.kind != StatementKind::kInstruction) continue;
      if (advances_counter(s)) counting[component[b]] = true;
      if (!reads_others(s, ordered[component[b]])) continue;
      sources.push_back(i);
      polls[component[b]].push_back(i);
    }
  }
  // Whether some way out of a loop depends on what `from` wrote; calls `found` with its block.
  const auto for_each_exit = [&](const std::vector<std::uint32_t>& from, const auto& found) {
    if (from.empty()) return;
    const auto dependence = ptx::Divergence::depending_on(cfg, post_dominators, from);
    if (!dependence) {
      out.spins = SpinLoops::kUnknown;
      out.why = dependence.error().message;
      return;
    }
    for (const ptx::DivergentBranch& branch : dependence->branches()) {
      if (!in_loop(branch.block)) continue;
      for (std::uint32_t next : blocks[branch.block].successors)
        if (component[next] != component[branch.block]) {
          found(branch.block);
          break;
        }
    }
  };

  // The kernel's own counter of work, perhaps handed round through shared memory.
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    if (!cfg.reachable(b) || !counting[component[b]]) continue;
    for (std::uint32_t i = blocks[b].begin; i < blocks[b].end; ++i) {
      const Statement& s = statements[i];
      if (s.kind != StatementKind::kInstruction) continue;
      if (advances_counter(s) ||
          (base_opcode(s.opcode) == "ld" && has_modifier(s.opcode, "shared")))
        counters.push_back(i);
    }
  }
  for_each_exit(counters, [&](std::uint32_t b) { out.fetches_work |= counting[component[b]]; });

  LowerIndex lower(cfg.function());
  std::vector<std::uint32_t> exits;
  for_each_exit(sources, [&](std::uint32_t b) {
    if (!polls[component[b]].empty()) exits.push_back(b);
  });
  // Of the values that a loop reads, those that its end depends on.
  const auto only_those_that_matter = [&](std::uint32_t b) {
    std::vector<std::uint32_t> matter;
    for (std::uint32_t i : polls[component[b]]) {
      bool matters = polls[component[b]].size() > kMostPolls;
      if (!matters) {
        const std::vector<std::uint32_t> one{i};
        for_each_exit(one, [&](std::uint32_t at) { matters |= component[at] == component[b]; });
      }
      if (matters) matter.push_back(i);
    }
    return matter;
  };
  for (std::uint32_t b : exits) {
    if (out.spins == SpinLoops::kUnknown) break;
    const auto polled = only_those_that_matter(b);
    const bool all_lower = std::all_of(polled.begin(), polled.end(), [&](std::uint32_t i) {
      const Statement& s = statements[i];
      const bool store_is_possible = base_opcode(s.opcode) != "ld";
      return !store_is_possible && s.operands.size() > 1 && lower.names_lower(s.operands[1]);
    });
    if (all_lower) {
      out.spins = SpinLoops::kLowerTasks;
      continue;
    }
    // A loop that draws its own work from a counter ends when there is no more; it waits for no
    // one.
    if (std::all_of(polled.begin(), polled.end(),
                    [&](std::uint32_t i) { return surely_advances(statements[i]); }))
      continue;
    out.spins = SpinLoops::kUnknown;
    out.why = "has a loop that waits for a value in global memory (line " +
              std::to_string(statements[blocks[b].terminator].line) +
              "), which no block that can run now may ever write";
  }
  return out;
}

}  // namespace sluice::passes
