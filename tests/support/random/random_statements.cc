// SPDX-License-Identifier: Apache-2.0
// Statements of random kernels that touch memory or need other threads: accesses, barriers,
// warp-wide instructions, atomics, calls, early exits.
#include <cstring>

#include "tests/support/random/random_generator.h"

namespace sluice::random_kernels {

// address = base + (index & mask).
void RandomGenerator::address_in(Operand address, Operand base, Operand index, uint32_t mask) {
  const Operand t = fresh('r');
  op("and.b32", t, index, Operand::imm('r', mask));
  if (address.cls == 'r') {
    op("add.u32", address, t, base);
  } else {
    const Operand wide = fresh('q');
    op("cvt.u64.u32", wide, t);
    op("add.s64", address, wide, base);
  }
}

// One load or store of some width within `room` bytes at `address`, which is aligned to `room`.
void RandomGenerator::access(MemorySpace space, Operand address, uint32_t room, bool load) {
  Ins ins;
  ins.code = load ? Code::kLoad : Code::kStore;
  ins.space = space;
  ins.a = address;
  const uint32_t widths[] = {1, 2, 4, 4, 8};
  do {
    ins.bytes = static_cast<uint8_t>(widths[below(5)]);
  } while (ins.bytes > room);
  const char cls = ins.bytes == 8                 ? (options_.floats && chance(30) ? 'd' : 'q')
                   : ins.bytes == 4               ? (options_.floats && chance(30) ? 'f' : 'r')
                   : ins.bytes == 2 && chance(40) ? 'h'
                                                  : 'r';
  uint32_t elements = 1;
  if (chance(30)) {
    if (room / ins.bytes >= 4 && ins.bytes <= 4 && chance(50))
      elements = 4;
    else if (room / ins.bytes >= 2)
      elements = 2;
  }
  if (cls == 'd' && load) elements = 1;
  ins.is_signed = load && ins.bytes < 4 && chance(50);
  const uint32_t whole = ins.bytes * elements;
  ins.imm = whole * below(room / whole);
  for (uint32_t k = 0; k < elements; ++k) {
    Operand o = user(cls);
    if (load)  // the elements of a vector must differ
      while (true) {
        bool twice = false;
        for (const Operand& other : ins.vector) twice = twice || other.reg == o.reg;
        if (!twice) break;
        o = user(cls);
      }
    ins.vector.push_back(o);
  }
  if (load && space == MemorySpace::kGlobal) ins.read_only = chance(40);
  code_->push_back(ins);
  if (load && cls == 'd') {  // any bits: make a NaN canonical
    const Operand zero = Operand::imm('d', 0x8000000000000000ull);
    op("add.f64 $0, $1, $2;setp.nan.f64 %pt, $0, $0; selp.f64 $0, 0d7FF8000000000000, $0, %pt;",
       ins.vector[0], ins.vector[0], zero);
  }
}

void RandomGenerator::local_access() {
  const uint32_t room = chance(50) ? 16 : 8;
  const bool generic = chance(30);
  Operand base = local_;
  if (generic) {
    base = fresh('q');
    Ins& window = add(Code::kAddress);
    window.sub = 3;
    window.d = base;
  }
  // and() with 64 - room keeps multiples of room for rooms of 8 and 16.
  const Operand address = fresh('q');
  address_in(address, base, chance(50) ? user('r') : random_immediate('r'),
             kLocalArrayBytes - room);
  access(generic ? MemorySpace::kGeneric : MemorySpace::kLocal, address, room, chance(50));
}

void RandomGenerator::slot_access() { access(MemorySpace::kShared, slot_, 16, chance(50)); }

void RandomGenerator::input_access() {
  const Operand address = fresh('q');
  address_in(address, input_, chance(70) ? user('r') : tid_, kInputBytes - 16);
  access(MemorySpace::kGlobal, address, 16, true);
}

// Into the last sixteen bytes of the thread's own record.
void RandomGenerator::scratch_store() {
  const Operand address = fresh('q');
  op("add.s64", address, output_, Operand::imm('q', kRecordBytes - 16));
  access(MemorySpace::kGlobal, address, 16, false);
}

// Everybody writes, all meet, everybody reads somebody else's, all meet again.
void RandomGenerator::exchange() {
  const auto meet = [this] {
    Ins& bar = add(Code::kBarrier);
    if (!exited_ && threads_ % 32 == 0 && chance(30)) {
      bar.sub = 1;
      bar.b = Operand::imm('r', below(16));
      bar.c = Operand::imm('r', threads_);
    }
  };
  access(MemorySpace::kShared, slot_, 16, false);
  meet();
  const Operand t = fresh('r'), address = fresh('r');
  if (chance(50)) {
    op("add.u32", t, tid_, Operand::imm('r', 1 + below(64)));
  } else {
    op("mov.u32", t, user('r'));
  }
  // or 1 in the row: an odd number of slots, no more than there are.
  op("or.b32 %rt, $2, 1; rem.u32 $0, $1, %rt;", t, t,
     Operand::imm('r', threads_ % 2 == 1 ? threads_ : threads_ - 1));
  op("shl.b32", t, t, Operand::imm('r', 4));
  op("add.u32", address, t, shared_);
  access(MemorySpace::kShared, address, 16, true);
  meet();
}

// A barrier that the block comes to or does not, as a whole.
void RandomGenerator::guarded_barrier() {
  const Operand p = uniform_condition();
  add(Code::kBarrier);
  guard_last(p, chance(50));
}

// Every other warp meets the rest of its group: by a barrier of each group's own, or one group only
// announces what the other waits for.
void RandomGenerator::warp_groups() {
  const Operand t = fresh('r'), p = fresh('p'), address = fresh('r');
  op("and.b32", t, tid_, Operand::imm('r', 32));
  op("setp.eq.u32", p, t, Operand::imm('r', 0));
  const auto meet = [this](uint16_t how, uint32_t number, uint32_t threads) {
    Ins& bar = add(Code::kBarrier);
    bar.sub = how;
    bar.b = Operand::imm('r', number);
    bar.c = Operand::imm('r', threads);
  };
  const bool announces = chance(40);
  const uint32_t number = 1 + below(14), partner = 64 * below(threads_ / 64);
  // Somebody of one's own group, or of the group that announces.
  op("add.u32", t, tid_, Operand::imm('r', partner));
  const Operand wraps = fresh('p'), wrapped = fresh('r');
  op("sub.u32", wrapped, t, Operand::imm('r', threads_));
  op("setp.ge.u32", wraps, t, Operand::imm('r', threads_));
  op("selp.b32", t, wrapped, t, wraps);
  if (announces) op("xor.b32", t, t, Operand::imm('r', 32));
  op("shl.b32", t, t, Operand::imm('r', 4));
  op("add.u32", address, t, shared_);
  access(MemorySpace::kShared, slot_, 16, false);
  const uint16_t others = new_label(), end = new_label();
  branch(others, p, true);
  if (announces) {
    meet(2, number, threads_);
  } else {
    meet(1, number, threads_ / 2);
    access(MemorySpace::kShared, address, 16, true);
  }
  branch(end);
  place(others);
  meet(1, announces ? number : number + 1, announces ? threads_ : threads_ / 2);
  access(MemorySpace::kShared, address, 16, true);
  place(end);
  add(Code::kBarrier);
}

void RandomGenerator::big_parameter() {
  Ins& ins = add(Code::kParam);
  ins.sub = 4;
  ins.imm = 4 * below(program_.big_parameter / 4);
  ins.d = user('r');
}

void RandomGenerator::barrier_reduce() {
  Ins& ins = add(Code::kBarrierReduce);
  ins.sub = static_cast<uint16_t>(below(3));
  ins.a = user('p');
  ins.d = ins.sub == 0 ? user('r') : user('p');
}

void RandomGenerator::collective(const Region& region) {
  const Operand mask = Operand::of('r', static_cast<uint32_t>(region.mask));
  switch (below(5)) {
    case 0: {
      Ins& ins = add(Code::kVote);
      ins.sub = static_cast<uint16_t>(below(4));
      ins.a = user('p');
      ins.d = ins.sub == 3 ? user('r') : user('p');
      ins.mask = mask;
      return;
    }
    case 1: {
      Ins& ins = add(Code::kMatch);
      ins.sub = static_cast<uint16_t>(below(2));
      ins.a = chance(70) ? user('r') : user('q');
      ins.d = user('r');
      if (ins.sub == 1) ins.d2 = user('p');
      ins.mask = mask;
      return;
    }
    case 2: {
      Ins& ins = add(Code::kReduce);
      ins.sub = static_cast<uint16_t>(below(8));
      ins.a = user('r');
      ins.d = user('r');
      ins.mask = mask;
      return;
    }
    case 3:
      add(Code::kWarpSync).mask = mask;
      return;
    default:
      return shuffle(region);
  }
}

// What comes from a lane that does not take part is undefined: it is replaced by a constant.
void RandomGenerator::shuffle(const Region& region) {
  const Operand mask = Operand::of('r', static_cast<uint32_t>(region.mask));
  Operand here = mask;
  if (masks_name_exited_) {
    const Operand always = fresh('p');
    here = fresh('r');
    op("setp.eq.u32", always, lane_, lane_);
    Ins& vote = add(Code::kVote);
    vote.sub = 3;
    vote.d = here;
    vote.a = always;
    vote.mask = mask;
  }
  const uint16_t mode = static_cast<uint16_t>(below(4));
  const Operand from = fresh('r'), t = fresh('r'), there = fresh('p'), result = fresh('r'),
                inside = fresh('p');
  const uint32_t distance = below(32);
  Operand lane = Operand::imm('r', distance);
  uint32_t clamp = mode == 0 ? 0 : 0x1f;
  switch (mode) {
    case 0:  // lanes without a source get their own
      op("sub.u32", from, lane_, lane);
      op("setp.lt.u32", there, lane_, lane);
      op("selp.b32", from, lane_, from, there);
      break;
    case 1:
      op("add.u32", from, lane_, lane);
      op("setp.gt.u32", there, from, Operand::imm('r', 31));
      op("selp.b32", from, lane_, from, there);
      break;
    case 2:
      op("xor.b32", from, lane_, lane);
      if (distance < 16 && chance(50)) clamp |= 16u << 8;
      break;
    default:
      lane = user('r');
      op("and.b32", from, lane, Operand::imm('r', 31));
  }
  op("shr.u32", t, here, from);
  op("and.b32", t, t, Operand::imm('r', 1));
  op("setp.ne.u32", there, t, Operand::imm('r', 0));
  Ins& ins = add(Code::kShuffle);
  ins.sub = mode;
  ins.d = result;
  if (chance(50)) ins.d2 = inside;
  ins.a = user('r');
  ins.b = lane;
  ins.c = Operand::imm('r', clamp);
  ins.mask = mask;
  const bool has_inside = ins.d2.cls != 0;
  op("selp.b32", user('r'), result, Operand::imm('r', 0x5a5a), there);
  if (has_inside) op("mov.pred", user('p'), inside);
}

void RandomGenerator::atomic() {
  const auto rows = atomic_rows();
  const uint32_t kind = below(static_cast<uint32_t>(rows.size()));
  const AtomicRow& row = rows[kind];
  const bool shared = options_.barriers && chance(50);
  Operand value;
  if (row.cls == 'f') {
    if (!options_.floats) return arithmetic(1);
    const Operand t = fresh('r');
    value = fresh('f');
    op("and.b32", t, user('r'), Operand::imm('r', 15));
    op("cvt.rn.f32.u32", value, t);
  } else if (kind + 1 == rows.size()) {
    value = Operand::imm('r', 1000);  // inc
  } else {
    value = user(row.cls);
  }
  Ins& ins = add(Code::kAtomic);
  ins.sub = static_cast<uint16_t>(kind);
  ins.space = shared ? MemorySpace::kShared : MemorySpace::kGlobal;
  ins.a = shared ? shared_accumulators_ : accumulators_;
  ins.imm = static_cast<int64_t>(kind) * 8;
  ins.b = value;
  ins.returns = chance(40);
  ins.bytes = row.bytes;
  if (options_.divergence && chance(30)) guard_last(user('p'), chance(50));
}

void RandomGenerator::call() {
  const uint32_t count = static_cast<uint32_t>(program_.functions.size());
  const Operand a = user('r'), b = user('r'), d = user('r');
  if (chance(65)) {
    Ins& ins = add(Code::kCall);
    ins.sub = static_cast<uint16_t>(below(count));
    ins.a = a;
    ins.b = b;
    ins.d = d;
    return;
  }
  // By address; threads may call different ones.
  const Operand pointer = fresh('q'), other = fresh('q');
  Ins& first = add(Code::kFunctionAddress);
  first.sub = static_cast<uint16_t>(below(count));
  first.d = pointer;
  Ins& second = add(Code::kFunctionAddress);
  second.sub = static_cast<uint16_t>(below(count));
  second.d = other;
  bool varies = false;
  const Operand p = condition({}, varies);
  op("selp.b64", pointer, pointer, other, p);
  Ins& ins = add(Code::kCall);
  ins.a = a;
  ins.b = b;
  ins.c = pointer;
  ins.d = d;
}

void RandomGenerator::early_exit(Region& region) {
  const Operand p = fresh('p');
  const Operand t = fresh('r');
  op("and.b32", t, chance(50) ? tid_ : user('r'), Operand::imm('r', 7));
  op("setp.eq.u32", p, t, Operand::imm('r', below(8)));
  if (region.mask == static_cast<int>(mask_.reg) && region.depth == 0 && options_.collectives &&
      (masks_name_exited_ ? chance(40) : !masks_stale_)) {
    // Those that stay know who they are.
    const Operand stay = fresh('p');
    op("not.pred", stay, p);
    Ins& vote = add(Code::kVote);
    vote.sub = 3;
    vote.d = mask_;
    vote.a = stay;
    vote.mask = mask_;
  } else {
    masks_stale_ = true;
  }
  exited_ = true;
  const uint16_t past = new_label();
  branch(past, p, true);
  store_registers();
  add(Code::kExit);
  place(past);
}

}  // namespace sluice::random_kernels
