// SPDX-License-Identifier: Apache-2.0
// Integer and logic instructions.
#include "kernels/exec/decode/decoder.h"

namespace sluice::exec::detail {
namespace {

// What .wide makes of 16 or 32 bits.
Type widened(Type type) {
  return type == Type::kU16   ? Type::kU32
         : type == Type::kS16 ? Type::kS32
         : type == Type::kU32 ? Type::kU64
                              : Type::kS64;
}

}  // namespace

// d = op(sources...), each of its type; all modifiers must have been taken.
bool Decoder::simple(const std::string& op, Type d, std::initializer_list<Type> sources,
                     uint16_t mod, int64_t imm) {
  if (!all_taken()) return false;
  if (operand_count() != sources.size() + 1 || sources.size() > 4) return false;
  Operand in[4];
  size_t k = 0;
  for (const Type type : sources) {
    if (!source(text(k + 1), type, in[k])) return false;
    ++k;
  }
  Operand out;
  if (!destination(text(0), d, out)) return false;
  emit(op, mod, imm, out, in[0], in[1], in[2], in[3]);
  return true;
}

// pmevent and griddepcontrol: no counters, and no grid begins before its predecessor has ended.
bool Decoder::do_nop() {
  if (words_[0] != "pmevent") return operand_count() == 0;
  uint64_t event;
  return operand_count() == 1 && immediate(text(0), Type::kU32, event);
}

bool Decoder::do_add_sub() {
  const std::string base(words_[0]);
  if (take("cc")) {
    const Type type = take_type();
    if (is_float(type)) return unsupported();
    return simple(base + "cc_" + bits_name(type), type, {type, type}, kModSetCc);
  }
  bool pair;
  if (!integer_pair(pair)) return false;
  if (pair) return true;
  const Type type = take_type();
  if (type == Type::kNone) return unsupported();
  if (is_float(type)) return float_binary(("f" + base).c_str(), type, true);
  if (take("sat")) {
    if (type != Type::kS32) return unsupported();
    return simple(base + "sat_s32", type, {type, type});
  }
  if (type == Type::kU16 || type == Type::kS16 || bits_of(type) >= 32)
    return simple(base + "_" + bits_name(type), type, {type, type});
  return unsupported();
}

bool Decoder::do_carry() {
  const std::string base = words_[0] == "addc" ? "add" : "sub";
  const uint16_t mod = static_cast<uint16_t>(kModUseCc | (take("cc") ? kModSetCc : 0));
  const Type type = take_type();
  return simple(base + "cc_" + bits_name(type), type, {type, type}, mod);
}

bool Decoder::do_mul() {
  const Type type = take_type();
  if (type == Type::kNone) return unsupported();
  if (is_float(type)) return float_binary("fmul", type, true);
  if (take("lo")) return simple(std::string("mullo_") + bits_name(type), type, {type, type});
  if (take("hi")) return simple(std::string("mulhi_") + exact_name(type), type, {type, type});
  if (take("wide")) {
    if (bits_of(type) > 32) return unsupported();
    return simple(std::string("mulwide_") + exact_name(type), widened(type), {type, type});
  }
  return unsupported();
}

bool Decoder::do_mad() {
  const Type type = take_type();
  if (type == Type::kNone) return unsupported();
  if (is_float(type)) return do_fma();
  const bool uses = words_[0] == "madc", sets = take("cc");
  if (uses || sets) {
    const uint16_t mod = static_cast<uint16_t>((uses ? kModUseCc : 0) | (sets ? kModSetCc : 0));
    if (take("lo"))
      return simple(std::string("madlocc_") + bits_name(type), type, {type, type, type}, mod);
    if (take("hi"))
      return simple(std::string("madhicc_") + exact_name(type), type, {type, type, type}, mod);
    return unsupported();
  }
  if (take("lo")) return simple(std::string("madlo_") + bits_name(type), type, {type, type, type});
  if (take("hi")) {
    if (take("sat")) return simple("madhisat_s32", type, {type, type, type});
    return simple(std::string("madhi_") + exact_name(type), type, {type, type, type});
  }
  if (take("wide")) {
    if (bits_of(type) > 32) return unsupported();
    const Type wide = widened(type);
    return simple(std::string("madwide_") + exact_name(type), wide, {type, type, wide});
  }
  return unsupported();
}

bool Decoder::do_mul24() {
  const bool mad = words_[0] == "mad24";
  const Type type = take_type();
  const bool high = take("hi");
  if (!high) take("lo");
  const std::string op =
      std::string(mad ? "mad24" : "mul24") + (high ? "hi_" : "lo_") + exact_name(type);
  return mad ? simple(op, type, {type, type, type}) : simple(op, type, {type, type});
}

bool Decoder::do_sad() {
  const Type type = take_type();
  return simple(std::string("sad_") + exact_name(type), type, {type, type, type});
}

bool Decoder::do_div() {
  const Type type = take_type();
  if (is_float(type)) {
    if (take_any({"approx", "full"})) {
      // Within the bound of both; only .ftz is left to look at.
      const bool ftz = take("ftz");
      return simple(ftz ? "fdiv_ftz_f32" : "fdiv_f32", type, {type, type});
    }
    return float_binary("fdiv", type, true);
  }
  return simple(std::string("div_") + exact_name(type), type, {type, type});
}

bool Decoder::do_rem() {
  const Type type = take_type();
  return simple(std::string("rem_") + exact_name(type), type, {type, type});
}

bool Decoder::do_abs_neg() {
  const std::string base(words_[0]);
  const Type type = take_type();
  switch (type) {
    case Type::kF32:
      return simple(std::string("f") + base + (take("ftz") ? "_ftz_f32" : "_f32"), type, {type});
    case Type::kF64:
      return simple("f" + base + "_f64", type, {type});
    case Type::kF16:
    case Type::kBf16:
    case Type::kF16x2:
    case Type::kBf16x2:
      if (take("ftz")) return half_any(base, type, kModFtz);
      return simple("f" + base + "_" + exact_name(type), type, {type});
    default:
      return simple(base + "_" + exact_name(type), type, {type});
  }
}

bool Decoder::do_min_max() {
  const std::string base(words_[0]);
  bool pair;
  if (!integer_pair(pair)) return false;
  if (pair) return true;
  const Type type = take_type();
  if (!is_float(type)) {
    if (take("relu")) return unsupported();
    return simple(base + "_" + exact_name(type), type, {type, type});
  }
  if (operand_count() != 3) return unsupported();
  if (type == Type::kF32) {
    uint16_t mod = 0;
    if (take("NaN")) mod |= kModNan;
    if (take("xorsign")) {
      take("abs");
      mod |= kModXorSign;
    }
    const bool ftz = take("ftz");
    if (mod != 0)
      return simple("f" + base + "mod_f32", type, {type, type},
                    static_cast<uint16_t>(mod | (ftz ? kModFtz : 0)));
    return simple("f" + base + (ftz ? "_ftz_f32" : "_f32"), type, {type, type});
  }
  if (type == Type::kF64) return simple("f" + base + "_f64", type, {type, type});
  const uint16_t mod = static_cast<uint16_t>((take("NaN") ? kModNan : 0) |
                                             (take("xorsign") && take("abs") ? kModXorSign : 0));
  return half_any(base, type, mod);
}

bool Decoder::do_logic() {
  const std::string base(words_[0]);
  const Type type = take_type();
  if (type != Type::kPred) return simple(base + "_" + bits_name(type), type, {type, type});
  uint32_t d, a, b;
  if (!all_taken()) return false;
  if (operand_count() != 3 || !destination_pred(text(0), d) || d == kNoOperand ||
      !source_pred(text(1), a) || !source_pred(text(2), b))
    return false;
  emit(base + "_pred", 0, 0, raw(d), raw(a), raw(b));
  return true;
}

bool Decoder::do_not() {
  const std::string base(words_[0]);
  const Type type = take_type();
  if (type != Type::kPred) return simple(base + "_" + bits_name(type), type, {type});
  uint32_t d, a;
  if (!all_taken()) return false;
  if (operand_count() != 2 || !destination_pred(text(0), d) || d == kNoOperand ||
      !source_pred(text(1), a))
    return false;
  emit("not_pred", 0, 0, raw(d), raw(a));
  return true;
}

bool Decoder::do_shift() {
  const Type type = take_type();
  if (words_[0] == "shl")
    return simple(std::string("shl_") + bits_name(type), type, {type, Type::kU32});
  return simple(std::string("shr_") + exact_name(type), type, {type, Type::kU32});
}

bool Decoder::do_shf() {
  take_type();
  const bool left = take("l");
  if (!left && !take("r")) return unsupported();
  const bool wrap = take("wrap");
  if (!wrap) take("clamp");
  const Type type = Type::kB32;
  return simple(std::string("shf_") + (left ? "l_" : "r_") + (wrap ? "wrap_b32" : "clamp_b32"),
                type, {type, type, type});
}

bool Decoder::do_prmt() {
  take_type();
  static constexpr std::string_view modes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  int64_t mode = 0;
  for (int64_t k = 0; k < 6; ++k)
    if (take(modes[k])) mode = k + 1;
  const Type type = Type::kB32;
  return simple(mode == 0 ? "prmt_b32" : "prmtmode_b32", type, {type, type, type}, 0, mode);
}

bool Decoder::do_bfe() {
  const Type type = take_type();
  return simple(std::string("bfe_") + exact_name(type), type, {type, Type::kU32, Type::kU32});
}

bool Decoder::do_bfi() {
  const Type type = take_type();
  return simple(std::string("bfi_") + bits_name(type), type, {type, type, Type::kU32, Type::kU32});
}

bool Decoder::do_popc_clz() {
  const Type type = take_type();
  return simple(std::string(words_[0]) + "_" + bits_name(type),
                words_[0] == "brev" ? type : Type::kU32, {type});
}

bool Decoder::do_bfind() {
  const bool shift = take("shiftamt");
  const Type type = take_type();
  return simple(std::string("bfind_") + exact_name(type), Type::kU32, {type}, 0, shift ? 1 : 0);
}

bool Decoder::do_bmsk() {
  take_type();
  const bool wrap = take("wrap");
  if (!wrap) take("clamp");
  return simple(wrap ? "bmskwrap_b32" : "bmskclamp_b32", Type::kB32, {Type::kU32, Type::kU32});
}

bool Decoder::do_szext() {
  const Type type = take_type();
  const bool wrap = take("wrap");
  if (!wrap) take("clamp");
  return simple(std::string(wrap ? "szextwrap_" : "szextclamp_") + exact_name(type), type,
                {type, Type::kU32});
}

bool Decoder::do_fns() {
  take_type();
  return simple("fns_b32", Type::kB32, {Type::kB32, Type::kB32, Type::kS32});
}

bool Decoder::do_lop3() {
  take_type();
  // With a predicate: lop3.BoolOp d|p, a, b, c, table, q; p = (d != 0) BoolOp q.
  const uint16_t combine = take("and")   ? kModAnd
                           : take("or")  ? kModOr
                           : take("xor") ? kModXor
                                         : kModNone;
  if (!all_taken()) return false;
  uint64_t table;
  uint32_t p = kNoOperand, q = kNoOperand;
  Operand a, b, c, d;
  const Type type = Type::kB32;
  const size_t bar = text(0).find('|');
  if (operand_count() != (combine != kModNone ? 6u : 5u) ||
      (bar == std::string_view::npos) != (combine == kModNone) || !source(text(1), type, a) ||
      !source(text(2), type, b) || !source(text(3), type, c) ||
      !immediate(text(4), Type::kU32, table) || table > 0xff ||
      !destination(text(0).substr(0, bar), type, d))
    return false;
  if (combine != kModNone &&
      (!destination_pred(text(0).substr(bar + 1), p) || !source_pred(text(5), q)))
    return false;
  emit("lop3_b32", 0, static_cast<int64_t>(table), d, a, b, c);
  if (combine != kModNone) emit("setp_ne_u32", combine, 0, raw(p), d, constant(0, 4), raw(q));
  return true;
}

bool Decoder::do_dp() {
  const std::string op(words_[0]);
  int64_t imm = op == "dp2a" && take("hi") ? 4 : 0;
  take("lo");
  const Type a = take_type(), b = take_type();
  if (a == Type::kNone || b == Type::kNone) return unsupported();
  imm |= (is_signed(a) ? 1 : 0) | (is_signed(b) ? 2 : 0);
  return simple(op, Type::kB32, {Type::kB32, Type::kB32, Type::kB32}, 0, imm);
}

}  // namespace sluice::exec::detail
