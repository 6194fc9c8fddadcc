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
  const bool plain = base == "ld" || base == "ldu" || base == "suld" ||
                     (base == "multimem" && has_modifier(s.opcode, "ld_reduce"));
  if (!plain && base != "atom") return false;
  if (block_internal(s)) return false;
  if (plain) {
    // A plain load in a loop with a fence or a sleep is read anew as well.
    return ordered_loop || has_modifier(s.opcode, "volatile") ||
           has_modifier(s.opcode, "relaxed") || has_modifier(s.opcode, "acquire") ||
           has_modifier(s.opcode, "mmio") || has_modifier(s.opcode, "cv");
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
bool surely_advances(const Statement& s, const LowerIndex& values) {
  std::uint64_t step = 0;
  return advances_counter(s) && has_modifier(s.opcode, "add") && s.operands.size() > 2 &&
         values.constant(s.operands[2], step) && step != 0;
}

// An atomic that leaves memory as it is: a load in disguise, which Triton and others use.
bool only_reads(const Statement& s, const LowerIndex& values) {
  if (base_opcode(s.opcode) == "ld") return true;
  if (has_modifier(s.opcode, "cas"))
    return s.operands.size() > 3 && s.operands[2] == s.operands[3];
  std::uint64_t value = 1;
  return (has_modifier(s.opcode, "add") || has_modifier(s.opcode, "or") ||
          has_modifier(s.opcode, "xor")) &&
         s.operands.size() > 2 && values.constant(s.operands[2], value) && value == 0;
}

// Memory through which threads of one block, or functions, hand each other what one of them read.
// An address without a space may be anything.
bool in_handed_memory(const Statement& s) {
  return !has_modifier(s.opcode, "global") && !has_modifier(s.opcode, "const");
}
bool hands_on(const Statement& s) {
  const std::string_view base = base_opcode(s.opcode);
  return (base == "st" || base == "atom" || base == "red") && in_handed_memory(s);
}
bool takes_over(const Statement& s) {
  const std::string_view base = base_opcode(s.opcode);
  return (base == "ld" || base == "atom") && in_handed_memory(s);
}

bool calls(const Statement& s, const std::function<bool(std::string_view)>& what) {
  if (base_opcode(s.opcode) != "call" || !what) return false;
  const std::size_t callee = !s.operands.empty() && s.operands[0].starts_with('(');
  return callee < s.operands.size() && what(s.operands[callee]);
}

// A call counts as a poll where the function, or one that it calls, may poll.
bool calls_what_polls(const Statement& s, const Callees& callees, bool ordered_loop) {
  return calls(s, callees.polls) || (ordered_loop && calls(s, callees.reads));
}

}  // namespace

bool orders_memory(const Statement& s) {
  const std::string_view base = base_opcode(s.opcode);
  return base == "membar" || base == "fence" || base == "nanosleep";
}
bool may_poll(const Statement& s) { return reads_others(s, false); }
bool may_read(const Statement& s) { return reads_others(s, true); }

Waiting find_waiting(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators,
                     const Callees& callees) {
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
      if (statements[i].kind == StatementKind::kInstruction &&
          (orders_memory(statements[i]) || calls(statements[i], callees.orders)))
        ordered[component[b]] = true;

  LowerIndex lower(cfg.function());
  const auto number = [&](const Statement& s) {
    return static_cast<std::uint32_t>(&s - statements.data());
  };
  std::vector<std::uint32_t> sources, counters;
  std::vector<std::vector<std::uint32_t>> polls(blocks.size());  // by component
  std::vector<bool> counting(blocks.size());
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    if (!cfg.reachable(b) || !in_loop(b)) continue;
    for (std::uint32_t i = blocks[b].begin; i < blocks[b].end; ++i) {
      const Statement& s = statements[i];
      if (s.kind != StatementKind::kInstruction) continue;
      if (advances_counter(s) && !only_reads(s, lower)) counting[component[b]] = true;
      // A swap that waits for its block's turn; one that retries has a new value to compare each time.
      const bool turn = base_opcode(s.opcode) == "atom" && has_modifier(s.opcode, "cas") &&
                        !block_internal(s) && s.operands.size() > 3 &&
                        lower.index_from(s.operands[2], [&](const Statement& by) {
                          return component[cfg.block_of(number(by))] != component[b];
                        });
      if (!turn && !reads_others(s, ordered[component[b]]) &&
          !calls_what_polls(s, callees, ordered[component[b]]))
        continue;
      sources.push_back(i);
      polls[component[b]].push_back(i);
    }
  }
  // What depends on `from`, also where it goes through memory of the block on the way: one thread
  // polls, the others read what it found from shared memory. Only within the loop that polls.
  const auto depending = [&](std::vector<std::uint32_t> from) {
    std::vector<bool> polling(blocks.size()), handed(blocks.size());  // by component
    std::vector<std::uint32_t> returning;                             // calls: they return in memory
    for (std::uint32_t i : from) {
      // Not plain loads, which only a fence in the loop makes polls: they are mostly data.
      const bool call = base_opcode(statements[i].opcode) == "call";
      const bool swap = has_modifier(statements[i].opcode, "cas") && !block_internal(statements[i]);
      if (call || swap || reads_others(statements[i], false))
        polling[component[cfg.block_of(i)]] = true;
      if (call) returning.push_back(i);
    }
    auto dependence = ptx::Divergence::depending_on(cfg, post_dominators, from);
    for (bool changed = true; changed && dependence;) {
      changed = false;
      for (std::uint32_t b = 0; b < blocks.size(); ++b) {
        const std::uint32_t c = component[b];
        if (!cfg.reachable(b) || !polling[c] || handed[c]) continue;
        for (std::uint32_t i = blocks[b].begin; i < blocks[b].end && !handed[c]; ++i) {
          const Statement& s = statements[i];
          if (s.kind != StatementKind::kInstruction) continue;
          if (std::find(returning.begin(), returning.end(), i) != returning.end() ||
              (hands_on(s) && (dependence->reads_tainted(i) || dependence->in_divergent_region(b))))
            handed[c] = changed = true;
        }
        if (!handed[c]) continue;
        for (std::uint32_t other = 0; other < blocks.size(); ++other)
          for (std::uint32_t i = blocks[other].begin;
               component[other] == c && i < blocks[other].end; ++i)
            if (statements[i].kind == StatementKind::kInstruction && takes_over(statements[i]))
              from.push_back(i);
      }
      if (changed) dependence = ptx::Divergence::depending_on(cfg, post_dominators, from);
    }
    return dependence;
  };
  // Whether some way out of a loop depends on what `from` wrote; calls `found` with its block.
  const auto for_each_exit = [&](const std::vector<std::uint32_t>& from, const auto& found) {
    if (from.empty()) return;
    const auto dependence = depending(from);
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
    // A loop that draws its own work from a counter ends when there is no more; it waits for no
    // one.
    bool waits = false, for_lower = true;
    for (std::uint32_t i : polled) {
      const Statement& s = statements[i];
      if (surely_advances(s, lower)) continue;
      waits = true;
      for_lower &= base_opcode(s.opcode) != "call" && only_reads(s, lower) &&
                   s.operands.size() > 1 && lower.names_lower(s.operands[1]);
    }
    if (!waits) continue;
    if (for_lower) {
      out.spins = SpinLoops::kLowerTasks;
      continue;
    }
    out.spins = SpinLoops::kUnknown;
    out.why = "has a loop that waits for a value in global memory (line " +
              std::to_string(statements[blocks[b].terminator].line) +
              "), which no block that can run now may ever write";
  }
  return out;
}

}  // namespace sluice::passes
