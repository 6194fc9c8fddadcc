// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/constant_uses.h"

#include <vector>

#include "kernels/ptx/address_uses.h"
#include "kernels/ptx/registers.h"
#include "mediator/base/find_text.h"

namespace sluice::ptx {
namespace {

// Where constants are read, and where their addresses become generic ones and back.
constexpr std::string_view kLoad = "ld.const.", kToGeneric = "cvta.const.",
                           kFromGeneric = "cvta.to.const.";
constexpr std::pair<std::string_view, std::string_view> kInGlobal[] = {
    {kLoad, "ld.global.nc."}, {kToGeneric, "cvta.global."}, {kFromGeneric, "cvta.to.global."}};

class ConstantUses {
 public:
  ConstantUses(const Function& function, const std::unordered_set<std::string_view>& constants)
      : function_(function), constants_(constants), registers_(function) {}

  bool by_name() {
    for (const Statement& s : function_.statements) {
      if (s.kind == StatementKind::kInstruction) {
        add(s);
      } else if (s.kind != StatementKind::kLabel) {
        for (const std::string_view operand : s.operands)
          if (names(operand)) return false;
      }
    }
    if (instructions_.empty()) return true;
    if (!follow()) return false;
    for (const Instruction& i : instructions_)
      if (!is_good(i)) return false;
    return true;
  }

 private:
  // More turns than moves follow on one another in real code, where a definition mostly stands
  // before its uses.
  static constexpr int kMostTurns = 8;

  // An operand, as far as it matters here.
  struct Operand {
    uint32_t r = RegisterTable::kNone;  // a register and nothing else, or in brackets
    bool constant = false;              // names a constant
    bool address = false;               // [...]
  };
  struct Instruction {
    const Statement* statement;
    std::vector<Operand> operands;
    std::vector<uint32_t> all;  // registers that it names
    bool mentions = false;      // a constant, or their space
  };

  bool names(std::string_view text) const {
    bool any = false;
    for_each_word(text, [&](std::string_view word, size_t) { any |= constants_.contains(word); });
    return any;
  }

  void add(const Statement& s) {
    Instruction i{&s, {}, {}, has_modifier(s.opcode, "const")};
    for (const std::string_view operand : s.operands) {
      Operand& to = i.operands.emplace_back();
      to.constant = names(operand);
      i.mentions |= to.constant;
      to.address = operand.starts_with('[');
      size_t count = 0;
      for_each_register(registers_, operand, s, [&](uint32_t r) {
        i.all.push_back(r);
        to.r = count++ == 0 ? r : RegisterTable::kNone;
      });
      if (operand.starts_with('{')) to.r = RegisterTable::kNone;
    }
    instructions_.push_back(std::move(i));
  }

  bool holds(uint32_t r) const { return r < held_.size() && held_[r]; }
  bool holds(const Operand& o) const { return !o.address && holds(o.r); }

  // Whether the instruction makes an address out of a name or other addresses.
  bool counts_on(const Instruction& i) const {
    const std::string_view opcode = i.statement->opcode;
    const auto& o = i.operands;
    const auto source = [&](size_t k) { return holds(o[k]) || (o[k].constant && !o[k].address); };
    if (o.size() == 2 && (opcode == "mov.u64" || opcode == "mov.b64")) return source(1);
    if (o.size() == 2 && opcode.starts_with(kFromGeneric)) return !o[1].constant && !holds(o[1]);
    if (o.size() == 3 && (opcode == "add.s64" || opcode == "add.u64"))
      return holds(o[1]) != holds(o[2]) && !o[1].constant && !o[2].constant;
    if (o.size() == 3 && (opcode == "sub.s64" || opcode == "sub.u64"))
      return holds(o[1]) && !holds(o[2]) && !o[1].constant && !o[2].constant;
    if (o.size() == 4 && (opcode == "selp.b64" || opcode == "selp.u64" || opcode == "selp.s64"))
      return holds(o[1]) && holds(o[2]);
    if (o.size() == 4 && (opcode == "mad.lo.s64" || opcode == "mad.lo.u64" ||
                          opcode == "mad.wide.s32" || opcode == "mad.wide.u32"))
      return holds(o[3]) && !holds(o[1]) && !holds(o[2]) && !o[1].constant && !o[2].constant;
    return false;
  }

  // Finds the registers that hold such addresses. False: it takes too long.
  bool follow() {
    held_.assign(registers_.size(), false);
    bool more = true;
    for (int turn = 0; more && turn < kMostTurns; ++turn) {
      more = false;
      for (const Instruction& i : instructions_) {
        if (i.operands.empty() || i.operands[0].r == RegisterTable::kNone) continue;
        if (i.operands[0].address || held_[i.operands[0].r] || !counts_on(i)) continue;
        held_[i.operands[0].r] = more = true;
      }
    }
    return !more;
  }

  bool is_good(const Instruction& i) const {
    const auto& o = i.operands;
    const std::string_view opcode = i.statement->opcode;
    bool any = i.mentions;
    for (const uint32_t r : i.all) any |= holds(r);
    if (!any) return true;
    // Its result holds an address, so all that is written there has to be one.
    if (!o.empty() && holds(o[0])) return counts_on(i);
    if (opcode.starts_with(kLoad)) {
      if (o.size() != 2 || !o[1].address) return false;
      for (const uint32_t r : registers_of(i, 0))
        if (holds(r)) return false;
      return o[1].constant ? o[1].r == RegisterTable::kNone : holds(o[1].r);
    }
    if (o.size() == 2 && opcode.starts_with(kToGeneric))
      return !o[1].address && (o[1].constant || holds(o[1]));
    if (o.size() == 3 && opcode.starts_with("setp."))
      return holds(o[1]) && holds(o[2]) && !i.mentions;
    return false;
  }

  std::vector<uint32_t> registers_of(const Instruction& i, size_t operand) const {
    std::vector<uint32_t> found;
    for_each_register(registers_, i.statement->operands[operand], *i.statement,
                      [&](uint32_t r) { found.push_back(r); });
    return found;
  }

  const Function& function_;
  const std::unordered_set<std::string_view>& constants_;
  mutable RegisterTable registers_;
  std::vector<Instruction> instructions_;
  std::vector<bool> held_;
};

}  // namespace

bool reads_constants_by_name(const Function& function,
                             const std::unordered_set<std::string_view>& constants) {
  return ConstantUses(function, constants).by_name();
}

std::string constants_from_global(std::string_view text) {
  constexpr std::string_view kSpace = "const.";
  std::string out;
  size_t done = 0;
  for (size_t at = find_text(text, kSpace); at != text.npos; at = find_text(text, kSpace, at + 1)) {
    for (const auto& [from, to] : kInGlobal) {
      const size_t before = from.size() - kSpace.size();
      if (at < done + before || text.substr(at - before, from.size()) != from) continue;
      if (at > before && in_word(text[at - before - 1])) continue;
      out.append(text, done, at - before - done).append(to);
      done = at + kSpace.size();
    }
  }
  return done == 0 ? std::string(text) : out.append(text, done);
}

}  // namespace sluice::ptx
