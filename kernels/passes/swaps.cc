#include "kernels/passes/swaps.h"

#include <algorithm>
#include <unordered_set>

#include "kernels/passes/standstill.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;
using ptx::StatementKind;

namespace {

// Definitions that an address is followed through; compilers need a handful.
constexpr int kMaxDepth = 24;

bool in_own_memory(const Statement& s) {
  return has_modifier(s.opcode, "shared") || s.opcode.find("shared::cta") != s.opcode.npos ||
         has_modifier(s.opcode, "local") || has_modifier(s.opcode, "param");
}

template <typename Found>
void for_each_name(std::string_view operand, const Found& found) {
  std::size_t at = 0;
  for (std::string_view name = ptx::next_identifier(operand, at); !name.empty();
       name = ptx::next_identifier(operand, at))
    found(name);
}

}  // namespace

Swaps::Swaps(const ptx::Cfg& cfg, ptx::RegisterTable& registers)
    : cfg_(cfg), registers_(registers) {
  for (const Statement& s : cfg.function().statements) {
    if (s.kind != StatementKind::kInstruction || s.operands.empty()) continue;
    if (ptx::effect_of(s) == ptx::Effect::kNone) continue;
    for_each_name(s.operands[0], [&](std::string_view name) { definitions_[name].push_back(&s); });
  }
}

bool Swaps::roots(std::string_view operand, std::vector<std::string_view>& out, int depth) const {
  bool known = depth < kMaxDepth;
  for_each_name(operand, [&](std::string_view name) {
    if (!known) return;
    const auto found = definitions_.find(name);
    if (found == definitions_.end()) {
      if (name[0] == '%')
        known = false;
      else
        out.push_back(name);
      return;
    }
    for (const Statement* s : found->second) {
      const std::string_view base = base_opcode(s->opcode);
      if (base == "ld" && has_modifier(s->opcode, "param") && s->operands.size() == 2) {
        for_each_name(s->operands[1],
                      [&](std::string_view parameter) { out.push_back(parameter); });
      } else if (base == "mov" || base == "cvta" || base == "add" || base == "sub") {
        for (std::size_t k = 1; k < s->operands.size(); ++k)
          if (k == 1 || base == "add") known = known && roots(s->operands[k], out, depth + 1);
      } else if (base == "mad" && s->operands.size() == 4) {
        known = known && roots(s->operands[3], out, depth + 1);
      } else if (base != "mul" && base != "shl" && base != "cvt") {  // those make offsets
        known = false;
      }
      if (out.size() > 16) known = false;
    }
  });
  return known;
}

bool Swaps::may_be_same_place(std::string_view a, std::string_view b) const {
  if (a == b) return true;
  std::vector<std::string_view> of_a, of_b;
  if (!roots(a, of_a, 0) || !roots(b, of_b, 0) || of_a.empty() || of_b.empty()) return true;
  return std::any_of(of_a.begin(), of_a.end(), [&](std::string_view name) {
    return std::find(of_b.begin(), of_b.end(), name) != of_b.end();
  });
}

bool Swaps::takes_token(std::uint32_t atom, const std::vector<std::uint32_t>& blocks) const {
  const auto& statements = cfg_.function().statements;
  const Statement& s = statements[atom];
  const bool compares = has_modifier(s.opcode, "cas");
  if ((!compares && !has_modifier(s.opcode, "exch")) || s.operands.size() < 3) return false;
  std::vector<std::string_view> own;
  if (!roots(s.operands[1], own, 0) || own.empty()) return false;
  for (std::size_t k : {1, 2})
    if (!same_every_turn(cfg_, registers_, blocks, atom, s.operands[k])) return false;
  const auto puts_back = [&](std::uint32_t i) {
    if (left_ == 0) return true;
    --left_;
    const Statement& other = statements[i];
    if (other.kind != StatementKind::kInstruction) return false;
    const std::string_view base = base_opcode(other.opcode);
    if (base == "call" || ptx::effect_of(other) == ptx::Effect::kUnknown) return true;
    if (i == atom || in_own_memory(other)) return false;
    const bool atomic = base == "atom";
    if (!atomic && base != "st" && base != "red" && base != "multimem") return false;
    const std::size_t address = atomic ? 1 : 0;
    return other.operands.size() <= address ||
           may_be_same_place(s.operands[1], other.operands[address]);
  };
  return !follows(atom, puts_back);
}

bool Swaps::follows(std::uint32_t statement, const std::function<bool(std::uint32_t)>& what) const {
  const std::uint32_t home = cfg_.block_of(statement);
  for (std::uint32_t i = statement + 1; i < cfg_.blocks()[home].end; ++i)
    if (what(i)) return true;
  std::vector<bool> seen(cfg_.blocks().size());
  std::vector<std::uint32_t> work = cfg_.blocks()[home].successors;
  while (!work.empty()) {
    const std::uint32_t b = work.back();
    work.pop_back();
    if (seen[b]) continue;
    seen[b] = true;
    for (std::uint32_t i = cfg_.blocks()[b].begin; i < cfg_.blocks()[b].end; ++i)
      if (what(i)) return true;
    work.insert(work.end(), cfg_.blocks()[b].successors.begin(), cfg_.blocks()[b].successors.end());
  }
  return false;
}

bool Swaps::waits_for_turn(std::uint32_t load, const std::vector<std::uint32_t>& blocks,
                           const std::function<bool(std::string_view)>& is_index) const {
  const auto& statements = cfg_.function().statements;
  const Statement& read = statements[load];
  if (base_opcode(read.opcode) != "ld" || read.operands.size() != 2) return false;
  const std::vector<const Statement*> loop = ptx::instructions_of(cfg_, blocks);
  std::unordered_set<std::string_view> copies{read.operands[0]};
  bool asked = false;
  for (std::size_t before = 0; before != copies.size();) {
    before = copies.size();
    for (const Statement* s : loop) {
      const std::string_view base = base_opcode(s->opcode);
      if (base == "call") return false;
      if (base == "mov" && s->operands.size() == 2 && copies.count(s->operands[1]) != 0) {
        copies.insert(s->operands[0]);
        continue;
      }
      std::size_t uses = 0;
      for (std::size_t k = ptx::effect_of(*s) == ptx::Effect::kNone ? 0 : 1; k < s->operands.size();
           ++k)
        for_each_name(s->operands[k], [&](std::string_view name) { uses += copies.count(name); });
      if (uses == 0) continue;
      if (base != "setp" || s->operands.size() != 3 || uses != 1 ||
          (!has_modifier(s->opcode, "eq") && !has_modifier(s->opcode, "ne")))
        return false;
      const std::string_view other = s->operands[copies.count(s->operands[1]) != 0 ? 2 : 1];
      const auto by = definitions_.find(other);
      if (by == definitions_.end() || !is_index(other)) return false;
      for (const Statement* d : by->second)
        if (std::find(loop.begin(), loop.end(), d) != loop.end()) return false;
      asked = true;
    }
  }
  return asked && follows(load, [&](std::uint32_t i) {
           const Statement& s = statements[i];
           if (s.kind != StatementKind::kInstruction) return false;
           const std::string_view base = base_opcode(s.opcode);
           const std::size_t address = base == "atom" ? 1 : 0;
           if ((base != "st" && base != "red" && base != "atom") || s.operands.size() <= address)
             return false;
           if (s.operands[address] == read.operands[1]) return true;
           std::vector<std::string_view> of_read, of_write;
           return roots(read.operands[1], of_read, 0) && roots(s.operands[address], of_write, 0) &&
                  !of_read.empty() && of_read == of_write;
         });
}

bool Swaps::only_compared(std::uint32_t load, const std::vector<std::uint32_t>& blocks) const {
  const auto& statements = cfg_.function().statements;
  const Statement& read = statements[load];
  if (base_opcode(read.opcode) != "ld" || read.operands.size() != 2) return false;
  const std::vector<const Statement*> loop = ptx::instructions_of(cfg_, blocks);
  std::unordered_set<std::string_view> copies{read.operands[0]}, made{read.operands[0]}, got;
  bool swapped = false;
  for (std::size_t before = 0; before != copies.size() + made.size() + got.size();) {
    before = copies.size() + made.size() + got.size();
    for (const Statement* s : loop) {
      const std::string_view base = base_opcode(s->opcode);
      if (base == "call") return false;
      if (s == &read || s->operands.empty()) continue;
      if (base == "mov" && s->operands.size() == 2 && copies.count(s->operands[1]) != 0)
        copies.insert(s->operands[0]);
      if (base == "atom" && has_modifier(s->opcode, "cas") && s->operands.size() == 4 &&
          copies.count(s->operands[2]) != 0) {
        if (s->operands[1] != read.operands[1]) return false;
        swapped = true;
        got.insert(s->operands[0]);
        continue;
      }
      // "Did I get through?", which says nothing about the value itself.
      if (base == "setp" && s->operands.size() == 3 &&
          ((copies.count(s->operands[1]) != 0 && got.count(s->operands[2]) != 0) ||
           (copies.count(s->operands[2]) != 0 && got.count(s->operands[1]) != 0)))
        continue;
      bool uses = made.count(s->guard) != 0;
      for (std::size_t k = ptx::effect_of(*s) == ptx::Effect::kNone ? 0 : 1; k < s->operands.size();
           ++k)
        for_each_name(s->operands[k],
                      [&](std::string_view name) { uses |= made.count(name) != 0; });
      if (!uses) continue;
      if (base == "bra" || base == "brx" || base == "ret" || base == "exit") return false;
      if (base == "st" && !has_modifier(s->opcode, "global")) return false;
      if (ptx::effect_of(*s) == ptx::Effect::kNone) continue;
      for_each_name(s->operands[0], [&](std::string_view name) { made.insert(name); });
    }
  }
  return swapped;
}

}  // namespace sluice::passes
