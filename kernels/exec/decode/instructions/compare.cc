// SPDX-License-Identifier: Apache-2.0
// Moves, comparisons, selections and conversions.
#include "kernels/exec/decode/decoder.h"

namespace sluice::exec::detail {
namespace {

// u8 s8 u16 s16 u32 s32 u64 s64 f16 bf16 f32 f64, as ops_convert.cc has it.
int64_t type_code(Type type) {
  switch (type) {
    case Type::kF16:
      return 8;
    case Type::kBf16:
      return 9;
    case Type::kF32:
      return 10;
    case Type::kF64:
      return 11;
    default:
      break;
  }
  const int64_t size = bits_of(type) == 8    ? 0
                       : bits_of(type) == 16 ? 2
                       : bits_of(type) == 32 ? 4
                                             : 6;
  return size + (is_signed(type) ? 1 : 0);
}

Type untyped(uint32_t bits) {
  return bits == 32 ? Type::kB32 : bits == 16 ? Type::kB16 : Type::kB8;
}

}  // namespace

// mov.v4.u32 {a, b, c, d}, %tid: a special register with its dimensions; the fourth is 0.
bool Decoder::move_dimensions(Type type) {
  const std::vector<std::string_view> to = braces(text(0));
  const std::string base(text(1));
  if (type != Type::kU32 || to.size() != 4 || base.substr(0, 1) != "%") return unsupported();
  static constexpr const char* kDimensions[] = {".x", ".y", ".z"};
  for (size_t k = 0; k < to.size(); ++k) {
    Operand a, d;
    if (k == 3)
      a = constant(0, 4);
    else if (!special_register(base + kDimensions[k], type, a))
      return unsupported();
    if (to[k] == "_") continue;
    if (!destination(to[k], type, d)) return false;
    emit("mov_b32", 0, 0, d, a);
  }
  return true;
}

// mov.b64 {a, b}, d: a register's parts.
bool Decoder::unpack(Type type, const std::vector<std::string_view>& to) {
  const uint32_t bits = bits_of(type), part = bits / static_cast<uint32_t>(to.size());
  Operand a;
  if (!source(text(1), type, a)) return false;
  const char* op = bits == 64 && part == 32   ? "part_b32_b64"
                   : bits == 64 && part == 16 ? "part_b16_b64"
                   : bits == 32 && part == 16 ? "part_b16_b32"
                   : bits == 32 && part == 8  ? "part_b8_b32"
                                              : nullptr;
  if (op == nullptr) return unsupported();
  for (size_t k = 0; k < to.size(); ++k) {
    if (to[k] == "_") continue;
    Operand d;
    if (!destination(to[k], untyped(part), d)) return false;
    emit(op, 0, static_cast<int64_t>(k), d, a);
  }
  return true;
}

// mov.b64 d, {a, b}: a register of parts.
bool Decoder::pack(Type type, const std::vector<std::string_view>& from) {
  const uint32_t bits = bits_of(type), part = bits / static_cast<uint32_t>(from.size());
  const char* op = bits == 64 && part == 32   ? "pack2_b64"
                   : bits == 64 && part == 16 ? "pack4_b64"
                   : bits == 32 && part == 16 ? "pack2_b32"
                   : bits == 32 && part == 8  ? "pack4_b32"
                                              : nullptr;
  if (op == nullptr) return unsupported();
  Operand p[4], d;
  for (size_t k = 0; k < from.size(); ++k)
    if (!source(from[k], untyped(part), p[k])) return false;
  if (!destination(text(0), type, d)) return false;
  emit(op, 0, 0, d, p[0], p[1], p[2], p[3]);
  return true;
}

// mov.v2 d, {a, b}: either side may also be a register that is a vector. All is read first.
bool Decoder::move_parts(Type type, size_t width) {
  const std::vector<std::string_view> to = braces(text(0)), from = braces(text(1));
  if (to.size() != width || from.size() != width || bits_of(type) > 64) return unsupported();
  const char* op = bits_of(type) == 64 ? "mov_b64" : "mov_b32";
  Operand values[4];
  for (size_t k = 0; k < width; ++k) {
    Operand a;
    if (!source(from[k], type, a)) return false;
    values[k] = temporary(bits_of(type) == 64 ? 8 : 4);
    emit(op, 0, 0, values[k], a);
  }
  for (size_t k = 0; k < width; ++k) {
    Operand d;
    if (!destination(to[k], type, d)) return false;
    emit(op, 0, 0, d, values[k]);
  }
  return true;
}

bool Decoder::do_mov() {
  const size_t width = take("v4") ? 4 : take("v2") ? 2 : 1;
  const Type type = take_type();
  if (!all_taken()) return false;
  if (operand_count() != 2) return false;
  if (width == 4 && braces(text(1)).empty()) return move_dimensions(type);
  if (width > 1) return move_parts(type, width);
  if (type == Type::kB128) return do_mov128();
  if (type == Type::kPred) {
    uint32_t d, a;
    if (!destination_pred(text(0), d) || d == kNoOperand || !source_pred(text(1), a)) return false;
    emit("mov_pred", 0, 0, raw(d), raw(a));
    return true;
  }
  if (const auto to = braces(text(0)); !to.empty()) return unpack(type, to);
  if (const auto from = braces(text(1)); !from.empty()) return pack(type, from);
  const uint32_t bits = bits_of(type);
  Operand d, a;
  if (bits == 128) return unsupported();
  if (!source(text(1), type, a)) return false;
  if (!destination(text(0), type, d)) return false;
  emit(bits == 64 ? "mov_b64" : "mov_b32", 0, 0, d, a);
  return true;
}

// The comparison, the combination and the type of setp and set; `name` becomes "setp_lt_ftz_f32".
bool Decoder::compare_words(Type& type, std::string& name, uint16_t& mod) {
  static constexpr std::string_view words[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",
                                               "lo",  "ls",  "hi",  "hs",  "equ", "neu",
                                               "ltu", "leu", "gtu", "geu", "num", "nan"};
  std::string compare;
  for (const std::string_view word : words)
    if (compare.empty() && take(word)) compare = word;
  if (compare == "lo") compare = "lt";
  if (compare == "ls") compare = "le";
  if (compare == "hi") compare = "gt";
  if (compare == "hs") compare = "ge";
  mod = take("and") ? kModAnd : take("or") ? kModOr : take("xor") ? kModXor : kModNone;
  const bool ftz = take("ftz");
  type = take_type();
  if (compare.empty() || type == Type::kNone || type == Type::kPred || bits_of(type) == 8 ||
      (ftz && is_float(type) && type != Type::kF32 && type != Type::kF16 && type != Type::kF16x2))
    return unsupported();
  flush_compared_ = ftz && (type == Type::kF16 || type == Type::kF16x2);
  // Pairs are compared half by half.
  const Type half = type == Type::kF16x2 ? Type::kF16 : type == Type::kBf16x2 ? Type::kBf16 : type;
  name = "setp_" + compare + (ftz && type == Type::kF32 ? "_ftz_" : "_") + exact_name(half);
  return true;
}

// Half `part` of a pair.
Operand Decoder::half_of(Operand pair, int64_t part) {
  const Operand half = temporary(4);
  emit("part_b16_b32", 0, part, half, pair);
  return half;
}

bool Decoder::do_setp() {
  Type type;
  std::string name;
  uint16_t mod;
  if (!compare_words(type, name, mod) || !all_taken()) return false;
  if (operand_count() != (mod != 0 ? 4u : 3u)) return false;
  uint32_t p = kNoOperand, q = kNoOperand, c = kNoOperand;
  const size_t bar = text(0).find('|');
  if (!destination_pred(text(0).substr(0, bar), p)) return false;
  if (bar != std::string_view::npos && !destination_pred(text(0).substr(bar + 1), q)) return false;
  Operand a, b;
  if (!source(text(1), type, a) || !source(text(2), type, b)) return false;
  if (flush_compared_) {
    a = flushed_half(a, type);
    b = flushed_half(b, type);
  }
  if (mod != 0 && !source_pred(text(3), c)) return false;
  if (type == Type::kF16x2 || type == Type::kBf16x2) {  // p of the lower halves, q of the upper
    const Operand low_a = half_of(a, 0), low_b = half_of(b, 0), high_a = half_of(a, 1),
                  high_b = half_of(b, 1);
    emit(name, mod, 0, raw(p), low_a, low_b, raw(c));
    emit(name, mod, 0, raw(q), high_a, high_b, raw(c));
    return true;
  }
  emit(name, mod, 0, raw(p), a, b, raw(c), raw(q));
  return true;
}

bool Decoder::do_set() {
  // set.cmp[.bool].dtype.stype: the result's type comes first.
  const Type d = take_type();
  Type type;
  std::string name;
  uint16_t mod;
  if (!compare_words(type, name, mod) || !all_taken()) return false;
  const bool pair = type == Type::kF16x2 || type == Type::kBf16x2;
  if (pair          ? d != type && d != Type::kU32 && d != Type::kS32
      : is_float(d) ? d != Type::kF32 && d != type
                    : bits_of(d) != 32 && bits_of(d) != 16)
    return unsupported();
  // "True": all ones, or one.
  const uint32_t yes = d == Type::kF32                          ? 0x3f800000u
                       : d == Type::kF16 || d == Type::kF16x2   ? 0x3c00u
                       : d == Type::kBf16 || d == Type::kBf16x2 ? 0x3f80u
                                                                : 0xffffffffu;
  if (operand_count() != (mod != 0 ? 4u : 3u)) return false;
  uint32_t c = kNoOperand;
  Operand a, b, out;
  if (!source(text(1), type, a) || !source(text(2), type, b)) return false;
  if (flush_compared_) {
    a = flushed_half(a, type);
    b = flushed_half(b, type);
  }
  if (mod != 0 && !source_pred(text(3), c)) return false;
  if (!destination(text(0), d, out)) return false;
  const uint32_t p = module_.program->code.predicates++;
  if (pair) {
    Operand halves[2];
    for (int64_t k = 0; k < 2; ++k) {
      const Operand left = half_of(a, k), right = half_of(b, k);
      emit(name, mod, 0, raw(p), left, right, raw(c));
      halves[k] = temporary(4);
      emit("selp_b32", 0, 0, halves[k], constant(yes, 4), constant(0, 4), raw(p));
    }
    emit("pack2_b32", 0, 0, out, halves[0], halves[1]);
    return true;
  }
  emit(name, mod, 0, raw(p), a, b, raw(c));
  emit("selp_b32", 0, 0, out, constant(yes, 4), constant(0, 4), raw(p));
  return true;
}

bool Decoder::do_selp() {
  const Type type = take_type();
  if (!all_taken()) return false;
  Operand a, b, d;
  uint32_t p;
  if (operand_count() != 4 || !source(text(1), type, a) || !source(text(2), type, b) ||
      !source_pred(text(3), p) || !destination(text(0), type, d))
    return false;
  emit(bits_of(type) == 64 ? "selp_b64" : "selp_b32", 0, 0, d, a, b, raw(p));
  return true;
}

bool Decoder::do_slct() {
  take("ftz");
  const Type type = take_type(), condition = take_type();
  if (condition != Type::kS32 && condition != Type::kF32) return unsupported();
  return simple(
      std::string("slct_") + (bits_of(type) == 64 ? "b64_" : "b32_") + exact_name(condition), type,
      {type, type, condition});
}

uint16_t Decoder::Conversion::modifiers() const {
  return static_cast<uint16_t>(round | (ftz ? kModFtz : 0) | (sat ? kModSat : 0) |
                               (relu ? kModRelu : 0));
}

// Two floats to a pair of halves.
bool Decoder::cvt_to_pair(const Conversion& c) {
  if (c.round != kRn || c.sat) return unsupported();
  const std::string pair = exact_name(c.to);
  if (!simple("cvt_rn_" + pair + "_f32", c.to, {c.from, c.from})) return false;
  if (!c.relu) return true;
  Operand d;
  if (!destination(text(0), c.to, d)) return false;
  emit("hrelu_" + pair, 0, 0, d, d);
  return true;
}

bool Decoder::cvt_to_integer(const Conversion& c) {
  const std::string types = std::string(exact_name(c.to)) + "_" + exact_name(c.from);
  const int64_t codes = type_code(c.to) | type_code(c.from) << 4;
  if (!is_float(c.from))
    return c.sat ? simple("cvtsat_int", c.to, {c.from}, 0, codes)
                 : simple("cvt_" + types, c.to, {c.from});
  const bool wide = c.from == Type::kF32 || c.from == Type::kF64;
  if (c.round == kRz && !c.ftz && wide && bits_of(c.to) >= 32)
    return simple("cvt_rzi_" + types, c.to, {c.from});
  // Float to integer always rounds; to nearest even only if nothing else is said, which PTX
  // forbids.
  return simple("cvt_any", c.to, {c.from}, static_cast<uint16_t>(c.modifiers() | kModRint), codes);
}

bool Decoder::cvt_to_float(const Conversion& c) {
  const Type to = c.to, from = c.from;
  const std::string types = std::string(exact_name(to)) + "_" + exact_name(from);
  const bool nearest = c.round == kRn;
  const bool to_half = to == Type::kF16 || to == Type::kBf16;
  const bool from_half = from == Type::kF16 || from == Type::kBf16;
  if (!c.integral && !c.sat && !c.relu && !c.ftz) {  // what has an operation of its own
    if (!is_float(from) && nearest && bits_of(to) >= 32 && bits_of(from) >= 32)
      return simple("cvt_rn_" + types, to, {from});
    if (to == Type::kF64 && from == Type::kF32) return simple("cvt_f64_f32", to, {from});
    if (to == Type::kF32 && from == Type::kF64 && nearest)
      return simple("cvt_rn_f32_f64", to, {from});
    if (to == Type::kF32 && from_half) return simple("cvt_" + types, to, {from});
    if (from == Type::kF32 && to_half && nearest) return simple("cvt_rn_" + types, to, {from});
  }
  return simple("cvt_any", to, {from},
                static_cast<uint16_t>(c.modifiers() | (c.integral ? kModRint : 0)),
                type_code(to) | type_code(from) << 4);
}

bool Decoder::do_cvt() {
  if (words_.size() > 1 && words_[1] == "pack") return cvt_pack();
  bool narrow;
  if (!cvt_narrow(narrow)) return false;
  if (narrow) return true;
  Conversion c;
  for (const std::string_view word : {"rni", "rzi", "rmi", "rpi"}) c.integral |= has_word(word);
  bool given;
  c.round = take_rounding(kRn, given);
  c.ftz = take("ftz"), c.sat = take("sat"), c.relu = take("relu");
  const Type to = c.to = take_type(), from = c.from = take_type();
  if (to == Type::kNone || from == Type::kNone || !all_taken()) return unsupported();
  if (to == Type::kTf32) {
    if (from != Type::kF32 || c.relu || c.sat) return unsupported();
    return simple("cvt_tf32_f32", Type::kB32, {from}, c.round);
  }
  if ((to == Type::kF16x2 || to == Type::kBf16x2) && from == Type::kF32) return cvt_to_pair(c);
  if (from == Type::kTf32 || to == Type::kPred || from == Type::kPred || bits_of(to) == 128 ||
      to == Type::kF16x2 || to == Type::kBf16x2 || from == Type::kF16x2 || from == Type::kBf16x2)
    return unsupported();
  return is_float(to) ? cvt_to_float(c) : cvt_to_integer(c);
}

}  // namespace sluice::exec::detail
