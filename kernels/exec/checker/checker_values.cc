// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/checker/checker_values.h"

#include <array>
#include <string_view>

#include "kernels/exec/checker/checker_block.h"
#include "kernels/exec/program/ops.h"

namespace sluice::exec::detail {
namespace {

enum class Shape : uint8_t {
  kNone,       // memory, control: not here
  kPlain,      // d from a, b, c, e
  kCompare,    // predicate d from a, b, and where it combines predicate c
  kSelect,     // d = predicate c ? a : b
  kPredicate,  // predicate d from predicates a, b
  kAnd,        // a false or zero operand decides, whatever the other is
  kOr,         // likewise one that is true
  kAnd32,
  kUnknown,  // many registers, in aux
};

Shape shape_of(std::string_view name) {
  if (name.starts_with("setp_") || name.starts_with("testp_") || name == "isspacep")
    return Shape::kCompare;
  if (name.starts_with("selp_")) return Shape::kSelect;
  if (name == "and_pred") return Shape::kAnd;
  if (name == "or_pred") return Shape::kOr;
  if (name == "xor_pred" || name == "not_pred" || name == "mov_pred") return Shape::kPredicate;
  if (name == "and_b32") return Shape::kAnd32;
  for (const std::string_view head :
       {"mma", "movmatrix", "mbarpending", "tex", "txq", "suld", "sust", "sured", "tld4"})
    if (name.starts_with(head)) return Shape::kUnknown;
  return Shape::kPlain;
}

#define SLUICE_EXEC_SHAPE_OF(name, handler) shape_of(#name),
#define SLUICE_EXEC_NO_SHAPE(name) Shape::kNone,

struct Shapes {
  std::array<Shape, kOpCount> of = {SLUICE_EXEC_LANE_OPS(SLUICE_EXEC_SHAPE_OF)
                                        SLUICE_EXEC_CONTROL_OPS(SLUICE_EXEC_NO_SHAPE)};
  Shapes() {
    for (uint16_t k = 0; k < kOpCount; ++k)
      if (memory_op(k).kind != MemoryOp::kNone) of[k] = Shape::kNone;
  }
};

Shape shape(uint16_t op) {
  static const Shapes shapes;
  return shapes.of[op];
}

}  // namespace

bool follows_values(uint16_t op) { return shape(op) != Shape::kNone; }

void ValueShadow::start(uint32_t warps, uint32_t register_bytes, uint32_t predicates) {
  slots_ = register_bytes / kSlotBytes;
  predicates_count_ = predicates;
  registers_.assign(size_t{warps} * slots_, {});
  predicates_.assign(size_t{warps} * predicates, {});
  dirty_.assign(warps, false);
}

const ValueShadow::Cell* ValueShadow::register_cell(uint32_t warp, uint32_t offset) const {
  if ((offset & kConstBit) != 0 || offset % kSlotBytes != 0 || offset / kSlotBytes >= slots_)
    return nullptr;  // a constant, nothing, or no register at all
  return &registers_[size_t{warp} * slots_ + offset / kSlotBytes];
}
ValueShadow::Cell* ValueShadow::register_cell(uint32_t warp, uint32_t offset) {
  return const_cast<Cell*>(static_cast<const ValueShadow*>(this)->register_cell(warp, offset));
}

uint32_t ValueShadow::undefined(const Warp& w, uint32_t operand, Origin& origin) const {
  const Cell* cell = register_cell(w.index, operand);
  if (cell == nullptr || (cell->lanes & w.exec) == 0) return 0;
  origin = cell->origin;
  return cell->lanes & w.exec;
}

uint32_t ValueShadow::undefined_predicate(const Warp& w, uint32_t operand, Origin& origin) const {
  if (operand == kNoOperand || (operand & ~kPredNegate) >= predicates_count_) return 0;
  const Cell& cell = predicates_[size_t{w.index} * predicates_count_ + (operand & ~kPredNegate)];
  if ((cell.lanes & w.exec) == 0) return 0;
  origin = cell.origin;
  return cell.lanes & w.exec;
}

void ValueShadow::set(const Warp& w, uint32_t reg, uint32_t lanes, const Origin& origin) {
  Cell* cell = register_cell(w.index, reg);
  if (cell == nullptr) return;
  cell->lanes = (cell->lanes & ~w.exec) | lanes;
  if (lanes == 0) return;
  cell->origin = origin;
  dirty_[w.index] = true;
}

void ValueShadow::define_results(const Warp& w, const Inst& in) {
  if (!dirty_[w.index]) return;
  for (const uint32_t result : {in.d, in.e}) {
    if (Cell* cell = register_cell(w.index, result); cell != nullptr) cell->lanes &= ~w.exec;
    if (result < predicates_count_)
      predicates_[size_t{w.index} * predicates_count_ + result].lanes &= ~w.exec;
  }
}

namespace {

// Of the predicate that the instruction makes.
uint32_t undefined_truth(const ValueShadow& values, const Warp& w, const Inst& in, Shape form,
                         ValueShadow::Origin& origin) {
  if (form == Shape::kCompare) {
    const uint32_t lanes = values.undefined(w, in.a, origin) | values.undefined(w, in.b, origin);
    const uint32_t combine = in.mod & kModCombineMask;
    if (combine == 0) return lanes;
    const uint32_t other = values.undefined_predicate(w, in.c, origin), value = w.pred(in.c);
    // The other predicate may decide alone.
    const uint32_t decided = combine == kModAnd  ? ~value & ~other
                             : combine == kModOr ? value & ~other
                                                 : 0;
    return (lanes | other) & ~decided;
  }
  const uint32_t a = values.undefined_predicate(w, in.a, origin);
  const uint32_t b = values.undefined_predicate(w, in.b, origin);
  if (form == Shape::kPredicate) return a | b;
  const uint32_t flip = form == Shape::kAnd ? 0xffffffffu : 0;  // the value that decides: false
  const uint32_t by_a = (w.pred(in.a) ^ flip) & ~a, by_b = (w.pred(in.b) ^ flip) & ~b;
  return (a | b) & ~by_a & ~by_b;
}

// Of the register that the instruction makes.
uint32_t undefined_value(const ValueShadow& values, const Warp& w, const Inst& in, Shape form,
                         ValueShadow::Origin& origin) {
  if (form == Shape::kSelect) {
    const uint32_t chosen = w.pred(in.c);
    const uint32_t a = values.undefined(w, in.a, origin) & chosen;
    const uint32_t b = values.undefined(w, in.b, origin) & ~chosen;
    return a | b | values.undefined_predicate(w, in.c, origin);
  }
  if (form == Shape::kAnd32) {
    const uint32_t a = values.undefined(w, in.a, origin), b = values.undefined(w, in.b, origin);
    // Lanes in which an operand is known to be 0, which decides alone.
    const auto zeros = [&](uint32_t operand, uint32_t unknown) {
      const auto* v = reinterpret_cast<const uint32_t*>(
          ((operand & kConstBit) != 0 ? w.consts : w.regs) + (operand & ~kConstBit));
      uint32_t zero = 0;
      for (uint32_t i = 0; i < kWarpLanes; ++i) zero |= static_cast<uint32_t>(v[i] == 0) << i;
      return zero & ~unknown;
    };
    return (a | b) & ~zeros(in.a, a) & ~zeros(in.b, b);
  }
  uint32_t lanes = 0;
  for (const uint32_t operand : {in.a, in.b, in.c, in.e})
    lanes |= values.undefined(w, operand, origin);
  return lanes;
}

}  // namespace

Flow ValueShadow::execute(Warp& w, const Inst& in, Handler handler) {
  if (!dirty_[w.index]) return handler(w, in);
  const Shape form = shape(in.op);
  if (form == Shape::kUnknown) {
    for (uint32_t k = 0; k < slots_; ++k) registers_[size_t{w.index} * slots_ + k].lanes &= ~w.exec;
    return handler(w, in);
  }
  // Before it runs: it may overwrite what it reads.
  const uint32_t exec = w.exec;
  Origin origin;
  const bool predicate = form == Shape::kCompare || form == Shape::kPredicate ||
                         form == Shape::kAnd || form == Shape::kOr;
  const uint32_t lanes = exec & (predicate ? undefined_truth(*this, w, in, form, origin)
                                           : undefined_value(*this, w, in, form, origin));
  const Flow flow = handler(w, in);
  if (flow != Flow::kNext) return flow;
  if (!predicate) {
    set(w, in.d, lanes, origin);
  } else if (in.d < predicates_count_) {
    Cell& cell = predicates_[size_t{w.index} * predicates_count_ + in.d];
    cell.lanes = (cell.lanes & ~exec) | lanes;
    if (lanes != 0) cell.origin = origin;
  }
  return flow;
}

}  // namespace sluice::exec::detail
