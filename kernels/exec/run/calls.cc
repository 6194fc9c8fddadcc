// SPDX-License-Identifier: Apache-2.0
// Calls at run time: frames, what a call saves, returns, alloca.
//
// Each lane has its own frame and stack pointer, so lanes of one warp may be at different depths of
// a recursion. What a call changes for its lanes is saved with the join that they come back to
// (SavedCall): the two pointers, and where the called function may be active already its registers
// and predicates. Lanes come back one by one or together, each takes its own column.
#include <algorithm>
#include <cstring>

#include "kernels/exec/run/block_impl.h"

namespace sluice::exec::detail {
namespace {

// What calls of one warp may save. A recursion that needs more is reported as a stack overflow.
constexpr uint64_t kMaxSavedBytes = 32u << 20;

struct LaneCopies {
  const uint32_t* triples;  // from or to in this frame, in the callee's, bytes
  uint32_t count;
  explicit LaneCopies(const uint32_t* aux) : triples(aux + 1), count(aux[0]) {}
};

uint64_t* lanes64(WarpState& w, uint32_t slot) {
  return reinterpret_cast<uint64_t*>(w.regs + slot);
}

}  // namespace

// Where the frame of a function called by `lane` begins; false: it does not fit.
bool BlockImpl::next_frame(WarpState& w, uint32_t lane, uint64_t bytes, uint64_t& base) const {
  const uint64_t align = code_.frame_align, stack = lanes64(w, kStackPointer)[lane];
  base = (stack + align - 1) / align * align;
  return base >= stack && base <= local_bytes && bytes <= local_bytes - base;
}

// The callees of a call through a pointer, each with the lanes that call it. False: some lane calls
// what is no such function.
bool BlockImpl::callees_by_pointer(WarpState& w, const Inst& in, Callees& out) {
  const auto* target = reinterpret_cast<const uint64_t*>(
      ((in.a & kConstBit) != 0 ? w.consts : w.regs) + (in.a & ~kConstBit));
  uint32_t left = w.exec;
  while (left != 0) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(left));
    const uint64_t address = target[lane];
    uint32_t same = 0;
    for (uint32_t m = left; m != 0; m &= m - 1)
      same |= static_cast<uint32_t>(target[__builtin_ctz(m)] == address) << __builtin_ctz(m);
    left &= ~same;
    const uint64_t index = (address - kCodeWindow) / kFunctionStride - 1;
    const bool function = address >= kCodeWindow && address % kFunctionStride == 0 &&
                          index < code_.callables.size() && code_.callables[index].defined;
    if (!function || code_.callables[index].signature != in.b) {
      w.fault(FaultKind::kBadCall, lane, address, 0);
      detail_ = function ? "the function " + code_.callables[index].name +
                               " has other parameters than the call"
                         : "no function has this address";
      return false;
    }
    out.add(static_cast<uint32_t>(index), same);
  }
  return true;
}

// Finds a place for the frame of each lane's callee and copies the arguments into it. False: a
// stack is full.
bool BlockImpl::make_frames(WarpState& w, const Inst& in, const Callees& callees,
                            uint64_t (&bases)[kWarpLanes]) {
  const LaneCopies copies(aux + in.aux);
  for (const CalleeLanes& group : callees) {
    const Callable& callee = code_.callables[group.callable];
    for (uint32_t m = group.lanes; m != 0; m &= m - 1) {
      const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
      if (!next_frame(w, lane, callee.frame_bytes, bases[lane])) {
        w.fault(FaultKind::kStackOverflow, lane, lanes64(w, kStackPointer)[lane],
                callee.frame_bytes);
        detail_ = "the call of " + callee.name + " needs more stack than the thread's " +
                  std::to_string(local_bytes) + " bytes";
        return false;
      }
      uint8_t* local = w.local + size_t{local_bytes} * lane;
      const uint64_t frame = lanes64(w, kFramePointer)[lane];
      if (checker != nullptr) checker->new_frame(w, lane, bases[lane], callee.frame_bytes);
      for (uint32_t k = 0; k < copies.count; ++k) {
        const uint32_t* c = copies.triples + 3 * k;
        std::memmove(local + bases[lane] + c[1], local + frame + c[0], c[2]);
        if (checker != nullptr)
          checker->copy_local(w, lane, bases[lane] + c[1], frame + c[0], c[2]);
      }
    }
  }
  return true;
}

// Saves with the join what the call changes: the two pointers, and registers and predicates of
// recursive callees. False: too much is saved already.
bool BlockImpl::save_for(WarpState& w, int32_t join, const Callees& callees) {
  if (w.saved.size() <= static_cast<size_t>(join)) w.saved.resize(static_cast<size_t>(join) + 1);
  SavedCall& saved = w.saved[static_cast<size_t>(join)];
  saved.parts.clear();
  saved.bytes.assign(w.regs, w.regs + kFrameRegisterBytes);
  for (const CalleeLanes& group : callees) {
    const Callable& callee = code_.callables[group.callable];
    if (!callee.recursive) continue;
    saved.parts.push_back({group.callable, group.lanes, saved.bytes.size()});
    for (const uint32_t slot : callee.slots) {
      const uint8_t* from = w.regs + (slot & ~kWideSlot);
      saved.bytes.insert(saved.bytes.end(), from,
                         from + ((slot & kWideSlot) != 0 ? 2 * kSlotBytes : kSlotBytes));
    }
    const auto* predicates = reinterpret_cast<const uint8_t*>(w.preds + callee.first_predicate);
    saved.bytes.insert(saved.bytes.end(), predicates,
                       predicates + size_t{4} * (callee.end_predicate - callee.first_predicate));
  }
  w.saved_bytes += saved.bytes.size();
  if (w.saved_bytes <= kMaxSavedBytes) return true;
  const uint32_t first = static_cast<uint32_t>(__builtin_ctz(w.exec));
  w.fault(FaultKind::kStackOverflow, first, lanes64(w, kStackPointer)[first], 0);
  detail_ = "calls nest too deep";
  return false;
}

bool BlockImpl::call(WarpState& w, const Inst& in) {
  Callees callees;
  if (in.imm >= 0)
    callees.add(static_cast<uint32_t>(in.imm), w.exec);
  else if (!callees_by_pointer(w, in, callees))
    return false;
  uint64_t bases[kWarpLanes];
  if (!make_frames(w, in, callees, bases)) return false;

  // Lanes that do not call wait at the call's end for those that do.
  Split& split = w.splits[w.current];
  const int32_t join = w.new_join(split.pc + 1, split.mask, split.join, true);
  w.joins[static_cast<size_t>(join)].arrived = split.mask & ~w.exec;
  if (!save_for(w, join, callees)) return false;

  for (const CalleeLanes& group : callees) {
    for (uint32_t m = group.lanes; m != 0; m &= m - 1) {
      const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
      lanes64(w, kFramePointer)[lane] = bases[lane];
      lanes64(w, kStackPointer)[lane] = bases[lane] + code_.callables[group.callable].frame_bytes;
    }
  }
  const auto begin_of = [&](const CalleeLanes& g) { return code_.callables[g.callable].begin; };
  const CalleeLanes& first = *callees.begin();
  split.mask = first.lanes;
  split.join = join;
  split.pc = begin_of(first);
  for (const CalleeLanes* g = callees.begin() + 1; g != callees.end(); ++g)
    w.add_split(g->lanes, begin_of(*g), join);
  return true;
}

void BlockImpl::restore_call(WarpState& w, int32_t join, uint32_t lanes) {
  const SavedCall& saved = w.saved[static_cast<size_t>(join)];
  const auto column = [&](uint32_t slot, const uint8_t* from, bool wide, uint32_t which) {
    for (uint32_t m = which; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      const uint32_t width = wide ? 8 : 4;
      std::memcpy(w.regs + slot + size_t{width} * lane, from + size_t{width} * lane, width);
    }
  };
  column(kFramePointer, saved.bytes.data() + kFramePointer, true, lanes);
  column(kStackPointer, saved.bytes.data() + kStackPointer, true, lanes);
  for (const SavedCall::Part& part : saved.parts) {
    const uint32_t which = lanes & part.lanes;
    if (which == 0) continue;
    const Callable& callee = code_.callables[part.callable];
    const uint8_t* from = saved.bytes.data() + part.offset;
    for (const uint32_t slot : callee.slots) {
      const bool wide = (slot & kWideSlot) != 0;
      column(slot & ~kWideSlot, from, wide, which);
      from += wide ? 2 * kSlotBytes : kSlotBytes;
    }
    for (uint32_t p = callee.first_predicate; p < callee.end_predicate; ++p, from += 4) {
      uint32_t before;
      std::memcpy(&before, from, 4);
      w.preds[p] = (w.preds[p] & ~which) | (before & which);
    }
  }
}

bool BlockImpl::return_from(WarpState& w, const Inst&) {
  Split& split = w.splits[w.current];
  int32_t call = split.join;
  while (call != kNoJoin && !w.joins[static_cast<size_t>(call)].call)
    call = w.joins[static_cast<size_t>(call)].parent;
  if (call == kNoJoin) return exit_lanes(w, w.exec);  // the entry's own return
  uint32_t leaving = w.current;
  const uint32_t lanes = w.exec;
  if (lanes != split.mask) {
    leaving = split_off(w, lanes, split.pc);
    ++w.splits[w.current].pc;
  }
  restore_call(w, call, lanes);
  // They will not come to the joins of the function that they leave.
  int32_t j = w.splits[leaving].join;
  w.splits[leaving].join = call;
  while (j != call) {
    const int32_t parent = w.joins[static_cast<size_t>(j)].parent;
    w.leave_join(j, lanes);
    j = parent;
  }
  return w.arrive(leaving, call);
}

// Results, from the frames that have just ended to their callers'.
bool BlockImpl::take_results(WarpState& w, const Inst& in) {
  const LaneCopies copies(aux + in.aux);
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
    uint8_t* local = w.local + size_t{local_bytes} * lane;
    const uint64_t frame = lanes64(w, kFramePointer)[lane];
    for (uint32_t k = 0; k < copies.count; ++k) {
      const uint32_t* c = copies.triples + 3 * k;
      uint64_t base;
      if (!next_frame(w, lane, uint64_t{c[1]} + c[2], base)) {
        w.fault(FaultKind::kStackOverflow, lane, lanes64(w, kStackPointer)[lane], 0);
        return false;
      }
      std::memmove(local + frame + c[0], local + base + c[1], c[2]);
      if (checker != nullptr) checker->copy_local(w, lane, frame + c[0], base + c[1], c[2]);
    }
  }
  ++w.splits[w.current].pc;
  return true;
}

bool BlockImpl::allocate_stack(WarpState& w, const Inst& in) {
  const auto* sizes = reinterpret_cast<const uint64_t*>(
      ((in.a & kConstBit) != 0 ? w.consts : w.regs) + (in.a & ~kConstBit));
  const auto align = static_cast<uint64_t>(in.imm);
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
    uint64_t& stack = lanes64(w, kStackPointer)[lane];
    const uint64_t size = sizes[lane], at = (stack + align - 1) / align * align;
    if (at < stack || at > local_bytes || size > local_bytes - at) {
      w.fault(FaultKind::kStackOverflow, lane, stack, 0);
      detail_ = "alloca of " + std::to_string(size) + " bytes needs more stack than the thread's " +
                std::to_string(local_bytes) + " bytes";
      return false;
    }
    lanes64(w, in.d)[lane] = at;
    stack = at + size;
  }
  ++w.splits[w.current].pc;
  return true;
}

}  // namespace sluice::exec::detail
