// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/waits/spin.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "kernels/passes/analysis/waits/chase.h"
#include "kernels/passes/analysis/waits/lower_index.h"
#include "kernels/passes/analysis/waits/standstill.h"
#include "kernels/passes/analysis/waits/swaps.h"
#include "kernels/passes/analysis/waits/value_lock.h"
#include "kernels/ptx/divergence.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;
using ptx::StatementKind;

namespace {

// Reads in one loop that are analysed one by one; with more, each counts as deciding the loop's
// end.
constexpr std::size_t kMostPolls = 16;
// Blocks that are visited to tell loops apart that begin at one place.
constexpr std::uint64_t kMostVisits = 1'000'000;
// Instructions that are looked at for reads and swaps in loops: each costs the length of its loop,
// at each depth of nesting. Kernels of CUTLASS need some hundred thousand.
constexpr std::uint64_t kMostExamined = 50'000'000;
// Instructions of a loop around a counter in which its values are followed, each perhaps as often.
constexpr std::size_t kLongestCounting = 1000;

bool reads_others(const Statement& s, bool ordered_loop) {
  const std::string_view base = base_opcode(s.opcode);
  const bool plain = base == "ld" || base == "ldu" || base == "suld" ||
                     (base == "multimem" && has_modifier(s.opcode, "ld_reduce"));
  if (!plain && base != "atom") return false;
  if (block_internal(s)) return false;
  if (plain) {
    // A plain load in a loop with a fence or a sleep is read anew as well.
    return ordered_loop || has_modifier(s.opcode, "volatile") ||
           has_modifier(s.opcode, "relaxed") || has_modifier(s.opcode, "acquire") ||
           has_modifier(s.opcode, "mmio") || has_modifier(s.opcode, "cv");
  }
  if (has_modifier(s.opcode, "exch")) return false;
  if (!has_modifier(s.opcode, "cas")) return true;
  // Compare-and-swap of a value with itself is a load in disguise.
  return s.operands.size() < 4 || s.operands[2] == s.operands[3];
}

// A step of a counter in global memory.
bool advances_counter(const Statement& s) {
  if (base_opcode(s.opcode) != "atom" || block_internal(s)) return false;
  return has_modifier(s.opcode, "inc") || has_modifier(s.opcode, "add");
}

// One that always finds a new value, so that a loop over its results comes to an end by itself: it
// adds a constant, or the block's size times one. Adding 0 is a load in disguise, and inc wraps
// round.
bool surely_advances(const Statement& s, const LowerIndex& values, Sums& sums) {
  if (!advances_counter(s) || !has_modifier(s.opcode, "add") || s.operands.size() < 3) return false;
  std::uint64_t step = 0;
  if (values.constant(s.operands[2], s, step)) return step != 0;
  return sums.of(s.operands[2], s).is_positive();
}

// The same, unless the launch passes 0: where what it finds is the place of work, which a poll does
// not ask for.
bool advances_by_parameter(const Statement& s, Sums& sums) {
  if (!advances_counter(s) || !has_modifier(s.opcode, "add") || s.operands.size() < 3) return false;
  const Sum step = sums.of(s.operands[2], s);
  return !step.is_constant() && step.constant >= 0 &&
         std::all_of(step.parts.begin(), step.parts.end(), [](const auto& part) {
           return part.second > 0 &&
                  (part.first.starts_with(kParameter) || part.first.starts_with("%ntid"));
         });
}

// One that sets or clears bits, or keeps the larger or smaller number.
bool merges(const Statement& s) {
  if (base_opcode(s.opcode) != "atom" || s.operands.size() != 3) return false;
  for (const std::string_view how : {"or", "and", "xor", "min", "max"})
    if (has_modifier(s.opcode, how)) return true;
  return false;
}

// An atomic that leaves memory as it is: a load in disguise, which Triton and others use.
bool only_reads(const Statement& s, LowerIndex& values) {
  if (base_opcode(s.opcode) == "ld") return true;
  std::uint64_t value = 1, compared = 0;
  if (has_modifier(s.opcode, "cas"))
    return s.operands.size() > 3 &&
           (values.same(s.operands[2], s.operands[3], s) ||
            (values.constant(s.operands[2], s, compared) &&
             values.constant(s.operands[3], s, value) && compared == value));
  return (has_modifier(s.opcode, "add") || has_modifier(s.opcode, "or") ||
          has_modifier(s.opcode, "xor")) &&
         s.operands.size() > 2 && values.constant(s.operands[2], s, value) && value == 0;
}

// A copy from global to shared memory, which whoever reads it there polls by.
bool copies_in(const Statement& s) {
  if (base_opcode(s.opcode) != "cp" || s.operands.size() < 2) return false;
  const std::size_t to = s.opcode.find(".shared"), from = s.opcode.find(".global");
  return from != s.opcode.npos && to < from && !has_modifier(s.opcode, "prefetch");
}

// Memory through which threads of one block, or functions, hand each other what one of them read.
// An address without a space may be anything.
bool in_handed_memory(const Statement& s) {
  return !has_modifier(s.opcode, "global") && !has_modifier(s.opcode, "const");
}
bool takes_over(const Statement& s) {
  const std::string_view base = base_opcode(s.opcode);
  return (base == "ld" || base == "atom") && in_handed_memory(s);
}

bool calls(const Statement& s, const std::function<bool(std::string_view)>& what) {
  if (base_opcode(s.opcode) != "call" || !what) return false;
  const std::size_t callee = !s.operands.empty() && s.operands[0].starts_with('(');
  return callee < s.operands.size() && what(s.operands[callee]);
}

// A call counts as a poll where the function, or one that it calls, may poll.
bool calls_what_polls(const Statement& s, const Callees& callees, bool ordered_loop) {
  return calls(s, callees.polls) || (ordered_loop && calls(s, callees.reads));
}

}  // namespace

bool orders_memory(const Statement& s) {
  const std::string_view base = base_opcode(s.opcode);
  return base == "membar" || base == "fence" || base == "nanosleep";
}
bool hands_on(const Statement& s) {
  const std::string_view base = base_opcode(s.opcode);
  return (base == "st" || base == "atom" || base == "red") && in_handed_memory(s);
}
bool may_poll(const Statement& s) { return reads_others(s, false); }
bool may_read(const Statement& s) { return reads_others(s, true); }
bool may_touch(const Statement& s) {
  return may_read(s) || copies_in(s) || (base_opcode(s.opcode) == "atom" && !block_internal(s));
}

namespace {

// The search, a depth of nesting at a time: a loop that waits is mostly inside one that works.
class Finder {
 public:
  Finder(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators, const Callees& callees,
         const ptx::ValueFlow* flow)
      : cfg_(cfg),
        post_dominators_(post_dominators),
        callees_(callees),
        flow_(flow),
        blocks_(cfg.blocks()),
        statements_(cfg.function().statements),
        registers_(cfg.function()),
        sums_(cfg.function(), registers_),
        lower_(cfg.function(), registers_, sums_),
        swaps_(cfg, registers_, sums_) {}

  Waiting run() {
    for (const Statement& s : statements_)
      if (s.kind == StatementKind::kInstruction && base_opcode(s.opcode) == "atom" &&
          (has_modifier(s.opcode, "cas") || has_modifier(s.opcode, "exch")) &&
          s.operands.size() > 2)
        tried_[Sums::text(sums_.of(s.operands[1], s))].push_back(number(s));
    const auto levels = ptx::loop_levels(cfg_);
    if (!levels) {
      out_.spins = SpinLoops::kUnknown;
      out_.why = levels.error().message;
      return out_;
    }
    outermost_ = &levels->front();
    std::uint64_t budget = kMostVisits, budget_past = kMostVisits;
    for (const ptx::LoopLevel& level : *levels) {
      outer_ = &level == outermost_;
      look(level);
      if (out_.spins == SpinLoops::kUnknown) break;  // level_ is not this level then
      for (const ptx::LoopLevel& way : ways_past_branches(budget_past)) look(way, true);
      outer_ = false;
      for (const ptx::LoopLevel& way : ptx::ways_round(cfg_, level, budget)) look(way);
    }
    return out_;
  }

 private:
  bool in_loop(std::uint32_t b) const { return level_->in_loop[b]; }
  std::uint32_t loop_of(std::uint32_t b) const { return level_->loop[b]; }
  std::uint32_t number(const Statement& s) const {
    return static_cast<std::uint32_t>(&s - statements_.data());
  }

  void find_polls();
  bool polls(std::uint32_t i, bool ordered_loop);
  bool may_examine(std::uint32_t i, std::uint64_t loop_length, bool ordered_loop);
  bool polls_lock(std::uint32_t i) const;
  bool reads_constant(std::uint32_t i) const;
  Result<ptx::Divergence> depending(std::vector<std::uint32_t> from) const;
  template <typename Found>
  void for_each_exit(const std::vector<std::uint32_t>& from, const Found& found);
  bool finds_places(std::uint32_t i) const;
  std::vector<ptx::LoopLevel> ways_past_branches(std::uint64_t& budget) const;
  bool ends_by_part_of(std::uint32_t i, std::uint32_t loop) const;
  void keep_only_exits_of_waits(std::vector<std::uint32_t>* exits) const;
  // `past`: of a way past a branch, which waits only where all its ends depend on what it polls.
  void look(const ptx::LoopLevel& level, bool past = false);
  void look_for_work();
  std::vector<std::uint32_t> polls_that_matter(std::uint32_t loop);
  bool draws_work(std::uint32_t poll, std::uint32_t loop);
  bool waits_for_lower(std::uint32_t poll, std::uint32_t loop, bool& columns);

  const ptx::Cfg& cfg_;
  const ptx::PostDominators& post_dominators_;
  const Callees& callees_;
  mutable const ptx::ValueFlow* flow_;                      // null: not known yet
  mutable std::optional<Result<ptx::ValueFlow>> own_flow_;  // made at the first question
  const std::vector<ptx::Block>& blocks_;
  const std::vector<Statement>& statements_;
  mutable ptx::RegisterTable registers_;  // which it fills as it is asked
  mutable Sums sums_;
  LowerIndex lower_;
  const Swaps swaps_;
  std::unordered_map<std::string, std::vector<std::uint32_t>> tried_;  // swaps, by address
  const ptx::LoopLevel* outermost_ = nullptr;
  const ptx::LoopLevel* level_ = nullptr;
  bool outer_ = false;  // the level is the outermost, or ways of it
  // Of the current level.
  std::vector<std::vector<std::uint32_t>> members_;  // blocks, by loop
  std::vector<std::uint32_t> sources_;
  std::vector<std::vector<std::uint32_t>> polls_;  // by loop
  std::vector<bool> counting_;                     // by loop
  std::uint64_t examinable_ = kMostExamined;
  Waiting out_;
};

// A look at a lock that an outer loop then tries to take; its holder runs.
bool Finder::polls_lock(std::uint32_t i) const {
  const Statement& poll = statements_[i];
  const std::uint32_t b = cfg_.block_of(i);
  if (base_opcode(poll.opcode) != "ld" || poll.operands.size() != 2) return false;
  const auto tried = tried_.find(Sums::text(sums_.of(poll.operands[1], poll)));
  if (tried == tried_.end()) return false;
  for (std::uint32_t swap : tried->second) {
    const std::uint32_t at = cfg_.block_of(swap);
    if (outermost_->in_loop[at] && outermost_->loop[at] == outermost_->loop[b] &&
        !(in_loop(at) && loop_of(at) == loop_of(b)))
      return true;
  }
  return false;
}

bool Finder::reads_constant(std::uint32_t i) const {
  const Statement& s = statements_[i];
  if (!callees_.constant || base_opcode(s.opcode) != "ld" || s.operands.size() != 2) return false;
  std::size_t at = 0;
  const std::string_view name = ptx::next_identifier(s.operands[1], at);
  return !name.empty() && name[0] != '%' && callees_.constant(name);
}

bool Finder::polls(std::uint32_t i, bool ordered_loop) {
  const Statement& s = statements_[i];
  const std::uint32_t b = cfg_.block_of(i);
  const bool swap = base_opcode(s.opcode) == "atom" && !block_internal(s) && !only_reads(s, lower_);
  // A swap that waits for its block's turn; one that retries has a new value to compare each time.
  if (swap && has_modifier(s.opcode, "cas") && s.operands.size() > 3 &&
      lower_.index_from(s.operands[2], s, [&](const Statement& by) {
        const std::uint32_t at = cfg_.block_of(number(by));
        return !in_loop(at) || loop_of(at) != loop_of(b) ||
               same_every_turn(cfg_, registers_, members_[loop_of(b)], number(by), by.operands[1]);
      }))
    return true;
  if (swap && swaps_.takes_token(i, members_[loop_of(b)])) return true;
  if (base_opcode(s.opcode) == "atom" && only_reads(s, lower_) && !block_internal(s)) return true;
  // At another place each turn, or with other bits: a search, as for a free one of many.
  if (swap && merges(s) &&
      (moves_on(cfg_, registers_, members_[loop_of(b)], i, s.operands[1]) ||
       moves_on(cfg_, registers_, members_[loop_of(b)], i, s.operands[2])))
    return false;
  if (copies_in(s))
    return same_every_turn(cfg_, registers_, members_[loop_of(b)], i, s.operands[1]);
  if (reads_others(s, ordered_loop))
    return !(swaps_.may_be_compared(i) &&
             (swaps_.only_compared(i, members_[loop_of(b)]) ||
              reads_value_lock(cfg_, registers_, sums_, i, members_[loop_of(b)]))) &&
           !polls_lock(i) && !reads_constant(i) && !swaps_.only_put(i, members_[loop_of(b)]) &&
           !chases(cfg_, registers_, i, members_[loop_of(b)]);
  return calls_what_polls(s, callees_, ordered_loop);
}

// False: it would take too long, and what the kernel waits for is not known.
bool Finder::may_examine(std::uint32_t i, std::uint64_t loop_length, bool ordered_loop) {
  const Statement& s = statements_[i];
  const bool swap = base_opcode(s.opcode) == "atom" && !block_internal(s);
  if (!swap && !copies_in(s) && !reads_others(s, ordered_loop)) return true;
  if (examinable_ >= loop_length) {
    examinable_ -= loop_length;
    return true;
  }
  out_.spins = SpinLoops::kUnknown;
  out_.why = "has too many reads and swaps in nested loops to be analysed";
  return false;
}

void Finder::find_polls() {
  members_.assign(blocks_.size(), {});
  polls_.assign(blocks_.size(), {});
  counting_.assign(blocks_.size(), false);
  sources_.clear();
  std::vector<bool> ordered(blocks_.size());  // by loop
  std::vector<std::uint64_t> length(blocks_.size());
  for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
    if (!in_loop(b) || !cfg_.reachable(b)) continue;
    members_[loop_of(b)].push_back(b);
    length[loop_of(b)] += blocks_[b].end - blocks_[b].begin;
    for (std::uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i)
      if (statements_[i].kind == StatementKind::kInstruction &&
          (orders_memory(statements_[i]) || calls(statements_[i], callees_.orders)))
        ordered[loop_of(b)] = true;
  }
  for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
    if (!in_loop(b) || !cfg_.reachable(b)) continue;
    for (std::uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
      const Statement& s = statements_[i];
      if (s.kind != StatementKind::kInstruction) continue;
      if (advances_counter(s) && !only_reads(s, lower_)) counting_[loop_of(b)] = true;
      if (!may_examine(i, length[loop_of(b)], ordered[loop_of(b)])) return;
      if (polls(i, ordered[loop_of(b)])) polls_[loop_of(b)].push_back(i);
    }
  }
  for (std::uint32_t l = 0; l < members_.size(); ++l) {
    if (polls_[l].empty() && !members_[l].empty())
      for (std::uint32_t i : reads_of_standstill(cfg_, registers_, members_[l]))
        if (!polls_lock(i) && !reads_constant(i)) polls_[l].push_back(i);
    sources_.insert(sources_.end(), polls_[l].begin(), polls_[l].end());
  }
}

// What depends on `from`, also where it goes through memory of the block on the way: one thread
// polls, the others read what it found from shared memory. Only within the loop that polls.
Result<ptx::Divergence> Finder::depending(std::vector<std::uint32_t> from) const {
  std::vector<bool> polling(blocks_.size()), handed(blocks_.size());  // by loop
  std::vector<std::uint32_t> returning;  // calls and copies: what they read comes through memory
  for (std::uint32_t i : from) {
    const std::uint32_t loop = loop_of(cfg_.block_of(i));
    // Not plain loads beside others, which only a fence in the loop makes polls: they are mostly
    // data.
    const bool call = base_opcode(statements_[i].opcode) == "call" || copies_in(statements_[i]);
    const bool swap = has_modifier(statements_[i].opcode, "cas") && !block_internal(statements_[i]);
    if (call || swap || reads_others(statements_[i], false) ||
        !reads_of_standstill(cfg_, registers_, members_[loop]).empty())
      polling[loop] = true;
    if (call) returning.push_back(i);
  }
  if (flow_ == nullptr && !own_flow_) own_flow_ = ptx::ValueFlow::of(cfg_);
  if (flow_ == nullptr && !*own_flow_) return own_flow_->error();
  if (flow_ == nullptr) flow_ = &**own_flow_;
  auto dependence = ptx::Divergence::depending_on(cfg_, post_dominators_, *flow_, from);
  for (bool changed = true; changed && dependence;) {
    changed = false;
    for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
      const std::uint32_t c = loop_of(b);
      if (!cfg_.reachable(b) || !in_loop(b) || !polling[c] || handed[c]) continue;
      for (std::uint32_t i = blocks_[b].begin; i < blocks_[b].end && !handed[c]; ++i) {
        const Statement& s = statements_[i];
        if (s.kind != StatementKind::kInstruction) continue;
        if (std::find(returning.begin(), returning.end(), i) != returning.end() ||
            (hands_on(s) && (dependence->reads_tainted(i) || dependence->in_divergent_region(b))))
          handed[c] = changed = true;
      }
      if (!handed[c]) continue;
      for (std::uint32_t other : members_[c])
        for (std::uint32_t i = blocks_[other].begin; i < blocks_[other].end; ++i)
          if (statements_[i].kind == StatementKind::kInstruction && takes_over(statements_[i]))
            from.push_back(i);
    }
    if (changed) dependence = ptx::Divergence::depending_on(cfg_, post_dominators_, *flow_, from);
  }
  return dependence;
}

// Whether the loop, all of it, reads global memory at places that depend on what statement `i` has
// found.
bool Finder::finds_places(std::uint32_t i) const {
  const auto dependence = depending({i});
  if (!dependence) return false;
  const std::uint32_t home = cfg_.block_of(i);
  for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
    if (!outermost_->in_loop[b] || outermost_->loop[b] != outermost_->loop[home]) continue;
    for (std::uint32_t k = blocks_[b].begin; k < blocks_[b].end; ++k) {
      const Statement& s = statements_[k];
      if (s.kind == StatementKind::kInstruction && base_opcode(s.opcode) == "ld" &&
          !block_internal(s) && dependence->reads_tainted(k))
        return true;
    }
  }
  return false;
}

// Whether some way out of a loop depends on what `from` wrote; calls `found` with its block.
template <typename Found>
void Finder::for_each_exit(const std::vector<std::uint32_t>& from, const Found& found) {
  if (from.empty()) return;
  const auto dependence = depending(from);
  if (!dependence) {
    out_.spins = SpinLoops::kUnknown;
    out_.why = dependence.error().message;
    return;
  }
  for (const ptx::DivergentBranch& branch : dependence->branches()) {
    if (!in_loop(branch.block)) continue;
    for (std::uint32_t next : blocks_[branch.block].successors)
      if (!in_loop(next) || loop_of(next) != loop_of(branch.block)) {
        found(branch.block);
        break;
      }
  }
}

// The kernel's own counter of work, perhaps handed round through shared memory.
void Finder::look_for_work() {
  std::vector<std::uint32_t> counters;
  for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
    if (!cfg_.reachable(b) || !in_loop(b) || !counting_[loop_of(b)]) continue;
    for (std::uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
      const Statement& s = statements_[i];
      if (s.kind != StatementKind::kInstruction) continue;
      if (advances_counter(s) ||
          (base_opcode(s.opcode) == "ld" && has_modifier(s.opcode, "shared")))
        counters.push_back(i);
    }
  }
  for_each_exit(counters, [&](std::uint32_t b) { out_.fetches_work |= counting_[loop_of(b)]; });
}

// Whether the loop's ends ask for some bits of what atomic `i` found only, or a remainder: others
// may set those, however far it counts.
bool Finder::ends_by_part_of(std::uint32_t i, std::uint32_t loop) const {
  const auto instructions = ptx::instructions_of(cfg_, members_[loop]);
  if (instructions.size() > kLongestCounting) return false;
  std::unordered_set<std::uint32_t> whole, part;
  ptx::for_each_register(registers_, statements_[i].operands[0], statements_[i],
                         [&](std::uint32_t r) { whole.insert(r); });
  for (std::size_t before = 0; before != whole.size() + part.size();) {
    before = whole.size() + part.size();
    for (const Statement* s : instructions) {
      if (ptx::effect_of(*s) != ptx::Effect::kPure || s->operands.empty()) continue;
      const std::string_view base = base_opcode(s->opcode);
      const bool narrows = s->opcode.starts_with("cvt.u16.") || s->opcode.starts_with("cvt.s16.") ||
                           s->opcode.starts_with("cvt.u8.");
      const bool bits = base == "and" || base == "xor" || base == "rem" || base == "bfe" ||
                        base == "lop3" || base == "prmt";
      const bool takes_part = narrows || (bits && !has_modifier(s->opcode, "pred"));
      bool of_whole = false, of_part = false;
      for (std::size_t k = 1; k < s->operands.size(); ++k)
        ptx::for_each_register(registers_, s->operands[k], *s, [&](std::uint32_t r) {
          of_whole |= whole.count(r) != 0;
          of_part |= part.count(r) != 0;
        });
      if (!of_whole && !of_part) continue;
      ptx::for_each_register(registers_, s->operands[0], *s, [&](std::uint32_t r) {
        (of_part || takes_part ? part : whole).insert(r);
      });
    }
  }
  bool by_part = false;
  for (std::uint32_t b : members_[loop]) {
    if (blocks_[b].terminator == ptx::kNoStatement) continue;
    const Statement& s = statements_[blocks_[b].terminator];
    const std::uint32_t guard =
        s.guard.empty() ? ptx::RegisterTable::kNone : registers_.number(ptx::trimmed(s.guard), s);
    for (std::uint32_t next : blocks_[b].successors) {
      if (in_loop(next) && loop_of(next) == loop) continue;
      if (whole.count(guard) != 0 && part.count(guard) == 0) return false;  // there it comes to
      by_part |= part.count(guard) != 0;
    }
  }
  return by_part;
}

// The turns of the level's loops that go through a poll and never take some branch one way:
//
//   for (;;) {
//     if (state == 0) { if (poll) state = 1; }     turns that stay here wait,
//     else { ...; if (++n == 10) break; }          though the loop's end is here
//   }
//
// Each a loop of its own, where it is less than all of its loop.
std::vector<ptx::LoopLevel> Finder::ways_past_branches(std::uint64_t& budget) const {
  std::vector<ptx::LoopLevel> out;
  for (std::uint32_t l = 0; l < polls_.size(); ++l) {
    if (polls_[l].empty() || polls_[l].size() > kMostPolls) continue;
    std::vector<bool> inside(blocks_.size());
    for (std::uint32_t b : members_[l]) inside[b] = true;
    for (std::uint32_t poll : polls_[l]) {
      const std::uint32_t home = cfg_.block_of(poll);
      for (std::uint32_t b : members_[l]) {
        const auto& next = blocks_[b].successors;
        if (std::count_if(next.begin(), next.end(), [&](auto s) { return inside[s]; }) < 2)
          continue;
        for (std::uint32_t never : next) {
          if (!inside[never]) continue;
          const std::uint64_t cost = 2 * members_[l].size() + blocks_.size();
          if (budget < cost) return out;
          budget -= cost;
          // Blocks that lead from the poll, and those that lead to it, without that edge.
          const auto reach = [&](bool forwards) {
            std::vector<bool> seen(blocks_.size());
            std::vector<std::uint32_t> work{home};
            while (!work.empty()) {
              const std::uint32_t at = work.back();
              work.pop_back();
              for (std::uint32_t to :
                   forwards ? blocks_[at].successors : blocks_[at].predecessors) {
                const bool taken = forwards ? at == b && to == never : to == b && at == never;
                if (taken || !inside[to] || seen[to]) continue;
                seen[to] = true;
                work.push_back(to);
              }
            }
            return seen;
          };
          const auto from = reach(true), to = reach(false);
          if (!from[home]) continue;
          ptx::LoopLevel way{level_->loop, std::vector<bool>(blocks_.size())};
          std::size_t size = 0;
          for (std::uint32_t m : members_[l])
            if (from[m] && to[m]) way.in_loop[m] = true, ++size;
          if (size < members_[l].size()) out.push_back(std::move(way));
        }
      }
    }
  }
  return out;
}

// Without the exits of loops that have another one.
void Finder::keep_only_exits_of_waits(std::vector<std::uint32_t>* exits) const {
  std::vector<bool> ends_otherwise(blocks_.size());  // by loop
  for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
    if (!in_loop(b) || std::find(exits->begin(), exits->end(), b) != exits->end()) continue;
    for (std::uint32_t next : blocks_[b].successors)
      if (!in_loop(next) || loop_of(next) != loop_of(b)) ends_otherwise[loop_of(b)] = true;
  }
  std::erase_if(*exits, [&](std::uint32_t b) { return ends_otherwise[loop_of(b)]; });
}

// Of the values that a loop polls, those that its end depends on.
std::vector<std::uint32_t> Finder::polls_that_matter(std::uint32_t loop) {
  const std::vector<std::uint32_t>& all = polls_[loop];
  if (all.size() > kMostPolls) return all;
  std::vector<std::uint32_t> matter;
  for (std::uint32_t i : all) {
    bool matters = false;
    for_each_exit({i}, [&](std::uint32_t at) { matters |= loop_of(at) == loop; });
    if (matters) matter.push_back(i);
  }
  return matter;
}

// A loop that draws its own work from a counter ends when there is no more; it waits for no one.
bool Finder::draws_work(std::uint32_t poll, std::uint32_t loop) {
  const Statement& s = statements_[poll];
  return (surely_advances(s, lower_, sums_) ||
          (advances_by_parameter(s, sums_) && finds_places(poll))) &&
         !ends_by_part_of(poll, loop) && !swaps_.changed_beside(poll, members_[loop]);
}

// Whether what a poll waits for is a lower task's to write. `columns`: lower only where the grid is
// one row.
bool Finder::waits_for_lower(std::uint32_t poll, std::uint32_t loop, bool& columns) {
  const Statement& s = statements_[poll];
  if (base_opcode(s.opcode) == "call" || !only_reads(s, lower_) || s.operands.size() < 2)
    return false;
  // A turn goes round once: in a loop of rounds it comes from higher blocks, too.
  const bool turn =
      outer_ && swaps_.waits_for_turn(poll, members_[loop],
                                      [&](std::string_view operand, const Statement& in) {
                                        return lower_.names_own(operand, in);
                                      });
  return turn || lower_.names_lower(s.operands[1], s, columns) ||
         swaps_.waits_for_count(poll, members_[loop]);
}

void Finder::look(const ptx::LoopLevel& level, bool past) {
  if (out_.spins == SpinLoops::kUnknown) return;
  level_ = &level;
  find_polls();
  if (out_.spins == SpinLoops::kUnknown) return;
  if (level_ == outermost_) look_for_work();

  std::vector<std::uint32_t> exits;
  for_each_exit(sources_, [&](std::uint32_t b) {
    if (!polls_[loop_of(b)].empty()) exits.push_back(b);
  });
  if (past) keep_only_exits_of_waits(&exits);
  for (std::uint32_t b : exits) {
    if (out_.spins == SpinLoops::kUnknown) break;
    const std::uint32_t loop = loop_of(b);
    bool waits = false, for_lower = true, columns = false;
    for (std::uint32_t poll : polls_that_matter(loop)) {
      if (draws_work(poll, loop)) continue;
      waits = true;
      for_lower = for_lower && waits_for_lower(poll, loop, columns);
    }
    if (!waits) continue;
    if (for_lower) {
      out_.spins = SpinLoops::kLowerTasks;
      out_.one_row |= columns;
      continue;
    }
    out_.spins = SpinLoops::kUnknown;
    out_.why = "has a loop that waits for a value in global memory (line " +
               std::to_string(statements_[blocks_[b].terminator].line) +
               "), which no block that can run now may ever write";
  }
}

}  // namespace

Waiting find_waiting(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators,
                     const Callees& callees, const ptx::ValueFlow* flow) {
  return Finder(cfg, post_dominators, callees, flow).run();
}

}  // namespace sluice::passes
