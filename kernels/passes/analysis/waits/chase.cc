// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/waits/chase.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "kernels/passes/analysis/waits/standstill.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;
using ptx::StatementKind;

namespace {

// Instructions of a loop that is followed; those that chase are short.
constexpr std::size_t kLongestChase = 400;

// What is known at a place in the loop, on all ways from the load to it.
struct Known {
  std::unordered_set<std::uint32_t> found;  // registers made of what the load has read
  bool held = true;                         // its address register has not been written since
};

// Operations whose result differs where the one operand that was found does.
bool carries(std::string_view base) {
  for (const std::string_view one :
       {"mov", "cvt", "cvta", "add", "sub", "shl", "mul", "mad", "bfi"})
    if (base == one) return true;
  return false;
}

class Chase {
 public:
  Chase(const ptx::Cfg& cfg, ptx::RegisterTable& registers, std::uint32_t load,
        const std::vector<std::uint32_t>& blocks)
      : cfg_(cfg),
        registers_(registers),
        load_(load),
        read_(cfg.function().statements[load]),
        loop_(blocks) {}

  bool holds() {
    if (base_opcode(read_.opcode) != "ld" || read_.operands.size() != 2 || !read_.guard.empty() ||
        ptx::instructions_of(cfg_, loop_, kLongestChase).size() > kLongestChase)
      return false;
    address_ = address_in(read_);
    if (address_ == ptx::RegisterTable::kNone) return false;
    inside_.insert(loop_.begin(), loop_.end());
    find_failures();
    return always_moves();
  }

 private:
  std::uint32_t number(const Statement& s, std::string_view operand) const {
    return registers_.number(ptx::trimmed(operand), s);
  }

  std::uint32_t address_in(const Statement& load) const {
    std::uint32_t found = ptx::RegisterTable::kNone;
    ptx::for_each_register(registers_, load.operands[1], load, [&](std::uint32_t r) { found = r; });
    return found;
  }

  // Predicates that say that a compare-and-swap of the loop has failed, or got through.
  void find_failures() {
    const auto& statements = cfg_.function().statements;
    for (const Statement* s : ptx::instructions_of(cfg_, loop_)) {
      if (base_opcode(s->opcode) != "atom" || !has_modifier(s->opcode, "cas") ||
          s->operands.size() != 4 || block_internal(*s) || !s->guard.empty() ||
          same_every_turn(cfg_, registers_, loop_,
                          static_cast<std::uint32_t>(s - statements.data()), s->operands[2]))
        continue;
      const std::uint32_t got = number(*s, s->operands[0]), compared = number(*s, s->operands[2]);
      // The question follows at once, before anything is written again.
      const std::uint32_t home = cfg_.block_of(static_cast<std::uint32_t>(s - statements.data()));
      for (const Statement* q = s + 1; q < statements.data() + cfg_.blocks()[home].end; ++q) {
        if (q->kind != StatementKind::kInstruction) continue;
        if (base_opcode(q->opcode) == "setp" && q->operands.size() == 3 && q->guard.empty()) {
          const std::uint32_t a = number(*q, q->operands[1]), b = number(*q, q->operands[2]);
          if ((a == got && b == compared) || (a == compared && b == got)) {
            if (has_modifier(q->opcode, "ne")) failed_.insert(number(*q, q->operands[0]));
            if (has_modifier(q->opcode, "eq")) passed_.insert(number(*q, q->operands[0]));
          }
        } else if (writes(*q, got) || writes(*q, compared)) {
          break;
        }
      }
    }
  }
  bool writes(const Statement& s, std::uint32_t reg) const {
    bool found = false;
    if (ptx::effect_of(s) != ptx::Effect::kNone && !s.operands.empty())
      ptx::for_each_register(registers_, s.operands[0], s,
                             [&](std::uint32_t r) { found |= r == reg; });
    return found;
  }

  void pass(const Statement& s, Known& known) const {
    if (s.kind != StatementKind::kInstruction || s.operands.empty() ||
        ptx::effect_of(s) == ptx::Effect::kNone)
      return;
    const std::string_view base = base_opcode(s.opcode);
    bool found = false;
    if (base == "ld") {  // the same place once more
      // Its register, too: another scope may have one of that name.
      found = known.held && s.operands.size() == 2 &&
              ptx::trimmed(s.operands[1]) == ptx::trimmed(read_.operands[1]) &&
              address_in(s) == address_;
    } else if (carries(base)) {
      for (std::size_t k = 1; k < s.operands.size(); ++k)
        ptx::for_each_register(registers_, s.operands[k], s,
                               [&](std::uint32_t r) { found |= known.found.count(r) != 0; });
    }
    found &= s.guard.empty();
    ptx::for_each_register(registers_, s.operands[0], s, [&](std::uint32_t r) {
      if (found)
        known.found.insert(r);
      else
        known.found.erase(r);
      known.held &= r != address_;
    });
  }

  // Whether a block's end goes to `next` only where a swap has failed.
  bool only_where_failed(std::uint32_t b, std::uint32_t next) const {
    const ptx::Block& block = cfg_.blocks()[b];
    if (block.terminator == ptx::kNoStatement || block.successors.size() != 2) return false;
    const Statement& s = cfg_.function().statements[block.terminator];
    if (base_opcode(s.opcode) != "bra" || s.guard.empty()) return false;
    const std::uint32_t guard = number(s, s.guard);
    const bool fails = failed_.count(guard) != 0, passes = passed_.count(guard) != 0;
    const bool jumps = next != b + 1;
    return fails != passes && (fails != s.guard_negated) == jumps;
  }

  bool always_moves() const {
    const std::uint32_t home = cfg_.block_of(load_);
    std::unordered_map<std::uint32_t, Known> at;  // at the beginning of blocks
    std::vector<std::uint32_t> work;
    const auto leave = [&](std::uint32_t b, const Known& known) {
      for (const std::uint32_t next : cfg_.blocks()[b].successors) {
        if (inside_.count(next) == 0 || only_where_failed(b, next)) continue;
        const auto [it, fresh] = at.emplace(next, known);
        if (fresh) {
          work.push_back(next);
          continue;
        }
        const std::size_t before = it->second.found.size();
        const bool held = it->second.held;
        std::erase_if(it->second.found, [&](std::uint32_t r) { return known.found.count(r) == 0; });
        it->second.held &= known.held;
        if (before != it->second.found.size() || held != it->second.held) work.push_back(next);
      }
    };
    Known first;
    ptx::for_each_register(registers_, read_.operands[0], read_, [&](std::uint32_t r) {
      first.found.insert(r);
      first.held &= r != address_;
    });
    for (std::uint32_t i = load_ + 1; i < cfg_.blocks()[home].end; ++i)
      pass(cfg_.function().statements[i], first);
    leave(home, first);
    while (!work.empty()) {
      const std::uint32_t b = work.back();
      work.pop_back();
      Known known = at.at(b);
      for (std::uint32_t i = cfg_.blocks()[b].begin; i < cfg_.blocks()[b].end; ++i) {
        if (i == load_) {
          if (known.found.count(address_) == 0) return false;
          break;
        }
        pass(cfg_.function().statements[i], known);
      }
      if (b != home) leave(b, known);
    }
    return true;
  }

  const ptx::Cfg& cfg_;
  ptx::RegisterTable& registers_;
  const std::uint32_t load_;
  const Statement& read_;
  const std::vector<std::uint32_t>& loop_;
  std::unordered_set<std::uint32_t> inside_;
  std::uint32_t address_ = ptx::RegisterTable::kNone;
  std::unordered_set<std::uint32_t> failed_, passed_;
};

}  // namespace

bool chases(const ptx::Cfg& cfg, ptx::RegisterTable& registers, std::uint32_t load,
            const std::vector<std::uint32_t>& blocks) {
  return Chase(cfg, registers, load, blocks).holds();
}

}  // namespace sluice::passes
