// SPDX-License-Identifier: Apache-2.0
// Warp-wide operations: shfl, vote, match, redux, elect, bar.warp.sync. They name the lanes that
// take part by a member mask and wait until all of them that live have come (PTX ISA 6.0 on). The
// usual case, a converged warp, never waits; lanes that come on different ways wait in their splits
// until the group is complete, and then all go on.
#include <algorithm>

#include "kernels/exec/run/block_impl.h"

namespace sluice::exec::detail {
namespace {

const uint32_t* lanes_of(const WarpState& w, uint32_t operand) {
  return reinterpret_cast<const uint32_t*>(((operand & kConstBit) != 0 ? w.consts : w.regs) +
                                           (operand & ~kConstBit));
}

// Matrix instructions name no member mask: every live lane takes part, at the same instruction.
bool is_matrix(const Inst& in) {
  return in.op >= static_cast<uint16_t>(Op::k_mma) &&
         in.op <= static_cast<uint16_t>(Op::k_wmmastore);
}

// One group's operands and results, gathered from the splits it is made of.
struct Group {
  uint32_t lanes = 0;   // that take part now
  uint64_t a[32] = {};  // value
  uint32_t b[32] = {}, c[32] = {};
  uint32_t predicate = 0;
  uint64_t result[32] = {};
  uint32_t result_predicate = 0;
};

void shuffle(const Inst& in, Group& g) {
  for (uint32_t m = g.lanes; m != 0; m &= m - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
    const uint32_t offset = g.b[lane] & 31, clamp = g.c[lane] & 31;
    const uint32_t segment = (g.c[lane] >> 8) & 31;
    const uint32_t last = (lane & segment) | (clamp & ~segment);
    int32_t from;
    bool inside;
    switch (in.imm) {
      case 0:  // up: `clamp` is the segment's first lane
        from = static_cast<int32_t>(lane) - static_cast<int32_t>(offset);
        inside = from >= static_cast<int32_t>(last);
        break;
      case 1:  // down
        from = static_cast<int32_t>(lane + offset);
        inside = from <= static_cast<int32_t>(last);
        break;
      case 2:  // bfly
        from = static_cast<int32_t>(lane ^ offset);
        inside = from <= static_cast<int32_t>(last);
        break;
      default:  // idx
        from = static_cast<int32_t>((lane & segment) | (offset & ~segment));
        inside = from <= static_cast<int32_t>(last);
        break;
    }
    g.result[lane] = g.a[inside ? from & 31 : static_cast<int32_t>(lane)];
    g.result_predicate |= static_cast<uint32_t>(inside) << lane;
  }
}

void vote(const Inst& in, Group& g) {
  const uint32_t yes = g.predicate & g.lanes;
  bool value = false;
  switch (in.imm) {
    case 0:
      value = yes == g.lanes;
      break;  // all
    case 1:
      value = yes != 0;
      break;  // any
    case 2:
      value = yes == 0 || yes == g.lanes;
      break;  // uni
    default:
      break;  // ballot
  }
  for (uint32_t m = g.lanes; m != 0; m &= m - 1) g.result[__builtin_ctz(m)] = yes;
  g.result_predicate = value ? g.lanes : 0;
}

void match(const Inst& in, Group& g) {
  const uint32_t leader = static_cast<uint32_t>(__builtin_ctz(g.lanes));
  bool all = true;
  for (uint32_t m = g.lanes; m != 0; m &= m - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
    uint32_t same = 0;
    for (uint32_t k = g.lanes; k != 0; k &= k - 1)
      if (g.a[__builtin_ctz(k)] == g.a[lane]) same |= k & (0 - k);
    g.result[lane] = same;
    all = all && g.a[lane] == g.a[leader];
  }
  if (in.imm == 0) return;  // any
  for (uint32_t m = g.lanes; m != 0; m &= m - 1) g.result[__builtin_ctz(m)] = all ? g.lanes : 0;
  g.result_predicate = all ? g.lanes : 0;
}

void reduce(const Inst& in, Group& g) {
  uint32_t r = 0;
  bool first = true;
  for (uint32_t m = g.lanes; m != 0; m &= m - 1) {
    const uint32_t v = static_cast<uint32_t>(g.a[__builtin_ctz(m)]);
    if (first) {
      r = v;
      first = false;
      continue;
    }
    const int32_t sr = static_cast<int32_t>(r), sv = static_cast<int32_t>(v);
    switch (in.imm) {
      case 0:
        r += v;
        break;
      case 1:
        r = std::min(r, v);
        break;
      case 2:
        r = std::max(r, v);
        break;
      case 3:
        r = static_cast<uint32_t>(std::min(sr, sv));
        break;
      case 4:
        r = static_cast<uint32_t>(std::max(sr, sv));
        break;
      case 5:
        r &= v;
        break;
      case 6:
        r |= v;
        break;
      default:
        r ^= v;
        break;
    }
  }
  for (uint32_t m = g.lanes; m != 0; m &= m - 1) g.result[__builtin_ctz(m)] = r;
}

// Lanes of a split that take part: Split::mask where it waits, Warp::exec otherwise.
uint32_t lanes_of_split(const Split& s, uint32_t exec) {
  return s.state == SplitState::kReady ? exec : s.mask;
}

// What the lanes of each split bring.
void gather(const WarpState& w, const Inst* code, const uint32_t* members, uint32_t member_count,
            Group& g) {
  for (uint32_t k = 0; k < member_count; ++k) {
    const Split& s = w.splits[members[k]];
    const Inst& in = code[s.pc];
    const uint32_t lanes = lanes_of_split(s, w.exec);
    g.lanes |= lanes;
    const Op o = static_cast<Op>(in.op);
    if (o == Op::k_vote) {
      g.predicate |= w.pred(in.a) & lanes;
      continue;
    }
    if (in.a == kNoOperand) continue;
    const bool wide = (in.mod & kModAddress32) == 0 && o == Op::k_match;
    // All 32 lanes, not only those that take part: reading another's register is undefined in PTX,
    // and here it is what that register holds.
    for (uint32_t i = 0; i < 32; ++i) {
      if (((lanes >> i) & 1) == 0 && k != 0) continue;
      if (wide) {
        g.a[i] = reinterpret_cast<const uint64_t*>(lanes_of(w, in.a))[i];
      } else {
        g.a[i] = lanes_of(w, in.a)[i];
      }
      if (o == Op::k_shfl) {
        g.b[i] = lanes_of(w, in.b)[i];
        g.c[i] = lanes_of(w, in.c)[i];
      }
    }
  }
}

void elect(Group& g) {
  const uint32_t leader = static_cast<uint32_t>(__builtin_ctz(g.lanes));
  for (uint32_t m = g.lanes; m != 0; m &= m - 1) g.result[__builtin_ctz(m)] = leader;
  g.result_predicate = 1u << leader;
}

}  // namespace

// Computes one complete group. members: indices of its splits, all at instructions of one kind.
void BlockImpl::compute(WarpState& w, const uint32_t* members, uint32_t member_count) {
  Group g;
  const uint32_t only = w.exec;
  gather(w, code_.code.data(), members, member_count, g);
  const Inst& in = code_.code[w.splits[members[0]].pc];
  switch (static_cast<Op>(in.op)) {
    case Op::k_shfl:
      shuffle(in, g);
      break;
    case Op::k_vote:
      vote(in, g);
      break;
    case Op::k_match:
      match(in, g);
      break;
    case Op::k_redux:
      reduce(in, g);
      break;
    case Op::k_elect:
      elect(g);
      break;
    case Op::k_barwarp:
      break;
    default:  // a matrix instruction: all live lanes are here, at one instruction
      w.exec = g.lanes;
      (checker == nullptr ? handlers() : checker->handlers())[in.op](w, in);
      w.exec = only;
      break;
  }
  if (checker != nullptr) checker->warp_met(w, g.lanes);
  for (uint32_t k = 0; k < member_count; ++k) {
    const Split& s = w.splits[members[k]];
    const Inst& at = code_.code[s.pc];
    const uint32_t lanes = lanes_of_split(s, only);
    if (at.d != kNoOperand) {
      auto* d = reinterpret_cast<uint32_t*>(w.regs + at.d);
      for (uint32_t m = lanes; m != 0; m &= m - 1) {
        const int i = __builtin_ctz(m);
        d[i] = static_cast<uint32_t>(g.result[i]);
      }
    }
    if (at.e != kNoOperand) w.preds[at.e] = (w.preds[at.e] & ~lanes) | (g.result_predicate & lanes);
  }
}

bool BlockImpl::collective(WarpState& w, const Inst& in) {
  const uint32_t mask_operand = aux[in.aux];
  const uint32_t* members = mask_operand == kNoOperand ? nullptr : lanes_of(w, mask_operand);
  const uint32_t coming = w.exec;
  uint32_t left = coming, done = 0;
  uint32_t wait_lanes[32], wait_member[32], waits = 0;
  while (left != 0) {
    // Lanes of one member mask form one group; tiles of a warp come together with different masks.
    const uint32_t member =
        members == nullptr ? coming : members[static_cast<uint32_t>(__builtin_ctz(left))];
    uint32_t group = 0;
    for (uint32_t m = left; m != 0; m &= m - 1) {
      const int i = __builtin_ctz(m);
      if (members == nullptr || members[i] == member) group |= 1u << i;
    }
    left &= ~group;
    if ((member & w.live & ~group) == 0) {
      w.exec = group;
      compute(w, &w.current, 1);
      done |= group;
    } else {
      wait_lanes[waits] = group;
      wait_member[waits++] = member;
    }
  }
  const uint32_t pc = w.splits[w.current].pc;
  // The lanes that wait leave the current split; those that are done or do not take part go on.
  const uint32_t mask = w.splits[w.current].mask;
  const uint32_t going = (mask & ~coming) | done;
  for (uint32_t k = 0; k < waits; ++k) {
    uint32_t index = w.current;
    if (going != 0 || k + 1 < waits) index = split_off(w, wait_lanes[k], pc);
    w.splits[index].state = SplitState::kWarpSync;
    w.splits[index].member = wait_member[k];
  }
  if (going != 0) ++w.splits[w.current].pc;
  if (waits != 0) finish_waiting_group(w);
  return going != 0;
}

// Looks for groups among the waiting splits that are complete by now; true: there was one.
bool BlockImpl::finish_waiting_group(WarpState& w) {
  bool any = false;
  for (uint32_t k = 0; k < w.split_count; ++k) {
    if (w.splits[k].state != SplitState::kWarpSync) continue;
    const Inst& in = code_.code[w.splits[k].pc];
    const uint32_t member = w.splits[k].member;
    uint32_t group[32], count = 0, lanes = 0;
    for (uint32_t j = 0; j < w.split_count; ++j) {
      const Split& other = w.splits[j];
      const Inst& at = code_.code[other.pc];
      if (other.state != SplitState::kWarpSync || other.member != member || at.op != in.op ||
          at.imm != in.imm || (is_matrix(in) && other.pc != w.splits[k].pc))
        continue;
      group[count++] = j;
      lanes |= other.mask;
    }
    if ((member & w.live & ~lanes) != 0) continue;
    any = true;
    // A split that waits takes part with all its lanes; the wait is over afterwards.
    compute(w, group, count);
    for (uint32_t j = 0; j < count; ++j) {
      w.splits[group[j]].state = SplitState::kReady;
      ++w.splits[group[j]].pc;
    }
    // Where they stand together again, they run together.
    for (uint32_t j = count; j-- > 1;) {
      Split& first = w.splits[group[0]];
      const Split& other = w.splits[group[j]];
      if (other.pc != first.pc || other.join != first.join) continue;
      first.mask |= other.mask;
      w.remove_split(group[j]);
    }
    k = static_cast<uint32_t>(-1);  // the indices have moved: look again from the start
  }
  return any;
}

}  // namespace sluice::exec::detail
