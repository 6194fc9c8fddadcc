// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/waits/swaps.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "kernels/passes/analysis/waits/standstill.h"
#include "kernels/ptx/dominators.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;
using ptx::StatementKind;

namespace {

constexpr std::size_t kMostCopies = 32;  // of one result
// Instructions of a loop that is gone through again for each of its loads.
constexpr std::size_t kLongestLoop = 1000;

bool any_is(std::uint32_t begin, std::uint32_t end,
            const std::function<bool(std::uint32_t)>& what) {
  for (std::uint32_t i = begin; i < end; ++i)
    if (what(i)) return true;
  return false;
}

}  // namespace

Swaps::Swaps(const ptx::Cfg& cfg, ptx::RegisterTable& registers, Sums& sums)
    : cfg_(cfg), registers_(registers), sums_(sums) {
  std::vector<std::uint32_t> work;
  for (const Statement& s : cfg.function().statements)
    if (s.kind == StatementKind::kInstruction && base_opcode(s.opcode) == "atom" &&
        has_modifier(s.opcode, "cas") && s.operands.size() == 4)
      work.push_back(number(s, s.operands[2]));
  while (!work.empty()) {
    const std::uint32_t r = work.back();
    work.pop_back();
    const auto by = definitions().find(r);
    if (!compared_.insert(r).second || by == definitions().end()) continue;
    for (const Statement* s : by->second)
      if (base_opcode(s->opcode) == "mov" && s->operands.size() == 2)
        work.push_back(number(*s, s->operands[1]));
  }
}

void Swaps::find_uses() const {
  if (std::exchange(knows_uses_, true)) return;
  for (const Statement& s : cfg_.function().statements) {
    if (s.kind != StatementKind::kInstruction || s.operands.empty()) continue;
    const std::size_t results = ptx::effect_of(s) != ptx::Effect::kNone;
    for (std::size_t k = results; k < s.operands.size(); ++k)
      ptx::for_each_register(registers_, s.operands[k], s,
                             [&](std::uint32_t r) { known_uses_[r].push_back(&s); });
    if (results == 0) continue;
    ptx::for_each_register(registers_, s.operands[0], s,
                           [&](std::uint32_t r) { known_definitions_[r].push_back(&s); });
  }
}

bool Swaps::in_own_memory(const Statement& s) {
  return has_modifier(s.opcode, "shared") || s.opcode.find("shared::cta") != s.opcode.npos ||
         has_modifier(s.opcode, "local") || has_modifier(s.opcode, "param");
}

std::size_t Swaps::address_operand(const Statement& s) {
  return base_opcode(s.opcode) == "atom" ? 1 : 0;
}

bool Swaps::may_be_compared(std::uint32_t load) const {
  const Statement& read = cfg_.function().statements[load];
  return !read.operands.empty() && compared_.count(number(read, read.operands[0])) != 0;
}

bool Swaps::only_put(std::uint32_t load, const std::vector<std::uint32_t>& blocks) const {
  const Statement& read = cfg_.function().statements[load];
  if (base_opcode(read.opcode) != "ld" || read.operands.size() != 2 || !is_short(blocks))
    return false;
  const std::vector<const Statement*> loop = ptx::instructions_of(cfg_, blocks);
  std::unordered_set<std::uint32_t> made{number(read, read.operands[0])};
  bool put = false;
  for (std::size_t before = 0; before != made.size();) {
    before = made.size();
    for (const Statement* s : loop) {
      const std::string_view base = base_opcode(s->opcode);
      const bool cas = base == "atom" && has_modifier(s->opcode, "cas"),
                 exchange = base == "atom" && has_modifier(s->opcode, "exch");
      const std::size_t value = cas ? 3 : exchange ? 2 : 0;
      bool uses = made.count(number(*s, s->guard)) != 0, puts = false;
      for (std::size_t k = ptx::effect_of(*s) != ptx::Effect::kNone; k < s->operands.size(); ++k)
        ptx::for_each_register(registers_, s->operands[k], *s, [&](std::uint32_t r) {
          if (made.count(r) == 0) return;
          (value != 0 && k == value && !in_own_memory(*s) ? puts : uses) = true;
        });
      put |= puts;
      if (!uses) continue;
      if (ptx::effect_of(*s) != ptx::Effect::kPure || !s->guard.empty()) return false;
      ptx::for_each_register(registers_, s->operands[0], *s,
                             [&](std::uint32_t r) { made.insert(r); });
    }
  }
  return put;
}

bool Swaps::is_short(const std::vector<std::uint32_t>& blocks) const {
  std::size_t length = 0;
  for (const std::uint32_t b : blocks) length += cfg_.blocks()[b].end - cfg_.blocks()[b].begin;
  return length <= kLongestLoop;
}

Places Swaps::compare(const Statement& a, std::string_view address_of_a, const Statement& b,
                      std::string_view address_of_b) const {
  return Sums::compare(sums_.of(address_of_a, a), sums_.of(address_of_b, b));
}

bool Swaps::changed_beside(std::uint32_t atom, const std::vector<std::uint32_t>& blocks) const {
  const Statement& counter = cfg_.function().statements[atom];
  for (const Statement* s : ptx::instructions_of(cfg_, blocks)) {
    if (left_ == 0) return true;
    --left_;
    const std::string_view base = base_opcode(s->opcode);
    if (s == &counter || (base != "atom" && base != "red" && base != "st") || in_own_memory(*s) ||
        s->operands.size() <= address_operand(*s) || counter.operands.size() < 2)
      continue;
    if ((base == "atom" || base == "red") && has_modifier(s->opcode, "add") &&
        s->operands.size() > address_operand(*s) + 1) {  // one more step of the same counter
      if (sums_.of(s->operands[address_operand(*s) + 1], *s).is_positive()) continue;
    }
    if (compare(counter, counter.operands[1], *s, s->operands[address_operand(*s)]) ==
        Places::kSame)
      return true;
  }
  return false;
}

bool Swaps::takes_token(std::uint32_t atom, const std::vector<std::uint32_t>& blocks) const {
  const auto& statements = cfg_.function().statements;
  const Statement& s = statements[atom];
  const bool compares = has_modifier(s.opcode, "cas");
  if ((!compares && !has_modifier(s.opcode, "exch")) || s.operands.size() < 3) return false;
  // What it waits for is what it compares with; whatever it leaves there instead.
  if (!same_but_for_others(cfg_, registers_, blocks, atom, s.operands[1]) ||
      (compares && !same_every_turn(cfg_, registers_, blocks, atom, s.operands[2])))
    return false;
  const auto puts_back = [&](std::uint32_t i) {
    if (left_ == 0) return true;
    --left_;
    const Statement& other = statements[i];
    if (other.kind != StatementKind::kInstruction) return false;
    const std::string_view base = base_opcode(other.opcode);
    if (base == "call" || ptx::effect_of(other) == ptx::Effect::kUnknown) return true;
    if (i == atom || in_own_memory(other)) return false;
    if (base != "atom" && base != "st" && base != "red" && base != "multimem") return false;
    // Who asks what was there has something to wait for himself.
    if ((has_modifier(other.opcode, "cas") || has_modifier(other.opcode, "exch")) &&
        looks_at(other))
      return false;
    const std::size_t address = address_operand(other);
    return other.operands.size() <= address ||
           compare(s, s.operands[1], other, other.operands[address]) != Places::kOther;
  };
  return !follows(atom, puts_back) || may_keep(atom, puts_back);
}

std::unordered_set<std::uint32_t> Swaps::decided_by_others(std::uint32_t atom) const {
  std::unordered_set<std::uint32_t> found;
  std::vector<std::uint32_t> work;
  const auto add_results = [&](const Statement& s) {
    if (ptx::effect_of(s) == ptx::Effect::kNone || s.operands.empty()) return;
    ptx::for_each_register(registers_, s.operands[0], s, [&](std::uint32_t r) {
      if (found.insert(r).second) work.push_back(r);
    });
  };
  const auto& statements = cfg_.function().statements;
  for (std::uint32_t i = 0; i < statements.size(); ++i) {
    const Statement& s = statements[i];
    if (s.kind != StatementKind::kInstruction || i == atom) continue;
    const std::string_view base = base_opcode(s.opcode);
    const bool reads = (base == "ld" || base == "ldu" || base == "atom" || base == "suld" ||
                        base == "tex" || base == "tld4") &&
                       !block_internal(s);
    const bool number = s.operands.size() == 2 && (s.operands[1].find("%ctaid") == 0 ||
                                                   s.operands[1].find("%clusterid") == 0);
    if (reads || number) add_results(s);
  }
  while (!work.empty()) {
    const auto by = uses().find(work.back());
    work.pop_back();
    if (by == uses().end()) continue;
    for (const Statement* s : by->second)
      if (s != &statements[atom]) add_results(*s);
  }
  return found;
}

Swaps::Ways Swaps::ways_to(const std::function<bool(std::uint32_t)>& what) const {
  const std::vector<ptx::Block>& blocks = cfg_.blocks();
  Ways ways{std::vector<bool>(blocks.size()), std::vector<bool>(blocks.size())};
  std::vector<std::uint32_t> work;
  for (std::uint32_t b = 0; b < blocks.size(); ++b)
    if (cfg_.reachable(b) && any_is(blocks[b].begin, blocks[b].end, what)) {
      ways.has[b] = ways.leads[b] = true;
      work.push_back(b);
    }
  while (!work.empty()) {
    const std::uint32_t b = work.back();
    work.pop_back();
    for (std::uint32_t before : blocks[b].predecessors)
      if (!ways.leads[before]) ways.leads[before] = true, work.push_back(before);
  }
  return ways;
}

void Swaps::leave_out_asked_before(std::uint32_t atom,
                                   std::unordered_set<std::uint32_t>& registers) const {
  const auto dominators = ptx::Dominators::build(cfg_);
  if (!dominators) return;
  const std::vector<ptx::Block>& blocks = cfg_.blocks();
  const std::uint32_t home = cfg_.block_of(atom);
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    if (b == home || blocks[b].terminator == ptx::kNoStatement || !cfg_.reachable(b)) continue;
    const Statement& s = cfg_.function().statements[blocks[b].terminator];
    if (s.guard.empty() || !dominators->dominates(b, home)) continue;
    const auto by = definitions().find(number(s, s.guard));
    if (by != definitions().end() && by->second.size() == 1) registers.erase(by->first);
  }
}

bool Swaps::branches_by(const ptx::Block& block,
                        const std::unordered_set<std::uint32_t>& registers) const {
  if (block.terminator == ptx::kNoStatement) return false;
  const Statement& s = cfg_.function().statements[block.terminator];
  if (!s.guard.empty() && registers.count(number(s, s.guard)) != 0) return true;
  return base_opcode(s.opcode) == "brx" && !s.operands.empty() &&
         registers.count(number(s, s.operands[0])) != 0;
}

bool Swaps::may_keep(std::uint32_t atom, const std::function<bool(std::uint32_t)>& what) const {
  const std::vector<ptx::Block>& blocks = cfg_.blocks();
  const std::uint32_t home = cfg_.block_of(atom);
  if (any_is(atom + 1, blocks[home].end, what)) return false;
  left_ -= std::min<std::uint64_t>(left_, cfg_.function().statements.size());
  const Ways back = ways_to(what);
  auto others = decided_by_others(atom);
  leave_out_asked_before(atom, others);
  std::vector<bool> seen(blocks.size());
  std::vector<std::uint32_t> work{home};
  while (!work.empty()) {
    const ptx::Block& block = blocks[work.back()];
    work.pop_back();
    bool any = false;
    for (std::uint32_t next : block.successors) any |= back.leads[next];
    const bool all = !any || branches_by(block, others);
    for (std::uint32_t next : block.successors) {
      if ((!all && !back.leads[next]) || seen[next]) continue;
      seen[next] = true;
      if (next == cfg_.exit()) return true;
      // Another try, or done.
      if (next != home && !back.has[next]) work.push_back(next);
    }
  }
  return false;
}

bool Swaps::looks_at(const Statement& swap) const {
  std::vector<std::uint32_t> work{number(swap, swap.operands[0])};
  std::unordered_set<std::uint32_t> copies{work[0]};
  for (; !work.empty() && copies.size() <= kMostCopies;) {
    const auto by = uses().find(work.back());
    work.pop_back();
    if (by == uses().end()) continue;
    for (const Statement* s : by->second) {
      const std::string_view base = base_opcode(s->opcode);
      if (base == "st" && in_own_memory(*s)) continue;  // not optimised: kept, not analysed
      if (base != "mov" && base != "cvt") return true;
      const std::uint32_t copy = number(*s, s->operands[0]);
      if (copies.insert(copy).second) work.push_back(copy);
    }
  }
  return false;
}

bool Swaps::follows(std::uint32_t statement, const std::function<bool(std::uint32_t)>& what) const {
  const std::uint32_t home = cfg_.block_of(statement);
  if (any_is(statement + 1, cfg_.blocks()[home].end, what)) return true;
  std::vector<bool> seen(cfg_.blocks().size());
  std::vector<std::uint32_t> work = cfg_.blocks()[home].successors;
  while (!work.empty()) {
    const std::uint32_t b = work.back();
    work.pop_back();
    if (seen[b]) continue;
    seen[b] = true;
    if (any_is(cfg_.blocks()[b].begin, cfg_.blocks()[b].end, what)) return true;
    work.insert(work.end(), cfg_.blocks()[b].successors.begin(), cfg_.blocks()[b].successors.end());
  }
  return false;
}

bool Swaps::only_compared(std::uint32_t load, const std::vector<std::uint32_t>& blocks) const {
  const auto& statements = cfg_.function().statements;
  const Statement& read = statements[load];
  if (base_opcode(read.opcode) != "ld" || read.operands.size() != 2) return false;
  const std::vector<const Statement*> loop = ptx::instructions_of(cfg_, blocks);
  std::unordered_set<std::uint32_t> copies{number(read, read.operands[0])}, made = copies, got;
  const auto is_in = [&](const auto& set, const Statement& s, std::size_t k) {
    return set.count(number(s, s.operands[k])) != 0;
  };
  bool swapped = false, asked = false;
  std::unordered_set<std::uint32_t> failed, passed;  // predicates: whether the swap did
  for (std::size_t before = 0; before != copies.size() + made.size() + got.size();) {
    before = copies.size() + made.size() + got.size();
    for (const Statement* s : loop) {
      const std::string_view base = base_opcode(s->opcode);
      if (base == "call") return false;
      if (s == &read || s->operands.empty()) continue;
      if (base == "mov" && s->operands.size() == 2 && is_in(copies, *s, 1))
        copies.insert(number(*s, s->operands[0]));
      if (base == "mov" && s->operands.size() == 2 && is_in(got, *s, 1))
        got.insert(number(*s, s->operands[0]));
      if (base == "atom" && has_modifier(s->opcode, "cas") && s->operands.size() == 4 &&
          is_in(copies, *s, 2)) {
        if (compare(*s, s->operands[1], read, read.operands[1]) != Places::kSame) return false;
        swapped = true;
        got.insert(number(*s, s->operands[0]));
        continue;
      }
      // "Did I get through?", which says nothing about the value itself.
      if (base == "setp" && s->operands.size() == 3 &&
          ((is_in(copies, *s, 1) && is_in(got, *s, 2)) ||
           (is_in(copies, *s, 2) && is_in(got, *s, 1)))) {
        if (has_modifier(s->opcode, "ne")) failed.insert(number(*s, s->operands[0]));
        if (has_modifier(s->opcode, "eq")) passed.insert(number(*s, s->operands[0]));
        continue;
      }
      bool uses = made.count(number(*s, s->guard)) != 0;
      for (std::size_t k = ptx::effect_of(*s) == ptx::Effect::kNone ? 0 : 1; k < s->operands.size();
           ++k)
        ptx::for_each_register(registers_, s->operands[k], *s,
                               [&](std::uint32_t r) { uses |= made.count(r) != 0; });
      if (!uses) continue;
      asked |= base == "bra";
      if (base == "brx" || base == "ret" || base == "exit") return false;
      if (base == "st" && !has_modifier(s->opcode, "global")) return false;
      if (ptx::effect_of(*s) == ptx::Effect::kNone) continue;
      ptx::for_each_register(registers_, s->operands[0], *s,
                             [&](std::uint32_t r) { made.insert(r); });
    }
  }
  return swapped && (!asked || repeats_only_where(load, blocks, failed, passed));
}

bool Swaps::repeats_only_where(std::uint32_t load, const std::vector<std::uint32_t>& blocks,
                               const std::unordered_set<std::uint32_t>& failed,
                               const std::unordered_set<std::uint32_t>& passed) const {
  // Each loop is gone through once more for each such load.
  if (left_ < blocks.size()) return false;
  left_ -= blocks.size();
  const std::uint32_t home = cfg_.block_of(load);
  const std::unordered_set<std::uint32_t> inside(blocks.begin(), blocks.end());
  std::unordered_set<std::uint32_t> seen;
  std::vector<std::uint32_t> work{home};
  while (!work.empty()) {
    const std::uint32_t b = work.back();
    work.pop_back();
    const ptx::Block& block = cfg_.blocks()[b];
    // Where the swap fails is not followed: past a jump if it passed, to the jump's target if not.
    bool skip_jump = false, skip_next = false;
    if (block.terminator != ptx::kNoStatement && block.successors.size() == 2) {
      const Statement& s = cfg_.function().statements[block.terminator];
      const std::uint32_t guard = s.guard.empty() ? ptx::RegisterTable::kNone : number(s, s.guard);
      const bool fails = failed.count(guard) != 0, passes = passed.count(guard) != 0;
      if (base_opcode(s.opcode) == "bra" && fails != passes) {
        skip_jump = fails != s.guard_negated;
        skip_next = !skip_jump;
      }
    }
    for (std::uint32_t next : block.successors) {
      const bool falls = next == b + 1;
      if ((falls ? skip_next : skip_jump) || inside.count(next) == 0) continue;
      if (next == home) return false;
      if (seen.insert(next).second) work.push_back(next);
    }
  }
  return true;
}

}  // namespace sluice::passes
