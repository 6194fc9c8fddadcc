// SPDX-License-Identifier: Apache-2.0
// Rule lane-masks: warp collectives after some lanes of the warp have returned.
//
// A collective waits for the lanes of its mask; the hardware drops lanes that have exited. In the
// clone lanes that have returned are parked at the loop's barrier instead, and would be waited for
// for ever. So each collective's mask loses the lanes that are not on the way to it: lane_sets.h
// says which, by ballots at the branches that separate them.
#include <algorithm>

#include "kernels/passes/analysis/sync/lane_sets.h"
#include "kernels/passes/analysis/sync/synchronisation.h"
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

// Writes the masks of lanes, which LaneSets numbers by context.
class MaskWriter {
 public:
  MaskWriter(Clone& clone, const ptx::Cfg& cfg, const LaneSets& sets)
      : clone_(clone), cfg_(cfg), sets_(sets) {}

  void declare() {
    clone_.start.line(".reg .b32 \t%~lanes<" + std::to_string(sets_.contexts) +
                      ">, %~here, %~others;");
  }

  // The collective's mask loses the lanes that are not on the way to it.
  void use(std::uint32_t statement) {
    const ptx::Statement& s = clone_.in.entry.statements[statement];
    const std::uint32_t context = sets_.context_of[cfg_.block_of(statement)];
    if (context == LaneSets::kAll) return;
    const std::string_view old = s.operands[static_cast<std::size_t>(mask_operand(s))];
    if (is_all_lanes(old)) {
      clone_.edits.replace(clone_.range_of(old), mask(context));
      return;
    }
    clone_.edits.insert(s.range.begin, clone_.name("and.b32 \t%~here, ") + mask(context) + ", " +
                                           std::string(old) + ";\n\t");
    clone_.edits.replace(clone_.range_of(old), clone_.name("%~here"));
  }

  // At the end of a block: the masks of the blocks behind it.
  void change(const LaneSets::Change& change) {
    const ptx::Function& f = clone_.in.entry;
    const ptx::Block& block = cfg_.blocks()[change.block];
    std::string text;
    if (change.ballot) text += ballot(change, f.statements[block.terminator]);
    for (std::uint32_t c : change.copies)
      text += line("mov.b32 \t" + mask(c) + ", " + mask(change.from) + ";");
    // In front of the instruction that moves control, or behind the block's last statement.
    if (block.terminator != ptx::kNoStatement) {
      clone_.edits.insert(f.statements[block.terminator].range.begin, std::move(text));
    } else if (block.end > block.begin) {
      clone_.edits.insert(f.statements[block.end - 1].range.end, "\n\t" + text);
    }
  }

 private:
  std::string mask(std::uint32_t context) const {
    return context == LaneSets::kAll ? std::string("4294967295")
                                     : clone_.name("%~lanes" + std::to_string(context));
  }
  std::string line(const std::string& l) const { return clone_.name(l) + "\n\t"; }

  // Which lanes take the branch `t`, and which go on.
  std::string ballot(const LaneSets::Change& change, const ptx::Statement& t) const {
    const auto has = [](const auto& list, std::uint32_t c) {
      return std::count(list.begin(), list.end(), c) != 0;
    };
    const std::string guard(t.guard), here = mask(sets_.context_of[change.block]);
    std::string text = line("vote.sync.ballot.b32 \t%~here, " +
                            (t.guard_negated ? "!" + guard : guard) + ", " + here + ";") +
                       line("not.b32 \t%~others, %~here;") +
                       line("and.b32 \t%~others, %~others, " + here + ";");
    for (std::uint32_t c : change.if_taken) {
      if (has(change.if_not_taken, c))
        text += line("selp.b32 \t" + mask(c) + ", " +
                     (t.guard_negated ? "%~others, %~here, " : "%~here, %~others, ") + guard + ";");
      else
        text += line("mov.b32 \t" + mask(c) + ", %~here;");
    }
    for (std::uint32_t c : change.if_not_taken)
      if (!has(change.if_taken, c)) text += line("mov.b32 \t" + mask(c) + ", %~others;");
    return text;
  }

  Clone& clone_;
  const ptx::Cfg& cfg_;
  const LaneSets& sets_;
};

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
  MaskWriter writer(clone, *cfg, sets);
  writer.declare();
  for (std::uint32_t i : uses) writer.use(i);
  for (const LaneSets::Change& change : sets.changes) writer.change(change);
  return {};
}

}  // namespace sluice::passes
