// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/waits/value_lock.h"

#include <string>
#include <unordered_set>

#include "kernels/passes/analysis/waits/standstill.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;
using ptx::StatementKind;

namespace {

// Blocks of functions in which such locks are searched for; each search goes through all of them.
constexpr std::size_t kMostBlocks = 4000;

bool may_be_same(const Sum& a, const Sum& b) {
  const Sum rest = Sums::difference(a, b);
  if (rest.is_constant()) return rest.constant == 0;
  const auto root_a = Sums::root(a), root_b = Sums::root(b);
  return !root_a || !root_b || *root_a == *root_b;
}

class ValueLock {
 public:
  ValueLock(const ptx::Cfg& cfg, ptx::RegisterTable& registers, Sums& sums, std::uint32_t load)
      : cfg_(cfg),
        statements_(cfg.function().statements),
        registers_(registers),
        sums_(sums),
        load_(load),
        read_(statements_[load]) {}

  bool holds(const std::vector<std::uint32_t>& blocks) {
    if (cfg_.blocks().size() > kMostBlocks || base_opcode(read_.opcode) != "ld" ||
        read_.operands.size() != 2 || block_internal(read_) || !read_.guard.empty())
      return false;
    place_ = sums_.of(read_.operands[1], read_);
    value_ = number(read_, read_.operands[0]);
    return value_ != ptx::RegisterTable::kNone && written_once(value_) && find_swap(blocks) &&
           find_predicates(blocks) && find_writes() && read_again_only_where_allowed() &&
           released_on_every_path() && written_only_behind_the_swap();
  }

 private:
  std::uint32_t number(const Statement& s, std::string_view operand) const {
    return registers_.number(ptx::trimmed(operand), s);
  }
  bool written_once(std::uint32_t reg) const {
    std::size_t times = 0;
    for (const Statement& s : statements_) {
      if (s.kind != StatementKind::kInstruction || s.operands.empty() ||
          ptx::effect_of(s) == ptx::Effect::kNone)
        continue;
      ptx::for_each_register(registers_, s.operands[0], s,
                             [&](std::uint32_t r) { times += r == reg; });
    }
    return times == 1;
  }

  // Whether an address is the load's: by a variable's name, or by the same register, so that it
  // is the same as long as nothing writes that.
  bool names_place(std::string_view operand, const Statement& s) {
    const Sum address = sums_.of(operand, s);
    if (Sums::compare(address, place_) != Places::kSame) return false;
    if (place_.parts.size() == 1 && place_.parts.begin()->first.find('(') == std::string::npos &&
        Sums::root(place_))
      return true;
    std::uint32_t here = ptx::RegisterTable::kNone, there = here;
    ptx::for_each_register(registers_, operand, s, [&](std::uint32_t r) { here = r; });
    ptx::for_each_register(registers_, read_.operands[1], read_,
                           [&](std::uint32_t r) { there = r; });
    if (here == ptx::RegisterTable::kNone || here != there || !written_once(here)) return false;
    address_ = here;
    return true;
  }
  bool writes_address(std::uint32_t b) const {
    bool writes = false;
    for (std::uint32_t i = cfg_.blocks()[b].begin; i < cfg_.blocks()[b].end; ++i) {
      const Statement& s = statements_[i];
      if (s.kind != StatementKind::kInstruction || s.operands.empty() ||
          ptx::effect_of(s) == ptx::Effect::kNone)
        continue;
      ptx::for_each_register(registers_, s.operands[0], s,
                             [&](std::uint32_t r) { writes |= r == address_; });
    }
    return writes;
  }

  // The only swap in the loop that compares with the value: its new value is the mark.
  bool find_swap(const std::vector<std::uint32_t>& blocks) {
    for (const Statement* s : ptx::instructions_of(cfg_, blocks)) {
      if (base_opcode(s->opcode) != "atom" || !has_modifier(s->opcode, "cas") ||
          s->operands.size() != 4 || number(*s, s->operands[2]) != value_)
        continue;
      if (swap_ != nullptr) return false;
      swap_ = s;
    }
    if (swap_ == nullptr || !swap_->guard.empty() || block_internal(*swap_) ||
        !names_place(swap_->operands[1], *swap_))
      return false;
    const Sum mark = sums_.of(swap_->operands[3], *swap_);
    found_ = number(*swap_, swap_->operands[0]);
    mark_ = mark.constant;
    return mark.is_constant() && found_ != ptx::RegisterTable::kNone && written_once(found_);
  }

  // Questions about the value: only "is it the mark?" and "is it still there?".
  bool find_predicates(const std::vector<std::uint32_t>& blocks) {
    for (const Statement* s : ptx::instructions_of(cfg_, blocks)) {
      if (base_opcode(s->opcode) != "setp" || s->operands.size() != 3 || !s->guard.empty())
        continue;
      const std::uint32_t a = number(*s, s->operands[1]), b = number(*s, s->operands[2]);
      const bool equal = has_modifier(s->opcode, "eq");
      if (!equal && !has_modifier(s->opcode, "ne")) continue;
      const std::uint32_t predicate = number(*s, s->operands[0]);
      if (predicate == ptx::RegisterTable::kNone || !written_once(predicate)) continue;
      if (!follows_at_once(*s, a == found_ || b == found_ ? *swap_ : read_)) continue;
      if ((a == value_ && b == found_) || (a == found_ && b == value_)) {
        (equal ? passed_ : failed_).insert(predicate);
      } else if (a == value_ || b == value_) {
        const Sum other = sums_.of(s->operands[a == value_ ? 2 : 1], *s);
        if (!other.is_constant() || !same_bits(other.constant, mark_)) continue;
        (equal ? marked_ : unmarked_).insert(predicate);
      }
    }
    return !(passed_.empty() && failed_.empty()) && !(marked_.empty() && unmarked_.empty());
  }
  // Asked of this turn's value, not of the last one's.
  bool follows_at_once(const Statement& question, const Statement& of) const {
    return number_of(question) > number_of(of) &&
           cfg_.block_of(number_of(question)) == cfg_.block_of(number_of(of));
  }
  bool same_bits(std::int64_t a, std::int64_t b) const {
    const bool wide = swap_->opcode.ends_with("64");
    return wide ? a == b : static_cast<std::uint32_t>(a) == static_cast<std::uint32_t>(b);
  }

  // Everything that may write to the place; false where that is not known.
  bool find_writes() {
    for (std::uint32_t i = 0; i < statements_.size(); ++i) {
      const Statement& s = statements_[i];
      if (s.kind != StatementKind::kInstruction || &s == swap_) continue;
      const std::string_view base = base_opcode(s.opcode);
      if (base == "call" || ptx::effect_of(s) == ptx::Effect::kUnknown || base == "multimem" ||
          base == "cp" || base == "sust" || base == "sured")
        return false;
      if ((base != "st" && base != "red" && base != "atom") || block_internal(s)) continue;
      const std::size_t address = base == "atom" ? 1 : 0;
      if (s.operands.size() <= address + 1) return false;
      const Sum to = sums_.of(s.operands[address], s);
      if (!may_be_same(to, place_)) continue;
      if (!stores_value(s, address) || !names_place(s.operands[address], s)) return false;
      releases_.insert(i);
    }
    return !releases_.empty();
  }
  // A whole value that is not the mark: a constant, or what was read plus something else.
  bool stores_value(const Statement& s, std::size_t address) const {
    if (!s.guard.empty() || (base_opcode(s.opcode) == "atom" && !has_modifier(s.opcode, "exch")))
      return false;
    if (base_opcode(s.opcode) == "red") return false;
    const bool wide = swap_->opcode.ends_with("64");
    if (!s.opcode.ends_with(wide ? "64" : "32")) return false;
    const std::string_view value = s.operands[address + 1];
    if (value.starts_with('{')) return false;
    const Sum sum = sums_.of(value, s);
    return !sum.is_constant() || !same_bits(sum.constant, mark_);
  }

  enum class Outcome : std::uint8_t { kTaken, kNotTaken, kEither };
  // Which way the branch at a block's end goes where `where` decides; predicates that are true in
  // `yes` and false in `no`.
  Outcome branch_if(const ptx::Block& block, const std::unordered_set<std::uint32_t>& yes,
                    const std::unordered_set<std::uint32_t>& no) const {
    if (block.terminator == ptx::kNoStatement || block.successors.size() != 2)
      return Outcome::kEither;
    const Statement& s = statements_[block.terminator];
    if (base_opcode(s.opcode) != "bra" || s.guard.empty()) return Outcome::kEither;
    const std::uint32_t guard = number(s, s.guard);
    if (yes.count(guard) == no.count(guard)) return Outcome::kEither;
    return (yes.count(guard) != 0) != s.guard_negated ? Outcome::kTaken : Outcome::kNotTaken;
  }
  template <typename Visit>
  void successors(std::uint32_t b, Outcome outcome, const Visit& visit) const {
    for (std::uint32_t next : cfg_.blocks()[b].successors) {
      const bool falls = next == b + 1;
      if (outcome == Outcome::kEither || falls == (outcome == Outcome::kNotTaken)) visit(next);
    }
  }
  // From block `from` on, as far as `enter` allows; `outcome` says which way a branch goes.
  template <typename Way, typename Enter>
  void follow(std::uint32_t from, const Way& way, const Enter& enter) const {
    std::vector<bool> seen(cfg_.blocks().size());
    std::vector<std::uint32_t> work{from};
    while (!work.empty()) {
      const std::uint32_t b = work.back();
      work.pop_back();
      successors(b, way(cfg_.blocks()[b]), [&](std::uint32_t next) {
        if (seen[next]) return;
        seen[next] = true;
        if (enter(next)) work.push_back(next);
      });
    }
  }
  Outcome if_passed(const ptx::Block& block) const { return branch_if(block, passed_, failed_); }
  Outcome if_failed(const ptx::Block& block) const { return branch_if(block, failed_, passed_); }

  // With a value that is not the mark, and a swap that succeeds, the load is not come to again.
  bool read_again_only_where_allowed() const {
    bool again = false;
    const std::uint32_t home = cfg_.block_of(load_);
    follow(
        home,
        [&](const ptx::Block& block) {
          const Outcome swap = if_passed(block);
          return swap != Outcome::kEither ? swap : branch_if(block, unmarked_, marked_);
        },
        [&](std::uint32_t b) {
          again |= b == home;
          return b != home;
        });
    return !again;
  }
  bool has_release(std::uint32_t b) const {
    for (std::uint32_t i = cfg_.blocks()[b].begin; i < cfg_.blocks()[b].end; ++i)
      if (releases_.count(i) != 0) return true;
    return false;
  }
  bool released_on_every_path() const {
    bool lost = false;
    const std::uint32_t home = cfg_.block_of(number_of(*swap_));
    // The block of the swap ends with the question; behind it each path ends in a release.
    if (if_passed(cfg_.blocks()[home]) == Outcome::kEither) return false;
    follow(
        home, [&](const ptx::Block& block) { return if_passed(block); },
        [&](std::uint32_t b) {
          const ptx::Block& block = cfg_.blocks()[b];
          lost |= b == home || b == cfg_.block_of(load_) || b == cfg_.exit() ||
                  block.successors.empty() || writes_address(b);
          if (!lost && has_release(b)) return false;
          return !lost;
        });
    return !lost;
  }
  bool written_only_behind_the_swap() const {
    bool before = has_release(0);
    follow(
        0, [&](const ptx::Block& block) { return if_failed(block); },
        [&](std::uint32_t b) {
          before |= b != cfg_.exit() && has_release(b);
          return !before;
        });
    return !before;
  }
  std::uint32_t number_of(const Statement& s) const {
    return static_cast<std::uint32_t>(&s - statements_.data());
  }

  const ptx::Cfg& cfg_;
  const std::vector<Statement>& statements_;
  ptx::RegisterTable& registers_;
  Sums& sums_;
  const std::uint32_t load_;
  const Statement& read_;
  Sum place_;
  std::uint32_t value_ = ptx::RegisterTable::kNone, found_ = ptx::RegisterTable::kNone;
  std::uint32_t address_ = ptx::RegisterTable::kNone;
  std::int64_t mark_ = 0;
  const Statement* swap_ = nullptr;
  // Predicates: the swap has succeeded or not, the value is the mark or not.
  std::unordered_set<std::uint32_t> passed_, failed_, marked_, unmarked_;
  std::unordered_set<std::uint32_t> releases_;
};

}  // namespace

bool reads_value_lock(const ptx::Cfg& cfg, ptx::RegisterTable& registers, Sums& sums,
                      std::uint32_t load, const std::vector<std::uint32_t>& blocks) {
  return ValueLock(cfg, registers, sums, load).holds(blocks);
}

}  // namespace sluice::passes
