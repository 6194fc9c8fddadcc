// SPDX-License-Identifier: Apache-2.0
// Statements and control flow of random kernels; see random_kernel.h for what holds for them.
#include "tests/support/random/random_generator.h"

#include <cstdlib>
#include <cstring>

namespace sluice::random_kernels {

RandomGenerator::RandomGenerator(const RandomKernelOptions& options)
    : options_(options), random_(options.seed * 0x9e3779b97f4a7c15ull + 1) {}

// --- building blocks ---

Ins& RandomGenerator::add(Code code) {
  Ins ins;
  ins.code = code;
  code_->push_back(ins);
  return code_->back();
}

// Registers of one statement's own. They are used again by later statements: those that live longer
// (masks, counters) are only taken where the number has been raised for good.
Operand RandomGenerator::fresh(char cls) {
  uint32_t& next = next_[class_index(cls)];
  // Far more than a kernel of any size here needs at once; statements_ resets the number.
  if (next + 1 >= kRegistersPerClass) std::abort();
  return Operand::of(cls, next++);
}

Operand RandomGenerator::random_immediate(char cls) {
  static constexpr uint64_t kInts[] = {
      0, 1, 2, 5, 16, 31, 32, 33, 63, 255, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff};
  static constexpr uint32_t kFloats[] = {0,          0x80000000, 0x3f800000, 0xbf000000,
                                         0x40490fdb, 0x7f800000, 0xff800000, 0x7fffffff,
                                         0x00000001, 0x4f000000, 0x7f7fffff, 0x00800000};
  switch (cls) {
    case 'f':
      return Operand::imm('f', kFloats[below(std::size(kFloats))]);
    case 'd': {
      static constexpr double kDoubles[] = {0.0, -0.0, 1.0, -2.5, 1e300, 1e-310, 3.0e9};
      uint64_t v;
      std::memcpy(&v, &kDoubles[below(std::size(kDoubles))], 8);
      return Operand::imm('d', v);
    }
    case 'h':
      return Operand::imm('h', below(2) == 0 ? kInts[below(10)] : bits() & 0xffff);
    case 'q':
      return Operand::imm('q', below(2) == 0 ? kInts[below(std::size(kInts))] : bits());
    default:
      return Operand::imm('r',
                          below(2) == 0 ? kInts[below(std::size(kInts))] : bits() & 0xffffffff);
  }
}

Operand RandomGenerator::any(char cls) {
  if (in_function_) return chance(25) ? random_immediate('r') : Operand::of('r', below(8));
  if (cls != 'p' && chance(25)) return random_immediate(cls);
  // Now and then what differs surely between threads or blocks.
  if (cls == 'r' && chance(8)) return chance(50) ? tid_ : block_;
  return user(cls);
}

uint16_t RandomGenerator::row_of(const char* ptx, char result, char first) const {
  const auto rows = op_rows();
  for (uint16_t k = 0; k < rows.size(); ++k)
    if (std::strcmp(rows[k].ptx, ptx) == 0 && rows[k].signature[0] == result &&
        (first == 0 || rows[k].signature[1] == first))
      return k;
  std::abort();  // a name misspelt in this file
}

void RandomGenerator::op(const char* ptx, Operand d, Operand a, Operand b, Operand c) {
  const uint16_t row = row_of(ptx, d.cls, a.cls);
  Ins& ins = add(Code::kOp);
  ins.sub = row;
  ins.d = d;
  ins.a = a;
  ins.b = b;
  ins.c = c;
}

void RandomGenerator::guard_last(Operand predicate, bool negate) {
  code_->back().guard = predicate;
  code_->back().guard_not = negate;
}

void RandomGenerator::place(uint16_t label) { add(Code::kLabel).sub = label; }

void RandomGenerator::branch(uint16_t label, Operand guard, bool negate) {
  Ins& ins = add(Code::kBranch);
  ins.sub = label;
  ins.guard = guard;
  ins.guard_not = negate;
}

void RandomGenerator::random_op(bool guarded) {
  const auto rows = op_rows();
  uint16_t row;
  for (;;) {
    row = static_cast<uint16_t>(below(static_cast<uint32_t>(rows.size())));
    if (options_.only_operation >= 0 && !in_function_) {
      row = static_cast<uint16_t>(options_.only_operation);
      if (std::strchr(rows[row].ptx, ';') != nullptr ||
          std::strncmp(rows[row].ptx, "testp", 5) == 0)
        guarded = false;
      break;
    }
    const OpRow& candidate = rows[row];
    if (candidate.is_float && (!options_.floats || in_function_)) continue;
    // Functions have b32 registers only, and nothing that needs a temporary.
    if (in_function_ &&
        std::string(candidate.signature).find_first_not_of('r') != std::string::npos)
      continue;
    // A guard stands before one instruction. Not before testp: ptxas 13.0 writes its predicate also
    // where the guard is false (an H200's results of random kernels 5064, 5106, 5266 and 5307).
    if ((guarded || in_function_) && std::strchr(candidate.ptx, ';') != nullptr) continue;
    if (guarded && std::strncmp(candidate.ptx, "testp", 5) == 0) continue;
    break;
  }
  const char* signature = rows[row].signature;
  Ins ins;
  ins.sub = row;
  ins.d = in_function_ ? Operand::of('r', 2 + below(6)) : user(signature[0]);
  Operand* const to[] = {&ins.a, &ins.b, &ins.c};
  const bool template_text = std::strchr(rows[row].ptx, '$') != nullptr;
  for (uint32_t k = 0; signature[1 + k] != 0; ++k) {
    // One operand stays a register, and odd syntax takes only registers; nothing of PTX forbids
    // more, but that is what compilers write. Halves have no immediates.
    const bool registers_only =
        k == 0 || template_text || std::strstr(rows[row].ptx, "f16") != nullptr;
    *to[k] = registers_only ? (in_function_ ? Operand::of('r', below(8)) : user(signature[1 + k]))
                            : any(signature[1 + k]);
  }
  if (guarded) {
    ins.guard = user('p');
    ins.guard_not = chance(50);
  }
  code_->push_back(ins);
}

void RandomGenerator::arithmetic(uint32_t count) {
  for (uint32_t k = 0; k < count; ++k)
    random_op(!in_function_ && options_.divergence && chance(15));
}

// The same in all threads of a block.
Operand RandomGenerator::uniform_condition() {
  const Operand p = fresh('p'), t = fresh('r');
  op("xor.b32", t, scalar_, block_);
  op("shr.u32", t, t, Operand::imm('r', below(8)));
  op("and.b32", t, t, Operand::imm('r', 1));
  op("setp.ne.u32", p, t, Operand::imm('r', 0));
  return p;
}

// A predicate to branch on. `varies`: between the threads of a block.
Operand RandomGenerator::condition(const Region&, bool& varies) {
  varies = options_.divergence && chance(75);
  if (!varies) return uniform_condition();
  const Operand p = fresh('p'), t = fresh('r');
  switch (below(4)) {
    case 0:
      op("and.b32", t, tid_, Operand::imm('r', 1u << below(6)));
      op("setp.ne.u32", p, t, Operand::imm('r', 0));
      break;
    case 1:
      op("setp.lt.u32", p, lane_, Operand::imm('r', below(33)));
      break;
    case 2:
      op("and.b32", t, user('r'), Operand::imm('r', 3));
      op("setp.eq.u32", p, t, Operand::imm('r', below(4)));
      break;
    default:
      op("mov.pred", p, user('p'));
  }
  return p;
}

// --- control flow ---

void RandomGenerator::statements(Region region, uint32_t count) {
  for (uint32_t k = 0; k < count && budget_ > 0; ++k) {
    // What a statement took is free again behind it.
    const auto before = next_;
    const int mask = region.mask;
    statement(region);
    if (region.mask == mask) next_ = before;
  }
}

void RandomGenerator::statement(Region& region) {
  --budget_;
  if (options_.only_operation >= 0) return arithmetic(1);
  const bool collectives = knows_lanes(region);
  const bool barriers = options_.barriers && region.uniform;
  for (;;) {
    switch (below(23)) {
      case 0:
      case 1:
        if (region.depth >= 4) break;
        return if_statement(region);
      case 2:
      case 3:
        if (region.depth >= 3) break;
        return loop(region);
      case 4:
        if (region.depth >= 4) break;
        return switch_statement(region);
      case 5:
        if (!options_.local_memory) break;
        return local_access();
      case 6:
        if (!options_.barriers) break;
        return slot_access();
      case 7:
        return input_access();
      case 8:
        if (!barriers) break;
        return exchange();
      case 9:
        if (!barriers) break;
        return barrier_reduce();
      case 10:
      case 11:
        if (!collectives) break;
        return collective(region);
      case 12:
        if (!options_.atomics) break;
        return atomic();
      case 13:
        if (!options_.calls || program_.functions.empty()) break;
        return call();
      case 14:
        if (!options_.early_exit || groups_ || !region.exits || !options_.divergence || chance(60))
          break;
        return early_exit(region);
      case 15:
        return scratch_store();
      case 16:
        if (!barriers || chance(50)) break;
        return guarded_barrier();
      case 17:
        if (!barriers || !groups_) break;
        return warp_groups();
      case 18:
        if (program_.big_parameter == 0) break;
        return big_parameter();
      default:
        return arithmetic(1 + below(5));
    }
  }
}

void RandomGenerator::if_statement(const Region& region) {
  bool varies = false;
  const Operand p = condition(region, varies);
  Region then_side = region, else_side = region;
  ++then_side.depth;
  ++else_side.depth;
  if (varies) {
    then_side.uniform = else_side.uniform = false;
    const bool masks = knows_lanes(region) && chance(60);
    then_side.mask = else_side.mask = -1;
    if (masks) {
      const Operand yes = fresh('r'), no = fresh('r');
      Ins& vote = add(Code::kVote);
      vote.sub = 3;
      vote.d = yes;
      vote.a = p;
      vote.mask = Operand::of('r', static_cast<uint32_t>(region.mask));
      op("not.b32", no, yes);
      op("and.b32", no, no, Operand::of('r', static_cast<uint32_t>(region.mask)));
      then_side.mask = yes.reg;
      else_side.mask = no.reg;
    }
  }
  const uint16_t otherwise = new_label(), end = new_label();
  const bool has_else = chance(50);
  branch(otherwise, p, true);
  statements(then_side, 1 + below(3));
  if (has_else) branch(end);
  place(otherwise);
  if (has_else) {
    statements(else_side, 1 + below(3));
    place(end);
  }
}

void RandomGenerator::loop(const Region& region) {
  if (knows_lanes(region) && chance(50)) {
    masked_loop(region);
  } else {
    plain_loop(region);
  }
}

// while (i < n) with the mask of those that are still in it.
void RandomGenerator::masked_loop(const Region& region) {
  const Operand i = fresh('r'), n = fresh('r'), mask = fresh('r'), p = fresh('p');
  const bool varies = options_.divergence && chance(60);
  if (varies) {
    op("and.b32", n, chance(50) ? tid_ : user('r'), Operand::imm('r', 3));
  } else {
    op("and.b32", n, scalar_, Operand::imm('r', 3));
  }
  op("mov.u32", i, Operand::imm('r', 0));
  op("mov.u32", mask, Operand::of('r', static_cast<uint32_t>(region.mask)));
  const uint16_t head = new_label(), end = new_label();
  place(head);
  op("setp.lt.u32", p, i, n);
  Ins& vote = add(Code::kVote);
  vote.sub = 3;
  vote.d = mask;
  vote.a = p;
  vote.mask = mask;
  branch(end, p, true);
  Region body = region;
  body.uniform = region.uniform && !varies;
  body.in_loop = true;
  body.exits = false;
  body.mask = mask.reg;
  ++body.depth;
  statements(body, 1 + below(3));
  op("add.u32", i, i, Operand::imm('r', 1));
  branch(head);
  place(end);
}

// Any loop: test first or last, perhaps with a way out or back in the middle.
void RandomGenerator::plain_loop(const Region& region) {
  const Operand i = fresh('r'), n = fresh('r'), p = fresh('p');
  const bool varies = options_.divergence && chance(70);
  if (varies) {
    op("and.b32", n, chance(50) ? lane_ : user('r'), Operand::imm('r', 7));
  } else {
    op("mov.u32", n, Operand::imm('r', 1 + below(5)));
  }
  op("mov.u32", i, Operand::imm('r', 0));
  const uint16_t head = new_label(), next = new_label(), end = new_label();
  const bool test_first = chance(50), leaves = options_.divergence && chance(30),
             skips = options_.divergence && chance(30);
  place(head);
  if (test_first) {
    op("setp.ge.u32", p, i, n);
    branch(end, p);
  }
  Region body = region;
  body.uniform = region.uniform && !varies && !leaves && !skips;
  body.mask = body.uniform ? region.mask : -1;
  body.in_loop = true;
  // Whoever exits in here is also missing in what stands above, when that runs again.
  body.exits = region.exits && masks_name_exited_ && chance(50);
  if (body.exits && options_.early_exit && options_.divergence) exited_ = masks_stale_ = true;
  ++body.depth;
  statements(body, 1 + below(2));
  if (leaves || skips) {
    bool ignored = false;
    const Operand out = condition(region, ignored);
    branch(leaves ? end : next, out);
    statements(body, 1);
  }
  place(next);
  op("add.u32", i, i, Operand::imm('r', 1));
  if (test_first) {
    branch(head);
  } else {
    op("setp.lt.u32", p, i, n);
    branch(head, p);
  }
  place(end);
}

void RandomGenerator::switch_statement(const Region& region) {
  const uint32_t count = 2 + below(4);
  const Operand index = fresh('r');
  const bool varies = options_.divergence && chance(75);
  op("and.b32", index, varies ? user('r') : scalar_, Operand::imm('r', 0xffff));
  op("or.b32 %rt, $2, 1; rem.u32 $0, $1, %rt;", index, index, Operand::imm('r', count | 1));
  op("min.u32", index, index, Operand::imm('r', count - 1));
  std::vector<uint16_t> labels;
  for (uint32_t k = 0; k < count; ++k) labels.push_back(new_label());
  const uint16_t end = new_label();
  Ins& ins = add(Code::kSwitch);
  ins.a = index;
  ins.labels = labels;
  ins.sub = new_label();  // names the list of targets
  Region side = region;
  side.uniform = region.uniform && !varies;
  side.mask = varies ? -1 : region.mask;
  ++side.depth;
  for (uint32_t k = 0; k < count; ++k) {
    place(labels[k]);
    statements(side, 1);
    if (chance(75)) branch(end);  // otherwise on into the next case
  }
  place(end);
}

}  // namespace sluice::random_kernels
