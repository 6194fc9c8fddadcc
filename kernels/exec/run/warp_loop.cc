// SPDX-License-Identifier: Apache-2.0
// The warp loop and the control instructions: branches, calls, joins, barriers, exits.
#include <algorithm>

#include "kernels/exec/run/block_impl.h"
#include "mediator/base/check.h"

namespace sluice::exec::detail {
namespace {

// Warp instructions in a row before another warp gets its turn: long enough that a warp's registers
// stay in the cache for a while, short enough that waiting ones are not starved.
constexpr uint64_t kTurnSteps = 4096;
// Polls (Warp::spin) before another warp gets its turn: whoever makes them waits for somebody else.
constexpr uint32_t kSpinLimit = 64;
// Lanes at a join go on alone when their warp has used up this many turns without them (a spinning
// turn counts kSpinImpatience of them): the cost of waiting in vain against that of running apart.
constexpr uint32_t kPatience = 256;
constexpr uint32_t kSpinImpatience = 64;

constexpr uint16_t op(Op o) { return static_cast<uint16_t>(o); }

}  // namespace

// The current split, or the next one that is ready. False: none is.
inline bool BlockImpl::find_ready_split(WarpState& w) {
  for (uint32_t tried = 0; tried < w.split_count; ++tried) {
    if (w.splits[w.current].state == SplitState::kReady) return true;
    w.current = w.current + 1 < w.split_count ? w.current + 1 : 0;
  }
  return false;
}

// Runs the current split until a control instruction other than a uniform branch forward.
// False: a fault, which is recorded.
inline bool BlockImpl::run_split(WarpState& w, const Handler* table, uint64_t limit,
                                 uint64_t& steps) {
  const Inst* const code = code_.code.data();
  Split& split = w.splits[w.current];
  uint32_t pc = split.pc;
  const uint32_t mask = split.mask;
  for (;;) {
    const Inst& in = code[pc];
    uint32_t exec = mask;
    ++steps;
    if (in.guard != kPredTrue) {
      exec &= w.pred(in.guard);
      if (exec == 0) {
        ++pc;
        continue;
      }
    }
    w.exec = exec;
    const Flow flow = table[in.op](w, in);
    if (flow == Flow::kNext) [[likely]] {
      ++pc;
      continue;
    }
    split.pc = pc;
    if (flow == Flow::kFault) {
      record_fault(w, pc, "");
      return false;
    }
    if (in.op == op(Op::k_join) &&
        (split.join == kNoJoin || w.joins[static_cast<size_t>(split.join)].pc != pc)) {
      ++pc;  // nobody meets here this time
      continue;
    }
    // Uniform: the commonest control instruction stays in this loop.
    if (in.op == op(Op::k_bra) && exec == mask) {
      const uint32_t to = static_cast<uint32_t>(in.imm);
      const bool back = to <= pc;
      pc = to;
      if (!back || (steps < limit && w.spin < kSpinLimit && !preempted())) continue;
      split.pc = pc;
      return true;
    }
    w.fault_kind = FaultKind::kNone;
    detail_.clear();
    control(w, in);
    if (w.fault_kind == FaultKind::kNone) return true;
    record_fault(w, pc, detail_);
    return false;
  }
}

// Lanes at joins are not kept waiting for ever.
inline void BlockImpl::lose_patience(WarpState& w, bool spun) {
  if (w.joins.empty() || !w.lanes_wait_at_joins()) {
    w.impatience = 0;
    return;
  }
  w.impatience += spun ? kSpinImpatience : 1;
  if (w.impatience < kPatience) return;
  w.impatience = 0;
  w.release_one_join();
}

BlockImpl::Turn BlockImpl::run_turn(WarpState& w, uint64_t max_steps) {
  const Handler* const table = checker == nullptr ? handlers() : checker->handlers();
  const uint64_t limit = std::min(max_steps, kTurnSteps);
  Turn turn;
  w.spin = 0;
  w.slept = false;
  while (turn.steps < limit) {
    if (!find_ready_split(w)) {
      // Lanes that wait for one another in a warp-wide operation need those at a join.
      if (w.has_warp_sync() && w.release_one_join()) continue;
      turn.end = TurnEnd::kBlocked;
      return turn;
    }
    if (!run_split(w, table, limit, turn.steps)) {
      turn.end = TurnEnd::kFault;
      return turn;
    }
    if (w.split_count == 0) {
      turn.end = TurnEnd::kBlocked;
      return turn;
    }
    if (w.spin >= kSpinLimit || w.slept || preempted()) break;
  }
  const bool spun = w.spin >= kSpinLimit || w.slept;
  turn.end = spun ? TurnEnd::kSpun : TurnEnd::kUsedUp;
  // Turns of the splits.
  if (w.split_count > 1) w.current = w.current + 1 < w.split_count ? w.current + 1 : 0;
  lose_patience(w, spun);
  return turn;
}

uint32_t BlockImpl::split_off(WarpState& w, uint32_t lanes, uint32_t pc) {
  Split& from = w.splits[w.current];
  from.mask &= ~lanes;
  return w.add_split(lanes, pc, from.join);
}

bool BlockImpl::control(WarpState& w, const Inst& in) {
  Split& split = w.splits[w.current];
  switch (static_cast<Op>(in.op)) {
    case Op::k_bra:
      return branch(w, in);
    case Op::k_brx:
      return branch_indexed(w, in);
    case Op::k_join:
      return join_here(w, in);
    case Op::k_bar:
      return barrier(w, in);
    case Op::k_barcluster:
      return cluster_barrier(w, in);
    case Op::k_ret:
      return return_from(w, in);
    case Op::k_exit:
      return exit_lanes(w, w.exec);
    case Op::k_trap:
      w.fault(FaultKind::kTrap, static_cast<uint32_t>(__builtin_ctz(w.exec)), 0, 0);
      return false;
    case Op::k_call:
      return call(w, in);
    case Op::k_results:
      return take_results(w, in);
    case Op::k_alloca:
      return allocate_stack(w, in);
    case Op::k_nanosleep:
      w.slept = true;
      ++split.pc;
      return true;
    case Op::k_activemask: {
      auto* d = reinterpret_cast<uint32_t*>(w.regs + in.d);
      for (uint32_t m = w.exec; m != 0; m &= m - 1) d[__builtin_ctz(m)] = w.exec;
      ++split.pc;
      return true;
    }
    case Op::k_builtin:
      return builtin(w, in);
    default:
      return collective(w, in);
  }
}

bool BlockImpl::branch(WarpState& w, const Inst& in) {
  Split& split = w.splits[w.current];
  const uint32_t target = static_cast<uint32_t>(in.imm);
  if (w.exec == split.mask) {
    split.pc = target;
    return true;
  }
  // inst.e: where the two sides meet again; kNoTarget: nowhere before the end.
  const bool known = split.join != kNoJoin && !w.joins[static_cast<size_t>(split.join)].call &&
                     w.joins[static_cast<size_t>(split.join)].pc == in.e;
  if (in.e != kNoTarget && !known) split.join = w.new_join(in.e, split.mask, split.join, false);
  const uint32_t taken = w.exec;
  const uint32_t next = split.pc + 1;
  // The side that is earlier in the text first: it is the one that loops or comes to the join
  // sooner.
  if (target < next) {
    split_off(w, split.mask & ~taken, next);
    split.pc = target;
  } else {
    split_off(w, taken, target);
    split.pc = next;
  }
  return true;
}

bool BlockImpl::branch_indexed(WarpState& w, const Inst& in) {
  Split& split = w.splits[w.current];
  const auto* index = reinterpret_cast<const uint32_t*>(
      ((in.a & kConstBit) != 0 ? w.consts : w.regs) + (in.a & ~kConstBit));
  const uint32_t* table = aux + in.aux;  // count, then targets
  const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(w.exec));
  uint32_t same = 0;
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    if (index[i] >= table[0]) {
      w.fault(FaultKind::kBadCall, static_cast<uint32_t>(i), index[i], 0);
      return false;
    }
    same |= static_cast<uint32_t>(table[1 + index[i]] == table[1 + index[lane]]) << i;
  }
  if (same != split.mask) {
    const bool known = split.join != kNoJoin && !w.joins[static_cast<size_t>(split.join)].call &&
                       w.joins[static_cast<size_t>(split.join)].pc == in.e;
    if (in.e != kNoTarget && !known) split.join = w.new_join(in.e, split.mask, split.join, false);
    const uint32_t passed = split.mask & ~w.exec;  // the guard is false there
    const uint32_t others = w.exec & ~same;
    if (passed != 0) split_off(w, passed, split.pc + 1);
    if (others != 0) split_off(w, others, split.pc);  // they come here again, one target at a time
  }
  w.splits[w.current].pc = table[1 + index[lane]];
  return true;
}

bool BlockImpl::join_here(WarpState& w, const Inst&) {
  const uint32_t here = w.splits[w.current].pc;
  for (;;) {
    const int32_t j = w.splits[w.current].join;
    if (j == kNoJoin) break;
    const Join& join = w.joins[static_cast<size_t>(j)];
    if (join.call || join.pc != here) break;
    if (!w.arrive(w.current, j)) return false;
  }
  w.splits[w.current].pc = here + 1;
  return true;
}

bool BlockImpl::exit_lanes(WarpState& w, uint32_t lanes) {
  Split& split = w.splits[w.current];
  int32_t j = split.join;
  w.live &= ~lanes;
  if (lanes == split.mask) {
    w.remove_split(w.current);
  } else {
    split.mask &= ~lanes;
    ++split.pc;
  }
  while (j != kNoJoin) {
    const int32_t parent = w.joins[static_cast<size_t>(j)].parent;
    w.leave_join(j, lanes);
    j = parent;
  }
  // Exited threads are waited for nowhere.
  if (w.has_warp_sync()) finish_waiting_group(w);
  for (uint32_t k = 0; k < kBarriers; ++k)
    if (barriers_[k].open) release_barrier_if_complete(k);
  release_cluster_if_complete();
  return w.split_count != 0;
}

// bar / barrier. imm: 0 sync, 1 arrive, 2 red.popc, 3 red.and, 4 red.or; a = number, b = threads or
// none, c = predicate of red, d = its result (register for popc, predicate otherwise).
bool BlockImpl::barrier(WarpState& w, const Inst& in) {
  const auto operand = [&w](uint32_t o) {
    return reinterpret_cast<const uint32_t*>(((o & kConstBit) != 0 ? w.consts : w.regs) +
                                             (o & ~kConstBit));
  };
  const uint32_t* numbers = operand(in.a);
  const uint32_t* counts = in.b == kNoOperand ? nullptr : operand(in.b);
  const uint32_t first = static_cast<uint32_t>(__builtin_ctz(w.exec));
  const uint32_t number = numbers[first];
  const uint32_t threads = counts == nullptr ? 0 : counts[first];
  if (number >= kBarriers || (counts != nullptr && (threads == 0 || threads % kWarpLanes != 0 ||
                                                    threads > kMaxBlockThreads))) {
    w.fault(FaultKind::kBadBarrier, first, number, threads);
    return false;
  }
  // Lanes that name another barrier, or none (guard), go their own way.
  uint32_t same = 0;
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    if (numbers[i] == number && (counts == nullptr || counts[i] == threads)) same |= 1u << i;
  }
  const uint32_t pc = w.splits[w.current].pc;
  const uint32_t others = w.exec & ~same, passed = w.splits[w.current].mask & ~w.exec;
  if (others != 0) split_off(w, others, pc);
  if (passed != 0) split_off(w, passed, pc + 1);

  Barrier& b = barriers_[number];
  if (!b.open) {
    b = Barrier{};
    b.open = true;
    b.needed = threads;
  }
  Split& split = w.splits[w.current];
  b.arrived[w.index] |= same;
  if (checker != nullptr) checker->barrier_arrived(w, in, same, number, threads);
  if (in.imm >= 2) {
    const uint32_t p = w.pred(in.c) & same;
    b.population += static_cast<uint32_t>(__builtin_popcount(p));
    b.all = b.all && p == same;
    b.any = b.any || p != 0;
  }
  if (in.imm == 1) {
    ++split.pc;
  } else {
    split.state = SplitState::kBarrier;
    split.barrier = static_cast<uint8_t>(number);
  }
  release_barrier_if_complete(number);
  return w.splits[w.current].state == SplitState::kReady;
}

void BlockImpl::release_barrier_if_complete(uint32_t number) {
  Barrier& b = barriers_[number];
  uint32_t here = 0;
  for (const WarpState& w : warps_) {
    const uint32_t arrived = b.arrived[w.index];
    if (b.needed == 0) {
      if ((w.live & ~arrived) != 0) return;
    } else if (arrived != 0) {
      // Barriers count in whole warps: lanes that do not exist or have exited are there, too.
      here += (w.live & ~arrived) == 0 ? kWarpLanes
                                       : static_cast<uint32_t>(__builtin_popcount(arrived));
    }
  }
  if (here < b.needed) return;
  if (checker != nullptr) checker->barrier_complete(number);
  for (WarpState& w : warps_) {
    for (uint32_t k = 0; k < w.split_count; ++k) {
      Split& s = w.splits[k];
      if (s.state != SplitState::kBarrier || s.barrier != number) continue;
      const Inst& in = code_.code[s.pc];
      const uint32_t lanes = s.mask & b.arrived[w.index];
      if (in.imm == 2) {
        auto* d = reinterpret_cast<uint32_t*>(w.regs + in.d);
        for (uint32_t m = lanes; m != 0; m &= m - 1) d[__builtin_ctz(m)] = b.population;
      } else if (in.imm >= 3) {
        const bool value = in.imm == 3 ? b.all : b.any;
        w.preds[in.d] = (w.preds[in.d] & ~lanes) | (value ? lanes : 0);
      }
      s.state = SplitState::kReady;
      ++s.pc;
    }
    w.merge_splits();
  }
  b.open = false;
}

}  // namespace sluice::exec::detail
