// SPDX-License-Identifier: Apache-2.0
// Swaps: loops that wait for a turn or for a count, which lower blocks bring about.
#include <algorithm>
#include <unordered_set>

#include "kernels/passes/analysis/waits/swaps.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;
using ptx::StatementKind;

bool Swaps::compares_with_turn(const Statement& s, std::size_t operand,
                               const std::vector<const Statement*>& loop, const IsIndex& is_index,
                               Sum& own) const {
  if (base_opcode(s.opcode) != "setp" ||
      (!has_modifier(s.opcode, "eq") && !has_modifier(s.opcode, "ne")))
    return false;
  const std::string_view other = s.operands[operand];
  auto by = definitions().find(number(s, other));
  // Not optimised: copied out of its variable each turn.
  for (int i = 0; i < kDeepest && by != definitions().end() && by->second.size() == 1 &&
                  base_opcode(by->second[0]->opcode) == "mov" &&
                  definitions().count(number(*by->second[0], by->second[0]->operands[1])) != 0;
       ++i)
    by = definitions().find(number(*by->second[0], by->second[0]->operands[1]));
  if (by == definitions().end() || !is_index(other, s)) return false;
  for (const Statement* d : by->second)
    if (std::find(loop.begin(), loop.end(), d) != loop.end()) return false;
  own = sums_.of(other, s);
  return true;
}

bool Swaps::waits_for_turn(std::uint32_t load, const std::vector<std::uint32_t>& blocks,
                           const IsIndex& is_index) const {
  const auto& statements = cfg_.function().statements;
  const Statement& read = statements[load];
  if (base_opcode(read.opcode) != "ld" || read.operands.size() != 2 || !is_short(blocks))
    return false;
  const std::vector<const Statement*> loop = ptx::instructions_of(cfg_, blocks);
  std::unordered_set<std::uint32_t> copies{number(read, read.operands[0])};
  const auto is_copy = [&](const Statement& s, std::size_t k) {
    return copies.count(number(s, s.operands[k])) != 0;
  };
  bool asked = false;
  Sum own;
  for (std::size_t before = 0; before != copies.size();) {
    before = copies.size();
    for (const Statement* s : loop) {
      const std::string_view base = base_opcode(s->opcode);
      if (base == "call") return false;
      if (base == "mov" && s->operands.size() == 2 && is_copy(*s, 1)) {
        copies.insert(number(*s, s->operands[0]));
        continue;
      }
      std::size_t uses = 0;
      for (std::size_t k = ptx::effect_of(*s) == ptx::Effect::kNone ? 0 : 1; k < s->operands.size();
           ++k)
        ptx::for_each_register(registers_, s->operands[k], *s,
                               [&](std::uint32_t r) { uses += copies.count(r); });
      if (uses == 0) continue;
      if (uses != 1 || s->operands.size() != 3 ||
          !compares_with_turn(*s, is_copy(*s, 1) ? 2 : 1, loop, is_index, own))
        return false;
      asked = true;
    }
  }
  return asked && follows(load, [&](std::uint32_t i) {
           const Statement& s = statements[i];
           if (s.kind != StatementKind::kInstruction) return false;
           const std::string_view base = base_opcode(s.opcode);
           const std::size_t address = address_operand(s);
           return (base == "st" || base == "red" || base == "atom") &&
                  s.operands.size() > address + 1 &&
                  compare(read, read.operands[1], s, s.operands[address]) == Places::kSame &&
                  passes_on(s, read, own);
         });
}

bool Swaps::uses_any(const Statement& s, const std::unordered_set<std::uint32_t>& registers) const {
  bool found = registers.count(number(s, s.guard)) != 0;
  for (std::size_t k = ptx::effect_of(s) != ptx::Effect::kNone; k < s.operands.size(); ++k)
    ptx::for_each_register(registers_, s.operands[k], s,
                           [&](std::uint32_t r) { found |= registers.count(r) != 0; });
  return found;
}

Swaps::Asked Swaps::asked_of_count(const Statement& setp, bool on_the_left,
                                   const Sum& count) const {
  const auto is = [&](std::string_view one, std::string_view other) {
    return has_modifier(setp.opcode, on_the_left ? other : one);
  };
  const bool below = is("lt", "gt") || is("le", "ge"), above = is("ge", "le") || is("gt", "lt");
  const Sum number_sum = sums_.of(setp.operands[on_the_left ? 2 : 1], setp),
            count_sum = sums_.of(setp.operands[on_the_left ? 1 : 2], setp);
  const Sum rest = Sums::difference(Sums::difference(count_sum, number_sum), count);
  const auto index = rest.parts.find("%ctaid.x");
  if (below == above || rest.parts.size() != 1 || index == rest.parts.end() || index->second != -1)
    return {};
  const std::int64_t ahead = rest.constant + (is("le", "ge") || is("gt", "lt"));
  return {.ahead = std::max<std::int64_t>(ahead, 0), .whether_enough = below};
}

bool Swaps::ends_by(const std::vector<std::uint32_t>& blocks,
                    const std::unordered_set<std::uint32_t>& enough,
                    const std::unordered_set<std::uint32_t>& too_few) const {
  const std::unordered_set<std::uint32_t> inside(blocks.begin(), blocks.end());
  bool ends = false;
  for (std::uint32_t b : blocks) {
    const ptx::Block& block = cfg_.blocks()[b];
    if (block.terminator == ptx::kNoStatement) continue;
    const Statement& s = cfg_.function().statements[block.terminator];
    const std::uint32_t guard = s.guard.empty() ? ptx::RegisterTable::kNone : number(s, s.guard);
    if (enough.count(guard) == too_few.count(guard)) continue;
    if (base_opcode(s.opcode) != "bra" || block.successors.size() != 2) return false;
    const bool jumps = (enough.count(guard) != 0) != s.guard_negated;
    for (std::uint32_t next : block.successors)
      if ((next == b + 1) != jumps) {
        if (inside.count(next) != 0) return false;
        ends = true;
      }
  }
  return ends;
}

std::int64_t Swaps::most_ahead(std::uint32_t load, const std::vector<std::uint32_t>& blocks) const {
  const Statement& read = cfg_.function().statements[load];
  const Sum count = sums_.of(read.operands[0], read);
  const std::vector<const Statement*> loop = ptx::instructions_of(cfg_, blocks);
  std::unordered_set<std::uint32_t> made{number(read, read.operands[0])}, enough, too_few;
  std::int64_t ahead = 0;
  for (std::size_t before = 0; before != made.size();) {
    before = made.size();
    for (const Statement* s : loop) {
      const std::string_view base = base_opcode(s->opcode);
      if (!uses_any(*s, made) || (base == "st" && in_own_memory(*s))) continue;
      if (!s->guard.empty()) return 0;
      if (base == "mov" || base == "add" || base == "cvt") {
        made.insert(number(*s, s->operands[0]));
        continue;
      }
      if (base != "setp" || s->operands.size() != 3) return 0;
      const Asked asked = asked_of_count(*s, made.count(number(*s, s->operands[2])) == 0, count);
      if (asked.ahead == 0 || (ahead != 0 && asked.ahead != ahead)) return 0;
      ahead = asked.ahead;
      (asked.whether_enough ? enough : too_few).insert(number(*s, s->operands[0]));
    }
  }
  return ends_by(blocks, enough, too_few) ? ahead : 0;
}

bool Swaps::waits_for_count(std::uint32_t load, const std::vector<std::uint32_t>& blocks) const {
  const auto& statements = cfg_.function().statements;
  const Statement& read = statements[load];
  const bool atom = base_opcode(read.opcode) == "atom";
  if ((!atom && (base_opcode(read.opcode) != "ld" || read.operands.size() != 2)) ||
      !is_short(blocks))
    return false;
  const std::int64_t ahead = most_ahead(load, blocks);
  if (ahead == 0) return false;
  const auto adds = [&](const Statement& s, std::string_view how, std::int64_t value) {
    const std::size_t address = address_operand(s);
    if (!has_modifier(s.opcode, how) || s.operands.size() < address + 2) return false;
    const Sum step = sums_.of(s.operands[address + 1], s);
    return step.is_constant() && step.constant == value;
  };
  // What else may change the count: that many more, or back to the beginning.
  bool advances = false;
  for (const Statement& s : statements) {
    const std::string_view base = base_opcode(s.opcode);
    if (s.kind != StatementKind::kInstruction || &s == &read) continue;
    if (base == "call") return false;
    if ((base != "st" && base != "red" && base != "atom") || in_own_memory(s)) continue;
    const std::size_t address = address_operand(s);
    if (s.operands.size() < address + 2 ||
        compare(read, read.operands[1], s, s.operands[address]) != Places::kSame)
      continue;
    const Sum value = sums_.of(s.operands[address + 1], s);
    if (base == "st" && value.is_constant() && value.constant == 0) continue;
    if (base == "st" || !adds(s, "add", ahead)) return false;
    advances = true;
  }
  const auto arrives = [&](std::uint32_t i) {
    const Statement& s = statements[i];
    const std::string_view base = base_opcode(s.opcode);
    if (s.kind != StatementKind::kInstruction || (base != "atom" && base != "red") ||
        in_own_memory(s) || s.operands.size() < address_operand(s) + 2)
      return false;
    const bool counts =
        compare(read, read.operands[1], s, s.operands[address_operand(s)]) == Places::kSame;
    return ahead == 1 ? counts && adds(s, "add", 1) : !counts && adds(s, "inc", ahead - 1);
  };
  return advances && follows(load, arrives) && !may_keep(load, arrives);
}

bool Swaps::passes_on(const Statement& write, const Statement& read, const Sum& own) const {
  const std::string_view base = base_opcode(write.opcode);
  const std::size_t value = base == "atom" ? 2 : 1;
  if (base == "st" || has_modifier(write.opcode, "exch"))
    return is_higher(write, write.operands[value], read, own, 0);
  if (has_modifier(write.opcode, "inc")) return true;
  const Sum step = sums_.of(write.operands[value], write);
  return has_modifier(write.opcode, "add") && step.is_constant() &&
         static_cast<std::int32_t>(step.constant) > 0;
}

bool Swaps::is_higher(const Statement& s, std::string_view value, const Statement& read,
                      const Sum& own, int depth) const {
  const Sum sum = sums_.of(value, s);
  for (const Sum& from : {own, sums_.of(read.operands[0], read)}) {
    const Sum step = Sums::difference(sum, from);
    if (step.is_constant() && step.constant > 0) return true;
  }
  // The last one's turn goes round to the first: a constant, or the remainder.
  const auto by = definitions().find(number(s, value));
  if (by == definitions().end() || by->second.size() != 1 || depth > kDeepest) return false;
  const Statement& d = *by->second[0];
  const std::string_view base = base_opcode(d.opcode);
  const auto higher = [&](std::size_t k) {
    return is_higher(d, d.operands[k], read, own, depth + 1);
  };
  const auto constant = [&](std::size_t k) { return sums_.of(d.operands[k], d).is_constant(); };
  if (base == "selp" && d.operands.size() == 4)
    return (higher(1) && (constant(2) || higher(2))) || (constant(1) && higher(2));
  return (base == "rem" || base == "and") && d.operands.size() == 3 && higher(1);
}

}  // namespace sluice::passes
