// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/waits/lower_index.h"

#include <unordered_set>
#include <utility>

#include "kernels/ptx/registers.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;
using ptx::StatementKind;

namespace {

// Chains of definitions that are followed; compilers make some dozens. Where more is needed the
// answer is no.
constexpr int kDeepestAddress = 400;
// Times that registers which are made of one another are computed again; real code needs 3.
constexpr int kMostTurns = 8;
// A constant that is added to the index: up to here it is a step to a higher neighbour, from here
// on padding in front of the array (CUB pads by 32 tiles).
constexpr std::uint64_t kLargestStep = 8;
// A mask of this many low bits and less is a remainder; wider ones only shorten the register.
constexpr std::uint64_t kWidestRing = 0xffff;

bool is_global_atomic(const Statement& s) {
  return base_opcode(s.opcode) == "atom" && !has_modifier(s.opcode, "shared");
}

bool is_constant(std::string_view operand, bool& negative, std::uint64_t& magnitude) {
  negative = operand.starts_with('-');
  return ptx::parse_integer(operand.substr(negative ? 1 : 0), magnitude);
}

}  // namespace

void LowerIndex::Terms::merge(const Terms& t) {
  plus_index |= t.plus_index;
  minus_index |= t.minus_index;
  negative |= t.negative;
  step_up |= t.step_up;
  plus_grid |= t.plus_grid;
  columns |= t.columns;
  jumbled |= t.jumbled;
  has_x |= t.has_x;
  elsewhere |= t.elsewhere;
}

LowerIndex::Terms LowerIndex::Terms::flipped() const {
  // What is not the index may be anything, so its difference counts as less.
  return {minus_index, plus_index, true, step_up, false, columns, jumbled, has_x, elsewhere};
}

LowerIndex::LowerIndex(const ptx::Function& function, ptx::RegisterTable& registers, Sums& sums)
    : function_(function), registers_(registers), sums_(sums) {}

void LowerIndex::find_definitions() const {
  if (std::exchange(knows_definitions_, true)) return;
  for (const Statement& s : function_.statements) {
    if (s.kind != StatementKind::kInstruction || s.operands.empty()) continue;
    if (ptx::effect_of(s) == ptx::Effect::kNone) continue;
    draws_tickets_ |=
        is_global_atomic(s) && (has_modifier(s.opcode, "add") || has_modifier(s.opcode, "inc"));
    ptx::for_each_register(registers_, s.operands[0], s,
                           [&](std::uint32_t r) { known_definitions_[r].push_back(&s); });
  }
}

bool LowerIndex::names_lower(std::string_view address, const Statement& in, bool& columns) {
  const Terms t = of_operand(address, in);
  if (!t.plus_index || t.minus_index || !t.negative || t.step_up || t.plus_grid || t.jumbled ||
      t.elsewhere || leads_up(address, in))
    return false;
  columns |= t.columns;
  return true;
}

bool LowerIndex::names_own(std::string_view operand, const Statement& in) {
  const Terms t = of_operand(operand, in);
  return t.plus_index && !t.minus_index && !t.negative && !t.step_up && !t.plus_grid &&
         !t.columns && !t.jumbled && !t.elsewhere && !leads_up(operand, in);
}

// What is known of the sum: steps to a neighbour above, threads of which each looks at another
// block, and numbers that go down the columns.
bool LowerIndex::leads_up(std::string_view operand, const Statement& in) {
  const Sum sum = sums_.of(operand, in);
  constexpr std::string_view kIndex[] = {"%ctaid.x", "%ctaid.y", "%ctaid.z"};
  std::int64_t step = 0, slower = 0;  // of one block; of the dimensions so far
  for (const std::string_view name : kIndex) {
    const auto found = sum.parts.find(std::string(name));
    if (found == sum.parts.end() || found->second <= 0) continue;
    if (found->second <= slower) return true;  // this dimension counts faster than those before
    slower = found->second;
    if (step == 0) step = found->second;
  }
  for (const auto& [text, times] : sum.parts)
    if (step == 0 && times > 0 &&
        (text.starts_with(kAtomic) || (draws_tickets() && text.starts_with(kSharedLoad))))
      step = times;
  if (step == 0) return false;
  // A distance that is loaded may lead either way.
  for (const auto& [text, times] : sum.parts)
    if (times < 0 && text.starts_with(kLoad)) return true;
  const auto blocks = static_cast<std::uint64_t>(sum.constant) / static_cast<std::uint64_t>(step);
  if (sum.constant > 0 && sum.constant % step == 0 && blocks <= kLargestStep) return true;
  for (const auto& [text, times] : sum.parts)
    if (times >= step && text.find("%ctaid") == text.npos &&
        (text.find("%tid") != text.npos || text.find("%laneid") != text.npos))
      return true;
  return false;
}

bool LowerIndex::index_from(std::string_view reg, const Statement& in,
                            const std::function<bool(const ptx::Statement&)>& where) {
  const std::uint32_t number = registers_.number(reg, in);
  const auto by = definitions().find(number);
  if (by == definitions().end()) return false;
  for (const Statement* s : by->second)
    if (!where(*s)) return false;
  const Terms t = of_register(number);
  return t.plus_index || t.minus_index;
}

bool LowerIndex::constant(std::string_view operand, const Statement& in,
                          std::uint64_t& value) const {
  if (ptx::parse_integer(operand, value)) return true;
  const Sum sum = sums_.of(operand, in);
  if (sum.is_constant()) {
    value = static_cast<std::uint64_t>(sum.constant);
    return true;
  }
  const auto by = definitions().find(registers_.number(operand, in));
  if (by == definitions().end()) return false;
  bool first = true;
  for (const Statement* s : by->second) {
    std::uint64_t one = 0;
    if (base_opcode(s->opcode) != "mov" || s->operands.size() != 2 ||
        !ptx::parse_integer(s->operands[1], one) || (!first && one != value))
      return false;
    value = one;
    first = false;
  }
  return !first;
}

// A value that is neither the index nor a constant: parameters, and what they lead to.
bool LowerIndex::is_other(std::string_view operand, const Statement& in) {
  const Sum sum = sums_.of(operand, in);
  for (const auto& [text, times] : sum.parts)
    if (text[0] == '%' || text[0] == '~' || text.starts_with(kAtomic) ||
        text.starts_with(kSharedLoad) || text.find("%ctaid") != text.npos)
      return false;
  return !sum.is_constant();
}

LowerIndex::Terms LowerIndex::of_operand(std::string_view operand, const Statement& in) {
  Terms t;
  std::size_t at = 0;
  for (std::string_view name = ptx::next_identifier(operand, at); !name.empty();
       name = ptx::next_identifier(operand, at)) {
    if (name.starts_with("%ctaid"))
      t.plus_index = true, t.has_x |= name == "%ctaid.x";
    else if (name.starts_with("%nctaid"))
      t.plus_grid = true;
    else if (const std::uint32_t r = registers_.number(name, in); r != ptx::RegisterTable::kNone)
      t.merge(of_register(r));
  }
  // [%rd1+-16], [ %rd1 + -16 ]
  const std::size_t plus = operand.find('+');
  if (plus != operand.npos && operand.find('-', plus) != operand.npos) t.negative = true;
  return t;
}

// Registers of a loop are made of one another, so all are computed again with what came of the
// others, until nothing is new.
LowerIndex::Terms LowerIndex::of_register(std::uint32_t number) {
  if (depth_ != 0) return of_register_once(number);
  Terms t = of_register_once(number);
  for (int turn = 0; changed_ && turn < kMostTurns; ++turn) {
    changed_ = false;
    for (std::uint32_t r : touched_) settled_.erase(r);
    touched_.clear();
    t = of_register_once(number);
  }
  changed_ = false;
  touched_.clear();
  return t;
}

LowerIndex::Terms LowerIndex::of_register_once(std::uint32_t number) {
  const auto by = definitions().find(number);
  if (by == definitions().end() || depth_ > kDeepestAddress) return {};
  if (!settled_.insert(number).second) return known_[number];
  touched_.push_back(number);
  ++depth_;
  Terms t = known_[number];
  const bool one = by->second.size() == 1;
  bool other = false;
  for (const Statement* s : by->second) {
    t.merge(of_statement(*s));
    other |= !one && base_opcode(s->opcode) == "mov" && is_other(s->operands.back(), *s);
  }
  t.elsewhere |= other && t.has_index();
  --depth_;
  changed_ |= !(known_[number] == t);
  return known_[number] = t;
}

LowerIndex::Terms LowerIndex::of_statement(const Statement& s) {
  const std::string_view base = base_opcode(s.opcode);
  Terms t;
  if (base == "atom") {
    t.plus_index = is_global_atomic(s);
    return t;
  }
  if (base == "ld") {
    // A ticket that one thread drew comes to the others through shared memory.
    t.plus_index = draws_tickets() && has_modifier(s.opcode, "shared");
    return t;
  }
  if (base == "shfl" && s.operands.size() > 1) return of_operand(s.operands[1], s);
  if (ptx::effect_of(s) != ptx::Effect::kPure) return t;
  if (base == "sub" && s.operands.size() == 3) {
    t = of_operand(s.operands[1], s);
    t.merge(of_operand(s.operands[2], s).flipped());
    return t;
  }
  if (base == "selp" && s.operands.size() == 4) {
    bool other = false;
    for (std::size_t k : {1, 2}) {
      t.merge(of_operand(s.operands[k], s));
      other |= is_other(s.operands[k], s);
    }
    t.elsewhere |= other && t.has_index();
    return t;
  }
  if (base == "neg" || base == "not") return of_operand(s.operands.back(), s).flipped();
  return of_computation(s);
}

// Of any other statement that only computes: what its operands say together, and what constants
// beside them make of it.
LowerIndex::Terms LowerIndex::of_computation(const Statement& s) {
  const std::string_view base = base_opcode(s.opcode);
  Terms t;
  bool negative = false;
  std::uint64_t magnitude = 0;
  bool flips = false, masked = false;
  for (std::size_t k = 1; k < s.operands.size(); ++k) {
    if (!is_constant(s.operands[k], negative, magnitude)) {
      Terms one = of_operand(s.operands[k], s);
      // A factor beside the index: rows of the grid.
      if ((base == "mul" || (base == "mad" && k < 3)) && s.operands.size() > 2 &&
          !is_constant(s.operands[k == 1 ? 2 : 1], negative, magnitude))
        one.plus_grid = false, one.columns |= one.has_x;
      t.merge(one);
      continue;
    }
    masked |=
        base == "and" && !negative && magnitude < kWidestRing && (magnitude & (magnitude + 1)) == 0;
    const bool added = base == "add" || (base == "mad" && k == 3);
    if (added && negative) t.negative = true;
    if (added && !negative && magnitude > 0 && magnitude <= kLargestStep &&
        s.opcode.find("64") == s.opcode.npos)
      t.step_up = true;
    flips |= negative && (base == "mul" || (base == "mad" && k < 3));
    flips |= negative && magnitude == 1 && base == "xor";
  }
  static const std::unordered_set<std::string_view> kJumbling = {"rem",   "brev", "popc", "clz",
                                                                 "bfind", "prmt", "bfe",  "szext"};
  const bool swaps_bits = base == "xor" && !(negative && magnitude == 1);
  if ((t.plus_index || t.minus_index) && (masked || swaps_bits || kJumbling.count(base) != 0))
    t.jumbled = true;
  if (t.step_up && !t.plus_index && !t.minus_index) t.step_up = false;  // not of the index
  return flips ? t.flipped() : t;
}

}  // namespace sluice::passes
