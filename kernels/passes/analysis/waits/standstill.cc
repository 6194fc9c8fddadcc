// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/waits/standstill.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "kernels/passes/analysis/sync/synchronisation.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;
using ptx::StatementKind;

namespace {

// Loops that wait are short; the search below is quadratic.
constexpr std::size_t kLongestStandstill = 1000;

bool reads_global(const Statement& s) {
  const std::string_view base = base_opcode(s.opcode);
  return (base == "ld" || base == "ldu" || base == "suld") && !block_internal(s);
}

// Which registers hold the same in every turn.
class Turns {
 public:
  // With `through_memory` also what is loaded from where nothing in the loop writes.
  Turns(const ptx::Cfg& cfg, ptx::RegisterTable& registers,
        const std::vector<std::uint32_t>& blocks, bool through_memory)
      : registers_(registers), loop_(ptx::instructions_of(cfg, blocks, kLongestStandstill)) {
    if (loop_.size() > kLongestStandstill) return;
    understood_ = true;
    std::vector<const Statement*> writers, stores;
    for (const Statement* s : loop_) {
      const ptx::Effect effect = ptx::effect_of(*s);
      if (effect == ptx::Effect::kUnknown || base_opcode(s->opcode) == "call") understood_ = false;
      if (base_opcode(s->opcode) == "st") stores.push_back(s);
      if (effect == ptx::Effect::kNone || s->operands.empty()) continue;
      writers.push_back(s);
      for_each_register(*s, s->operands[0], [&](std::uint32_t r) { ++open_[r]; });
    }
    if (!understood_) return;
    // From what no statement of the loop writes, forwards: what goes round gets in only where it is
    // handed round as it is.
    std::unordered_set<const Statement*> settled;
    const auto settle = [&](const Statement* s) {
      settled.insert(s);
      for_each_register(*s, s->operands[0], [&](std::uint32_t r) { --open_[r]; });
    };
    bool stored_same = stores.empty();
    for (bool changed = true; changed;) {
      changed = false;
      for (const Statement* s : writers) {
        if (settled.count(s) != 0 || !same_result(*s, through_memory, stored_same)) continue;
        settle(s);
        changed = true;
      }
      if (!changed && through_memory) {
        for (const Statement* s : handed_round(writers, settled)) settle(s), changed = true;
      }
      if (stored_same) continue;
      stored_same = true;
      for (const Statement* s : stores) stored_same &= reads_same(*s, 0);
      changed |= stored_same;
    }
  }

  bool understood() const { return understood_; }
  const std::vector<const Statement*>& statements() const { return loop_; }
  // What `operand` of statement `s` holds.
  bool same(const Statement& s, std::string_view operand) const {
    bool out = operand.find("%clock") == operand.npos &&
               operand.find("%globaltimer") == operand.npos && operand.find("%pm") == operand.npos;
    for_each_register(s, operand, [&](std::uint32_t r) {
      const auto it = open_.find(r);
      if (it != open_.end() && it->second != 0) out = false;
    });
    return out;
  }
  bool reads_same(const Statement& s, std::size_t first_operand) const {
    bool out = same(s, s.guard);
    for (std::size_t k = first_operand; k < s.operands.size(); ++k) out &= same(s, s.operands[k]);
    return out;
  }

 private:
  // Those that only copy, from one another or from what is the same in every turn: a value that
  // lanes or turns hand on.
  std::vector<const Statement*> handed_round(
      const std::vector<const Statement*>& writers,
      const std::unordered_set<const Statement*>& settled) const {
    std::vector<const Statement*> copies;
    std::unordered_map<std::uint32_t, std::uint32_t> written;  // by register: by how many of them
    const auto count = [&](const Statement* s, std::uint32_t by) {
      for_each_register(*s, s->operands[0], [&](std::uint32_t r) { written[r] += by; });
    };
    for (const Statement* s : writers) {
      const std::string_view base = base_opcode(s->opcode);
      if (settled.count(s) != 0 || (base != "mov" && base != "shfl") || s->operands.size() < 2 ||
          !s->operands[1].starts_with('%'))
        continue;
      copies.push_back(s);
      count(s, 1);
    }
    const auto is_copy = [&](const Statement* s) {
      bool copied = same(*s, s->guard);
      for (std::size_t k = 2; k < s->operands.size(); ++k) copied &= same(*s, s->operands[k]);
      bool of_register = false;  // not of a clock
      for_each_register(*s, s->operands[1], [&](std::uint32_t r) {
        const auto open = open_.find(r);
        copied &= open == open_.end() || open->second == written[r];
        of_register = true;
      });
      return copied && of_register;
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t k = 0; k < copies.size();) {
        if (is_copy(copies[k])) {
          ++k;
          continue;
        }
        count(copies[k], static_cast<std::uint32_t>(-1));
        copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(k));
        changed = true;
      }
    }
    return copies;
  }

  template <typename Found>
  void for_each_register(const Statement& s, std::string_view operand, const Found& found) const {
    ptx::for_each_register(registers_, operand, s, found);
  }
  bool same_result(const Statement& s, bool through_memory, bool stored_same) const {
    const std::string_view base = base_opcode(s.opcode);
    const ptx::Effect effect = ptx::effect_of(s);
    const bool with_others = base == "shfl" || base == "vote" || base == "match" || base == "redux";
    const bool load = effect == ptx::Effect::kLoad || base == "ldu" || base == "suld";
    // The loop writes to the block's own memory at most, which an address without a space may be.
    const bool apart = has_modifier(s.opcode, "param") || has_modifier(s.opcode, "const");
    if (load && !apart &&
        !(through_memory && (stored_same || base == "suld" || has_modifier(s.opcode, "global"))))
      return false;
    if (effect != ptx::Effect::kPure && effect != ptx::Effect::kUniform && !load && !with_others)
      return false;
    return reads_same(s, 1);
  }

  ptx::RegisterTable& registers_;
  std::vector<const Statement*> loop_;
  // By register: statements of the loop that write it, and may write another value each turn.
  std::unordered_map<std::uint32_t, std::uint32_t> open_;
  bool understood_ = false;
};

}  // namespace

bool block_internal(const Statement& s) {
  return has_modifier(s.opcode, "shared") || has_modifier(s.opcode, "cta") ||
         s.opcode.find("shared::cta") != s.opcode.npos || has_modifier(s.opcode, "local") ||
         has_modifier(s.opcode, "param") || has_modifier(s.opcode, "const");
}

std::vector<std::uint32_t> reads_of_standstill(const ptx::Cfg& cfg, ptx::RegisterTable& registers,
                                               const std::vector<std::uint32_t>& blocks) {
  const auto& statements = cfg.function().statements;
  std::vector<std::uint32_t> reads;
  std::size_t length = 0;
  for (std::uint32_t b : blocks) {
    length += cfg.blocks()[b].end - cfg.blocks()[b].begin;
    if (length > kLongestStandstill) return {};
    for (std::uint32_t i = cfg.blocks()[b].begin; i < cfg.blocks()[b].end; ++i) {
      const Statement& s = statements[i];
      if (s.kind != StatementKind::kInstruction) continue;
      const std::string_view base = base_opcode(s.opcode);
      if (reads_global(s)) reads.push_back(i);
      // What may change memory that the loop reads; atomics and mbarriers move on by themselves.
      const bool writes = base == "st" && !block_internal(s);
      if (writes || base == "atom" || base == "red" || base == "call" || base == "mbarrier" ||
          base == "sust" || base == "sured" || base == "multimem" || base == "cp")
        return {};
    }
  }
  if (reads.empty()) return {};
  const Turns turns(cfg, registers, blocks, true);
  if (!turns.understood()) return {};
  for (const Statement* s : turns.statements()) {
    const std::string_view base = base_opcode(s->opcode);
    if ((base == "bra" || base == "brx" || base == "ret" || base == "exit" || base == "trap") &&
        !(turns.same(*s, s->guard) && (base != "brx" || turns.same(*s, s->operands[0]))))
      return {};
  }
  return reads;
}

bool same_every_turn(const ptx::Cfg& cfg, ptx::RegisterTable& registers,
                     const std::vector<std::uint32_t>& blocks, std::uint32_t statement,
                     std::string_view operand) {
  const Turns turns(cfg, registers, blocks, false);
  return turns.understood() && turns.same(cfg.function().statements[statement], operand);
}

bool moves_on(const ptx::Cfg& cfg, ptx::RegisterTable& registers,
              const std::vector<std::uint32_t>& blocks, std::uint32_t statement,
              std::string_view operand) {
  const Turns turns(cfg, registers, blocks, true);
  return turns.understood() && !turns.same(cfg.function().statements[statement], operand);
}

bool same_but_for_others(const ptx::Cfg& cfg, ptx::RegisterTable& registers,
                         const std::vector<std::uint32_t>& blocks, std::uint32_t statement,
                         std::string_view operand) {
  const Turns turns(cfg, registers, blocks, true);
  return turns.understood() && turns.same(cfg.function().statements[statement], operand);
}

}  // namespace sluice::passes
