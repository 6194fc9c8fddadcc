// SPDX-License-Identifier: Apache-2.0
// Rule lane-masks: warp collectives after some lanes of the warp have returned.
//
// A collective waits for the lanes of its mask; the hardware drops lanes that have exited. In the
// clone lanes that have returned are parked at the loop's barrier instead, and would be waited for
// for ever. So each collective's mask loses the lanes that are not on the way to it: lane_sets.h
// says which, by ballots at the branches that separate them.
#include <algorithm>

#include "kernels/passes/analysis/lane_sets.h"
#include "kernels/passes/analysis/synchronisation.h"
#include "kernels/passes/clone/clone.h"

namespace sluice::passes {

namespace {

// Which operand is the mask of lanes; -1: none (matrix instructions need the whole warp, so none of
// it has returned).
int mask_operand(const ptx::Statement& s) {
  const std::string_view base = ptx::base_opcode(s.opcode);
  if (base == "bar") return 0;
  if (base == "shfl" || base == "vote" || base == "match" || base == "redux" || base == "elect")
    return static_cast<int>(s.operands.size()) - 1;
  return -1;
}

bool is_all_lanes(std::string_view mask) {
  return mask == "-1" || mask == "0xffffffff" || mask == "0xFFFFFFFF" || mask == "4294967295";
}

}  // namespace

Finding mask_lanes(Clone& clone) {
  const ptx::Function& f = clone.in.entry;
  const auto cfg = ptx::Cfg::build(f);
  if (!cfg) return {"control-flow", cfg.error().message};
  const auto post_dominators = ptx::PostDominators::build(*cfg);
  if (!post_dominators) return {"control-flow", post_dominators.error().message};
  const auto divergence = ptx::Divergence::analyse(*cfg, *post_dominators);
  if (!divergence) return {"control-flow", divergence.error().message};

  std::vector<std::uint32_t> uses;
  for (std::uint32_t i = 0; i < f.statements.size(); ++i) {
    const ptx::Statement& s = f.statements[i];
    if (s.kind != ptx::StatementKind::kInstruction || !is_collective(s) || mask_operand(s) < 0)
      continue;
    if (!ptx::has_modifier(s.opcode, "sync"))
      return {"collective", "has the warp collective " + std::string(s.opcode) +
                                ", which names no lanes (line " + std::to_string(s.line) + ")"};
    if (divergence->guard_tainted(i)) return clone.in.facts.divergent_collective;
    uses.push_back(i);
  }
  const LaneSets sets = LaneSets::analyse(*cfg, *post_dominators, *divergence, uses,
                                          barrier_follows(*cfg, *post_dominators));
  if (sets.why_not) return sets.why_not;

  clone.needs(Tier::kLaneMasks);
  const auto mask = [&](std::uint32_t context) {
    return context == LaneSets::kAll ? std::string("4294967295")
                                     : clone.name("%~lanes" + std::to_string(context));
  };
  clone.start.line(".reg .b32 \t%~lanes<" + std::to_string(sets.contexts) + ">, %~here, %~others;");
  for (std::uint32_t i : uses) {
    const ptx::Statement& s = f.statements[i];
    const std::uint32_t context = sets.context_of[cfg->block_of(i)];
    if (context == LaneSets::kAll) continue;
    const std::string_view old = s.operands[static_cast<std::size_t>(mask_operand(s))];
    if (is_all_lanes(old)) {
      clone.edits.replace(clone.range_of(old), mask(context));
      continue;
    }
    clone.edits.insert(s.range.begin, clone.name("and.b32 \t%~here, ") + mask(context) + ", " +
                                          std::string(old) + ";\n\t");
    clone.edits.replace(clone.range_of(old), clone.name("%~here"));
  }
  for (const LaneSets::Change& change : sets.changes) {
    const ptx::Block& block = cfg->blocks()[change.block];
    const bool ends_in_transfer = block.terminator != ptx::kNoStatement;
    std::string text;
    const auto line = [&](const std::string& l) { text += clone.name(l) + "\n\t"; };
    if (change.ballot) {
      const ptx::Statement& t = f.statements[block.terminator];
      const std::string taken = (t.guard_negated ? "!" : "") + std::string(t.guard);
      line("vote.sync.ballot.b32 \t%~here, " + taken + ", " + mask(sets.context_of[change.block]) +
           ";");
      line("not.b32 \t%~others, %~here;");
      line("and.b32 \t%~others, %~others, " + mask(sets.context_of[change.block]) + ";");
      for (std::uint32_t c : change.if_taken) {
        const bool both =
            std::count(change.if_not_taken.begin(), change.if_not_taken.end(), c) != 0;
        if (both)
          line("selp.b32 \t" + mask(c) + ", " +
               (t.guard_negated ? "%~others, %~here, " : "%~here, %~others, ") +
               std::string(t.guard) + ";");
        else
          line("mov.b32 \t" + mask(c) + ", %~here;");
      }
      for (std::uint32_t c : change.if_not_taken)
        if (std::count(change.if_taken.begin(), change.if_taken.end(), c) == 0)
          line("mov.b32 \t" + mask(c) + ", %~others;");
    }
    for (std::uint32_t c : change.copies)
      line("mov.b32 \t" + mask(c) + ", " + mask(change.from) + ";");
    // In front of the instruction that moves control, or behind the block's last statement.
    if (ends_in_transfer) {
      clone.edits.insert(f.statements[block.terminator].range.begin, std::move(text));
    } else if (block.end > block.begin) {
      clone.edits.insert(f.statements[block.end - 1].range.end, "\n\t" + text);
    }
  }
  return {};
}

}  // namespace sluice::passes
